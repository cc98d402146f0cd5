"""DescribeLogDirs (key 35). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int32, int64, string

API = Api(key=35, name="DescribeLogDirs", lowest=1, highest=5, flexible_from=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribableLogDirTopic:
    """Stands in `DescribeLogDirsRequest.topics`."""

    topic: str = string()
    partitions: tuple[int, ...] = array(int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsRequest:
    """Asks what lies in a broker's log directories; null means all."""

    api: ClassVar[Api] = API
    topics: tuple[DescribableLogDirTopic, ...] | None = array(DescribableLogDirTopic, None, null_since=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsPartition:
    """Stands in `DescribeLogDirsTopic.partitions`."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsTopic:
    """Stands in `DescribeLogDirsResult.topics`."""

    name: str = string()
    partitions: tuple[DescribeLogDirsPartition, ...] = array(DescribeLogDirsPartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsResult:
    """Stands in `DescribeLogDirsResponse.results`."""

    error_code: ErrorCode = error()
    log_dir: str = string()
    topics: tuple[DescribeLogDirsTopic, ...] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(-1, since=4)
    usable_bytes: int = int64(-1, since=4)
    is_cordoned: bool = boolean(since=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsResponse:
    """Sizes, by directory."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error(since=3)
    results: tuple[DescribeLogDirsResult, ...] = array(DescribeLogDirsResult)
