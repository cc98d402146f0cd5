"""AddPartitionsToTxn (key 24), v0-3: partitions that a producer is about to write to in its transaction (KIP-98).

v2 PRODUCER_FENCED, which was INVALID_PRODUCER_EPOCH before; v3 flexible. Where one of the partitions cannot be added
none is: the others are answered with OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker.handlers.init_producer_id import fenced_as
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ProducerId, TopicPartition
from raylog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from raylog.txncoord.records import ProducerIdentity

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.transport.request import RequestContext


def handle(broker: Broker, context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    topics = request.v3_and_below_topics
    partitions = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
    unknown = {tp for tp in partitions if broker.image.partition(tp) is None}
    code = ErrorCode.OPERATION_NOT_ATTEMPTED if unknown else _add(broker, context, request, partitions)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=number,
                        partition_error_code=(
                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                            if TopicPartition(topic.name, number) in unknown
                            else code
                        ),
                    )
                    for number in topic.partitions
                ),
            )
            for topic in topics
        )
    )


def _add(
    broker: Broker, context: RequestContext, request: AddPartitionsToTxnRequest, partitions: list[TopicPartition]
) -> ErrorCode:
    producer = ProducerIdentity(ProducerId(request.v3_and_below_producer_id), request.v3_and_below_producer_epoch)
    try:
        broker.transactions.add_partitions(request.v3_and_below_transactional_id, producer, partitions, context.now)
    except KafkaError as error:
        return fenced_as(error.code, named_from=2, version=context.api_version)
    return ErrorCode.NONE
