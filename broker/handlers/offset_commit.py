"""OffsetCommit (key 8), v2-10: store a group's offsets durably in __consumer_offsets.

v2-4 a retention time of their own; v6 leader epochs; v7 static members; v8 flexible; v9 member epochs (KIP-848),
GROUP_ID_NOT_FOUND; v10 topic ids. A member commits with the group's generation, or with its member epoch; a consumer
that assigns its own partitions commits without one, as long as the group has no members. Requires READ on the group
and on each topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker.handlers.requested_topics import resolve
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.groupcoord.offsets import Commit
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: OffsetCommitRequest) -> OffsetCommitResponse:
    refused: dict[TopicPartition, ErrorCode] = {}
    commits: dict[TopicPartition, Commit] = {}
    names: list[tuple[str, ErrorCode | None]] = []
    may_commit = broker.authorization.may(exchange, Operation.READ, Resource.group(request.group_id))
    for topic in request.topics:
        name, refusal = resolve(
            broker, exchange, Operation.READ, topic.name, topic.topic_id, by_id=exchange.api_version >= 10
        )
        if not may_commit:
            refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED
        names.append((name, refusal))
        for wanted in topic.partitions if refusal is None else ():
            tp = TopicPartition(name, wanted.partition_index)
            if broker.image.partition(tp) is None:
                refused[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                commits[tp] = Commit(
                    wanted.committed_offset,
                    wanted.committed_leader_epoch,
                    wanted.committed_metadata or "",
                    request.retention_time_ms,
                )
    answers = refused | (_commit(broker, exchange, request, commits) if commits else {})
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=wanted.partition_index,
                        error_code=refusal or answers[TopicPartition(name, wanted.partition_index)],
                    )
                    for wanted in topic.partitions
                ),
            )
            for topic, (name, refusal) in zip(request.topics, names, strict=True)
        )
    )


def _commit(
    broker: BrokerServices, exchange: Exchange, request: OffsetCommitRequest, commits: dict[TopicPartition, Commit]
) -> dict[TopicPartition, ErrorCode]:
    try:
        return broker.groups.commit(
            exchange,
            request.group_id,
            commits,
            generation_id=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            metadata_bytes_max=broker.settings.offsets.metadata_bytes_max,
            supports_member_epochs=exchange.api_version >= 9,
            unknown_group=(ErrorCode.GROUP_ID_NOT_FOUND if exchange.api_version >= 9 else ErrorCode.ILLEGAL_GENERATION),
        )
    except KafkaError as error:
        return dict.fromkeys(commits, error.code)
