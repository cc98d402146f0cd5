"""The streams groups of one partition of __consumer_offsets: heartbeats, departures and timeouts.

A command decides against a copy of the group, to which each record is applied as soon as it is decided on, appends all
records at once, and replays them on the group itself. Sessions, the time that members have for revoking tasks, the
delay of a new group's first assignment, requests to shut down and the endpoints that members know are soft state, which
begins anew with each coordinator.
Source: KIP-1071; for what it leaves open, the behaviour of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from raylog.config.streams_groups import StreamsGroupSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.groupcoord.deadlines import Deadlines, MemberKey, earliest_ms, members_due
from raylog.groupcoord.draft import GroupDraft
from raylog.groupcoord.streams import records
from raylog.groupcoord.streams.assignor import TaskCandidate, assign
from raylog.groupcoord.streams.configured import Configured, Status, StatusCode, configure
from raylog.groupcoord.streams.endpoints import GroupEndpoints
from raylog.groupcoord.streams.group import StreamsGroup, StreamsMember
from raylog.groupcoord.streams.heartbeat import (
    JOINING,
    LEAVING,
    StreamsAnswer,
    StreamsHeartbeat,
    check,
    check_member_epoch,
    member_record,
)
from raylog.groupcoord.streams.reconciliation import reconciled
from raylog.groupcoord.streams.records import (
    NO_TOPOLOGY_EPOCH,
    MemberState,
    StreamsGroupEpochBumped,
    StreamsMemberAssigned,
    StreamsMemberJoined,
    StreamsMemberTargeted,
    StreamsRecord,
    StreamsRecordDeleted,
    StreamsTargetDecided,
    TopologySet,
)
from raylog.groupcoord.streams.tasks import NO_TASKS, Tasks
from raylog.groupcoord.topics import Topics
from raylog.protocol.messages.streams_group_heartbeat import Topology

FIRST_GROUP_EPOCH: Final = 2
FIRST_MEMBER_EPOCH: Final = 1
"""That of a member which waits for the first assignment."""
RETRY_MS: Final = 1000
"""When the removal of an expired member is tried again after the log could not be written."""
STANDBY_REPLICAS: Final = "num.standby.replicas"

Append = Callable[[Sequence[StreamsRecord], Now], None]
"""Append records to the log and replay them. Raises KafkaError with the client's error code; nothing changes then."""
_Draft = GroupDraft[StreamsGroup, StreamsRecord]


@dataclass(slots=True)
class _Known:
    """What was derived from the topology of a group, and from which version of the topics."""

    version: int
    topology: Topology
    configured: Configured


