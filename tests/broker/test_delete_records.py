"""DeleteRecords raises the log start offset, at most to the high watermark, and returns it."""

from __future__ import annotations

import pytest

from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from raylog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.support.direct_broker import DirectBroker

OUT_OF_RANGE = (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
EARLIEST = -2


@pytest.fixture
def broker() -> DirectBroker:
    broker = DirectBroker({"log.retention.check.interval.ms": "1000", "log.segment.bytes": "300"})
    broker.create_topic("t", partitions=2)
    for number in range(10):
        broker.produce([b"%d" % number * 100])
    return broker


def delete(
    broker: DirectBroker, *offsets: int, topic: str = "t", partition: int = 0, version: int = 2
) -> list[tuple[int, ErrorCode]]:
    """(low watermark, error) for each."""
    wanted = tuple(DeleteRecordsPartition(partition_index=partition, offset=offset) for offset in offsets)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=topic, partitions=wanted),), timeout_ms=1000)
    (answered,) = broker.call(request, version=version).topics
    assert (answered.name, {result.partition_index for result in answered.partitions}) == (topic, {partition})
    return [(result.low_watermark, result.error_code) for result in answered.partitions]


def fetch(broker: DirectBroker, offset: int) -> tuple[ErrorCode, int]:
    """(error, log start offset)."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(name="t", partitions=[part])])
    result = broker.call(request, version=12).responses[0].partitions[0]
    return result.error_code, result.log_start_offset


def earliest(broker: DirectBroker) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(name="t", partitions=(wanted,)),))
    return int(broker.call(request, version=6).topics[0].partitions[0].offset)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_before_the_offset_are_unreadable_at_once(broker: DirectBroker, version: int) -> None:
    assert delete(broker, 4, version=version) == [(4, ErrorCode.NONE)]
    assert earliest(broker) == 4
    assert fetch(broker, 3)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(broker, 4) == (ErrorCode.NONE, 4)


def test_the_log_start_offset_never_decreases(broker: DirectBroker) -> None:
    assert delete(broker, 4, 2, 0, 4) == [(4, ErrorCode.NONE)] * 4


def test_at_most_to_the_high_watermark(broker: DirectBroker) -> None:
    assert delete(broker, 11, -2, 1 << 62) == [OUT_OF_RANGE] * 3
    assert earliest(broker) == 0
    assert delete(broker, -1) == [(10, ErrorCode.NONE)]
    assert delete(broker, 10) == [(10, ErrorCode.NONE)]
    assert delete(broker, -1, partition=1) == [(0, ErrorCode.NONE)]
    assert broker.produce([b"next"]).base_offset == 10


def test_retention_deletes_the_files_and_the_log_start_offset_survives_a_stop(broker: DirectBroker) -> None:
    before = len(broker.disk.listdir("/broker-0/t-0"))
    delete(broker, 7)
    assert len(broker.disk.listdir("/broker-0/t-0")) == before
    broker.pass_time(2000)
    assert len(broker.disk.listdir("/broker-0/t-0")) >= before
    broker.pass_time(65_000)
    assert len(broker.disk.listdir("/broker-0/t-0")) < before
    broker.restart()
    assert earliest(broker) == 7


def test_errors(broker: DirectBroker) -> None:
    unknown = [(-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert delete(broker, 0, topic="none") == delete(broker, 0, partition=2) == unknown
    assert delete(broker, 0, topic="__consumer_offsets") == [(-1, ErrorCode.INVALID_TOPIC_EXCEPTION)]
    broker.broker.partition(TopicPartition("t", 0)).log.take_offline("for the test")
    assert delete(broker, 5) == [(-1, ErrorCode.KAFKA_STORAGE_ERROR)]
