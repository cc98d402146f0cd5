"""A disk error affects only the partitions it touches, for as long as in Kafka; the broker continues to serve.

What takes a partition away, and what brings it back:

- No space, or no more open files: nothing is lost by it. What needs the disk is refused with KAFKA_STORAGE_ERROR (by a
  coordinator as NOT_COORDINATOR, which clients answer by asking again), reads go on, and when the trouble is over so
  does everything else, by itself.
- An I/O error, or a file system that has become read-only (which is what file systems do about I/O errors): nobody
  knows what the disk holds. Written data that was still in memory may be lost, and a later fsync may say that all is
  well. So the partition that met it is offline until the broker starts again and recovers it from what is really there.
  Kafka does so with the whole directory; here it is only the partitions that met it: reading the others is safe, and
  whether they can be written shows when somebody writes. If another in-sync replica can lead such a partition, the
  whole directory goes offline here too, so that it does (test_lost_directory.py).
- A disk that cannot be read at a start refuses the start, by the name of the file: as in Kafka with one directory.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.logstore.log import Log
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from raylog.protocol.records.reader import read_batches
from tests.support.direct_broker import DirectBroker

CHECK_MS = 1000
CONFIG = {
    "offsets.topic.num.partitions": 1,
    "log.retention.check.interval.ms": CHECK_MS,
    "log.flush.offset.checkpoint.interval.ms": CHECK_MS,
    "log.flush.start.offset.checkpoint.interval.ms": CHECK_MS,
    "log.segment.delete.delay.ms": 0,
    "log.segment.bytes": 6000,
}
CHORES_MS = 10_000
"""After this time every periodic task has run more than once."""
LATEST, MAX_TIMESTAMP = -1, -3
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
NONE = ErrorCode.NONE
T0_FILE = "/broker-0/t-0/" + "0" * 20 + ".log"


@pytest.fixture
def broker() -> DirectBroker:
    """`t` with a record in each of its partitions, `doomed` with one, and a position of the group `g`."""
    broker = DirectBroker(dict(CONFIG))
    broker.create_topic("t", partitions=2)
    broker.create_topic("doomed")
    broker.call(FindCoordinatorRequest(coordinator_keys=("g",)))
    broker.settle()
    for partition in (0, 1):
        assert produce(broker, partition) == NONE
    assert broker.produce([b"x" * 5000], topic="doomed").error_code == NONE
    assert commit(broker, 1) == NONE
    return broker


# --- what clients ask


def produce(broker: DirectBroker, partition: int = 0, *, topic: str = "t") -> ErrorCode:
    code: ErrorCode = broker.produce([b"x" * 100], topic=topic, partition=partition).error_code
    return code


def fetch(broker: DirectBroker, partition: int = 0, offset: int = 0) -> ErrorCode:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(name="t", partitions=[wanted])])
    (found,) = broker.call(request, version=12).responses[0].partitions
    if found.error_code == NONE:
        records = [record.value for record in read_batches(b"".join(found.records), from_offset=offset)]
        assert records == [b"x" * 100] * (found.high_watermark - offset)
    code: ErrorCode = found.error_code
    return code


def list_offsets(broker: DirectBroker, timestamp: int, partition: int = 0) -> ErrorCode:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(name="t", partitions=(wanted,)),))
    code: ErrorCode = broker.call(request, version=7).topics[0].partitions[0].error_code
    return code


def delete_records(broker: DirectBroker, partition: int = 0, offset: int = 0) -> ErrorCode:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=(wanted,)),), timeout_ms=1000)
    code: ErrorCode = broker.call(request).topics[0].partitions[0].error_code
    return code


def commit(broker: DirectBroker, offset: int) -> ErrorCode:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = (OffsetCommitRequestTopic(name="t", partitions=(part,)),)
    code: ErrorCode = (
        broker.call(OffsetCommitRequest(group_id="g", topics=topics), version=8).topics[0].partitions[0].error_code
    )
    return code


def committed(broker: DirectBroker) -> int:
    answer = broker.call(OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),)), version=8)
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


def reads(broker: DirectBroker, partition: int = 0) -> set[ErrorCode]:
    return {
        fetch(broker, partition),
        list_offsets(broker, LATEST, partition),
        list_offsets(broker, MAX_TIMESTAMP, partition),
        delete_records(broker, partition),
    }


def everything(broker: DirectBroker) -> set[ErrorCode]:
    return {
        *reads(broker, 0),
        *reads(broker, 1),
        produce(broker, 0),
        produce(broker, 1),
        produce(broker, topic="new"),
        commit(broker, 2),
    }


def log_of(broker: DirectBroker, partition: int = 0) -> Log:
    return broker.broker.partitions[TopicPartition("t", partition)].log


# --- trouble that passes


def fill(broker: DirectBroker) -> None:
    broker.disk.capacity_bytes = broker.disk.used_bytes()


def test_a_full_disk_allows_reads_and_writes_resume_once_there_is_space(broker: DirectBroker) -> None:
    fill(broker)
    broker.create_topic("new")
    for _ in range(2):
        assert produce(broker) == STORAGE_ERROR
        assert produce(broker, topic="new") == STORAGE_ERROR
        assert commit(broker, 2) == ErrorCode.NOT_COORDINATOR
        assert reads(broker) == {NONE}
        assert committed(broker) == 1
        broker.pass_time(CHORES_MS)
    broker.disk.heal()
    assert produce(broker) == NONE
    assert commit(broker, 2) == NONE
    broker.pass_time(CHORES_MS)
    assert everything(broker) == {NONE}


def test_on_a_full_disk_a_deleted_topic_frees_space(broker: DirectBroker) -> None:
    fill(broker)
    assert produce(broker) == STORAGE_ERROR
    broker.cluster.delete_topic("doomed")
    broker.pass_time(CHORES_MS)
    assert produce(broker) == NONE


def test_on_a_full_disk_deleted_records_free_space_and_no_background_task_takes_a_log_offline(
    broker: DirectBroker,
) -> None:
    broker.create_topic("chores", flush_ms="1", retention_bytes="7000")
    for _ in range(6):
        assert broker.produce([b"x" * 2500], topic="chores").error_code == NONE
    log = broker.broker.partitions[TopicPartition("chores", 0)].log
    size_bytes = log.size_bytes
    fill(broker)
    broker.pass_time(CHORES_MS)
    assert log.offline_reason is None
    assert log.size_bytes < size_bytes
    assert log.recovery_point <= log.log_end_offset
    assert produce(broker, topic="chores") == NONE
    broker.disk.heal()
    broker.pass_time(CHORES_MS)
    assert log.recovery_point == log.log_end_offset


def test_a_broker_starts_on_a_full_disk(broker: DirectBroker) -> None:
    fill(broker)
    for clean in (True, False):
        broker.disk.capacity_bytes = broker.disk.used_bytes() + (2000 if clean else 0)  # a clean stop has much to write
        broker.restart(clean=clean)
        assert reads(broker) == {NONE}
        assert committed(broker) == 1
    assert produce(broker) == STORAGE_ERROR
    broker.disk.heal()
    broker.create_topic("new")
    assert everything(broker) == {NONE}


def test_a_stop_on_a_full_disk_is_unclean_and_loses_nothing(broker: DirectBroker) -> None:
    broker.disk.fail_next("pwrite", errno.ENOSPC)  # as full as it can be, so that the marker would have room
    with pytest.raises(KafkaError):
        broker.stop()
    assert broker.disk.open_files() == 0
    assert not broker.disk.exists("/broker-0/.kafka_cleanshutdown")
    broker.running = False
    broker.disk.heal()
    broker.links.cut(broker.now(), node_gone=True)
    broker.start()
    broker.create_topic("new")
    assert everything(broker) == {NONE}


def test_open_partitions_are_served_with_too_many_open_files(broker: DirectBroker) -> None:
    broker.create_topic("chores", flush_ms="1", retention_bytes="7000")
    for _ in range(6):
        assert broker.produce([b"x" * 2500], topic="chores").error_code == NONE
    broker.disk.no_more_files = True
    broker.create_topic("new")
    broker.cluster.delete_topic("doomed")
    broker.pass_time(CHORES_MS)
    assert produce(broker, topic="new") == STORAGE_ERROR
    assert produce(broker) == NONE
    assert commit(broker, 2) == NONE
    assert reads(broker) == {NONE}
    broker.disk.heal()
    broker.pass_time(CHORES_MS)
    assert everything(broker) == {NONE}
    assert produce(broker, topic="chores") == NONE
    assert not [name for name in broker.disk.listdir("/broker-0") if name.startswith("doomed")]


# --- trouble that does not


def test_on_a_read_only_disk_written_partitions_go_offline_and_all_at_the_next_checkpoint(broker: DirectBroker) -> None:
    broker.disk.read_only = True
    assert reads(broker) == {NONE}
    assert produce(broker) == STORAGE_ERROR
    assert reads(broker) == {STORAGE_ERROR}
    assert reads(broker, 1) == {NONE}
    assert commit(broker, 2) == ErrorCode.NOT_COORDINATOR
    broker.create_topic("new")
    assert produce(broker, topic="new") == STORAGE_ERROR
    broker.pass_time(CHORES_MS)
    assert "cannot be written" in str(broker.broker.table.offline_reason)
    assert NONE not in reads(broker, 1)


def test_after_a_read_only_disk_a_restart_serves_everything(broker: DirectBroker) -> None:
    broker.disk.read_only = True
    broker.create_topic("new")
    broker.cluster.delete_topic("doomed")
    assert produce(broker) == STORAGE_ERROR
    assert commit(broker, 2) == ErrorCode.NOT_COORDINATOR
    broker.pass_time(CHORES_MS)
    broker.disk.heal()
    broker.pass_time(CHORES_MS)
    assert produce(broker, 1) != NONE, "nothing but a restart checks what is on the disk"
    broker.restart(clean=False)
    assert committed(broker) == 1
    assert everything(broker) == {NONE}
    assert produce(broker, topic="new") == NONE
    assert not broker.disk.exists("/broker-0/doomed-0")


def test_a_broker_does_not_start_on_a_read_only_disk(broker: DirectBroker) -> None:
    broker.stop(clean=False)
    broker.disk.read_only = True
    with pytest.raises(KafkaError, match="cannot open log directory /broker-0") as caught:
        broker.start()
    assert caught.value.code is STORAGE_ERROR
    broker.disk.heal()
    broker.start()
    broker.create_topic("new")
    assert everything(broker) == {NONE}


def spoil_writing(broker: DirectBroker) -> None:
    broker.disk.spoil(T0_FILE, writing=True)
    assert reads(broker) == {NONE}
    assert produce(broker) == STORAGE_ERROR


def spoil_reading(broker: DirectBroker) -> None:
    broker.disk.spoil(T0_FILE, reading=True)
    assert fetch(broker) == STORAGE_ERROR


def spoil_listing(broker: DirectBroker) -> None:
    broker.disk.spoil(T0_FILE, reading=True)
    assert list_offsets(broker, MAX_TIMESTAMP) == STORAGE_ERROR


def spoil_flushing(broker: DirectBroker) -> None:
    log_of(broker).settings = replace(log_of(broker).settings, flush_ms=1)
    broker.disk.spoil(T0_FILE, writing=True)
    broker.pass_time(CHORES_MS)


@pytest.mark.parametrize("spoil", [spoil_writing, spoil_reading, spoil_listing, spoil_flushing])
def test_an_io_error_takes_only_its_partition_offline_until_a_restart(
    broker: DirectBroker, spoil: Callable[[DirectBroker], None]
) -> None:
    assert produce(broker) == NONE
    spoil(broker)
    for _ in range(2):
        assert produce(broker) == STORAGE_ERROR
        assert reads(broker) == {STORAGE_ERROR}
        assert reads(broker, 1) == {NONE}
        assert produce(broker, 1) == NONE
        assert commit(broker, 2) == NONE
        broker.pass_time(CHORES_MS)
    broker.create_topic("new")
    assert produce(broker, topic="new") == NONE
    broker.disk.spoil(T0_FILE)  # well again
    assert produce(broker) == STORAGE_ERROR
    broker.restart(clean=False)
    assert log_of(broker).log_end_offset == 2
    assert everything(broker) == {NONE}


def test_an_offline_partition_can_be_deleted_and_recreated(broker: DirectBroker) -> None:
    spoil_writing(broker)
    broker.cluster.delete_topic("t")
    broker.pass_time(CHORES_MS)
    broker.create_topic("t", partitions=2)
    assert produce(broker) == NONE
    assert fetch(broker) == NONE


def test_an_unreadable_file_prevents_the_start_and_is_named(broker: DirectBroker) -> None:
    broker.stop(clean=False)
    broker.disk.spoil(T0_FILE, reading=True)
    with pytest.raises(KafkaError, match="/broker-0/t-0") as caught:
        broker.start()
    assert caught.value.code is STORAGE_ERROR
    assert broker.disk.open_files() == 0
    broker.disk.spoil(T0_FILE)
    broker.start()
    broker.create_topic("new")
    assert everything(broker) == {NONE}
