"""The share coordinator keeps what was written last, and fences earlier epochs; a replay gives the same state."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.sharecoord import records
from raylog.sharecoord.records import (
    SharePartitionKey,
    ShareRecord,
    SnapshotWritten,
    StateBatch,
    StateDeleted,
    UpdateWritten,
    parse_key,
)
from raylog.sharecoord.states import ShareStates, Write, combined

TOPIC = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
KEY = SharePartitionKey("g", TOPIC, 0)
UPDATES_MAX = 3


def empty() -> ShareStates:
    return ShareStates(updates_max=lambda: UPDATES_MAX, exists=lambda topic_id, number: number < 9)


class Coordinator:
    """Runs commands, and keeps the log."""

    def __init__(self) -> None:
        self.states = empty()
        self.log: list[ShareRecord] = []

    def run(self, outcome: Any) -> Any:
        for record in outcome.records:
            decoded = records.decode(*records.encode(record))
            assert decoded == record
            self.log.append(record)
            self.states.replay(record)
        return outcome.response

    def initialize(self, start_offset: int = 0, *, state_epoch: int = 1) -> None:
        self.run(self.states.initialize(KEY, state_epoch=state_epoch, start_offset=start_offset, now_ms=5))

    def write(self, *batches: tuple[int, int, int, int], start: int = -1, leader: int = 0, epoch: int = 1) -> None:
        write = Write(KEY, epoch, leader, start, 0, tuple(StateBatch(*each) for each in batches))
        self.run(self.states.write(write, now_ms=7))


BATCHES = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(0, 30),
        st.integers(0, 9),
        st.sampled_from((0, 2, 4)),
        st.integers(0, 5),
    ),
    max_size=6,
)


@given(st.lists(st.tuples(BATCHES, st.integers(-1, 20)), max_size=12))
def test_the_last_write_of_each_offset_counts(writes: list[tuple[list[StateBatch], int]]) -> None:
    coordinator = Coordinator()
    coordinator.initialize()
    naive: dict[int, tuple[int, int]] = {}
    start = 0
    for batches, moved in writes:
        start = max(start, moved)
        coordinator.write(*batches, start=start)
        for first, last, state, count in batches:
            naive |= dict.fromkeys(range(first, last + 1), (state, count))
    snapshot = coordinator.states.states[KEY].snapshot
    shown: dict[int, tuple[int, int]] = {}
    for first, last, state, count in snapshot.batches:
        assert not shown or first > max(shown)
        shown |= dict.fromkeys(range(first, last + 1), (state, count))
    assert snapshot.start_offset == start
    assert shown == {number: value for number, value in naive.items() if number >= start}
    replayed = empty()
    for record in coordinator.log:
        replayed.replay(record)
    assert replayed.states == coordinator.states.states
    latest = max(at for at, record in enumerate(coordinator.log) if isinstance(record, SnapshotWritten))
    pruned = empty()
    for record in coordinator.log[latest:]:
        pruned.replay(record)
    assert pruned.states == coordinator.states.states


def test_a_snapshot_follows_a_number_of_updates() -> None:
    coordinator = Coordinator()
    coordinator.initialize()
    for number in range(2 * UPDATES_MAX + 2):
        coordinator.write((number, number, 2, 1))
    kinds = ["s" if isinstance(record, SnapshotWritten) else "u" for record in coordinator.log]
    assert "".join(kinds) == "suuusuuus"
    assert [record.snapshot_epoch for record in coordinator.log if isinstance(record, SnapshotWritten)] == [0, 1, 2]


def test_writers_of_earlier_epochs_are_fenced() -> None:
    coordinator = Coordinator()
    coordinator.initialize(state_epoch=3)
    coordinator.run(coordinator.states.read(KEY, leader_epoch=2))
    for epochs, code in (
        ({"leader": 1, "epoch": 3}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader": 2, "epoch": 2}, ErrorCode.FENCED_STATE_EPOCH),
    ):
        with pytest.raises(KafkaError) as refused:
            coordinator.write((0, 0, 2, 1), **epochs)
        assert refused.value.code is code
    with pytest.raises(KafkaError) as refused:
        coordinator.states.read(KEY, leader_epoch=1)
    assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH
    with pytest.raises(KafkaError) as refused:
        coordinator.initialize(state_epoch=2)
    assert refused.value.code is ErrorCode.FENCED_STATE_EPOCH
    coordinator.write((0, 0, 2, 1), leader=2, epoch=3)
    coordinator.initialize(7, state_epoch=4)
    assert coordinator.states.states[KEY].snapshot.batches == ()
    assert coordinator.states.states[KEY].snapshot.leader_epoch == 2


@pytest.mark.parametrize(
    "batch",
    [(5, 4, 2, 1), (-1, 4, 2, 1), (0, 4, 1, 1), (0, 4, 3, 1), (0, 4, 2, -1)],
)
def test_batches_that_cannot_be(batch: tuple[int, int, int, int]) -> None:
    coordinator = Coordinator()
    coordinator.initialize()
    with pytest.raises(KafkaError) as refused:
        coordinator.write(batch)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_offsets_and_counts_below_the_unknown_ones_are_refused() -> None:
    """The lag of such a state cannot be encoded."""
    coordinator = Coordinator()
    states = coordinator.states
    coordinator.initialize(-1)
    with pytest.raises(KafkaError, match="start offset -2 is negative") as refused:
        states.initialize(KEY, state_epoch=1, start_offset=-2, now_ms=5)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    for start_offset, count in ((-(1 << 63), 0), (0, -2)):
        with pytest.raises(KafkaError, match="is negative") as refused:
            states.write(Write(KEY, 1, 0, start_offset, count, ()), now_ms=7)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert states.write(Write(KEY, 1, 0, -1, -1, ()), now_ms=7).records


def test_what_is_not_initialized_or_does_not_exist() -> None:
    states = empty()
    with pytest.raises(KafkaError) as refused:
        states.read(KEY, leader_epoch=0)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert states.summary(KEY) is None
    for key, code in (
        (KEY._replace(partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (KEY._replace(partition=-1), ErrorCode.INVALID_REQUEST),
        (KEY._replace(group=""), ErrorCode.INVALID_REQUEST),
    ):
        with pytest.raises(KafkaError) as refused:
            states.initialize(key, state_epoch=0, start_offset=0, now_ms=0)
        assert refused.value.code is code


def test_a_deleted_state_is_gone() -> None:
    coordinator = Coordinator()
    coordinator.initialize()
    coordinator.run(coordinator.states.delete(KEY))
    assert coordinator.states.states == {}
    assert coordinator.states.delete(KEY).records == []


def test_the_bytes_are_those_of_kafka() -> None:
    batch = StateBatch(1, 2, 4, 3)
    update = UpdateWritten(KEY, 1, 2, 3, -1, (batch,))
    key, value = records.encode(update)
    assert key == b"\0\1" + b"\0\1g" + TOPIC.bytes + b"\0\0\0\0"
    tail = b"\2" + (1).to_bytes(8) + (2).to_bytes(8) + b"\4\0\3\0"
    assert value == b"\0\0" + b"\0\0\0\1" + b"\0\0\0\2" + (3).to_bytes(8) + tail + b"\0"
    snapshot = SnapshotWritten(KEY, 1, 4, 2, 3, 7, 8, 9, (batch,))
    key, value = records.encode(snapshot)
    assert key == b"\0\0" + b"\0\1g" + TOPIC.bytes + b"\0\0\0\0"
    head = b"\0\0\0\1" + b"\0\0\0\4" + b"\0\0\0\2" + b"".join(each.to_bytes(8) for each in (3, 8, 9))
    assert value == b"\0\0" + head + tail + b"\1\0\4\0\0\0\7"
    assert records.encode(StateDeleted(KEY)) == (key, None)


def test_other_records_and_damaged_ones() -> None:
    key, value = records.encode(UpdateWritten(KEY, 1, 2, 3, -1, ()))
    assert records.decode(b"\0\7abc", b"") is None
    for damaged in (key[:-1], key[:3]):
        with pytest.raises(InvariantViolation):
            records.decode(damaged, value)
    assert value is not None
    for damaged in (value[:-1], b"\0\1" + value[2:], b""):
        with pytest.raises(InvariantViolation):
            records.decode(key, damaged)


@given(st.text(), st.uuids(), st.integers(0, (1 << 31) - 1))
def test_keys_are_parsed(group: str, topic_id: UUID, number: int) -> None:
    key = SharePartitionKey(group, topic_id, number)
    assert parse_key(key.text) == (key if group else None)


def test_neighbours_of_one_state_are_one_batch() -> None:
    found = combined([StateBatch(0, 3, 2, 1)], [StateBatch(4, 6, 2, 1), StateBatch(1, 1, 0, 1)], start_offset=0)
    assert found == ((0, 0, 2, 1), (1, 1, 0, 1), (2, 6, 2, 1))


@st.composite
def batches(draw: st.DrawFn) -> list[StateBatch]:
    found = []
    for _ in range(draw(st.integers(0, 12))):
        first = draw(st.integers(0, 30))
        last = draw(st.integers(first, first + draw(st.sampled_from([0, 3, 30]))))
        found.append(StateBatch(first, last, draw(st.sampled_from([0, 2])), draw(st.integers(1, 2))))
    return found


@given(st.lists(batches(), max_size=4), st.integers(0, 20))
def test_combined_is_what_each_offset_was_last_written_to(writes: list[list[StateBatch]], start_offset: int) -> None:
    known: tuple[StateBatch, ...] = ()
    last: dict[int, tuple[int, int]] = {}
    for written in writes:
        for first, upto, *state in written:
            last |= dict.fromkeys(range(first, upto + 1), (state[0], state[1]))
        known = combined(known, written, start_offset=start_offset)
    found = {offset: tuple(batch[2:]) for batch in known for offset in range(batch[0], batch[1] + 1)}
    assert found == {offset: state for offset, state in last.items() if offset >= start_offset and writes}
    assert sum(batch[1] - batch[0] + 1 for batch in known) == len(found), "no overlaps"
    for before, after in pairwise(known):
        assert before[1] < after[0]
        assert before[1] + 1 < after[0] or before[2:] != after[2:]
