"""What members of streams groups send in heartbeats, and what they are answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.streams.configured import Status
from raylog.groupcoord.streams.group import StreamsGroup, StreamsMember
from raylog.groupcoord.streams.records import StreamsMemberJoined
from raylog.groupcoord.streams.tasks import Tasks
from raylog.groupcoord.streams.topology import check_topology
from raylog.protocol.messages.streams_group_heartbeat import EndpointToPartitions, TopicInfo, Topology

JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2
TAGS_MAX: Final = 100
"""Of a member. Kafka Streams sends five at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeat:
    """What a member says. None, and -1 for the timeout: it is as it was."""

    group_id: str
    member_id: str
    member_epoch: int
    endpoint_epoch: int = 0
    """The state of the endpoints that the member knows."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    owned: Tasks | None = None
    process_id: str | None = None
    endpoint: tuple[str, int] | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None
    shuts_down: bool = False
    """Whether all members of the application are to stop."""
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class StreamsAnswer:
    """The response to a heartbeat; without tasks the member keeps those that it has."""

    member_id: str
    member_epoch: int
    tasks: Tasks | None = None
    statuses: tuple[Status, ...] = ()
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointToPartitions, ...] | None = None
    """Of all members; None if the member knows them."""
    missing_topics: tuple[TopicInfo, ...] = ()
    """The internal topics that are to be created."""


def check(request: StreamsHeartbeat) -> None:
    """Raises KafkaError for a heartbeat that no group could accept."""
    wrong = _wrong(request)
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
    if request.topology is not None:
        check_topology(request.topology)


def _wrong(request: StreamsHeartbeat) -> str:
    owned = request.owned
    if request.instance_id is not None:
        return "Static membership is not yet supported."
    if owned is not None and owned.warmup:
        return "WarmupTasks are not supported yet."
    for name, text in (("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id)):
        if text is not None and not text.strip():
            return f"{name} can't be empty."
    if request.client_tags is not None and len(request.client_tags) > TAGS_MAX:
        return f"ClientTags has {len(request.client_tags)} entries, but may have {TAGS_MAX} at most."
    if request.rebalance_timeout_ms < -1:
        return f"RebalanceTimeoutMs is invalid: {request.rebalance_timeout_ms}."
    if request.member_epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if owned is not None and owned:
            return "ActiveTasks and StandbyTasks must be empty when (re-)joining."
        return "Topology must be non-null when (re-)joining." if request.topology is None else ""
    if request.member_epoch == LEAVING_FOR_A_WHILE:
        return "InstanceId can't be null."
    if request.member_epoch < LEAVING_FOR_A_WHILE:
        return f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2."
    return "" if request.topology is None else "Topology can only be provided when (re-)joining."


def member_record(group_id: str, member: StreamsMember, request: StreamsHeartbeat | None = None) -> StreamsMemberJoined:
    """The record of the member, with what the heartbeat changes in it."""
    if request is None:
        return StreamsMemberJoined(
            group_id,
            member.member_id,
            member.instance_id,
            member.rack_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.topology_epoch,
            member.process_id,
            member.endpoint,
            member.client_tags,
        )
    tags = member.client_tags if request.client_tags is None else tuple(sorted(dict(request.client_tags).items()))
    return StreamsMemberJoined(
        group_id,
        member.member_id,
        None,
        member.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        member.topology_epoch if request.topology is None else request.topology.epoch,
        member.process_id if request.process_id is None else request.process_id,
        member.endpoint if request.endpoint is None else request.endpoint,
        tags,
    )


def check_member_epoch(group: StreamsGroup, request: StreamsHeartbeat) -> StreamsMember:
    """The member that sends the heartbeat. Raises KafkaError: UNKNOWN_MEMBER_ID or FENCED_MEMBER_EPOCH.

    The previous epoch is accepted from a member that has nothing it should not have: the last response may be lost.
    """
    member = group.members.get(request.member_id)
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of group {group.group_id}."
        )
    lost_response = (
        request.member_epoch == member.previous_epoch
        and request.member_epoch < member.member_epoch
        and request.owned is not None
        and request.owned <= member.assigned
    )
    if request.member_epoch != member.member_epoch and not lost_response:
        than = "greater" if request.member_epoch > member.member_epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The streams group member has a {than} member epoch ({request.member_epoch}) than the one known by the"
            f" group coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
        )
    return member
