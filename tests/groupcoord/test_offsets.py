"""Committed offsets are fetched as committed, in Kafka's record formats, until their topic is deleted."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.coordinator_partition import coordinator_partition
from raylog.core.errors import ErrorCode, InvariantViolation
from raylog.core.ids import TopicPartition
from raylog.groupcoord import records
from raylog.groupcoord.offsets import Commit, GroupOffsets
from raylog.groupcoord.records import OffsetCommitted, OffsetDeleted, OffsetPending, TransactionEnded

TP = TopicPartition("t", 3)


def commit(machine: GroupOffsets, offset: int = 5, **more: object) -> dict[TopicPartition, ErrorCode]:
    options: dict[str, Any] = {
        "group": "g",
        "metadata_bytes_max": 10,
        "now_ms": 99,
    }
    options.update(more)
    group = options.pop("group")
    metadata = str(options.pop("metadata", "m"))
    outcome = machine.commit(group, {TP: Commit(offset, 1, metadata)}, **options)
    for record in outcome.records:
        machine.replay(record)
    return outcome.response


def test_commit_then_fetch() -> None:
    machine = GroupOffsets()
    assert commit(machine) == {TP: ErrorCode.NONE}
    assert machine.fetch("g", [TP, TopicPartition("t", 4)]) == {
        TP: OffsetCommitted("g", "t", 3, 5, 1, "m", 99),
        TopicPartition("t", 4): None,
    }
    assert machine.fetch("other", [TP]) == {TP: None}
    assert list(machine.fetch_all("g")) == [TP]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"group": "g" * 40_000}, ErrorCode.INVALID_GROUP_ID),
        ({"metadata": "longer than ten"}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_errors_leave_no_trace(more: dict[str, Any], code: ErrorCode) -> None:
    machine = GroupOffsets()
    assert commit(machine, **more) == {TP: code}
    assert machine.fetch_all("g") == {}


def test_an_empty_group_id_may_commit() -> None:
    """As in Kafka, where the oldest clients do."""
    machine = GroupOffsets()
    assert commit(machine, group="") == {TP: ErrorCode.NONE}
    assert list(machine.fetch_all("")) == [TP]


def test_a_deleted_topic_removes_its_offsets() -> None:
    machine = GroupOffsets()
    commit(machine)
    outcome = machine.topic_deleted("t")
    assert outcome.records == [OffsetDeleted("g", "t", 3)]
    machine.replay(outcome.records[0])
    assert machine.fetch_all("g") == {}


def test_the_bytes_are_kafkas() -> None:
    key, value = records.encode(OffsetCommitted("g", "topic", 2, 77, 4, "meta", 1234))
    assert key == struct.pack(">hh1sh5si", 1, 1, b"g", 5, b"topic", 2)
    assert value == struct.pack(">hqih4sq", 3, 77, 4, 4, b"meta", 1234)
    assert records.encode(OffsetDeleted("g", "topic", 2)) == (key, None)


def test_a_commit_may_have_a_retention_of_its_own() -> None:
    machine = GroupOffsets()
    for retention_ms, expire_timestamp_ms in ((-1, -1), (0, 99), (1000, 1099), ((1 << 63) - 1, (1 << 63) - 1)):
        [record] = machine.commit("g", {TP: Commit(5, 1, "m", retention_ms)}, metadata_bytes_max=9, now_ms=99).records
        assert record.expire_timestamp_ms == expire_timestamp_ms


def test_values_with_an_expiry_are_as_in_kafka() -> None:
    key, _ = records.encode(OffsetDeleted("g", "t", 0))
    version_1 = struct.pack(">hqh1sqq", 1, 7, 1, b"m", 100, 200)
    assert records.decode(key, version_1) == OffsetCommitted("g", "t", 0, 7, -1, "m", 100, 200)
    assert records.encode(OffsetCommitted("g", "t", 0, 7, -1, "m", 100, 200)) == (key, version_1), "as Kafka writes it"


def test_other_record_types_are_skipped_and_invalid_ones_refused() -> None:
    assert records.decode(struct.pack(">hh1s", 4, 1, b"g"), b"something else") is None
    with pytest.raises(InvariantViolation):
        records.decode(struct.pack(">hh", 1, 500), b"")


_text = st.text(max_size=50)
_numbers = st.integers(-(1 << 31), (1 << 31) - 1)


@given(
    st.builds(
        OffsetCommitted, _text, _text, _numbers, st.integers(-1, 1 << 62), _numbers, _text, st.integers(0, 1 << 60)
    )
)
def test_records_are_encoded_and_decoded(record: OffsetCommitted) -> None:
    assert records.decode(*records.encode(record)) == record


def test_groups_have_kafkas_partitions() -> None:
    """Java: "g".hashCode() is 103, and "polygenelubricants" is the word whose hash is Integer.MIN_VALUE."""
    assert coordinator_partition("g", 50) == 103 % 50
    assert coordinator_partition("", 50) == 0
    assert coordinator_partition("polygenelubricants", 50) == 0
    assert coordinator_partition("zzzzzz", 50) == abs(_java_hash("zzzzzz")) % 50


def _java_hash(text: str) -> int:
    value = 0
    for character in text:
        value = (31 * value + ord(character) + (1 << 31)) % (1 << 32) - (1 << 31)
    return value


class TestTransactions:
    """A position that is committed in a transaction counts when the transaction does."""

    def pending(self, machine: GroupOffsets, offset: int, *, producer_id: int = 7) -> None:
        machine.replay(OffsetPending(producer_id, OffsetCommitted("g", *TP, offset, 1, "", 99)))

    def offset(self, machine: GroupOffsets) -> int | None:
        found = machine.fetch("g", [TP])[TP]
        return None if found is None else found.offset

    @pytest.mark.parametrize(("committed", "offset"), [(True, 8), (False, 5)])
    def test_offsets_are_visible_at_the_end(self, offset: int, *, committed: bool) -> None:
        machine = GroupOffsets()
        commit(machine, 5)
        self.pending(machine, 8)
        assert (self.offset(machine), machine.unstable("g"), machine.unstable("h")) == (5, {TP}, set())
        machine.replay(TransactionEnded(6, committed=True))
        assert machine.unstable("g") == {TP}
        machine.replay(TransactionEnded(7, committed=committed))
        assert (self.offset(machine), machine.unstable("g")) == (offset, set())

    def test_the_last_written_offset_applies_whichever_is_committed_first(self) -> None:
        machine = GroupOffsets()
        self.pending(machine, 8, producer_id=1)
        self.pending(machine, 9, producer_id=2)
        machine.replay(TransactionEnded(2, committed=True))
        assert self.offset(machine) == 9
        machine.replay(TransactionEnded(1, committed=True))
        assert self.offset(machine) == 9
        self.pending(machine, 10, producer_id=1)
        commit(machine, 11)
        machine.replay(TransactionEnded(1, committed=True))
        assert self.offset(machine) == 11

    def test_an_earlier_commit_leaves_a_later_one_pending(self) -> None:
        machine = GroupOffsets()
        self.pending(machine, 8, producer_id=1)
        self.pending(machine, 9, producer_id=2)
        machine.replay(TransactionEnded(1, committed=True))
        assert (self.offset(machine), machine.unstable("g")) == (8, {TP})
        machine.replay(TransactionEnded(2, committed=True))
        assert self.offset(machine) == 9

    def test_a_group_with_pending_offsets_only_exists_and_can_be_deleted(self) -> None:
        machine = GroupOffsets()
        self.pending(machine, 8)
        assert machine.groups() == {"g"}
        assert machine.delete("g") == machine.topic_deleted("t").records == [OffsetDeleted("g", *TP)]
        machine.replay(OffsetDeleted("g", *TP))
        machine.replay(TransactionEnded(7, committed=True))
        assert (self.offset(machine), machine.groups()) == (None, set())
