"""Metadata (key 3), v0-13: brokers, and the leaders of partitions. Creates unknown topics if that is enabled.

v1 controller and racks; v4 allow_auto_topic_creation; v7 leader epochs; v8 authorized operations; v10 topic ids; v12
topics by id; v13 a top-level error code. In v0 an empty list of topics means all of them.

Requires DESCRIBE on each topic: a request for all topics omits topics without it; a named one gets the same error
whether it exists or not. Creating a topic requires CREATE on it or on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker.handlers.requested_topics import resolve
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, ZERO_TOPIC_ID, TopicPartition
from raylog.metadata.topic_names import INTERNAL_TOPICS, check_topic_name
from raylog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from raylog.security.acl import CLUSTER, Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.metadata.image import PartitionImage, TopicImage
    from raylog.transport.exchange import Exchange

LEADERS_CHANGED = "leaders changed"
"""Key of requests that wait for new leaders."""
LOST_PEER_MS = 100
"""How long Metadata waits for a new leader after the connection to the old one broke; then it returns that."""
NOT_ASKED = -(1 << 31)
"""Kafka's value for authorized operations that were not requested."""


def handle(broker: BrokerServices, exchange: Exchange, request: MetadataRequest) -> MetadataResponse | None:
    response = _answer(broker, exchange, request)
    if not _may_be_outdated(broker, response, exchange.now.monotonic_ms):
        return response
    exchange.hold_back()
    exchange.wait_for(DelayedMetadata(broker, exchange, request), [LEADERS_CHANGED])
    return None


class DelayedMetadata:
    """A Metadata request whose response would contain a leader whose connection to this broker has just broken.

    A client whose leader was killed refreshes its metadata some milliseconds before the controller has elected a new
    leader; if it got the old leader again, it would keep it for seconds.
    """

    def __init__(self, broker: BrokerServices, exchange: Exchange, request: MetadataRequest) -> None:
        self._broker = broker
        self._exchange = exchange
        self._request = request
        self.deadline_ms = exchange.now.monotonic_ms + LOST_PEER_MS

    def try_complete(self, grown_bytes: int) -> bool:
        response = _answer(self._broker, self._exchange, self._request)
        if _may_be_outdated(self._broker, response, self._exchange.now.monotonic_ms):
            return False
        self._exchange.answer(response)
        return True

    def complete(self) -> None:
        self._exchange.answer(_answer(self._broker, self._exchange, self._request))


def _may_be_outdated(broker: BrokerServices, response: MetadataResponse, now_ms: int) -> bool:
    recently_lost = {
        broker_id for broker_id, lost_ms in broker.peers_lost_ms.items() if now_ms - lost_ms < LOST_PEER_MS
    }
    return bool(recently_lost) and any(
        partition.leader_id in recently_lost for topic in response.topics for partition in topic.partitions
    )


def _answer(broker: BrokerServices, exchange: Exchange, request: MetadataRequest) -> MetadataResponse:
    wanted = request.topics
    if wanted is None or (exchange.api_version == 0 and not wanted):
        topics = [
            _describe(broker, exchange, topic, request)
            for topic in broker.image.topics.values()
            if broker.authorization.may(exchange, Operation.DESCRIBE, Resource.topic(topic.name))
        ]
    else:
        topics = [_find(broker, exchange, request, asked) for asked in wanted]
    asked_for_cluster = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node_id=broker_id, host=host, port=port, rack=rack)
            for broker_id, host, port, rack in broker.alive_on(exchange.connection.listener.name)
        ),
        cluster_id=broker.identity.cluster_id,
        controller_id=broker.identity.node_id,  # every broker forwards requests to the controller
        topics=tuple(topics),
        cluster_authorized_operations=cluster_operations(broker, exchange) if asked_for_cluster else NOT_ASKED,
    )


def _find(
    broker: BrokerServices, exchange: Exchange, request: MetadataRequest, asked: MetadataRequestTopic
) -> MetadataResponseTopic:
    name, refusal = resolve(
        broker, exchange, Operation.DESCRIBE, asked.name or "", asked.topic_id, by_id=asked.name is None
    )
    if refusal is not None:
        return MetadataResponseTopic(error_code=refusal, name=asked.name, topic_id=asked.topic_id)
    topic = broker.image.topics.get(name)
    if topic is not None:
        return _describe(broker, exchange, topic, request)
    error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if request.allow_auto_topic_creation and broker.settings.topics.auto_create:
        try:
            if not broker.authorization.may(exchange, Operation.CREATE, CLUSTER):
                broker.authorization.check(exchange, Operation.CREATE, Resource.topic(name))
            check_topic_name(name)
            broker.request_topic(name, exchange.now)
            error_code = ErrorCode.LEADER_NOT_AVAILABLE  # clients retry after this error while the topic is created
        except KafkaError as error:
            error_code = error.code
    return MetadataResponseTopic(error_code=error_code, name=name, topic_id=ZERO_TOPIC_ID)


def cluster_operations(broker: BrokerServices, exchange: Exchange) -> int:
    """The client's authorized operations on the cluster as a bit field; 0 without DESCRIBE on the cluster."""
    return (
        broker.authorization.operations(exchange, CLUSTER)
        if broker.authorization.may(exchange, Operation.DESCRIBE, CLUSTER)
        else 0
    )


def _describe(
    broker: BrokerServices, exchange: Exchange, topic: TopicImage, request: MetadataRequest
) -> MetadataResponseTopic:
    asked_for_operations = request.include_topic_authorized_operations
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(_describe_partition(broker, topic.name, partition) for partition in topic.partitions),
        topic_authorized_operations=(
            broker.authorization.operations(exchange, Resource.topic(topic.name)) if asked_for_operations else NOT_ASKED
        ),
    )


def _describe_partition(broker: BrokerServices, topic: str, partition: PartitionImage) -> MetadataResponsePartition:
    led = partition.leader != NO_BROKER_ID
    if partition.leader == broker.identity.node_id:
        led = TopicPartition(topic, partition.partition) in broker.partitions
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.partition,
        leader_id=partition.leader if led else NO_BROKER_ID,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=tuple(replica for replica in partition.replicas if not broker.image.is_alive(replica)),
    )
