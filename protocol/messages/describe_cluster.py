"""DescribeCluster (key 60). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int8, int32, string

API = Api(key=60, name="DescribeCluster", lowest=0, highest=2, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterRequest:
    """Asks for the brokers of the cluster."""

    api: ClassVar[Api] = API
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(1, since=1)
    include_fenced_brokers: bool = boolean(since=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterBroker:
    """Stands in `DescribeClusterResponse.brokers`."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(None, null_since=0)
    is_fenced: bool = boolean(since=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterResponse:
    """The brokers, the controller and the cluster id."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=0)
    endpoint_type: int = int8(1, since=1)
    cluster_id: str = string()
    controller_id: int = int32(-1)
    brokers: tuple[DescribeClusterBroker, ...] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(-2147483648)
