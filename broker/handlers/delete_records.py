"""DeleteRecords (key 21), v0-2: raise the log start offset of partitions. v2 flexible.

Offset -1 is the high watermark. The records are unreadable once the response is sent; files are deleted by the next
retention check. A broker that is killed before log.flush.start.offset.checkpoint.interval.ms have passed may restart
with the old log start offset, as in Kafka. Requires DELETE on each topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_OFFSET, Offset, TopicPartition
from raylog.metadata.topic_names import INTERNAL_TOPICS
from raylog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

HIGH_WATERMARK: Final = -1


def handle(broker: BrokerServices, exchange: Exchange, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(_delete(broker, exchange, topic.name, wanted) for wanted in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _delete(
    broker: BrokerServices, exchange: Exchange, topic: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    tp = TopicPartition(topic, wanted.partition_index)
    try:
        broker.authorization.check(exchange, Operation.DELETE, Resource.topic(topic))
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = broker.partition(tp)
        before = partition.high_watermark if wanted.offset == HIGH_WATERMARK else Offset(wanted.offset)
        low_watermark = partition.delete_records_before(before)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=tp.partition, low_watermark=NO_OFFSET, error_code=error.code
        )
    broker.partition_changed(tp)
    return DeleteRecordsPartitionResult(partition_index=tp.partition, low_watermark=low_watermark)
