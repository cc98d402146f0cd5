"""DescribeProducers (key 61), v0: the producer state of a partition, and its open transactions (KIP-664).

Any broker that has a replica of the partition answers from its own log, leader or not. Requires READ on each topic.

The last timestamp is that of the producer's newest batch in its current epoch. Unlike in Kafka, transaction markers do
not count. If there is no such batch, timestamp and sequence are -1.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, cast

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_TIMESTAMP_MS, TopicPartition
from raylog.metadata.topic_names import check_topic_name
from raylog.protocol.codec import EncodedElements
from raylog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.logstore.log import Log
    from raylog.transport.exchange import Exchange


STEP_PRODUCERS: Final = 500
"""How many partitions and producers are described before others are served."""


def handle(broker: BrokerServices, exchange: Exchange, request: DescribeProducersRequest) -> None:
    exchange.answer_in_steps(_describe_all(broker, exchange, request))


def _describe_all(
    broker: BrokerServices, exchange: Exchange, request: DescribeProducersRequest
) -> Generator[None, None, DescribeProducersResponse]:
    topics = []
    for number, topic in enumerate(dict.fromkeys(request.topics), 1):
        partitions = EncodedElements(PartitionResponse, of=DescribeProducersResponse, version=exchange.api_version)
        described = (_describe(broker, exchange, topic.name, index) for index in dict.fromkeys(topic.partition_indexes))
        yield from partitions.add_in_steps(
            described, step=STEP_PRODUCERS, work=lambda partition: 1 + len(partition.active_producers)
        )
        topics.append(TopicResponse(name=topic.name, partitions=cast(Any, partitions)))
        if number % STEP_PRODUCERS == 0:
            yield
    return DescribeProducersResponse(topics=tuple(topics))


def _describe(broker: BrokerServices, exchange: Exchange, topic: str, index: int) -> PartitionResponse:
    try:
        broker.authorization.check(exchange, Operation.READ, Resource.topic(topic))
        check_topic_name(topic)
        producers = _producers_of(_log_of(broker, TopicPartition(topic, index)))
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    return PartitionResponse(partition_index=index, active_producers=producers)


def _log_of(broker: BrokerServices, tp: TopicPartition) -> Log:
    """Raises KafkaError: unknown, not held here, or its disk has failed."""
    log = (broker.partitions.get(tp) or broker.partition(tp)).log
    if log.offline_reason is not None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    return log


def _producers_of(log: Log) -> tuple[ProducerState, ...]:
    state = log.producers
    return tuple(
        ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.batches[-1].timestamp_ms if entry.batches else NO_TIMESTAMP_MS,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=state.open_transaction(producer_id),
        )
        for producer_id, entry in state.producers().items()
    )
