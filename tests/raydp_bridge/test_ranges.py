"""A read finds its partitions and offsets before any task starts, and says what retention has deleted meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pytest

from raylog.client.client_config import ClientConfig
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.local_log import Chunk
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.raydp_bridge.offset_ranges import OffsetRange
from raylog.raydp_bridge.partition_offsets import EARLIEST, LATEST
from raylog.raydp_bridge.ranges import LOSS_CHECKS, after_loss_checks, plan_read, read_range
from raylog.raydp_bridge.read_options import ReadOptions

BROKERS = ClientConfig("nowhere:9092")
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Topics:
    """Two topics in memory: a record per offset, whose timestamp is ten times the offset; retention strikes after
    some chunks."""

    def __init__(self) -> None:
        self.bounds = {A0: (5, 25), A1: (0, 9), B0: (0, 4)}
        self.asked: list[tuple[str, ...] | None] = []
        self.failures: list[tuple[ErrorCode, int]] = []
        """Errors of the next fetches after their first chunk, with the earliest offset from then on."""

    def partition_counts(self, brokers: ClientConfig, topics: Sequence[str] | None) -> Mapping[str, int]:
        self.asked.append(None if topics is None else tuple(topics))
        counts = {tp.topic: tp.partition + 1 for tp in sorted(self.bounds)}
        return {topic: count for topic, count in counts.items() if topics is None or topic in topics}

    def offsets_at(
        self, brokers: ClientConfig, timestamps: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        if gone := timestamps.keys() - self.bounds.keys():
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{gone}")
        return {tp: self._offset_at(tp, at) for tp, at in timestamps.items()}

    def _offset_at(self, tp: TopicPartition, at: int) -> int:
        low, high = self.bounds[tp]
        if at in (EARLIEST, LATEST):
            return low if at == EARLIEST else high
        return next((offset for offset in range(low, high) if offset * 10 >= at), -1)

    def fetch_batches(
        self, brokers: ClientConfig, topic: str, partition: int, *, start_offset: int, end_offset: int
    ) -> Iterator[Chunk]:
        tp = TopicPartition(topic, partition)
        for start in range(start_offset, end_offset, 4):
            if start < self.bounds.get(tp, (0, 0))[0]:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{tp}: {start}")
            if tp not in self.bounds:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp}")
            if start > start_offset and self.failures:
                code, earliest = self.failures.pop(0)
                if earliest < 0:
                    del self.bounds[tp]
                else:
                    self.bounds[tp] = earliest, max(earliest, self.bounds[tp][1])
                raise KafkaError(code, f"{tp}: {start}")
            batch = build_batch([NewRecord(b"k", b"v", 10 * offset) for offset in range(start, start + 4)])
            batch[:8] = start.to_bytes(8)
            yield Chunk(memoryview(batch), Offset(start), Offset(start + 4), 0)


def planned(topics: Topics, **options: str) -> list[OffsetRange]:
    given = {"kafka.bootstrap.servers": "nowhere:9092", **options}
    return plan_read(ReadOptions.parse(given, streaming=False), BROKERS, topics)


def read_offsets(topics: Topics, end_offset: int = 25, *, fail: bool) -> list[int]:
    batches = read_range(OffsetRange("a", 0, 5, end_offset), BROKERS, ["offset"], topics, fail_on_data_loss=fail)
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def test_several_topics_a_pattern_and_partitions_are_planned() -> None:
    topics = Topics()
    everything = [OffsetRange("a", 0, 5, 25), OffsetRange("a", 1, 0, 9), OffsetRange("b", 0, 0, 4)]
    assert planned(topics, subscribe="a,b") == everything
    assert planned(topics, subscribePattern="[ab]") == everything
    assert planned(topics, subscribePattern="x") == []
    assert planned(topics, assign='{"a":[1],"b":[0]}') == everything[1:]
    assert topics.asked == [("a", "b"), None, None, ("a", "b")]


def test_offsets_and_timestamps_bound_the_plan() -> None:
    topics = Topics()
    ends = planned(topics, subscribe="a,b", endingOffsets='{"a":{"0":7,"1":-1},"b":{"0":0}}')
    assert ends == [OffsetRange("a", 0, 5, 7), OffsetRange("a", 1, 0, 9)]
    between = planned(topics, subscribe="a", startingTimestamp="61", endingTimestamp="100")
    assert between == [OffsetRange("a", 0, 7, 10), OffsetRange("a", 1, 7, 9)]
    with pytest.raises(ConfigError, match="startingTimestamp: a-1 has no record at or after the timestamp 90"):
        planned(topics, subscribe="a", startingTimestamp="90")
    latest = planned(topics, subscribe="a", startingTimestamp="90", startingOffsetsByTimestampStrategy="latest")
    assert latest == [OffsetRange("a", 0, 9, 25)]


@pytest.mark.parametrize(
    ("options", "missing"), [({"subscribe": "a,c,d"}, "c, d"), ({"assign": '{"a":[1,2],"c":[0]}'}, "a-2, c-0")]
)
def test_what_does_not_exist_is_named(options: dict[str, str], missing: str) -> None:
    with pytest.raises(KafkaError, match=f"{missing}: does not exist") as refused:
        planned(Topics(), **options)
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_start_that_was_deleted_is_an_error_or_the_earliest(caplog: pytest.LogCaptureFixture) -> None:
    starts = '{"a":{"0":3,"1":2}}'
    with pytest.raises(KafkaError, match=r"a-0: offset 3 no longer exists, the earliest is 5.*failOnDataLoss"):
        planned(Topics(), subscribe="a", startingOffsets=starts)
    assert not caplog.records
    kept = planned(Topics(), subscribe="a", startingOffsets=starts, failOnDataLoss="false")
    assert kept == [OffsetRange("a", 0, 5, 25), OffsetRange("a", 1, 2, 9)]
    assert [record.message for record in caplog.records] == ["data lost"]


def test_a_loss_is_skipped_only_if_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    for losses_seen in range(1, LOSS_CHECKS + 1):
        answers = [*((number, ["a-0 is gone"]) for number in range(losses_seen)), (losses_seen, [])]
        pauses: list[float] = []
        found = after_loss_checks(partial(answers.pop, 0), fail=False, pause=pauses.append)
        lasted = losses_seen == LOSS_CHECKS
        assert (found, len(pauses)) == (losses_seen - lasted, losses_seen - lasted)
        assert [record.message for record in caplog.records] == ["data lost"] * lasted
    with pytest.raises(KafkaError, match="a-0 is gone"):
        after_loss_checks(lambda: (0, ["a-0 is gone"]), fail=True)


def test_options_without_effect_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        planned(Topics(), subscribe="a", maxOffsetsPerTrigger="5")
    assert [record.__dict__["reason"] for record in caplog.records] == [
        "maxOffsetsPerTrigger is ignored in batch queries"
    ]


def test_a_range_is_read_whole() -> None:
    assert read_offsets(Topics(), fail=True) == list(range(5, 25))


def test_records_deleted_while_they_are_read_are_an_error() -> None:
    topics = Topics()
    topics.failures = [(ErrorCode.OFFSET_OUT_OF_RANGE, 15)]
    with pytest.raises(KafkaError, match=r"Some data may have been missed.*failOnDataLoss to 'false'") as failed:
        read_offsets(topics, fail=True)
    assert failed.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ([(ErrorCode.OFFSET_OUT_OF_RANGE, 15)], [*range(5, 9), *range(15, 25)]),
        (
            [(ErrorCode.OFFSET_OUT_OF_RANGE, 12), (ErrorCode.OFFSET_OUT_OF_RANGE, 20)],
            [*range(5, 9), *range(12, 16), *range(20, 25)],
        ),
        ([(ErrorCode.OFFSET_OUT_OF_RANGE, 25)], [*range(5, 9)]),
        ([(ErrorCode.OFFSET_OUT_OF_RANGE, 99)], [*range(5, 9)]),
        ([(ErrorCode.OFFSET_OUT_OF_RANGE, 5)], [*range(5, 9)]),
        ([(ErrorCode.OFFSET_OUT_OF_RANGE, 7)], [*range(5, 9)]),
        ([(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)], [*range(5, 9)]),
    ],
)
def test_without_fail_on_data_loss_the_rest_is_read_once(
    failures: list[tuple[ErrorCode, int]], expected: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    topics = Topics()
    topics.failures = list(failures)
    assert read_offsets(topics, fail=False) == expected
    assert len(caplog.records) == len(failures)


def test_errors_that_are_no_loss_are_errors_in_any_case() -> None:
    topics = Topics()
    topics.failures = [(ErrorCode.CORRUPT_MESSAGE, 5)]
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
        read_offsets(topics, fail=False)
