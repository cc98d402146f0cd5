"""Metadata (key 3). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int32, string, uuid

API = Api(key=3, name="Metadata", lowest=0, highest=13, flexible_from=9)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequestTopic:
    """Stands in `MetadataRequest.topics`."""

    topic_id: UUID = uuid(since=10)
    name: str | None = string(null_since=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest:
    """Asks where topics live; null means all topics."""

    api: ClassVar[Api] = API
    topics: tuple[MetadataRequestTopic, ...] | None = array(MetadataRequestTopic, null_since=1)
    allow_auto_topic_creation: bool = boolean(True, since=4)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponseBroker:
    """Stands in `MetadataResponse.brokers`."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(None, since=1, null_since=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponsePartition:
    """Stands in `MetadataResponseTopic.partitions`."""

    error_code: ErrorCode = error()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(-1, since=7)
    replica_nodes: tuple[int, ...] = array(int32)
    isr_nodes: tuple[int, ...] = array(int32)
    offline_replicas: tuple[int, ...] = array(int32, since=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponseTopic:
    """Stands in `MetadataResponse.topics`."""

    error_code: ErrorCode = error()
    name: str | None = string(null_since=12)
    topic_id: UUID = uuid(since=10)
    is_internal: bool = boolean(since=1)
    partitions: tuple[MetadataResponsePartition, ...] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(-2147483648, since=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse:
    """The brokers, and the leaders of the partitions."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32(since=3)
    brokers: tuple[MetadataResponseBroker, ...] = array(MetadataResponseBroker)
    cluster_id: str | None = string(None, since=2, null_since=2)
    controller_id: int = int32(-1, since=1)
    topics: tuple[MetadataResponseTopic, ...] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(-2147483648, since=8, until=10)
    error_code: ErrorCode = error(since=13)
