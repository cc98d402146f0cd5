"""DescribeQuorum (key 55), v0-2: the leader, voters and observers of the metadata log (KIP-595).

v1 time of the last fetch and of last being caught up (KIP-836); v2 directory ids, messages, endpoints of the voters
(KIP-853). Requires DESCRIBE on the cluster.

The log end offset of voters and brokers is the offset of their last fetch. Directory ids of controllers are those of
their last fetches; those of brokers are zero. Listeners are given for the voters in the metadata log, and while
`kraft.version` is 0 for the leader and those that have reported them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP_MS, TopicPartition
from raylog.metadata.topic_names import METADATA_PARTITION
from raylog.metadata.voters import QuorumVoter
from raylog.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.core.clock import Now
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    try:
        controller.authorization.check(exchange, Operation.DESCRIBE, CLUSTER)
    except KafkaError as error:
        return refused(error)
    wanted = [
        TopicPartition(topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    if wanted != [METADATA_PARTITION]:
        return _unknown(request)
    described = ResponseTopicData(topic_name=METADATA_PARTITION.topic, partitions=(_describe(controller, exchange),))
    voters = controller.voters_with_listeners()
    return DescribeQuorumResponse(topics=(described,), nodes=tuple(_node(each) for each in voters if each.endpoints))


def _node(voter: QuorumVoter) -> Node:
    listeners = tuple(Listener(name=name, host=host, port=port) for name, host, port in voter.endpoints)
    return Node(node_id=voter.voter_id, listeners=listeners)


def refused(error: KafkaError) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=error.code, error_message=error.message)


def _describe(controller: ControllerServices, exchange: Exchange) -> ResponsePartitionData:
    quorum, now = controller.quorum, exchange.now
    leader = ReplicaState(
        replica_id=quorum.node_id,
        replica_directory_id=controller.directory_id,
        log_end_offset=controller.next_offset,
        last_fetch_timestamp=now.wall_ms,
        last_caught_up_timestamp=now.wall_ms,
    )
    followers = tuple(
        ReplicaState(
            replica_id=voter,
            replica_directory_id=progress.directory_id,
            log_end_offset=progress.end_offset if progress.fetched_ms is not None else NO_OFFSET,
            last_fetch_timestamp=_wall_ms(progress.fetched_ms, now),
            last_caught_up_timestamp=_wall_ms(progress.caught_up_ms, now),
        )
        for voter, progress in quorum.progress.items()
    )
    observers = tuple(
        ReplicaState(
            replica_id=observer.broker_id,
            replica_directory_id=observer.directory_id,
            log_end_offset=observer.log_end_offset,
            last_fetch_timestamp=observer.last_fetch_ms,
            last_caught_up_timestamp=observer.last_caught_up_ms,
        )
        for observer in controller.observers.following(now_ms=now.monotonic_ms)
    )
    return ResponsePartitionData(
        partition_index=METADATA_PARTITION.partition,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=(leader, *followers) if quorum.is_voter else followers,
        observers=observers,
    )


def _wall_ms(monotonic_ms: int | None, now: Now) -> int:
    return NO_TIMESTAMP_MS if monotonic_ms is None else now.wall_ms - (now.monotonic_ms - monotonic_ms)


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Kafka's response to any request for other partitions than that of the metadata log."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponse(
        topics=tuple(
            ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    ResponsePartitionData(
                        partition_index=each.partition_index,
                        error_code=code,
                        error_message=code.sentence,
                        leader_id=NO_BROKER_ID,
                        leader_epoch=NO_LEADER_EPOCH,
                        high_watermark=NO_OFFSET,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
