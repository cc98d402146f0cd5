"""A Kafka-compatible commit log that lives inside a Ray cluster.

    import raylog

    with raylog.start("my-log", data_dir="/data/raylog", brokers=3) as cluster:
        print(cluster.bootstrap_servers)  # for any Kafka client

        with raylog.AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics(raylog.NewTopic("flights", num_partitions=6))

        with raylog.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("flights", key="LH400", value=b"boarding")

        with raylog.Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="gates") as consumer:
            consumer.subscribe("flights")
            consumer.poll()

        with raylog.PartitionReader(cluster.bootstrap_servers, "flights", 0) as reader:
            reader.read_arrow(["key", "value"])  # on a broker's node straight from its mapped files

        raylog.read_dataset("flights", bootstrap_servers=cluster.bootstrap_servers)  # with Ray Data

        raylog.process("flights", work, output="gates", bootstrap_servers="ray://my-log", group_id="w")  # by actors

        raylog.mirror(source="ray://my-log", target="west:9092", topics="flights")  # by actors

        with raylog.read_table("users", bootstrap_servers=cluster.bootstrap_servers) as users:
            users[b"alice"]  # the latest value of a key

Each name is imported when it is first used: a broker, or a command, starts without the parts that it does not need.
Ray is imported when a cluster is started or connected to, Arrow and Ray Data where columns are asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from raylog.client import bootstrap

if TYPE_CHECKING:
    from raylog.actors.cluster import Cluster, connect, start
    from raylog.actors.mirror import Mirror
    from raylog.actors.process import Pool, Progress, process
    from raylog.client.admin.admin_client import AdminClient
    from raylog.client.admin.async_admin_client import AsyncAdminClient
    from raylog.client.admin.configs import ConfigResource, ConfigResourceType
    from raylog.client.admin.partitions import OffsetSpec
    from raylog.client.admin.topics import NewPartitions, NewTopic
    from raylog.client.audit.interceptors import ConsumerAudit, ProducerAudit
    from raylog.client.consumer.async_consumer import AsyncConsumer
    from raylog.client.consumer.consumer import Consumer
    from raylog.client.consumer.fetched import ConsumerRecord
    from raylog.client.consumer.interceptors import ConsumerInterceptor
    from raylog.client.errors import (
        AbortableError,
        AdminError,
        AuthorizationError,
        ClientClosedError,
        FencedError,
        InvalidBatchError,
        LargeMessageDroppedError,
        ProcessingError,
        SerializationError,
        TransactionAbortedError,
        UnknownTopicError,
        ValueMissingError,
        WakeupError,
    )
    from raylog.client.group_offsets import GroupMetadata, OffsetAndMetadata
    from raylog.client.partition_reader import PartitionReader
    from raylog.client.processing.records import OutputRecord
    from raylog.client.producer.async_producer import AsyncProducer
    from raylog.client.producer.delivery import RecordMetadata
    from raylog.client.producer.interceptors import ProducerInterceptor
    from raylog.client.producer.partitioners import PriorityPartitioner
    from raylog.client.producer.producer import Producer
    from raylog.client.share.acquired import ShareRecord
    from raylog.client.share.async_share_consumer import AsyncShareConsumer
    from raylog.client.share.share_consumer import ShareConsumer
    from raylog.client.topic_table import TopicTable, read_table
    from raylog.core.errors import ConfigError, ErrorCode, KafkaError
    from raylog.core.ids import TopicPartition
    from raylog.protocol.records.batch import MalformedBatch
    from raylog.protocol.share import AcknowledgeType
    from raylog.raydp_bridge.dataset import read_dataset
    from raylog.raydp_bridge.dataset_stream import DatasetBatch, DatasetStream, stream_datasets
    from raylog.raydp_bridge.datasink import TopicDatasink

__all__ = [
    "AbortableError",
    "AcknowledgeType",
    "AdminClient",
    "AdminError",
    "AsyncAdminClient",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncShareConsumer",
    "AuthorizationError",
    "ClientClosedError",
    "Cluster",
    "ConfigError",
    "ConfigResource",
    "ConfigResourceType",
    "Consumer",
    "ConsumerAudit",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "DatasetBatch",
    "DatasetStream",
    "ErrorCode",
    "FencedError",
    "GroupMetadata",
    "InvalidBatchError",
    "KafkaError",
    "LargeMessageDroppedError",
    "MalformedBatch",
    "Mirror",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetSpec",
    "OutputRecord",
    "PartitionReader",
    "Pool",
    "PriorityPartitioner",
    "ProcessingError",
    "Producer",
    "ProducerAudit",
    "ProducerInterceptor",
    "Progress",
    "RecordMetadata",
    "SerializationError",
    "ShareConsumer",
    "ShareRecord",
    "TopicDatasink",
    "TopicPartition",
    "TopicTable",
    "TransactionAbortedError",
    "UnknownTopicError",
    "ValueMissingError",
    "WakeupError",
    "connect",
    "mirror",
    "process",
    "read_dataset",
    "read_table",
    "start",
    "stream_datasets",
]

_MODULES = {  # where the names of __all__ are
    "actors.cluster": (
        "Cluster",
        "connect",
        "start",
    ),
    "actors.mirror": ("Mirror",),
    "actors.process": (
        "Pool",
        "Progress",
        "process",
    ),
    "client.admin.admin_client": ("AdminClient",),
    "client.admin.async_admin_client": ("AsyncAdminClient",),
    "client.admin.configs": (
        "ConfigResource",
        "ConfigResourceType",
    ),
    "client.admin.partitions": ("OffsetSpec",),
    "client.admin.topics": (
        "NewPartitions",
        "NewTopic",
    ),
    "client.audit.interceptors": (
        "ConsumerAudit",
        "ProducerAudit",
    ),
    "client.consumer.async_consumer": ("AsyncConsumer",),
    "client.consumer.consumer": ("Consumer",),
    "client.consumer.fetched": ("ConsumerRecord",),
    "client.consumer.interceptors": ("ConsumerInterceptor",),
    "client.errors": (
        "AbortableError",
        "AdminError",
        "AuthorizationError",
        "ClientClosedError",
        "FencedError",
        "InvalidBatchError",
        "LargeMessageDroppedError",
        "ProcessingError",
        "SerializationError",
        "TransactionAbortedError",
        "UnknownTopicError",
        "ValueMissingError",
        "WakeupError",
    ),
    "client.group_offsets": (
        "GroupMetadata",
        "OffsetAndMetadata",
    ),
    "client.partition_reader": ("PartitionReader",),
    "client.processing.records": ("OutputRecord",),
    "client.producer.async_producer": ("AsyncProducer",),
    "client.producer.delivery": ("RecordMetadata",),
    "client.producer.interceptors": ("ProducerInterceptor",),
    "client.producer.partitioners": ("PriorityPartitioner",),
    "client.producer.producer": ("Producer",),
    "client.share.acquired": ("ShareRecord",),
    "client.share.async_share_consumer": ("AsyncShareConsumer",),
    "client.share.share_consumer": ("ShareConsumer",),
    "client.topic_table": (
        "TopicTable",
        "read_table",
    ),
    "core.errors": (
        "ConfigError",
        "ErrorCode",
        "KafkaError",
    ),
    "core.ids": ("TopicPartition",),
    "protocol.records.batch": ("MalformedBatch",),
    "protocol.share": ("AcknowledgeType",),
    "raydp_bridge.dataset": ("read_dataset",),
    "raydp_bridge.dataset_stream": (
        "DatasetBatch",
        "DatasetStream",
        "stream_datasets",
    ),
    "raydp_bridge.datasink": ("TopicDatasink",),
}
_MODULE_OF = {name: f"raylog.{module}" for module, names in _MODULES.items() for name in names}


def _find_cluster(name: str) -> bootstrap.Bootstrap:
    from raylog.actors.bootstrap import find_cluster

    return find_cluster(name)


bootstrap.resolvers["ray"] = _find_cluster
import_module("raylog.mirror")  # first, since the attribute of this name is the function


def mirror(**options: Any) -> "Mirror":
    """Copy topics from one cluster to another by actors: `raylog.actors.mirror.mirror` has the options."""
    from raylog.actors.mirror import mirror

    return mirror(**options)


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(module), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
