"""Metadata (key 3), v0-13: brokers, and the leaders of partitions. Creates unknown topics where that is allowed.

v1 controller and racks; v4 allow_auto_topic_creation; v7 leader epochs; v8 authorized operations; v10 topic ids;
v12 topics asked for by id; v13 a top-level error code. Up to v0 an empty list of topics means all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker import config
from raylog.broker.group_offsets import OFFSETS_TOPIC
from raylog.controller.topics import INTERNAL_TOPICS
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, ZERO_TOPIC_ID, TopicPartition
from raylog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.broker.request import RequestContext
    from raylog.controller.image import PartitionImage, TopicImage

NOT_ASKED = -(1 << 31)
"""Kafka's value of authorized operations that nobody asked for."""
ALL_TOPIC_OPERATIONS = 0b1101_1111_1000
"""Bits of AclOperation: read, write, create, delete, alter, describe, describe and alter configs."""
ALL_CLUSTER_OPERATIONS = 0b1_1111_1010_0000
"""Create, alter, describe, cluster action, describe and alter configs, idempotent write."""


def handle(broker: Broker, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    wanted = request.topics
    if wanted is None or (context.api_version == 0 and not wanted):
        topics = [_describe(broker, topic, request) for topic in broker.image.topics.values()]
    else:
        topics = [_find(broker, context, request, asked) for asked in wanted]
    endpoint = broker.endpoints[context.connection.listener.name]
    me = MetadataResponseBroker(
        node_id=broker.identity.broker_id,
        host=endpoint.host,
        port=endpoint.port,
        rack=broker.configs[config.BROKER_RACK],
    )
    asked_for_cluster = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=(me,),
        cluster_id=broker.identity.cluster_id,
        controller_id=broker.identity.broker_id,
        topics=tuple(topics),
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if asked_for_cluster else NOT_ASKED,
    )


def _find(
    broker: Broker, context: RequestContext, request: MetadataRequest, asked: MetadataRequestTopic
) -> MetadataResponseTopic:
    if asked.name is None:
        by_id = broker.image.topics_by_id.get(asked.topic_id)
        if by_id is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
        return _describe(broker, by_id, request)
    topic = broker.image.topics.get(asked.name)
    if topic is None and request.allow_auto_topic_creation and broker.configs[config.AUTO_CREATE_TOPICS_ENABLE]:
        try:
            topic = _auto_create(broker, context, asked.name)
        except KafkaError as error:
            return MetadataResponseTopic(error_code=error.code, name=asked.name, topic_id=ZERO_TOPIC_ID)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=asked.name)
    return _describe(broker, topic, request)


def _auto_create(broker: Broker, context: RequestContext, name: str) -> TopicImage:
    if name == OFFSETS_TOPIC:
        broker.create_internal_topic(name, context.now)
    else:
        broker.metadata.create_topic(
            name,
            topic_id=broker.new_id(),
            num_partitions=broker.configs[config.NUM_PARTITIONS],
            replication_factor=broker.configs[config.DEFAULT_REPLICATION_FACTOR],
            assignments=None,
            configs={},
            validate_only=False,
            now_ms=context.now.wall_ms,
        )
    return broker.image.topics[name]


def _describe(broker: Broker, topic: TopicImage, request: MetadataRequest) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(_describe_partition(broker, topic.name, partition) for partition in topic.partitions),
        topic_authorized_operations=ALL_TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED,
    )


def _describe_partition(broker: Broker, topic: str, partition: PartitionImage) -> MetadataResponsePartition:
    online = TopicPartition(topic, partition.partition) in broker.partitions
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if online else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.partition,
        leader_id=partition.leader if online else NO_BROKER_ID,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=() if online else partition.replicas,
    )
