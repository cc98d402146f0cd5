"""DescribeTopicPartitions (key 75), v0: the leaders and replicas of the partitions of topics, in pages (KIP-966).

Topics are sorted by name, including unknown ones. A page holds as many partitions as the request and
max.request.partition.size.limit allow; its cursor is the start of the next page, and the client sends it with the same
topics. A request without topics describes all of them. No topic is created. Requires DESCRIBE on each topic: without
it a named topic gets an error, and an unnamed one is omitted.

Partitions have no error code: if the leader is not reachable, it is -1. Eligible leader replicas are not tracked and
always empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, TopicPartition
from raylog.metadata.topic_names import INTERNAL_TOPICS, check_topic_name
from raylog.protocol.codec import EncodedElements
from raylog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from collections.abc import Generator, Set

    from raylog.broker.services import BrokerServices
    from raylog.core.ids import BrokerId
    from raylog.metadata.image import PartitionImage, TopicImage
    from raylog.transport.exchange import Exchange


STEP_TOPICS: Final = 500
"""How many topics are looked up before others are served: unknown ones do not count as partitions of a page."""


def handle(
    broker: BrokerServices, exchange: Exchange, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse | None:
    cursor = request.cursor
    named = {topic.name for topic in request.topics}
    if cursor is not None and (cursor.partition_index < 0 or (named and cursor.topic_name not in named)):
        return _refuse(request)
    exchange.answer_in_steps(_describe_all(broker, exchange, request, named))
    return None


def _describe_all(
    broker: BrokerServices, exchange: Exchange, request: DescribeTopicPartitionsRequest, named: Set[str]
) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    cursor = request.cursor
    listed = named or [name for name in broker.image.topics if _may_describe(broker, exchange, name, logs_denial=False)]
    wanted = sorted(name for name in listed if cursor is None or name >= cursor.topic_name)
    reachable = {broker_id for broker_id, *_ in broker.alive_on(exchange.connection.listener.name)}
    room = max(min(request.response_partition_limit, broker.settings.requests.described_partitions_max), 1)
    described = EncodedElements(
        DescribeTopicPartitionsResponseTopic, of=DescribeTopicPartitionsResponse, version=exchange.api_version
    )
    next_cursor = None
    for number, name in enumerate(wanted):
        if number % STEP_TOPICS == STEP_TOPICS - 1:
            yield
        if room == 0:
            next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = broker.image.topics.get(name)
        if topic is None and not named:
            continue  # it was deleted meanwhile
        if not _may_describe(broker, exchange, name):
            refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            described.add(DescribeTopicPartitionsResponseTopic(error_code=refusal, name=name))
            continue
        operations = broker.authorization.operations(exchange, Resource.topic(name))
        if topic is None:
            described.add(_unknown(name, operations))
            continue
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        last = min(len(topic.partitions), first + room)
        described.add(_describe(broker, topic, topic.partitions[first:last], reachable, operations))
        room -= max(last - first, 0)
        if last < len(topic.partitions):
            next_cursor = Cursor(topic_name=name, partition_index=last)
            break
    return DescribeTopicPartitionsResponse(topics=cast(Any, described), next_cursor=next_cursor)


def _refuse(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """The response to a cursor whose topic was not requested, or whose partition is negative."""
    return DescribeTopicPartitionsResponse(
        topics=tuple(
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
            for topic in request.topics
        )
    )


def _may_describe(broker: BrokerServices, exchange: Exchange, topic: str, *, logs_denial: bool = True) -> bool:
    return broker.authorization.may(exchange, Operation.DESCRIBE, Resource.topic(topic), logs_denial=logs_denial)


def _unknown(name: str, operations: int) -> DescribeTopicPartitionsResponseTopic:
    try:
        check_topic_name(name)
        error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except KafkaError as error:
        error_code = error.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=error_code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
    )


def _describe(
    broker: BrokerServices,
    topic: TopicImage,
    partitions: list[PartitionImage],
    reachable: Set[BrokerId],
    operations: int,
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(_describe_partition(broker, topic.name, each, reachable) for each in partitions),
        topic_authorized_operations=operations,
    )


def _describe_partition(
    broker: BrokerServices, topic: str, partition: PartitionImage, reachable: Set[BrokerId]
) -> DescribeTopicPartitionsResponsePartition:
    serving = set(broker.image.eligible(broker.image.topics[topic].topic_id, partition, reachable))
    tp = TopicPartition(topic, partition.partition)
    if tp not in broker.partitions and not broker.table.directories.is_opening(tp):
        serving.discard(broker.identity.node_id)  # its disk has failed, which this broker knows first
    return DescribeTopicPartitionsResponsePartition(
        partition_index=partition.partition,
        leader_id=partition.leader if partition.leader in serving else NO_BROKER_ID,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=tuple(broker_id for broker_id in partition.replicas if broker_id not in serving),
    )
