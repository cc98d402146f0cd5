"""AlterReplicaLogDirs on a broker with one log directory: only a replica's current directory is accepted."""

from __future__ import annotations

import pytest

from raylog.core.errors import ErrorCode
from raylog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.support.direct_broker import DirectBroker


@pytest.fixture
def broker() -> DirectBroker:
    return DirectBroker()


def codes(broker: DirectBroker, path: str, topic: str, *partitions: int) -> dict[tuple[str, int], ErrorCode]:
    wanted = AlterReplicaLogDir(path=path, topics=(AlterReplicaLogDirTopic(name=topic, partitions=partitions),))
    answer = broker.call(AlterReplicaLogDirsRequest(dirs=(wanted,)))
    return {
        (result.topic_name, partition.partition_index): partition.error_code
        for result in answer.results
        for partition in result.partitions
    }


def test_the_current_directory_is_accepted(broker: DirectBroker) -> None:
    broker.create_topic("t")
    path = broker.log_path
    assert codes(broker, path, "t", 0) == {("t", 0): ErrorCode.NONE}
    assert codes(broker, path, "t", 7) == {("t", 7): ErrorCode.REPLICA_NOT_AVAILABLE}
    assert codes(broker, path + "-2", "t", 0) == {("t", 0): ErrorCode.LOG_DIR_NOT_FOUND}


def test_a_replica_with_a_failed_disk_returns_a_storage_error(broker: DirectBroker) -> None:
    broker.create_topic("t")
    (partition,) = [each for tp, each in broker.broker.partitions.items() if tp.topic == "t"]
    partition.log.take_offline("it fails here")
    assert codes(broker, broker.log_path, "t", 0) == {("t", 0): ErrorCode.KAFKA_STORAGE_ERROR}
