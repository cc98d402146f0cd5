"""A broker flushes logs and writes checkpoints at the configured intervals."""

from __future__ import annotations

from raylog.core.ids import TopicPartition
from raylog.logstore.checkpoint import decode_offsets
from raylog.logstore.log import Log
from raylog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.support.direct_broker import DirectBroker

TP = TopicPartition("t", 0)
POINTS, STARTS = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"


def log_of(broker: DirectBroker) -> Log:
    return broker.broker.partition(TP).log


def written(broker: DirectBroker, name: str) -> int:
    path = f"/broker-0/{name}"
    return decode_offsets(broker.disk.read_file(path)).get(TP, 0) if broker.disk.exists(path) else 0


def test_flush_ms_is_checked_at_the_scheduler_interval() -> None:
    broker = DirectBroker({"log.flush.scheduler.interval.ms": "100"})
    broker.create_topic("t", flush_ms="1")
    broker.produce([b"x"])
    assert log_of(broker).recovery_point == 0
    broker.pass_time(150)
    assert log_of(broker).recovery_point == 1


def test_flush_ms_is_checked_every_second_by_default() -> None:
    broker = DirectBroker()
    broker.create_topic("t", flush_ms="1")
    broker.produce([b"x"])
    broker.pass_time(1100)
    assert log_of(broker).recovery_point == 1


def test_the_scheduler_interval_is_the_default_of_flush_ms() -> None:
    broker = DirectBroker({"log.flush.scheduler.interval.ms": "5000"})
    broker.create_topic("t")
    broker.produce([b"x"])
    broker.pass_time(4000)
    assert log_of(broker).recovery_point == 0
    broker.pass_time(2500)
    assert log_of(broker).recovery_point == 1


def test_each_checkpoint_has_its_own_interval() -> None:
    broker = DirectBroker(
        {
            "log.flush.offset.checkpoint.interval.ms": "2000",
            "log.flush.start.offset.checkpoint.interval.ms": "7000",
        }
    )
    broker.create_topic("t", flush_messages="1")
    broker.produce([b"x", b"y"])
    delete = DeleteRecordsPartition(partition_index=0, offset=1)
    broker.call(DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=(delete,)),), timeout_ms=1000))
    assert (written(broker, POINTS), written(broker, STARTS)) == (0, 0)
    broker.pass_time(3000)
    assert (written(broker, POINTS), written(broker, STARTS)) == (2, 0)
    broker.pass_time(5000)
    assert (written(broker, POINTS), written(broker, STARTS)) == (2, 1)
