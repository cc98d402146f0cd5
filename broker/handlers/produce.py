"""Produce (key 0), v3-13 (advertised from 0): append record batches.

v5 log start offset in the response; v7 zstd; v8 per-record errors; v9 flexible; v10 leader hints; v13 topic ids. The
response is sent once the batch is in the leader's log (acks=1), or in the logs of all in-sync replicas, of which there
must be min.insync.replicas (acks=all). acks=0 has no response; if such a batch is refused, the broker closes the
connection, because the producer can notice nothing else.

If an idempotent batch is refused with a retriable error (another leader, too few in-sync replicas), the broker closes
the connection after the response and serves no later request on it. Otherwise the next batch might be accepted: in a
log without state for its producer it would be the first one, and the refused batch could never be written. Over a new
connection the client sends all of them again, in order.

Before the first batch of a transaction in a partition is appended, the broker verifies with the transaction
coordinator that the partition was added to the transaction (KIP-890). v11 TRANSACTION_ABORTABLE instead of
INVALID_TXN_STATE; v12 the broker adds the partition (transactions of version 2).

Requires WRITE on each topic, and on the transactional id if there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from raylog.broker.handlers.appending import (
    ACKS_ALL,
    UNDECIDED,
    Appending,
    Place,
    check_in_job,
    close_if_idempotent,
    header_of,
    own_memory,
)
from raylog.broker.handlers.requested_topics import resolve
from raylog.core.errors import ErrorCode
from raylog.core.ids import ProducerId, ProducerIdentity, TopicPartition
from raylog.metadata.topic_names import INTERNAL_TOPICS
from raylog.protocol.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from raylog.protocol.records.batch import ATTRIBUTES_AT, TRANSACTIONAL_BIT
from raylog.security.acl import Operation, Resource
from raylog.transport.exchange import NO_ANSWER
from raylog.txncoord.verification import CODES_BEFORE_ABORTABLE, Codes

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

_AnsweredTopic = tuple[str, UUID, list[ProducePartitionResponse]]
FIRST_VERSION_WITH_ABORTABLE = 11
FIRST_VERSION_OF_2 = 12
"""The first version in which producers leave it to the leader to add partitions to the transaction."""


def handle(broker: BrokerServices, exchange: Exchange, request: ProduceRequest) -> None:
    if request.transactional_id is not None and request.acks == ACKS_ALL and _may_write(broker, exchange, request):
        unverified = _unverified(broker, exchange, request)
        if unverified:
            _verify(broker, exchange, request, unverified)
            return
    _produce(broker, exchange, request, {})


def _produce(broker: BrokerServices, exchange: Exchange, request: ProduceRequest, refused: Codes) -> bool:
    """Append, and respond once the batches are as durable as `acks` requires. `refused`: partitions to refuse.

    Returns False if a job checks some of the batches first.
    """
    topics: list[_AnsweredTopic] = []
    appending = Appending(broker, exchange, request)
    may_write = _may_write(broker, exchange, request)
    for topic in request.topics:
        name, refusal = resolve(
            broker, exchange, Operation.WRITE, topic.name, topic.topic_id, by_id=exchange.api_version >= 13
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
                close_if_idempotent(exchange, partition)
        results: list[ProducePartitionResponse] = []
        topics.append((topic.name, topic.topic_id, results))
        for sent in topic.partitions:
            if refusal is not None:
                results.append(ProducePartitionResponse(index=sent.index, error_code=refusal))
                continue
            tp = TopicPartition(name, sent.index)
            if refused and refused.get(tp, ErrorCode.NONE) != ErrorCode.NONE:
                close_if_idempotent(exchange, sent)
                results.append(ProducePartitionResponse(index=sent.index, error_code=refused[tp]))
                continue
            results.append(UNDECIDED)
            appending.append(Place(results, len(results) - 1), tp, sent)
    if appending.postponed:
        exchange.hold_back()
        check_in_job(broker, appending, then=partial(_appended, broker, exchange, request, topics, appending))
        return False
    _appended(broker, exchange, request, topics, appending)
    return True


def _appended(
    broker: BrokerServices,
    exchange: Exchange,
    request: ProduceRequest,
    topics: list[_AnsweredTopic],
    appending: Appending,
) -> None:
    if request.acks == 0:
        refusal = _first_refusal(topics)
        if refusal is not None:
            exchange.close(f"a batch sent with acks=0 was refused: {refusal.name}")
        else:
            exchange.answer(NO_ANSWER)
    elif not appending.points:
        exchange.answer(_response(topics))
    else:
        deadline_ms = exchange.now.monotonic_ms + max(request.timeout_ms, 0)
        done = partial(_committed, exchange, topics, appending.uncommitted)
        broker.commits.wait(appending.points, deadline_ms=deadline_ms, done=done)


def _committed(
    exchange: Exchange, topics: list[_AnsweredTopic], uncommitted: list[Place], codes: Sequence[ErrorCode]
) -> None:
    for (results, at), code in zip(uncommitted, codes, strict=True):
        if code != ErrorCode.NONE:
            results[at] = ProducePartitionResponse(index=results[at].index, error_code=code)
    exchange.answer(_response(topics))


def _unverified(
    broker: BrokerServices, exchange: Exchange, request: ProduceRequest
) -> dict[TopicPartition, ProducerIdentity]:
    """The partitions where a transaction would begin, as far as this broker knows, and their producers."""
    found = {}
    for topic in request.topics:
        name, refusal = resolve(
            broker, exchange, Operation.WRITE, topic.name, topic.topic_id, by_id=exchange.api_version >= 13
        )
        for sent in topic.partitions if refusal is None else ():
            tp, header = TopicPartition(name, sent.index), header_of(sent)
            if header is None or not header.is_transactional:
                continue
            producer = ProducerIdentity(ProducerId(header.producer_id), header.producer_epoch)
            adds = exchange.api_version >= FIRST_VERSION_OF_2
            if broker.verification.is_needed(broker.partitions.get(tp), producer, adds=adds):
                found[tp] = producer
    return found


def _verify(
    broker: BrokerServices,
    exchange: Exchange,
    request: ProduceRequest,
    unverified: dict[TopicPartition, ProducerIdentity],
) -> None:
    assert request.transactional_id is not None
    kept = _copied(request)

    def resume(codes: Codes) -> None:
        if exchange.api_version < FIRST_VERSION_WITH_ABORTABLE:
            codes = {tp: CODES_BEFORE_ABORTABLE.get(code, code) for tp, code in codes.items()}
        if _produce(broker, exchange, kept, codes):
            exchange.release()

    producer, *others = set(unverified.values())
    if others:  # a transactional id has one producer
        resume(dict.fromkeys(unverified, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        return
    exchange.hold_back()
    adds = exchange.api_version >= FIRST_VERSION_OF_2
    broker.verification.ask(request.transactional_id, producer, list(unverified), resume, exchange.now, adds=adds)


def _copied(request: ProduceRequest) -> ProduceRequest:
    """A copy in its own memory: the frame of the request is not valid later."""
    return replace(
        request,
        topics=[
            replace(
                topic,
                partitions=[own_memory(sent) for sent in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _response(topics: list[_AnsweredTopic]) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            ProduceTopicResponse(name=name, topic_id=topic_id, partitions=results) for name, topic_id, results in topics
        ]
    )


def _first_refusal(topics: list[_AnsweredTopic]) -> ErrorCode | None:
    codes = (result.error_code for _, _, results in topics for result in results)
    return next((code for code in codes if code != ErrorCode.NONE), None)


def _may_write(broker: BrokerServices, exchange: Exchange, request: ProduceRequest) -> bool:
    """Whether the client may use the transactional id, if the request has one."""
    named = request.transactional_id
    return named is None or broker.authorization.may(exchange, Operation.WRITE, Resource.transactional_id(named))


def _is_transactional(sent: ProducePartition) -> bool:
    at, records = ATTRIBUTES_AT + 1, sent.records  # the lower byte of two
    return records is not None and len(records) > at and bool(records[at] & TRANSACTIONAL_BIT)
