"""Control records of the metadata log are written and read as Kafka's schemas say; other bytes are refused."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.k_raft_version_record.v0.data import KRaftVersionRecord
from kio.schema.voters_record.v0.data import VotersRecord
from kio.serial import entity_reader

from raylog.core.errors import InvariantViolation
from raylog.core.ids import BrokerId, Offset
from raylog.metadata.control_records import (
    ControlRecord,
    KRaftVersionChanged,
    VotersChanged,
    decode_control,
    encode_control,
)
from raylog.metadata.image import MetadataImage
from raylog.metadata.levels import UnsupportedLevel
from raylog.metadata.records import ControllerElected, batch_of, decode_batches, voters_in
from raylog.metadata.voters import QuorumVoter, VoterSet
from raylog.protocol.records.batch import parse_header
from raylog.protocol.records.reader import Record
from tests.support.mutations import mutations

VOTERS = VoterSet(
    [
        QuorumVoter(BrokerId(1000), UUID(int=5), (("CONTROLLER", "one", 9093), ("ADMIN", "::1", 65535))),
        QuorumVoter(BrokerId(1004), UUID(int=1 << 127)),
    ]
)


def as_record(key: bytes | None, value: bytes | None) -> Record:
    return Record(0, 0, 0, key, value, ())


def test_kio_reads_them_as_kafkas_records() -> None:
    key, value = encode_control(VotersChanged(VOTERS))
    assert struct.unpack(">hh", key) == (0, 6)
    theirs, _ = entity_reader(VotersRecord)(value, 0)
    assert [(each.voter_id, each.voter_directory_id) for each in theirs.voters] == [
        (1000, UUID(int=5)),
        (1004, UUID(int=1 << 127)),
    ]
    assert [(each.name, each.host, each.port) for each in theirs.voters[0].endpoints] == [
        ("CONTROLLER", "one", 9093),
        ("ADMIN", "::1", 65535),
    ]
    supported = theirs.voters[0].k_raft_version_feature
    assert (supported.min_supported_version, supported.max_supported_version) == (0, 1)
    key, value = encode_control(KRaftVersionChanged(1))
    assert struct.unpack(">hh", key) == (0, 5)
    version, _ = entity_reader(KRaftVersionRecord)(value, 0)
    assert version.k_raft_version == 1


@given(
    st.lists(
        st.builds(
            QuorumVoter,
            st.integers(0, 1 << 20).map(BrokerId),
            st.uuids(),
            st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9), st.integers(0, 65535)), max_size=3).map(tuple),
        ),
        max_size=5,
    )
)
def test_they_are_read_as_written(voters: list[QuorumVoter]) -> None:
    changed = VotersChanged(VoterSet(voters))
    assert decode_control(as_record(*encode_control(changed))) == changed


def test_they_are_a_control_batch_among_data_and_the_voters_are_found_without_decoding_that() -> None:
    written: list[ControlRecord] = [KRaftVersionChanged(1), VotersChanged(VOTERS)]
    data = batch_of([ControllerElected(BrokerId(1000))], now_ms=1)
    control = batch_of(written, now_ms=1)
    assert parse_header(control).is_control
    assert not parse_header(data).is_control
    assert [record for _, record in decode_batches(control, from_offset=Offset(0))] == written
    assert [record for _, record in decode_batches(control, from_offset=Offset(1))] == written[1:]
    assert list(voters_in(bytes(data) + bytes(control))) == [(1, VotersChanged(VOTERS))]
    assert list(voters_in(bytes(data) + bytes(control)[:-1])) == [], "a truncated batch is left out"
    with pytest.raises(InvariantViolation, match="one batch"):
        batch_of([ControllerElected(BrokerId(1)), KRaftVersionChanged(1)], now_ms=1)


def test_unknown_types_and_levels_stop_the_node() -> None:
    with pytest.raises(UnsupportedLevel):
        decode_control(as_record(struct.pack(">hh", 0, 7), b""))
    with pytest.raises(UnsupportedLevel):
        MetadataImage().replay(KRaftVersionChanged(2))


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", struct.pack(">hh", 0, 6), struct.pack(">hh", 0, 5)])
def test_truncated_records_are_refused(key: bytes | None) -> None:
    with pytest.raises(InvariantViolation):
        decode_control(as_record(key, b"\0"))


def test_mutated_records_are_refused_or_are_other_voters() -> None:
    key, value = encode_control(VotersChanged(VOTERS))
    for mutation in mutations(value, 3000, 1):
        try:
            found = decode_control(as_record(key, mutation))
        except InvariantViolation:
            continue
        assert isinstance(found, VotersChanged)
