"""TxnOffsetCommit (key 28), v0-5: a group's offsets, which take effect when the transaction commits (KIP-98, KIP-447).

v2 leader epochs; v3 flexible, and the member and generation that commit; v4 TRANSACTION_ABORTABLE instead of
INVALID_TXN_STATE; v5 transactions of version 2. Sent to the group coordinator, after AddOffsetsToTxn to the
transaction coordinator, which the broker verifies before the first offsets of a transaction; in version 2 the broker
adds the partition that stores the group to the transaction itself (KIP-890).
Requires WRITE on the transactional id, and READ on the group and on each topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ProducerId, ProducerIdentity, TopicPartition
from raylog.groupcoord.offsets import Commit
from raylog.groupcoord.shards import OFFSETS_TOPIC
from raylog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from raylog.security.acl import Operation, Resource
from raylog.txncoord.verification import CODES_BEFORE_ABORTABLE, Codes

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

FIRST_VERSION_WITH_ABORTABLE = 4
FIRST_VERSION_OF_2 = 5
"""The first version in which producers send no AddOffsetsToTxn before."""
_CLIENT_CODES = {ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE}
"""Clients retry this code for offset commits; NOT_ENOUGH_REPLICAS only for Produce."""


def handle(
    broker: BrokerServices, exchange: Exchange, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | None:
    try:
        _check(broker, exchange, request)
    except KafkaError as error:
        return _response(broker, exchange, request, error.code)
    try:
        tp, _ = broker.coordinator_of(OFFSETS_TOPIC, request.group_id)
    except KafkaError:  # also while the partition is created: the client asks again for the coordinator
        return _response(broker, exchange, request, ErrorCode.NOT_COORDINATOR)
    adds = exchange.api_version >= FIRST_VERSION_OF_2
    if not broker.verification.is_needed(broker.partitions.get(tp), _producer(request), adds=adds):
        return _response(broker, exchange, request)

    def resume(codes: Codes) -> None:
        code = codes[tp]
        if exchange.api_version < FIRST_VERSION_WITH_ABORTABLE:
            code = CODES_BEFORE_ABORTABLE.get(code, code)
        code = _CLIENT_CODES.get(code, code)
        exchange.answer(_response(broker, exchange, request, None if code == ErrorCode.NONE else code))

    exchange.hold_back()
    broker.verification.ask(request.transactional_id, _producer(request), [tp], resume, exchange.now, adds=adds)
    return None


def _response(
    broker: BrokerServices, exchange: Exchange, request: TxnOffsetCommitRequest, refusal: ErrorCode | None = None
) -> TxnOffsetCommitResponse:
    """Commits the offsets that are permitted, unless `refusal` is given."""
    answers: dict[TopicPartition, ErrorCode] = {}
    commits: dict[TopicPartition, Commit] = {}
    for topic in request.topics:
        may_read = broker.authorization.may(exchange, Operation.READ, Resource.topic(topic.name))
        for wanted in topic.partitions:
            tp = TopicPartition(topic.name, wanted.partition_index)
            if not may_read:
                answers[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif refusal is not None:
                answers[tp] = refusal
            elif broker.image.partition(tp) is None:
                answers[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                commits[tp] = Commit(
                    wanted.committed_offset, wanted.committed_leader_epoch, wanted.committed_metadata or ""
                )
    if commits:
        answers |= _commit(broker, exchange, request, commits)
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=wanted.partition_index,
                        error_code=answers[TopicPartition(topic.name, wanted.partition_index)],
                    )
                    for wanted in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _check(broker: BrokerServices, exchange: Exchange, request: TxnOffsetCommitRequest) -> None:
    """Raises KafkaError."""
    broker.authorization.check(exchange, Operation.WRITE, Resource.transactional_id(request.transactional_id))
    broker.authorization.check(exchange, Operation.READ, Resource.group(request.group_id))
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if request.producer_id < 0 or request.producer_epoch < 0:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def _producer(request: TxnOffsetCommitRequest) -> ProducerIdentity:
    return ProducerIdentity(ProducerId(request.producer_id), request.producer_epoch)


def _commit(
    broker: BrokerServices, exchange: Exchange, request: TxnOffsetCommitRequest, commits: dict[TopicPartition, Commit]
) -> dict[TopicPartition, ErrorCode]:
    try:
        return broker.groups.commit(
            exchange,
            request.group_id,
            commits,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            metadata_bytes_max=broker.settings.offsets.metadata_bytes_max,
            unknown_group=ErrorCode.ILLEGAL_GENERATION,
            producer=_producer(request),
        )
    except KafkaError as error:
        return dict.fromkeys(commits, error.code)
