"""The consumer's core with responses that no sound broker sends: an error in poll(), and it can go on."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.client.chunks.envelope import Chunk, chunk_headers
from raylog.client.consumer.assignors import ASSIGNORS
from raylog.client.consumer.core import ConsumerCore
from raylog.client.consumer.fetched import ConsumerRecord, FetchedBatches
from raylog.client.consumer.fetcher import _Asked
from raylog.client.consumer.group_member import GroupMember
from raylog.client.consumer.offset_requests import OffsetCommit, OffsetFetch
from raylog.client.consumer.records import arrow_batches
from raylog.client.group_offsets import GroupMetadata, OffsetAndMetadata
from raylog.config.consumer import CONSUMER_CONFIG, consumer_settings
from raylog.core.clock import Now
from raylog.core.config import Configs, ConfigSource, Layer
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID, TopicPartition
from raylog.protocol.records.batch import MalformedBatch
from raylog.protocol.records.builder import NewRecord, build_batch
from tests.protocol.records.raw_batches import raw_batch, raw_record

TP = TopicPartition("t", 0)
NOW = Now(1_000, 1_000)


@pytest.fixture
def core() -> ConsumerCore:
    return new_core()


def new_core(**given: str) -> ConsumerCore:
    layer = Layer(ConfigSource.STATIC_BROKER_CONFIG, CONSUMER_CONFIG.parse({"group.id": "g", **given}))
    settings = consumer_settings(Configs(CONSUMER_CONFIG, [layer]))
    core = ConsumerCore("127.0.0.1:1", settings, random.Random(1), assignors=list(ASSIGNORS.values()))
    core.assign([TP])
    return core


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"\xff" * 200, ErrorCode.CORRUPT_MESSAGE),
        (b"short", ErrorCode.CORRUPT_MESSAGE),
        (bytes(200), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    ],
)
def test_records_that_are_no_batches(core: ConsumerCore, records: bytes, code: ErrorCode) -> None:
    state = core.subscription.state(TP)
    state.seek(5)
    state.asked = True
    result: Any = SimpleNamespace(
        partition_index=0,
        error_code=ErrorCode.NONE,
        high_watermark=9,
        last_stable_offset=9,
        log_start_offset=0,
        preferred_read_replica=-1,
        diverging_epoch=SimpleNamespace(end_offset=-1),
        records=[records],
        aborted_transactions=None,
    )
    topic = SimpleNamespace(name=TP.topic, topic_id=ZERO_TOPIC_ID, partitions=[result])
    response = SimpleNamespace(error_code=ErrorCode.NONE, session_id=0, responses=[topic])
    core._fetcher._answered(0, {TP: _Asked(state.moves, 0)}, {}, response, NOW)
    with pytest.raises(KafkaError, match="t-0, offset 5") as raised:
        core.raise_error()
    assert raised.value.code is code
    assert (state.asked, state.position, state.fetchable) == (False, 5, True)
    assert state.due_ms > NOW.monotonic_ms


def test_the_records_before_a_malformed_batch_are_returned_before_the_error(core: ConsumerCore) -> None:
    state = core.subscription.state(TP)
    state.seek(0)
    sound = bytes(build_batch([NewRecord(None, b"sound", 0)]))
    malformed = bytes(raw_batch(raw_record(0) + b"garbage", 2, base_offset=1))
    for start, records in enumerate((sound, malformed)):
        state.buffered.append(FetchedBatches(TP, records, start, (), check_crcs=True))
    assert [record.value for record in core.take(10)] == [b"sound"]
    assert state.position == 1
    with pytest.raises(MalformedBatch, match="offsets 1 to 2") as raised:
        core.take(10)
    assert (raised.value.tp, pickle.loads(pickle.dumps(raised.value)).tp) == (TP, TP)


def test_records_whose_decoding_is_interrupted_are_taken_again(
    core: ConsumerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of the partition before, which are decoded already."""
    partitions = [TopicPartition("t", number) for number in range(2)]
    core.assign(partitions)
    for tp in partitions:
        state = core.subscription.state(tp)
        state.seek(5)
        records = bytes(raw_batch(raw_record(0), 1, base_offset=5))
        state.buffered.append(FetchedBatches(tp, records, 5, (), check_crcs=True))
    right, calls = FetchedBatches.take, []

    def take(self: FetchedBatches, count: int) -> Any:
        calls.append(count)
        found = right(self, count)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(FetchedBatches, "take", take)
    with pytest.raises(KeyboardInterrupt):
        core.take(10)
    assert [core.subscription.state(tp).position for tp in partitions] == [5, 5]
    assert core.taken == []


