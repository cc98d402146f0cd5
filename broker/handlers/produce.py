"""Produce (key 0), v3-13 (advertised from 0): append record batches.

v5 log start offset in the answer; v7 zstd; v8 per-record errors; v9 flexible; v10 leader hints; v13 topic ids.
acks=1 is answered once the batch is in the leader's log, acks=all once all replicas in sync have it, of which there
must be min.insync.replicas. acks=0 gets no answer; where such a batch is refused the connection is closed, the only
sign its sender can notice.

An idempotent batch that comes too early, to the wrong broker, or while too few replicas are in sync, is answered and
then hung up on as well. What was sent behind it may find the partition served: to a log that knows nothing of its
producer it would be the producer's first batch, and the one before it could never be written. Over a new connection the
client sends all of them again, in order.

Before the first batch of a transaction in a partition is taken its coordinator is asked (KIP-890); v11
TRANSACTION_ABORTABLE, which was INVALID_TXN_STATE before.

Asks for WRITE on each topic, and on the transactional id where there is one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from raylog.broker.handlers.topic_names import resolve
from raylog.broker.handlers.zstd import refuse_zstd
from raylog.broker.verification import BEFORE_ABORTABLE, Codes
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ProducerId, TopicPartition
from raylog.metadata.topic_names import INTERNAL_TOPICS
from raylog.protocol.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from raylog.protocol.records.batch import ATTRIBUTES_AT, TRANSACTIONAL_BIT, BatchHeader, parse_header
from raylog.security.acl import Operation, Resource
from raylog.transport.request import ANSWERED_LATER, NO_RESPONSE, AnsweredLater, CloseConnection, NoResponse, Parked
from raylog.txncoord.records import ProducerIdentity

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.replication.partition import Partition
    from raylog.transport.request import RequestContext

ACKS_ALL = -1
_AnsweredTopic = tuple[str, UUID, list[ProducePartitionResponse]]
FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_ABORTABLE = 11


def handle(
    broker: Broker, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | NoResponse | Parked | AnsweredLater:
    if request.transactional_id is not None and request.acks == ACKS_ALL and _may_write(broker, context, request):
        unverified = _unverified(broker, context, request)
        if unverified:
            return _verify(broker, context, request, unverified)
    return _produce(broker, context, request, {})


def _produce(
    broker: Broker, context: RequestContext, request: ProduceRequest, refused: Codes
) -> ProduceResponse | NoResponse | Parked:
    """`refused` are the codes of what may not be written."""
    topics: list[_AnsweredTopic] = []
    waiting: list[_Waiting] = []
    may_write = _may_write(broker, context, request)
    for topic in request.topics:
        name, refusal = resolve(
            broker, context, Operation.WRITE, topic.name, topic.topic_id, by_id=context.api_version >= 13
        )
        if not may_write:
            refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if refusal is None and name in INTERNAL_TOPICS:
            refusal = ErrorCode.INVALID_TOPIC_EXCEPTION
        if refusal is None and request.transactional_id is None and any(map(_is_transactional, topic.partitions)):
            refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        allowed_acks = (0, 1, ACKS_ALL) if request.transactional_id is None else (ACKS_ALL,)
        if refusal is None and request.acks not in allowed_acks:
            refusal = ErrorCode.INVALID_REQUIRED_ACKS
        if refusal is ErrorCode.UNKNOWN_TOPIC_ID:
            for partition in topic.partitions:
                _let_nothing_overtake(context, partition)
        results: list[ProducePartitionResponse] = []
        topics.append((topic.name, topic.topic_id, results))
        for sent in topic.partitions:
            if refusal is not None:
                results.append(ProducePartitionResponse(index=sent.index, error_code=refusal))
                continue
            tp = TopicPartition(name, sent.index)
            if refused and refused.get(tp, ErrorCode.NONE) != ErrorCode.NONE:
                _let_nothing_overtake(context, sent)
                results.append(ProducePartitionResponse(index=sent.index, error_code=refused[tp]))
                continue
            result, written = _append(broker, context, request, tp, sent)
            if written is not None and request.acks == ACKS_ALL and written.high_watermark < written.log.log_end_offset:
                waiting.append(_Waiting(tp, written, results, len(results)))
            results.append(result)
    if request.acks == 0:
        _hang_up_for_refusals(topics)
        return NO_RESPONSE
    if not waiting:
        return _response(topics)
    deadline_ms = context.now.monotonic_ms + max(request.timeout_ms, 0)
    return Parked(DelayedProduce(context, topics, waiting, deadline_ms), [one.tp for one in waiting])


def _unverified(
    broker: Broker, context: RequestContext, request: ProduceRequest
) -> dict[TopicPartition, ProducerIdentity]:
    """Where a transaction would begin, as far as this broker knows, and whose."""
    found = {}
    for topic in request.topics:
        name, refusal = resolve(
            broker, context, Operation.WRITE, topic.name, topic.topic_id, by_id=context.api_version >= 13
        )
        for sent in topic.partitions if refusal is None else ():
            tp, header = TopicPartition(name, sent.index), _header_of(sent)
            if header is None or not header.is_transactional:
                continue
            if broker.verification.is_needed(broker.partitions.get(tp), header.producer_id):
                found[tp] = ProducerIdentity(ProducerId(header.producer_id), header.producer_epoch)
    return found


def _verify(
    broker: Broker,
    context: RequestContext,
    request: ProduceRequest,
    unverified: dict[TopicPartition, ProducerIdentity],
) -> AnsweredLater:
    assert request.transactional_id is not None
    kept = _copied(request)

    def go_on(codes: Codes) -> None:
        if context.api_version < FIRST_VERSION_WITH_ABORTABLE:
            codes = {tp: BEFORE_ABORTABLE.get(code, code) for tp, code in codes.items()}
        answer = _produce(broker, context, kept, codes)
        if isinstance(answer, Parked):
            broker.delayed.park(answer.operation, answer.keys)
        else:
            context.reply(answer)

    producer, *others = set(unverified.values())
    if others:  # a transactional id has one producer
        go_on(dict.fromkeys(unverified, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        return ANSWERED_LATER
    broker.verification.ask(request.transactional_id, producer, list(unverified), go_on, context.now)
    return ANSWERED_LATER


def _copied(request: ProduceRequest) -> ProduceRequest:
    """The same, in memory of its own: the frame that it came in does not last."""
    return replace(
        request,
        topics=[
            replace(
                topic,
                partitions=[
                    sent if sent.records is None else replace(sent, records=memoryview(bytearray(sent.records)))
                    for sent in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


class DelayedProduce:
    """A Produce with acks=all that waits for the replicas in sync, partition by partition."""

    def __init__(
        self, context: RequestContext, topics: list[_AnsweredTopic], waiting: list[_Waiting], deadline_ms: int
    ) -> None:
        self._context = context
        self._topics = topics
        self._waiting = waiting
        self.deadline_ms = deadline_ms

    def try_complete(self, grown_bytes: int) -> bool:
        self._waiting = [one for one in self._waiting if not one.is_settled()]
        if self._waiting:
            return False
        self._context.reply(_response(self._topics))
        return True

    def complete(self) -> None:
        """The time is over: the batches are written, and what will become of them is not known."""
        for one in self._waiting:
            if not one.is_settled():
                one.fail(ErrorCode.REQUEST_TIMED_OUT)
        self._context.reply(_response(self._topics))


class _Waiting:
    """A batch just written, whose answer waits until all of the log so far is committed. Its place is `results[at]`."""

    def __init__(
        self, tp: TopicPartition, partition: Partition, results: list[ProducePartitionResponse], at: int
    ) -> None:
        self.tp = tp
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._upto = partition.log.log_end_offset
        self._results = results
        self._at = at

    def is_settled(self) -> bool:
        partition = self._partition
        if not partition.is_leader or partition.leader_epoch != self._leader_epoch:
            self.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif partition.log.offline_reason is not None:
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        elif partition.high_watermark < self._upto:
            return False
        elif not partition.has_enough_replicas:
            self.fail(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return True

    def fail(self, code: ErrorCode) -> None:
        self._results[self._at] = ProducePartitionResponse(index=self.tp.partition, error_code=code)


def _response(topics: list[_AnsweredTopic]) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            ProduceTopicResponse(name=name, topic_id=topic_id, partitions=results) for name, topic_id, results in topics
        ]
    )


def _hang_up_for_refusals(topics: list[_AnsweredTopic]) -> None:
    for _, _, results in topics:
        for result in results:
            if result.error_code != ErrorCode.NONE:
                raise CloseConnection(f"a batch sent with acks=0 was refused: {result.error_code.name}")


def _append(
    broker: Broker, context: RequestContext, request: ProduceRequest, tp: TopicPartition, sent: ProducePartition
) -> tuple[ProducePartitionResponse, Partition | None]:
    """The result, and the partition where the batch is in its log."""
    try:
        partition = broker.partition(tp)
    except KafkaError as error:
        _let_nothing_overtake(context, sent)
        return _refused(tp, error), None
    try:
        if request.acks == ACKS_ALL and not partition.has_enough_replicas:
            _let_nothing_overtake(context, sent)
            partition.check_insync_replicas()
        if not sent.records:
            raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch")
        if context.api_version < FIRST_VERSION_WITH_ZSTD:
            refuse_zstd(sent.records)
        appended = partition.append_as_leader(sent.records, now_ms=context.now.wall_ms)
    except KafkaError as error:
        return _refused(tp, error), None
    as_sent = partition.log.settings.compression is None  # else it may have grown or shrunk on its way into the log
    broker.partition_changed(tp, len(sent.records) if as_sent else 0)
    result = ProducePartitionResponse(
        index=tp.partition,
        base_offset=appended.first_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )
    return result, partition


def _refused(tp: TopicPartition, error: KafkaError) -> ProducePartitionResponse:
    return ProducePartitionResponse(index=tp.partition, error_code=error.code, error_message=error.message)


def _let_nothing_overtake(context: RequestContext, refused: ProducePartition) -> None:
    if _is_idempotent(refused):
        context.connection.close_after_answer("an idempotent batch was refused where it may soon be taken")


def _may_write(broker: Broker, context: RequestContext, request: ProduceRequest) -> bool:
    """Whether the client has the right to the transactional id, where it names one."""
    named = request.transactional_id
    return named is None or broker.may(context, Operation.WRITE, Resource.transactional_id(named))


def _is_transactional(sent: ProducePartition) -> bool:
    at, records = ATTRIBUTES_AT + 1, sent.records  # the lower byte of two
    return records is not None and len(records) > at and bool(records[at] & TRANSACTIONAL_BIT)


def _is_idempotent(sent: ProducePartition) -> bool:
    header = _header_of(sent)
    return header is not None and header.producer_id >= 0


def _header_of(sent: ProducePartition) -> BatchHeader | None:
    """Of the first batch, where there is any."""
    try:
        return None if sent.records is None else parse_header(sent.records)
    except KafkaError:
        return None