class StreamsGroups:
    """Lifecycle: `replay` for each record of the log, `loaded` once, then commands and `tick`."""

    def __init__(
        self,
        settings: Callable[[str], StreamsGroupSettings],
        *,
        append: Append,
        topics: Topics,
        on_rebalance: Callable[[], None] = lambda: None,
    ) -> None:
        """`settings` are those of a group; `on_rebalance` is called for each new target assignment."""
        self.groups: dict[str, StreamsGroup] = {}
        self._settings = settings
        self._append = append
        self._topics = topics
        self._on_rebalance = on_rebalance
        self._topics_version = 0
        self._known: dict[str, _Known] = {}
        self._sessions: Deadlines[MemberKey] = Deadlines()
        self._revocations: Deadlines[MemberKey] = Deadlines()
        self._first_assignments: Deadlines[str] = Deadlines()
        """Until when new groups wait for more members."""
        self._shut_down_by: dict[str, str] = {}
        """The members that have asked all others to stop, by group."""
        self._endpoint_epochs: dict[str, int] = {}
        self._endpoints: dict[str, GroupEndpoints] = {}

    # --- commands

    def heartbeat(self, request: StreamsHeartbeat, now: Now) -> StreamsAnswer:
        """A member joins, remains, or leaves. Raises KafkaError with the code for the member."""
        check(request)
        group_id = request.group_id
        if request.member_epoch < JOINING:
            return self._leave(request, now)
        draft: _Draft = GroupDraft(self._group(request))
        member = self._member(draft.group, request)
        settings = self._settings(group_id)
        begins = not draft.group.members and settings.initial_rebalance_delay_ms > 0
        waits = begins or group_id in self._first_assignments
        configured, statuses = self._beat(draft, member, request, settings, waits=waits)
        self._commit(draft.records, now)
        if begins and group_id not in self._first_assignments:
            self._first_assignments.set(group_id, now.monotonic_ms + settings.initial_rebalance_delay_ms)
        self._sessions.set((group_id, request.member_id), now.monotonic_ms + settings.session_timeout_ms)
        if request.shuts_down:
            self._shut_down_by.setdefault(group_id, request.member_id)
        if configured.status is not None:
            statuses.append(configured.status)
        statuses += self._shutdown_status(group_id)
        return self._answer(request, before=member, configured=configured, statuses=statuses)

    def check_commit(
        self,
        group_id: str,
        member_epoch: int,
        member_id: str,
        partitions: Iterable[TopicPartition],
        *,
        in_transaction: bool = False,
    ) -> None:
        """Check that the offsets may be committed. Raises KafkaError: UNKNOWN_MEMBER_ID, or STALE_MEMBER_EPOCH, which
        is ILLEGAL_GENERATION in a transaction.

        A member may commit with an older epoch for tasks that it had at that epoch and still has.
        """
        group = self.groups[group_id]
        if member_epoch < 0 and (not group.members or (in_transaction and not member_id)):
            return  # an admin client, or a consumer that uses assign()
        member = _member_of(group, member_id)
        if member_epoch == member.member_epoch:
            return
        stale = ErrorCode.ILLEGAL_GENERATION if in_transaction else ErrorCode.STALE_MEMBER_EPOCH
        if member_epoch > member.member_epoch:
            message = f"Received member epoch {member_epoch} is newer than current member epoch {member.member_epoch}."
            raise KafkaError(stale, message)
        for tp in partitions:
            since = member.epochs.get((group.source_topics.get(tp.topic, ""), tp.partition))
            if since is None or member_epoch < since:
                message = f"Member epoch {member_epoch} is not one in which the member has the task of {tp}."
                raise KafkaError(stale, message)

    def check_fetch(self, group_id: str, member_epoch: int, member_id: str | None) -> None:
        """Check that a client may fetch offsets. Raises KafkaError: UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH."""
        group = self.groups.get(group_id)
        if group is None or (member_id is None and member_epoch < 0):
            return
        member = _member_of(group, member_id or "")
        if member_epoch != member.member_epoch:
            raise KafkaError(
                ErrorCode.STALE_MEMBER_EPOCH,
                f"The received member epoch {member_epoch} does not match the expected member epoch"
                f" {member.member_epoch}.",
            )

    def check_delete(self, group_id: str) -> None:
        """Check that the group may be deleted. Raises KafkaError(NON_EMPTY_GROUP)."""
        if self.groups[group_id].members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def tombstones(self, group_id: str) -> list[StreamsRecord]:
        """The records that delete a group; none if there is no such group."""
        group = self.groups.get(group_id)
        if group is None:
            return []
        return [
            *(StreamsRecordDeleted(group_id, kind, name) for kind in records.OF_MEMBER for name in group.members),
            StreamsRecordDeleted(group_id, records.TARGET_EPOCH),
            StreamsRecordDeleted(group_id, records.GROUP_EPOCH),
            StreamsRecordDeleted(group_id, records.TOPOLOGY),
        ]

    def topics_changed(self) -> None:
        """A topic was created or deleted, or has more partitions: groups are checked at their next heartbeat."""
        self._topics_version += 1
        self._endpoints.clear()

    def configured(self, group: StreamsGroup) -> Configured | None:
        """The topology on the present topics; None without a topology, or if no topics could fit it."""
        try:
            return None if group.topology is None else self._configured(group.group_id, group.topology)
        except KafkaError:
            return None

    # --- records

    def replay(self, record: StreamsRecord) -> None:
        if isinstance(record, StreamsMemberJoined | StreamsMemberAssigned) and record.group in self._endpoints:
            self._endpoints[record.group].changed(record.member_id)
        if not isinstance(record, StreamsRecordDeleted):
            group = self.groups.get(record.group)
            if group is None:
                group = self.groups[record.group] = StreamsGroup(record.group)
            group.replay(record)
        elif record.kind == records.GROUP_EPOCH:
            self.groups.pop(record.group, None)
            self._forget(record.group)
        elif record.group in self.groups:
            self.groups[record.group].replay(record)

    def loaded(self, now: Now) -> None:
        """The log is replayed: start a session for every member."""
        for group in self.groups.values():
            session_timeout_ms = self._settings(group.group_id).session_timeout_ms
            for member in group.members.values():
                key = (group.group_id, member.member_id)
                self._sessions.set(key, now.monotonic_ms + session_timeout_ms)
                if member.state is MemberState.UNREVOKED_TASKS:
                    self._revocations.set(key, now.monotonic_ms + member.rebalance_timeout_ms)

    # --- time

    def next_deadline_ms(self) -> int | None:
        """The time of the next `tick` (monotonic); None if there is no deadline."""
        return earliest_ms(self._sessions, self._revocations, self._first_assignments)

    def tick(self, now: Now) -> None:
        """Remove members whose session has expired or that did not revoke tasks in time; assign for new groups."""
        due = members_due(self.groups, self._sessions, self._revocations, now_ms=now.monotonic_ms)
        for group_id, member_ids in due:
            draft: _Draft = GroupDraft(self.groups[group_id])
            self._remove(draft, member_ids)
            try:
                self._commit(draft.records, now)
            except KafkaError:
                for member_id in member_ids:
                    self._sessions.set((group_id, member_id), now.monotonic_ms + RETRY_MS)
        for group_id in self._first_assignments.expired(now.monotonic_ms):
            self._assign_first(group_id, now)

    # --- a heartbeat

    def _group(self, request: StreamsHeartbeat) -> StreamsGroup:
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_epoch != JOINING:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {request.group_id} not found.")
            group = StreamsGroup(request.group_id)
        return group

    def _member(self, group: StreamsGroup, request: StreamsHeartbeat) -> StreamsMember:
        """The member, which may be new. Raises KafkaError: as `check_member_epoch`, or GROUP_MAX_SIZE_REACHED."""
        if request.member_epoch != JOINING:
            return check_member_epoch(group, request)
        member = group.members.get(request.member_id)
        members_max = self._settings(group.group_id).members_max
        if member is None and len(group.members) >= members_max:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {members_max} members.",
            )
        return member or StreamsMember(request.member_id)

    def _beat(
        self,
        draft: _Draft,
        member: StreamsMember,
        request: StreamsHeartbeat,
        settings: StreamsGroupSettings,
        *,
        waits: bool,
    ) -> tuple[Configured, list[Status]]:
        """`waits`: the first assignment of the group is to be made later."""
        group_id = draft.group.group_id
        joined = member_record(group_id, member, request)
        bump = member.member_id not in draft.group.members or joined != member_record(group_id, member)
        if bump:
            draft.add(joined)
        topology = _agreed_topology(draft, request)
        statuses = []
        if joined.topology_epoch < topology.epoch:
            detail = (
                f"The member's topology epoch {joined.topology_epoch} is behind the group's topology epoch"
                f" {topology.epoch}."
            )
            statuses.append(Status(StatusCode.STALE_TOPOLOGY, detail))
        configured = self._configured(group_id, topology)
        _check_owned(request.owned, member, configured)
        _bump(draft, configured, settings, always=bump)
        target, epoch = draft.group.target.get(member.member_id, NO_TASKS), draft.group.assignment_epoch
        if draft.group.group_epoch > draft.group.assignment_epoch:
            if waits:
                target, epoch = NO_TASKS, max(FIRST_MEMBER_EPOCH, draft.group.assignment_epoch)
                detail = "Assignment delayed due to the configured initial rebalance delay."
                statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, detail))
            else:
                self._assign(draft, configured)
                target, epoch = draft.group.target[member.member_id], draft.group.assignment_epoch
        before = draft.group.members[member.member_id]
        after = reconciled(draft.group, before, target, epoch=epoch, owned=request.owned)
        if after != before:
            draft.add(_assignment_of(group_id, after))
        return configured, statuses

    def _answer(
        self, request: StreamsHeartbeat, *, before: StreamsMember, configured: Configured, statuses: list[Status]
    ) -> StreamsAnswer:
        group = self.groups[request.group_id]
        member = group.members[request.member_id]
        tells = (
            request.member_epoch == JOINING
            or member.assigned != before.assigned
            or (request.owned is not None and request.owned != member.assigned)  # the last response may have been lost
        )
        epoch = self._endpoint_epochs.get(group.group_id, 0)
        if tells and member.endpoint is not None:
            epoch = self._endpoint_epochs[group.group_id] = epoch + 1
        endpoints = None
        if epoch != request.endpoint_epoch:
            known = self._endpoints.setdefault(group.group_id, GroupEndpoints())
            endpoints = known.all(group, self._topics)
        return StreamsAnswer(
            member.member_id,
            member.member_epoch,
            member.assigned if tells else None,
            tuple(statuses),
            epoch,
            endpoints,
            configured.missing,
        )

    def _configured(self, group_id: str, topology: Topology) -> Configured:
        """Raises KafkaError(STREAMS_INVALID_TOPOLOGY)."""
        known = self._known.get(group_id)
        if known is not None and known.version == self._topics_version and known.topology == topology:
            return known.configured
        configured = configure(topology, self._topics)
        if group_id in self.groups:
            self._known[group_id] = _Known(self._topics_version, topology, configured)
        return configured

    def _shutdown_status(self, group_id: str) -> list[Status]:
        member_id = self._shut_down_by.get(group_id)
        if member_id is None:
            return []
        detail = (
            f"Streams group member {member_id} encountered a fatal error and requested a shutdown for the entire"
            " application."
        )
        return [Status(StatusCode.SHUTDOWN_APPLICATION, detail)]

    # --- assignments

    def _assign(self, draft: _Draft, configured: Configured) -> None:
        """The target assignment for the group epoch; without tasks as long as the topology is not ready."""
        self._on_rebalance()
        group = draft.group
        target = dict.fromkeys(group.members, NO_TASKS)
        if configured.is_ready:
            candidates = {
                member.member_id: TaskCandidate(member.process_id, group.target.get(member.member_id, NO_TASKS))
                for member in group.members.values()
            }
            replicas = int(dict(group.assignment_configs).get(STANDBY_REPLICAS, "0"))
            target |= assign(candidates, configured.task_counts, configured.stateful, standby_replicas=replicas)
        for member_id, tasks in target.items():
            if tasks != group.target.get(member_id):
                draft.add(StreamsMemberTargeted(group.group_id, member_id, tasks))
        draft.add(StreamsTargetDecided(group.group_id, group.group_epoch))

    def _assign_first(self, group_id: str, now: Now) -> None:
        """The members that a new group has waited for are there."""
        group = self.groups.get(group_id)
        configured = None if group is None else self.configured(group)
        if group is None or configured is None or not group.members or group.group_epoch <= group.assignment_epoch:
            return
        draft: _Draft = GroupDraft(group)
        self._assign(draft, configured)
        try:
            self._commit(draft.records, now)
        except KafkaError:
            self._first_assignments.set(group_id, now.monotonic_ms + RETRY_MS)

    # --- departures

    def _leave(self, request: StreamsHeartbeat, now: Now) -> StreamsAnswer:
        draft: _Draft = GroupDraft(self._group(request))
        _member_of(draft.group, request.member_id)
        self._remove(draft, [request.member_id])
        self._commit(draft.records, now)
        if request.shuts_down and draft.group.members:
            self._shut_down_by.setdefault(request.group_id, request.member_id)
        return StreamsAnswer(request.member_id, LEAVING)

    @staticmethod
    def _remove(draft: _Draft, member_ids: Sequence[str]) -> None:
        """Remove members; the others get their tasks at their next heartbeats."""
        group = draft.group
        for member_id in member_ids:
            for kind in records.OF_MEMBER:
                draft.add(StreamsRecordDeleted(group.group_id, kind, member_id))
        draft.add(
            StreamsGroupEpochBumped(
                group.group_id,
                group.group_epoch + 1,
                group.metadata_hash,
                group.validated_topology_epoch,
                group.assignment_configs,
            )
        )

    def _commit(self, decided: Sequence[StreamsRecord], now: Now) -> None:
        """Append the records, and note the deadlines that follow from them."""
        if decided:
            self._append(decided, now)
        for record in decided:
            if isinstance(record, StreamsMemberAssigned):
                key = (record.group, record.member_id)
                if record.state is MemberState.UNREVOKED_TASKS:
                    member = self.groups[record.group].members[record.member_id]
                    self._revocations.set(key, now.monotonic_ms + member.rebalance_timeout_ms)
                else:
                    self._revocations.discard(key)
            elif isinstance(record, StreamsRecordDeleted) and record.kind == records.MEMBER:
                for deadlines in (self._sessions, self._revocations):
                    deadlines.discard((record.group, record.member_id))
                if not self.groups[record.group].members:
                    self._shut_down_by.pop(record.group, None)

    def _forget(self, group_id: str) -> None:
        for of_group in (self._known, self._shut_down_by, self._endpoint_epochs, self._endpoints):
            of_group.pop(group_id, None)
        self._first_assignments.discard(group_id)


def _member_of(group: StreamsGroup, member_id: str) -> StreamsMember:
    """Raises KafkaError(UNKNOWN_MEMBER_ID)."""
    member = group.members.get(member_id)
    if member is None:
        message = f"Member {member_id} is not a member of group {group.group_id}."
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
    return member


def _agreed_topology(draft: _Draft, request: StreamsHeartbeat) -> Topology:
    """The topology of the group, which the first member brings. Raises KafkaError for another one."""
    topology = draft.group.topology
    if request.topology is None:
        if topology is None:
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "The group has no topology. The member must rejoin.")
        return topology
    if topology is None:
        draft.add(TopologySet(draft.group.group_id, request.topology))
        return request.topology
    if request.topology.epoch >= topology.epoch and not _same(request.topology, topology):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return topology


def _same(topology: Topology, other: Topology) -> bool:
    """The order of subtopologies does not matter."""
    return topology.epoch == other.epoch and set(topology.subtopologies) == set(other.subtopologies)


def _check_owned(owned: Tasks | None, member: StreamsMember, configured: Configured) -> None:
    """Raises KafkaError(INVALID_REQUEST) for tasks that the topology does not have, and that the member was not given
    when its topics had more partitions."""
    if owned is None or not configured.is_ready:
        return
    unknown = owned - member.assigned - member.revoking
    for subtopology_id, partition in unknown.active | unknown.passive:
        count = configured.task_counts.get(subtopology_id)
        if count is None:
            message = f"Subtopology {subtopology_id} does not exist in the topology."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if not 0 <= partition < count:
            message = f"Task {partition} for subtopology {subtopology_id} is invalid. Number of tasks: {count}."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _bump(draft: _Draft, configured: Configured, settings: StreamsGroupSettings, *, always: bool) -> None:
    """A new group epoch if what the assignment depends on has changed, or `always`."""
    group = draft.group
    assert group.topology is not None, "the first member brings the topology"
    validated = group.topology.epoch if configured.is_ready else NO_TOPOLOGY_EPOCH
    configs = ((STANDBY_REPLICAS, str(settings.standby_replicas)),)
    before = (group.metadata_hash, group.validated_topology_epoch, group.assignment_configs)
    if always or before != (configured.metadata_hash, validated, configs):
        epoch = group.group_epoch + 1 if group.group_epoch else FIRST_GROUP_EPOCH
        draft.add(StreamsGroupEpochBumped(group.group_id, epoch, configured.metadata_hash, validated, configs))


def _assignment_of(group_id: str, member: StreamsMember) -> StreamsMemberAssigned:
    return StreamsMemberAssigned(
        group_id,
        member.member_id,
        member.member_epoch,
        member.previous_epoch,
        member.state,
        member.assigned,
        member.revoking,
        member.epochs,
    )