def test_what_is_due_and_waits_for_something_else_than_time_is_not_due_again() -> None:
    """A commit that is retried waits for the coordinator, a look-up for the leader."""
    core = new_core()
    commit = core.commit({TP: OffsetAndMetadata(5)}, NOW, 10_000, retries=True)
    commit.attempts = 1
    core.look_up({TP: -1}, NOW, 10_000)
    core.run(NOW)
    due_ms = core.next_deadline_ms()
    assert due_ms is not None
    assert due_ms > NOW.monotonic_ms


def test_a_commit_that_waits_for_its_coordinator_needs_the_network(core: ConsumerCore) -> None:
    """Though all partitions have records, so that nothing else does."""
    state = core.subscription.state(TP)
    state.seek(5)
    state.buffered.append(FetchedBatches(TP, b"", 5, (), check_crcs=True))
    core.network._touched.clear()
    assert not core.needs_network(NOW)
    core.commit({TP: OffsetAndMetadata(5)}, NOW, 10_000, retries=True)
    assert core.needs_network(NOW)


def test_the_commit_of_a_revocation_that_was_broken_off_says_nothing_of_the_next_one(core: ConsumerCore) -> None:
    state = core.subscription.state(TP)
    committed = []
    core.on_committed = lambda offsets: committed.append(offsets[TP].offset)
    for position in (5, 9):
        state.seek(position)
        partitions = [TP]  # another revocation
        assert not core._commit_before_revocation(partitions, NOW)
        assert core._last_commit is not None
        commit = core._last_commit[1]
        assert commit.offsets[TP].offset == position
        commit.finish(None)


@pytest.mark.parametrize(("end_offset", "position"), [(150, 100), (100, 100), (80, 80)])
def test_a_truncated_log_never_moves_the_position_forwards(core: ConsumerCore, end_offset: int, position: int) -> None:
    state = core.subscription.state(TP)
    state.seek(100, 4)
    diverging = SimpleNamespace(end_offset=end_offset, epoch=3)
    result = SimpleNamespace(error_code=ErrorCode.NONE, diverging_epoch=diverging)
    core._fetcher._answered_partition(state, result, ZERO_TOPIC_ID, 5, NOW)
    assert (state.position, state.epoch) == (position, 3)


@pytest.mark.parametrize(("end_offset", "position"), [(4, (2, -1)), (3, (2, -1)), (2, (2, 3)), (1, (1, 3))])
def test_the_first_chunks_of_a_message_are_read_again_if_others_are_truncated(
    end_offset: int, position: tuple[int, int]
) -> None:
    """Its producer sends those again, behind the ones that are left."""
    core = new_core(**{"large.message.enabled": "true"})
    assert core.pool is not None
    state = core.subscription.state(TP)
    headers = tuple(chunk_headers(Chunk(b"1" * 32, 0, 3, 30, None)))
    core.pool.take(TP, [ConsumerRecord(TP.topic, 0, 2, 0, 0, None, bytes(10), headers)], 0, 5)
    state.seek(5, 4)
    core._fetcher._truncated(state, SimpleNamespace(end_offset=end_offset, epoch=3))
    assert (state.position, state.epoch) == position


def test_without_a_reset_policy_only_a_truncation_before_the_position_is_an_error() -> None:
    core = new_core(**{"auto.offset.reset": "none"})
    state = core.subscription.state(TP)
    for end_offset in (150, 80):
        core.raise_error()
        state.seek(100, 4)
        core._fetcher._truncated(state, SimpleNamespace(end_offset=end_offset, epoch=3))
    with pytest.raises(KafkaError, match="truncated to offset 80"):
        core.raise_error()


UNFIT_MS = -9_300_000_000_000_000
"""Milliseconds that do not fit a timestamp in microseconds."""


def test_records_around_a_timestamp_that_does_not_fit_are_not_skipped(core: ConsumerCore) -> None:
    pytest.importorskip("pyarrow")
    state = core.subscription.state(TP)

    def polled(start: int, columns: Sequence[str]) -> list[int]:
        state.seek(start)
        state.buffered.append(FetchedBatches(TP, records, start, (), check_crcs=True))
        (fetched,) = core.take_batches()
        batches = arrow_batches(fetched, columns, lambda tp, offset: core.seek(core.subscription.state(tp), offset))
        return [offset for batch in batches for offset in batch.column("offset").to_pylist()]

    times = [0, 1, UNFIT_MS, 3]
    records = bytes(build_batch([NewRecord(None, b"", time) for time in times]))
    assert (polled(0, ["offset", "timestamp"]), state.position) == ([0, 1], 2)
    with pytest.raises(KafkaError, match=r"t-0, offset 2 has .*poll\(\).*seek\(t-0, 3\) passes over it") as raised:
        polled(2, ["offset", "timestamp"])
    assert (raised.value.code, state.position) == (ErrorCode.INVALID_TIMESTAMP, 2)
    assert (polled(3, ["offset", "timestamp"]), state.position) == ([3], 4)
    assert (polled(2, ["offset"]), state.position) == ([2, 3], 4)


