"""Metadata (key 3), v0-13: brokers, and the leaders of partitions. Creates unknown topics if that is enabled.

v1 controller and racks; v4 allow_auto_topic_creation; v6 LISTENER_NOT_FOUND; v7 leader epochs; v8 authorized
operations; v10 topic ids; v12 topics by id; v13 a top-level error code. In v0 an empty list of topics means all.

Requires DESCRIBE on each topic: a request for all topics omits topics without it; a named one gets the same error
whether it exists or not. Creating a topic requires CREATE on it or on the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from raylog.broker.handlers.requested_topics import resolve
from raylog.broker.topic_creation import Requester
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, ZERO_TOPIC_ID, TopicPartition
from raylog.metadata.image import TopicImage
from raylog.metadata.topic_names import INTERNAL_TOPICS, check_topic_name
from raylog.protocol.codec import EncodedElements
from raylog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from raylog.security.acl import CLUSTER, Operation, Resource
from raylog.security.authorization import NOT_ASKED

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.metadata.image import PartitionImage
    from raylog.transport.exchange import Exchange

IDS_NOT_SERVED = (10, 11)
"""Versions whose requests have topic ids, which Kafka does not serve before v12."""
LEADERS_CHANGED = "leaders changed"
"""Key of requests that wait for new leaders."""
LOST_PEER_MS = 100
"""How long Metadata waits for a new leader after the connection to the old one broke; then it returns that."""
STEP_ENTRIES: Final = 500
"""How many topics and partitions are described before others are served: 5 ms."""


def handle(broker: BrokerServices, exchange: Exchange, request: MetadataRequest) -> MetadataResponse | None:
    if exchange.api_version in IDS_NOT_SERVED and any(_is_by_id(asked) for asked in request.topics or ()):
        return _refused(request)
    delayed = DelayedMetadata(broker, exchange, request)
    if not delayed.try_complete(0):
        exchange.hold_back()
        exchange.wait_for(delayed, [LEADERS_CHANGED])
    return None


def _is_by_id(asked: MetadataRequestTopic) -> bool:
    return asked.name is None or asked.topic_id != ZERO_TOPIC_ID


def _refused(request: MetadataRequest) -> MetadataResponse:
    """INVALID_REQUEST for each topic. A name is not null in responses of these versions."""
    return MetadataResponse(
        topics=tuple(
            MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id)
            for asked in request.topics or ()
        )
    )


class DelayedMetadata:
    """A Metadata request whose response would contain a leader whose connection to this broker has just broken.

    A client whose leader was killed refreshes its metadata some milliseconds before the controller has elected a new
    leader; if it got the old leader again, it would keep it for seconds.
    """

    def __init__(self, broker: BrokerServices, exchange: Exchange, request: MetadataRequest) -> None:
        self._broker = broker
        self._exchange = exchange
        self._request = request
        self._named = _named(exchange, request)
        self.deadline_ms = exchange.now.monotonic_ms + LOST_PEER_MS

    def try_complete(self, grown_bytes: int) -> bool:
        if self._may_be_outdated():
            return False
        self.complete()
        return True

    def complete(self) -> None:
        self._exchange.answer_in_steps(_describe_all(self._broker, self._exchange, self._request, self._named))

    def _may_be_outdated(self) -> bool:
        lost_ms = self._exchange.now.monotonic_ms - LOST_PEER_MS
        recently_lost = {broker_id for broker_id, at_ms in self._broker.peers_lost_ms.items() if at_ms > lost_ms}
        if not recently_lost:
            return False
        image = self._broker.image
        topics: Iterable[TopicImage | None] = image.topics.values()
        if self._named is not None:
            topics = (
                image.topics_by_id.get(asked.topic_id) if asked.name is None else image.topics.get(asked.name)
                for asked in self._named
            )
        return any(
            partition.leader in recently_lost for topic in topics if topic is not None for partition in topic.partitions
        )


def _named(exchange: Exchange, request: MetadataRequest) -> Collection[MetadataRequestTopic] | None:
    """The topics that the request names, each once; None if it asks for all."""
    if request.topics is None or (exchange.api_version == 0 and not request.topics):
        return None
    return dict.fromkeys(request.topics).keys()


def _describe_all(
    broker: BrokerServices,
    exchange: Exchange,
    request: MetadataRequest,
    named: Collection[MetadataRequestTopic] | None,
) -> Generator[None, None, MetadataResponse]:
    """Describes STEP_ENTRIES partitions at a time. Each topic is as it was when its last partition was described."""
    version = exchange.api_version
    topics = EncodedElements(MetadataResponseTopic, of=MetadataResponse, version=version)
    entries = 0
    for found in _find_all(broker, exchange, request, named):
        if isinstance(found, MetadataResponseTopic):
            topics.add(found)
        else:
            partitions = EncodedElements(MetadataResponsePartition, of=MetadataResponse, version=version)
            for partition in tuple(found.partitions):
                partitions.add(_describe_partition(broker, exchange, found.name, partition))
                entries += 1
                if entries % STEP_ENTRIES == 0:
                    yield
            topics.add(_describe(broker, exchange, found, request, partitions))
        entries += 1
        if entries % STEP_ENTRIES == 0:
            yield
    return _response(broker, exchange, request, topics)


def _find_all(
    broker: BrokerServices,
    exchange: Exchange,
    request: MetadataRequest,
    named: Collection[MetadataRequestTopic] | None,
) -> Iterator[TopicImage | MetadataResponseTopic]:
    """The topics to describe, or what is returned instead. Topics may be created and deleted meanwhile."""
    if named is not None:
        for asked in named:
            yield _find(broker, exchange, request, asked)
        return
    for name in tuple(broker.image.topics):
        topic = broker.image.topics.get(name)
        if topic is not None and broker.authorization.may(
            exchange, Operation.DESCRIBE, Resource.topic(name), logs_denial=False
        ):
            yield topic


def _response(
    broker: BrokerServices, exchange: Exchange, request: MetadataRequest, topics: EncodedElements
) -> MetadataResponse:
    asked_for_cluster = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node_id=broker_id, host=host, port=port, rack=rack)
            for broker_id, host, port, rack in broker.alive_on(exchange.connection.listener.name)
        ),
        cluster_id=broker.identity.cluster_id,
        controller_id=broker.controller_on(exchange.connection.listener.name),
        topics=cast(Any, topics),
        cluster_authorized_operations=broker.authorization.cluster_operations(exchange)
        if asked_for_cluster
        else NOT_ASKED,
    )


def _find(
    broker: BrokerServices, exchange: Exchange, request: MetadataRequest, asked: MetadataRequestTopic
) -> TopicImage | MetadataResponseTopic:
    name, refusal = resolve(
        broker, exchange, Operation.DESCRIBE, asked.name or "", asked.topic_id, by_id=asked.name is None
    )
    if refusal is not None:
        return MetadataResponseTopic(error_code=refusal, name=asked.name, topic_id=asked.topic_id)
    topic = broker.image.topics.get(name)
    if topic is not None:
        return topic
    error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    creates = request.allow_auto_topic_creation and broker.settings.topics.auto_create
    try:
        if creates and not broker.authorization.may(exchange, Operation.CREATE, CLUSTER, logs_denial=False):
            broker.authorization.check(exchange, Operation.CREATE, Resource.topic(name))
        check_topic_name(name)
        if creates:
            broker.request_topic(name, exchange.now, requester=Requester.of(exchange))
            error_code = ErrorCode.LEADER_NOT_AVAILABLE  # clients retry after this error while the topic is created
    except KafkaError as error:
        error_code = error.code
    return MetadataResponseTopic(error_code=error_code, name=name, topic_id=ZERO_TOPIC_ID)


def _describe(
    broker: BrokerServices, exchange: Exchange, topic: TopicImage, request: MetadataRequest, partitions: EncodedElements
) -> MetadataResponseTopic:
    asked_for_operations = request.include_topic_authorized_operations
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=cast(Any, partitions),
        topic_authorized_operations=(
            broker.authorization.operations(exchange, Resource.topic(topic.name)) if asked_for_operations else NOT_ASKED
        ),
    )


def _describe_partition(
    broker: BrokerServices, exchange: Exchange, topic: str, partition: PartitionImage
) -> MetadataResponsePartition:
    error_code = _error_of_leader(broker, exchange, topic, partition)
    image, topic_id = broker.image, broker.image.topics[topic].topic_id
    return MetadataResponsePartition(
        error_code=error_code,
        partition_index=partition.partition,
        leader_id=NO_BROKER_ID if error_code else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=tuple(
            replica
            for replica in partition.replicas
            if not (image.is_alive(replica) and image.is_directory_online(replica, topic_id, partition.partition))
        ),
    )


def _error_of_leader(broker: BrokerServices, exchange: Exchange, topic: str, partition: PartitionImage) -> ErrorCode:
    if partition.leader == broker.identity.node_id:
        led = TopicPartition(topic, partition.partition) in broker.partitions
        return ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE
    leader = broker.image.brokers.get(partition.leader)
    if leader is None:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if leader.endpoint(exchange.connection.listener.name) is None:  # listeners are being changed
        return ErrorCode.LISTENER_NOT_FOUND if exchange.api_version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE
