"""TxnOffsetCommit (key 28), v0-4: a group's positions, which count once the transaction is committed (KIP-98, KIP-447).

v2 leader epochs; v3 flexible, and the member and generation that commit; v4 TRANSACTION_ABORTABLE. Goes to the group's
coordinator, after AddOffsetsToTxn to that of the transaction.
Asks for WRITE on the transactional id, and for READ on the group and on each topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.config import broker as config
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ProducerId, TopicPartition
from raylog.groupcoord.offsets import Commit
from raylog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from raylog.security.acl import Operation, Resource
from raylog.txncoord.records import ProducerIdentity

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.transport.request import RequestContext


def handle(broker: Broker, context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    answers: dict[TopicPartition, ErrorCode] = {}
    commits: dict[TopicPartition, Commit] = {}
    refusal = _refusal(broker, context, request)
    for topic in request.topics:
        may_read = broker.may(context, Operation.READ, Resource.topic(topic.name))
        for wanted in topic.partitions:
            tp = TopicPartition(topic.name, wanted.partition_index)
            if refusal is not None or not may_read:
                answers[tp] = refusal or ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif broker.image.partition(tp) is None:
                answers[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                commits[tp] = Commit(
                    wanted.committed_offset, wanted.committed_leader_epoch, wanted.committed_metadata or ""
                )
    if commits:
        answers |= _commit(broker, context, request, commits)
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


def _refusal(broker: Broker, context: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode | None:
    try:
        broker.check(context, Operation.WRITE, Resource.transactional_id(request.transactional_id))
        broker.check(context, Operation.READ, Resource.group(request.group_id))
    except KafkaError as error:
        return error.code
    return None


def _commit(
    broker: Broker, context: RequestContext, request: TxnOffsetCommitRequest, commits: dict[TopicPartition, Commit]
) -> dict[TopicPartition, ErrorCode]:
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return broker.groups.commit(
            request.group_id,
            commits,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            metadata_bytes_max=broker.configs[config.OFFSET_METADATA_MAX_BYTES],
            unknown_group=ErrorCode.ILLEGAL_GENERATION,
            now=context.now,
            producer=ProducerIdentity(ProducerId(request.producer_id), request.producer_epoch),
        )
    except KafkaError as error:
        too_large = error.code == ErrorCode.UNKNOWN_SERVER_ERROR
        return dict.fromkeys(commits, ErrorCode.INVALID_COMMIT_OFFSET_SIZE if too_large else error.code)