def test_before_a_malformed_batch_a_timestamp_that_does_not_fit_is_the_error(core: ConsumerCore) -> None:
    pytest.importorskip("pyarrow")
    sought: list[int] = []
    unfit = bytes(build_batch([NewRecord(None, b"", UNFIT_MS)]))
    malformed = bytes(raw_batch(raw_record(0) + b"garbage", 2, base_offset=1))
    fetched = FetchedBatches(TP, unfit + malformed, 0, (), check_crcs=True)
    with pytest.raises(KafkaError, match="t-0, offset 0"):
        arrow_batches(fetched, ["timestamp"], lambda _, offset: sought.append(offset))
    assert sought == [0]


def test_a_checksum_that_fails_does_not_move_the_position_of_arrow(core: ConsumerCore) -> None:
    pytest.importorskip("pyarrow")
    sought: list[int] = []
    records = bytearray(build_batch([NewRecord(None, b"value", 0)]))
    records[-1] ^= 1
    fetched = FetchedBatches(TP, bytes(records), 0, (), check_crcs=True)
    with pytest.raises(KafkaError, match="checksum"):
        arrow_batches(fetched, ["value"], lambda _, offset: sought.append(offset))
    assert sought == [0]


def test_offsets_that_a_response_lacks(core: ConsumerCore) -> None:
    state = core.subscription.state(TP)
    state.seek_by("earliest")
    state.asked = True
    core._positions._answered({TP: state.moves}, SimpleNamespace(topics=[]), NOW)
    assert (state.asked, state.reset) == (False, "earliest")
    assert state.due_ms > NOW.monotonic_ms
    with pytest.raises(KafkaError, match="lacks the partition"):
        core.raise_error()


def test_a_protocol_that_was_not_offered(core: ConsumerCore) -> None:
    core.unsubscribe("test", NOW, 0)
    core.subscribe(["t"], None)
    member = core.member
    assert isinstance(member, GroupMember)
    member._protocol = "best"
    with pytest.raises(KafkaError, match="'best', which this member did not offer"):
        member._assignor()


def test_committed_offsets_that_a_response_lacks(core: ConsumerCore) -> None:
    other = TopicPartition("t", 1)
    fetch = OffsetFetch(core.network.metadata, "g", [TP, other], 10_000)
    error = fetch.read(SimpleNamespace(groups=(), error_code=ErrorCode.NONE, topics=[committed(TP, 7)]))
    assert error is not None
    assert "OffsetFetch lacks t-1" in error.message
    error = fetch.read(SimpleNamespace(groups=(), error_code=ErrorCode.NONE, topics=[committed(TP, -7)]))
    assert error is not None
    assert "-7 is the committed offset of t-0" in error.message
    assert (
        fetch.read(
            SimpleNamespace(groups=(), error_code=ErrorCode.NONE, topics=[committed(TP, 7), committed(other, -1)])
        )
        is None
    )
    assert fetch.result == {TP: OffsetAndMetadata(7, "", None)}


def test_a_commit_that_a_response_lacks(core: ConsumerCore) -> None:
    told: list[Any] = []
    offsets = {TP: OffsetAndMetadata(7)}
    commit = OffsetCommit(
        core.network.metadata, GroupMetadata("g"), offsets, 10_000, retries=True, on_committed=told.append
    )
    error = commit.read(SimpleNamespace(topics=[]))
    assert error is not None
    assert "OffsetCommit lacks t-0" in error.message
    assert not told
    assert commit.read(SimpleNamespace(topics=[committed(TP, 7)])) is None
    assert told == [offsets]


def committed(tp: TopicPartition, offset: int) -> Any:
    """Part of a response to OffsetFetch or OffsetCommit."""
    result = SimpleNamespace(
        partition_index=tp.partition,
        error_code=ErrorCode.NONE,
        committed_offset=offset,
        committed_leader_epoch=-1,
        metadata="",
    )
    return SimpleNamespace(name=tp.topic, partitions=[result])
