"""Metadata records are decoded as they were encoded, in all later versions; other bytes are refused."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import InvariantViolation
from raylog.core.ids import BrokerId, LeaderEpoch
from raylog.metadata import records
from raylog.metadata.levels import FEATURES_LEVEL, FIRST_LEVEL, LATEST_LEVEL, METADATA_FEATURE, UnsupportedLevel
from raylog.metadata.records import (
    AccessControlEntryAdded,
    AccessControlEntryRemoved,
    BrokerConfigsChanged,
    BrokerDirectoriesChanged,
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    ClientQuotaRemoved,
    ClientQuotaSet,
    ControlledShutdownBegun,
    DataRecord,
    DelegationTokenCreated,
    DelegationTokenExpiryChanged,
    DelegationTokenRemoved,
    FeatureLevelChanged,
    LeaderChanged,
    PartitionCreated,
    ProducerIdsAllocated,
    ReplicasAssignedToDirectory,
    ReplicasChanged,
    ScramCredentialRemoved,
    ScramCredentialSet,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
    required_level,
)
from tests.support.mutations import mutations

_ids = st.uuids()
_small = st.integers(0, 9)
_configs = st.lists(st.tuples(st.text(), st.text())).map(tuple)
_endpoints = st.lists(st.tuples(st.text(), st.text(), st.integers(0, 65535))).map(tuple)
_features = st.lists(st.tuples(st.text(), _small, _small)).map(tuple)
_replicas = st.lists(_small).map(tuple)
_directories = st.lists(_ids).map(tuple)
_time = st.integers(0, (1 << 63) - 1)
_principal = st.tuples(st.text(), st.text())
_entity = st.lists(st.tuples(st.text(), st.none() | st.text())).map(tuple)
_records = st.one_of(
    st.builds(TopicCreated, st.text(), _ids, _configs),
    st.builds(TopicDeleted, _ids),
    st.builds(PartitionCreated, _ids, _small, st.lists(_small).map(tuple), st.integers(-1, 9), _small),
    st.builds(
        PartitionCreated,
        *(_ids, _small, _replicas, st.integers(-1, 9), _small, st.none() | _replicas),
        *(_replicas, _replicas, _replicas),
    ),
    st.builds(LeaderChanged, _ids, _small, st.integers(-1, 9), _small, st.none() | _replicas, _replicas),
    st.builds(BrokerRegistered, _small, _ids, st.integers(0, 1 << 60), _endpoints, st.none() | st.text()),
    st.builds(
        BrokerRegistered,
        *(_small, _ids, st.integers(0, 1 << 60), _endpoints, st.none() | st.text(), st.none() | _ids, _features),
    ),
    st.builds(BrokerRegistered, _small, _ids, _small, _endpoints, st.none(), st.none(), _features, _directories),
    st.builds(BrokerDirectoriesChanged, _small, _small, _directories),
    st.builds(ReplicasAssignedToDirectory, _small, _ids, st.lists(st.tuples(_ids, st.integers(0, 1 << 31))).map(tuple)),
    st.builds(BrokerFenced, _small, st.integers(0, 1 << 60)),
    st.builds(BrokerUnfenced, _small, st.integers(0, 1 << 60)),
    st.builds(BrokerUnregistered, _small, st.integers(0, 1 << 60)),
    st.builds(ReplicasChanged, _ids, _small, _replicas, _replicas, _replicas, _replicas, st.integers(-1, 9), _small),
    st.builds(ProducerIdsAllocated, st.integers(0, 1 << 60)),
    st.builds(TopicConfigsChanged, _ids, _configs),
    st.builds(BrokerConfigsChanged, st.integers(-1, 9), _configs),
    st.builds(
        BrokerConfigsChanged,
        *(st.integers(-1, 9), _configs, st.lists(st.tuples(st.text(), st.binary())).map(tuple)),
    ),
    st.builds(AccessControlEntryAdded, _ids, _small, st.text(), _small, st.text(), st.text(), _small, _small),
    st.builds(AccessControlEntryRemoved, _ids),
    st.builds(FeatureLevelChanged, st.text(), _small),
    st.builds(ScramCredentialSet, st.text(), _small, st.binary(), st.binary(), st.binary(), _small),
    st.builds(ScramCredentialRemoved, st.text(), _small),
    st.builds(ClientQuotaSet, _entity, st.text(), st.floats(allow_nan=False)),
    st.builds(ClientQuotaRemoved, _entity, st.text()),
    st.builds(
        DelegationTokenCreated,
        *(st.text(), _principal, _principal, st.lists(_principal).map(tuple), _time, _time, _time),
    ),
    st.builds(DelegationTokenExpiryChanged, st.text(), _time),
    st.builds(DelegationTokenRemoved, st.text()),
    st.builds(ControlledShutdownBegun, _small, st.integers(0, 1 << 60), st.integers(0, 1 << 60)),
)


@given(_records)
def test_records_are_encoded_and_decoded(record: DataRecord) -> None:
    assert records.decode(records.encode(record)) == record


@given(st.binary(max_size=60))
def test_invalid_bytes_in_the_metadata_log_are_refused(value: bytes) -> None:
    try:
        record = records.decode(value)
    except InvariantViolation:
        return
    assert records.encode(record)


def test_bytes_of_earlier_versions_are_decoded_unchanged() -> None:
    """Of the kinds that logs on disk hold: a change here is a change of format."""
    registered = BrokerRegistered(BrokerId(3), UUID(int=1), 5, (("PLAINTEXT", "h", 9092),), "r")
    expected = b"\x96\x05\x03\xc4\x10" + UUID(int=1).bytes + b"\x05\x91\x93\xa9PLAINTEXT\xa1h\xcd\x23\x84\xa1r"
    assert records.decode(expected) == registered, "as it was written before brokers told of their directory"
    told = replace(registered, directory_id=UUID(int=2))
    with_directory = b"\x97" + expected[1:] + b"\xc4\x10" + UUID(int=2).bytes
    assert records.decode(with_directory) == told, "as it was written before brokers registered their metadata levels"
    ranged = replace(told, features=(("f", 1, 2),))
    with_features = b"\x98" + with_directory[1:] + b"\x91\x93\xa1f\x01\x02"
    assert records.decode(with_features) == ranged, "as it was written before brokers had several directories"
    assert records.encode(ranged) == b"\x99" + with_features[1:] + b"\x90"
    assert records.encode(FeatureLevelChanged("f", 2)) == b"\x93\x12\xa1f\x02"
    assert records.encode(TopicDeleted(UUID(int=1))) == b"\x92\x02\xc4\x10" + UUID(int=1).bytes
    assert records.encode(BrokerFenced(BrokerId(3), 5)) == b"\x93\x07\x03\x05"
    assert records.encode(BrokerUnfenced(BrokerId(3), 5)) == b"\x93\x08\x03\x05"
    assert records.encode(BrokerUnregistered(BrokerId(3), 5)) == b"\x93\x0d\x03\x05"
    one, three = BrokerId(1), BrokerId(3)
    moving = ReplicasChanged(UUID(int=1), 2, (three, one), (three,), (one,), (one,), one, LeaderEpoch(4))
    assert records.encode(moving) == (
        b"\x99\x0c\xc4\x10" + UUID(int=1).bytes + b"\x02\x92\x03\x01\x91\x03\x91\x01\x91\x01\x01\x04"
    )
    old = b"\x97\x03\xc4\x10" + UUID(int=1).bytes + b"\x02\x91\x03\x03\x00\xc0"
    created = PartitionCreated(UUID(int=1), 2, (BrokerId(3),), BrokerId(3), LeaderEpoch(0))
    assert records.decode(old) == created, "written before partitions could have a past"
    configured = BrokerConfigsChanged(three, (("a", "b"),))
    assert records.decode(b"\x93\x0a\x03\x91\x92\xa1a\xa1b") == configured, "written before there were passwords"
    with_password = replace(configured, passwords=(("c", b"d"),))
    assert records.encode(with_password) == b"\x94\x0a\x03\x91\x92\xa1a\xa1b\x91\x92\xa1c\xc4\x01d"


def test_an_unknown_kind_is_refused_with_the_level_it_needs() -> None:
    with pytest.raises(UnsupportedLevel) as violation:
        records.decode(msgpack.packb([99, "whatever"]))
    assert str(violation.value) == (
        f"metadata record kind 99 is unknown: it needs raylog.metadata level {LATEST_LEVEL + 1} or later;"
        f" this version of raylog supports 1 to {LATEST_LEVEL}"
    )


def test_no_kind_needs_a_level_that_this_version_does_not_support() -> None:
    assert required_level(TopicDeleted(UUID(int=1))) == FIRST_LEVEL
    assert required_level(FeatureLevelChanged(METADATA_FEATURE, 2)) == 2 <= LATEST_LEVEL
    assert required_level(FeatureLevelChanged("f", 2)) == FEATURES_LEVEL <= LATEST_LEVEL
    created = DelegationTokenCreated("id", ("User", "o"), ("User", "r"), (), 0, 1, 1)
    for record in (created, DelegationTokenExpiryChanged("id", 1), DelegationTokenRemoved("id")):
        assert required_level(record) == 3 <= LATEST_LEVEL
    assert required_level(BrokerConfigsChanged(BrokerId(3), (("a", "b"),))) == FIRST_LEVEL
    assert required_level(BrokerConfigsChanged(BrokerId(3), (), (("a", b"b"),))) == 4 <= LATEST_LEVEL


@pytest.mark.parametrize("topic_id", ["sixteen letters.", b"short", 7])
def test_what_is_no_uuid_is_refused(topic_id: object) -> None:
    number, _ = msgpack.unpackb(records.encode(TopicDeleted(UUID(int=1))))
    with pytest.raises(InvariantViolation):
        records.decode(msgpack.packb((number, topic_id)))


@given(_records, st.integers(0, 1 << 32))
def test_mutated_records_are_decoded_or_refused(record: DataRecord, seed: int) -> None:
    for value in mutations(records.encode(record), 10, seed):
        try:
            records.encode(records.decode(value))
        except InvariantViolation:  # and UnsupportedLevel, which is one
            pass
