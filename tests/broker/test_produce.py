"""Produce appends valid batches and refuses others with Kafka's codes; with acks=0 a refusal closes the connection."""

from __future__ import annotations

import pytest

from raylog.broker.handlers.appending import DECOMPRESSION_BYTES_MIN
from raylog.core.errors import ErrorCode
from raylog.logstore.record_set import INLINE_BYTES_MAX
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.batch import parse_header, write_crc
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from raylog.transport.node import Job, JobKind
from tests.support.direct_broker import DirectBroker


@pytest.fixture
def broker() -> DirectBroker:
    direct = DirectBroker()
    direct.create_topic("t", partitions=2)
    return direct


def test_offsets_increase_by_the_appended_records(broker: DirectBroker) -> None:
    assert broker.produce([b"a", b"b"]).base_offset == 0
    assert broker.produce([b"c"]).base_offset == 2
    assert broker.produce([b"d"], partition=1).base_offset == 0


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_by_name(broker: DirectBroker, version: int) -> None:
    assert broker.produce([b"a"], version=version).error_code == ErrorCode.NONE


def test_by_topic_id() -> None:
    direct = DirectBroker()
    topic_id = direct.create_topic("t")
    batch = memoryview(build_batch([NewRecord(None, b"a", 0)]))
    topic = ProduceTopic(topic_id=topic_id, partitions=[ProducePartition(index=0, records=batch)])
    answer = direct.call(ProduceRequest(acks=1, timeout_ms=0, topics=[topic]), version=13)
    assert answer.responses[0].topic_id == topic_id
    assert answer.responses[0].partitions[0].base_offset == 0
    unknown = ProduceTopic(topic_id=direct.cluster.new_id(), partitions=topic.partitions)
    answer = direct.call(ProduceRequest(acks=1, timeout_ms=0, topics=[unknown]), version=13)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_unknown_partition(broker: DirectBroker) -> None:
    assert broker.produce([b"a"], partition=2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.produce([b"a"], topic="other").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_invalid_acks(broker: DirectBroker) -> None:
    assert broker.produce([b"a"], acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_a_flipped_bit_is_refused_and_nothing_is_written(broker: DirectBroker) -> None:
    batch = bytearray(build_batch([NewRecord(None, b"hello", 0)]))
    batch[-1] ^= 1
    assert broker.produce_bytes(bytes(batch)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert broker.produce([b"a"]).base_offset == 0


def test_too_large(broker: DirectBroker) -> None:
    broker.create_topic("small", max_message_bytes="200")
    assert broker.produce([b"x" * 200], topic="small").error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert broker.produce([b"x" * 100], topic="small").error_code == ErrorCode.NONE


def test_internal_topics_are_refused(broker: DirectBroker) -> None:
    broker.call(FindCoordinatorRequest(coordinator_keys=("g",)))
    assert broker.describe("__consumer_offsets").topics[0].partitions
    refused = broker.produce([b"x"], topic="__consumer_offsets")
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_control_batches_are_refused(broker: DirectBroker) -> None:
    assert broker.produce([b"x"], control=True).error_code == ErrorCode.INVALID_RECORD


def test_zstd_requires_version_7(broker: DirectBroker) -> None:
    assert broker.produce([b"x"], version=6, codec=Codec.ZSTD).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert broker.produce([b"x"], version=7, codec=Codec.ZSTD).error_code == ErrorCode.NONE


def test_a_long_poll_counts_bytes_as_stored_after_recompression(broker: DirectBroker) -> None:
    broker.create_topic("plain", compression_type="uncompressed")
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(name="plain", partitions=[wanted])]
    reader = broker.connect()
    asked = broker.send(FetchRequest(max_wait_ms=60_000, min_bytes=5000, topics=topics), version=12, connection=reader)
    broker.produce([b"x" * 8000], topic="plain", codec=Codec.GZIP)
    (found,) = broker.answer(asked, connection=reader).responses[0].partitions
    assert parse_header(b"".join(found.records)).codec is Codec.NONE


def test_a_batch_that_cannot_be_decompressed_is_an_invalid_record(broker: DirectBroker) -> None:
    broker.create_topic("dense", compression_type="zstd")
    batch = build_batch([NewRecord(None, b"hello" * 100, 0)], codec=Codec.GZIP)
    batch[-1] ^= 1
    write_crc(batch, 0, len(batch))
    assert broker.produce_bytes(bytes(batch), topic="dense").error_code == ErrorCode.INVALID_RECORD
    assert broker.produce([b"hello"], topic="dense", codec=Codec.GZIP).base_offset == 0


def test_refused_records_are_listed_since_version_8(broker: DirectBroker) -> None:
    batch = build_batch([NewRecord(None, b"", time) for time in (5, 1 << 60, 6, 1 << 61)])
    refused = broker.produce_bytes(bytes(batch))
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_TIMESTAMP, -1)
    assert [error.batch_index for error in refused.record_errors] == [1, 3]
    assert "must be in" in str(refused.record_errors[0].batch_index_error_message)
    assert str(refused.error_message).startswith("2 records are refused")
    assert broker.produce([b"a"]).base_offset == 0


@pytest.mark.parametrize("large", [False, True], ids=["inline", "in a job"])
def test_each_partition_of_a_request_has_its_own_result(broker: DirectBroker, large: bool) -> None:
    size = 1 << 20 if large else 100
    batches = [build_batch([NewRecord(None, bytes(size), 0)], codec=Codec.ZSTD) for _ in range(2)]
    batches[0][26], batches[0][60] = 1, 2  # last offset delta and count: two records
    write_crc(batches[0], 0, len(batches[0]))
    partitions = [ProducePartition(index=at, records=memoryview(batch)) for at, batch in enumerate(batches)]
    request = ProduceRequest(acks=-1, timeout_ms=0, topics=[ProduceTopic(name="t", partitions=partitions)])
    (topic,) = broker.call(request, version=9).responses
    assert [result.error_code for result in topic.partitions] == [ErrorCode.INVALID_RECORD, ErrorCode.NONE]


@pytest.mark.parametrize("refused", [True, False])
def test_compressed_batches_after_one_that_is_refused_and_after_many_are_checked_in_a_job(
    broker: DirectBroker, refused: bool
) -> None:
    """What the refused one has cost is not known, and to begin takes time as well."""
    count = INLINE_BYTES_MAX // DECOMPRESSION_BYTES_MIN
    broker.create_topic("wide", partitions=count + 1)
    batches = [build_batch([NewRecord(None, b"x", 0)], codec=Codec.ZSTD) for _ in range(2 if refused else count + 1)]
    if refused:
        batches[0][60] = 2  # the count
        write_crc(batches[0], 0, len(batches[0]))
    partitions = [ProducePartition(index=at, records=memoryview(batch)) for at, batch in enumerate(batches)]
    request = ProduceRequest(acks=1, timeout_ms=0, topics=[ProduceTopic(name="wide", partitions=partitions)])
    jobs: list[JobKind] = []
    add_job = broker.broker.add_job

    def noted(job: Job) -> None:
        jobs.append(job.kind)
        add_job(job)

    broker.broker.add_job = noted  # type: ignore[method-assign]
    (topic,) = broker.call(request, version=9).responses
    codes = [result.error_code for result in topic.partitions]
    assert codes == [ErrorCode.INVALID_RECORD if refused else ErrorCode.NONE, *[ErrorCode.NONE] * (len(batches) - 1)]
    assert jobs == [JobKind.COMPUTE]


def test_min_insync_replicas_above_the_replication_factor_is_ignored(broker: DirectBroker) -> None:
    broker.create_topic("safe", min_insync_replicas="2")
    assert broker.produce([b"x"], topic="safe", acks=-1).error_code == ErrorCode.NONE


def test_a_retry_is_recognised_after_a_crash_too(broker: DirectBroker) -> None:
    first = broker.produce([b"a", b"b"], producer_id=7, producer_epoch=0, base_sequence=0)
    again = broker.produce([b"a", b"b"], producer_id=7, producer_epoch=0, base_sequence=0)
    assert again.base_offset == first.base_offset
    broker.restart(clean=False)
    after_crash = broker.produce([b"a", b"b"], producer_id=7, producer_epoch=0, base_sequence=0)
    assert (after_crash.error_code, after_crash.base_offset) == (ErrorCode.NONE, first.base_offset)
    assert broker.produce([b"c"], producer_id=7, producer_epoch=0, base_sequence=2).base_offset == 2


def test_a_gap_in_the_sequence_is_refused(broker: DirectBroker) -> None:
    broker.produce([b"a"], producer_id=7, producer_epoch=0, base_sequence=0)
    refused = broker.produce([b"c"], producer_id=7, producer_epoch=0, base_sequence=2)
    assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_acks_0_has_no_response_and_a_refusal_closes_the_connection(broker: DirectBroker) -> None:
    assert broker.produce([b"a"], acks=0) is None
    assert not broker.connection.closing
    assert broker.produce([b"b"]).base_offset == 1
    assert broker.produce([b"a"], acks=0, topic="unknown") is None
    assert broker.connection.closing


def test_log_append_time(broker: DirectBroker) -> None:
    broker.create_topic("stamped", message_timestamp_type="LogAppendTime")
    assert broker.produce([b"a"], topic="stamped").log_append_time_ms == broker.now().wall_ms


def test_a_full_disk_is_a_retriable_error_until_there_is_space(broker: DirectBroker) -> None:
    broker.produce([b"a"])
    broker.disk.capacity_bytes = broker.disk.used_bytes() + 10
    assert broker.produce([b"x" * 500]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.disk.capacity_bytes = None
    assert broker.produce([b"b"]).base_offset == 1
