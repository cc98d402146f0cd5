"""AlterReplicaLogDirs (key 34). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int32, string

API = Api(key=34, name="AlterReplicaLogDirs", lowest=1, highest=2, flexible_from=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirTopic:
    """Stands in `AlterReplicaLogDir.topics`."""

    name: str = string()
    partitions: tuple[int, ...] = array(int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDir:
    """Stands in `AlterReplicaLogDirsRequest.dirs`."""

    path: str = string()
    topics: tuple[AlterReplicaLogDirTopic, ...] = array(AlterReplicaLogDirTopic)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirsRequest:
    """Moves replicas between the log directories of a broker."""

    api: ClassVar[Api] = API
    dirs: tuple[AlterReplicaLogDir, ...] = array(AlterReplicaLogDir)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirPartitionResult:
    """Stands in `AlterReplicaLogDirTopicResult.partitions`."""

    partition_index: int = int32()
    error_code: ErrorCode = error()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirTopicResult:
    """Stands in `AlterReplicaLogDirsResponse.results`."""

    topic_name: str = string()
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = array(AlterReplicaLogDirPartitionResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirsResponse:
    """What became of each replica."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    results: tuple[AlterReplicaLogDirTopicResult, ...] = array(AlterReplicaLogDirTopicResult)
