"""ElectLeaders (key 43). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, int8, int32, string

API = Api(key=43, name="ElectLeaders", lowest=0, highest=2, flexible_from=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    """Stands in `ElectLeadersRequest.topic_partitions`."""

    topic: str = string()
    partitions: tuple[int, ...] = array(int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersRequest:
    """Asks for elections; null means in every partition."""

    api: ClassVar[Api] = API
    election_type: int = int8(since=1)
    topic_partitions: tuple[TopicPartitions, ...] | None = array(TopicPartitions, None, null_since=0)
    timeout_ms: int = int32(60000)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    """Stands in `ReplicaElectionResult.partition_result`."""

    partition_id: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaElectionResult:
    """Stands in `ElectLeadersResponse.replica_election_results`."""

    topic: str = string()
    partition_result: tuple[PartitionResult, ...] = array(PartitionResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersResponse:
    """What became of each partition."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error(since=1)
    replica_election_results: tuple[ReplicaElectionResult, ...] = array(ReplicaElectionResult)
