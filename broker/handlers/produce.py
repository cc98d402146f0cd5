"""Produce (key 0), v3-13 (advertised from 0): append record batches.

v5 log start offset in the answer; v7 zstd; v8 per-record errors; v9 flexible; v10 leader hints; v13 topic ids.
With one replica acks=1 and acks=all are answered alike, once the batch is in the log. acks=0 gets no answer; where such
a batch is refused the connection is closed, the only sign its sender can notice.

An idempotent batch that comes too early, or to the wrong broker, is answered and then hung up on as well. What was sent
behind it may find the partition served: to a log that knows nothing of its producer it would be the producer's first
batch, and the one before it could never be written. Over a new connection the client sends all of them again, in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker.handlers.topic_names import resolve
from raylog.broker.handlers.zstd import refuse_zstd
from raylog.controller.topics import INTERNAL_TOPICS
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from raylog.protocol.records.batch import parse_header
from raylog.transport.request import NO_RESPONSE, CloseConnection, NoResponse

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.transport.request import RequestContext

ACKS_ALL = -1
FIRST_VERSION_WITH_ZSTD = 7


def handle(broker: Broker, context: RequestContext, request: ProduceRequest) -> ProduceResponse | NoResponse:
    topics: list[ProduceTopicResponse] = []
    for topic in request.topics:
        name, refusal = resolve(broker, topic.name, topic.topic_id, by_id=context.api_version >= 13)
        if refusal is None and name in INTERNAL_TOPICS:
            refusal = ErrorCode.INVALID_TOPIC_EXCEPTION
        if refusal is None and request.acks not in (0, 1, ACKS_ALL):
            refusal = ErrorCode.INVALID_REQUIRED_ACKS
        if refusal is ErrorCode.UNKNOWN_TOPIC_ID:
            for partition in topic.partitions:
                _let_nothing_overtake(context, partition)
        results = [
            ProducePartitionResponse(index=partition.index, error_code=refusal)
            if refusal is not None
            else _append(broker, context, request, TopicPartition(name, partition.index), partition)
            for partition in topic.partitions
        ]
        topics.append(ProduceTopicResponse(name=topic.name, topic_id=topic.topic_id, partitions=results))
    if request.acks != 0:
        return ProduceResponse(responses=topics)
    for answered in topics:
        for result in answered.partitions:
            if result.error_code != ErrorCode.NONE:
                raise CloseConnection(f"a batch sent with acks=0 was refused: {result.error_code.name}")
    return NO_RESPONSE


def _append(
    broker: Broker, context: RequestContext, request: ProduceRequest, tp: TopicPartition, sent: ProducePartition
) -> ProducePartitionResponse:
    try:
        partition = broker.partition(tp)
    except KafkaError as error:
        _let_nothing_overtake(context, sent)
        return ProducePartitionResponse(index=tp.partition, error_code=error.code, error_message=error.message)
    try:
        if request.acks == ACKS_ALL:
            partition.check_insync_replicas()
        if not sent.records:
            raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch")
        if context.api_version < FIRST_VERSION_WITH_ZSTD:
            refuse_zstd(sent.records)
        appended = partition.append_as_leader(sent.records, now_ms=context.now.wall_ms)
    except KafkaError as error:
        return ProducePartitionResponse(index=tp.partition, error_code=error.code, error_message=error.message)
    as_sent = partition.log.settings.compression is None  # else it may have grown or shrunk on its way into the log
    broker.partition_changed(tp, len(sent.records) if as_sent else 0)
    return ProducePartitionResponse(
        index=tp.partition,
        base_offset=appended.first_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )


def _let_nothing_overtake(context: RequestContext, refused: ProducePartition) -> None:
    if _is_idempotent(refused):
        context.connection.close_after_answer("an idempotent batch was refused where it may soon be taken")


def _is_idempotent(sent: ProducePartition) -> bool:
    try:
        return sent.records is not None and parse_header(sent.records).producer_id >= 0
    except KafkaError:  # no batch at all
        return False
