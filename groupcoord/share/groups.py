"""The share groups of one partition of __consumer_offsets: heartbeats, departures and timeouts.

A command decides against a copy of the group, to which each record is applied as soon as it is decided on, appends all
records at once, and replays them on the group itself. Sessions are soft state, which begins anew with each coordinator.
A partition is assigned once its state exists at the share coordinator, which `initialize` asks for.
Source: KIP-932; for what it leaves open, the behaviour of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from raylog.config.share_groups import ShareGroupSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord.consumer.records import NO_PARTITIONS, Partitions
from raylog.groupcoord.deadlines import Deadlines, MemberKey, members_due
from raylog.groupcoord.draft import GroupDraft
from raylog.groupcoord.share import records
from raylog.groupcoord.share.assignor import assign
from raylog.groupcoord.share.group import ShareGroup, ShareMember
from raylog.groupcoord.share.records import (
    ShareGroupEpochBumped,
    ShareGroupRecord,
    ShareMemberAssigned,
    ShareMemberSubscribed,
    ShareMemberTargeted,
    ShareRecordDeleted,
    ShareTargetDecided,
    StatePartitionsChanged,
)
from raylog.groupcoord.topics import Topics, metadata_hash

JOINING: Final = 0
LEAVING: Final = -1
RETRY_MS: Final = 1000
"""When the removal of an expired member is tried again after the log could not be written."""
INITIALIZING_HEARTBEAT_MS: Final = 100
"""How soon a member whose partitions are being initialized sends its next heartbeat, which gets the assignment."""

Append = Callable[[Sequence[ShareGroupRecord], Now], None]
"""Append records to the log and replay them. Raises KafkaError with the client's error code; nothing changes then."""
OnInitialized = Callable[[Partitions, Now], None]
"""Called once with the partitions whose state exists now; the others are tried again."""
Initialize = Callable[[str, Partitions, int, OnInitialized, Now], None]
"""Create the state of the partitions for the group, with this state epoch."""
_Draft = GroupDraft[ShareGroup, ShareGroupRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """What a member says. None: it is as it was."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topic_names: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class ShareAnswer:
    """The response to a heartbeat; without an assignment the member keeps the one it has."""

    member_id: str
    member_epoch: int
    assignment: Partitions | None = None
    heartbeat_interval_ms: int = 0


class ShareGroups:
    """Lifecycle: `replay` for each record of the log, `loaded` once, then commands and `tick`."""

    def __init__(
        self,
        settings: Callable[[str], ShareGroupSettings],
        *,
        append: Append,
        topics: Topics,
        initialize: Initialize,
    ) -> None:
        """`settings` are those of a group."""
        self.groups: dict[str, ShareGroup] = {}
        self._settings = settings
        self._append = append
        self._topics = topics
        self._initialize = initialize
        self._topics_version = 0
        self._seen: dict[str, int] = {}
        """The version of the topics as of which each group was last checked."""
        self._asked: dict[str, Partitions] = {}
        """The partitions of each group for which `initialize` has not answered."""
        self._sessions: Deadlines[MemberKey] = Deadlines()

    # --- commands

    def heartbeat(self, request: ShareHeartbeat, now: Now) -> ShareAnswer:
        """A member joins, remains, or leaves. Raises KafkaError with the code for the member."""
        check(request)
        if request.member_epoch == LEAVING:
            return self._leave(request, now)
        group = self._group(request)
        member = self._member(group, request)
        draft = _Draft(group)
        self._beat(draft, member, request, now)
        self._commit(draft.records, now)
        self._seen[request.group_id] = self._topics_version
        settings = self._settings(request.group_id)
        key = (request.group_id, request.member_id)
        self._sessions.set(key, now.monotonic_ms + settings.session_timeout_ms)
        self._ask(request.group_id, now)
        after = draft.group.members[request.member_id]
        tells = request.topic_names is not None or after.assigned != member.assigned
        interval_ms = settings.heartbeat_interval_ms
        if self._asked.get(request.group_id) or self.groups[request.group_id].group_epoch > after.member_epoch:
            interval_ms = min(interval_ms, INITIALIZING_HEARTBEAT_MS)
        return ShareAnswer(request.member_id, after.member_epoch, after.assigned if tells else None, interval_ms)

    def empty(self, group_id: str) -> ShareGroup:
        """The group, whose offsets may be changed. Raises KafkaError: GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        if group.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        return group

    def next_state_epoch(self, group_id: str, now: Now) -> int:
        """The epoch with which start offsets are to be set anew, so that no leader overwrites them. There is a group
        with this id from then on.

        Raises KafkaError(NON_EMPTY_GROUP), or the error of the append.
        """
        group = self.empty(group_id) if group_id in self.groups else ShareGroup(group_id)
        self._commit([ShareGroupEpochBumped(group_id, group.group_epoch + 1, group.metadata_hash)], now)
        return group.group_epoch

    def has_state(self, group_id: str, partitions: Mapping[tuple[UUID, int], str], now: Now) -> None:
        """These partitions, of topics with these names, have state now. Raises KafkaError from the append."""
        group = self.groups.get(group_id)
        if group is not None and not partitions.keys() <= group.initialized:
            draft = _Draft(group)
            changed = group.initialized | partitions.keys()
            self._change_state_partitions(draft, group.initializing - partitions.keys(), changed, partitions, now)
            self._commit(draft.records, now)

    def begin_deletion(self, group_id: str, partitions: Partitions, now: Now) -> None:
        """The state of these partitions is about to be deleted: a member that comes before `has_no_state`, or if that
        never comes, gets it anew. Raises KafkaError from the append."""
        group = self.groups[group_id]
        deleted = partitions & group.initialized
        if deleted:
            draft = _Draft(group)
            self._change_state_partitions(draft, group.initializing | deleted, group.initialized - deleted, {}, now)
            self._commit(draft.records, now)
            self._seen.pop(group_id, None)

    def has_no_state(self, group_id: str, partitions: Partitions, now: Now) -> None:
        """These partitions have no state any more; members that come get it anew. Raises KafkaError from the append."""
        group = self.groups.get(group_id)
        if group is not None and partitions & (group.initialized | group.initializing):
            draft = _Draft(group)
            initializing, initialized = group.initializing - partitions, group.initialized - partitions
            self._change_state_partitions(draft, initializing, initialized, {}, now)
            self._commit(draft.records, now)
            self._seen.pop(group_id, None)

    def tombstones(self, group_id: str) -> list[ShareGroupRecord]:
        """The records that delete a group without members; none if there is no such group."""
        if group_id not in self.groups:
            return []
        kinds = (records.STATE_PARTITIONS, records.TARGET_EPOCH, records.GROUP_EPOCH)
        return [ShareRecordDeleted(group_id, kind) for kind in kinds]

    def topics_changed(self) -> None:
        """A topic was created or deleted, or has more partitions: groups are checked at their next heartbeat."""
        self._topics_version += 1

    # --- records

    def replay(self, record: ShareGroupRecord) -> None:
        if not isinstance(record, ShareRecordDeleted):
            group = self.groups.get(record.group)
            if group is None:
                group = self.groups[record.group] = ShareGroup(record.group)
            group.replay(record)
        elif record.kind == records.GROUP_EPOCH:
            self.groups.pop(record.group, None)
            self._seen.pop(record.group, None)
        elif record.group in self.groups:
            self.groups[record.group].replay(record)

    def loaded(self, now: Now) -> None:
        """The log is replayed: start a session for every member."""
        for group in self.groups.values():
            session_timeout_ms = self._settings(group.group_id).session_timeout_ms
            for member_id in group.members:
                self._sessions.set((group.group_id, member_id), now.monotonic_ms + session_timeout_ms)

    # --- time

    def next_deadline_ms(self) -> int | None:
        """The time of the next `tick` (monotonic); None if there is no deadline."""
        return self._sessions.next_ms()

    def tick(self, now: Now) -> None:
        """Remove members whose session has expired."""
        for group_id, member_ids in members_due(self.groups, self._sessions, now_ms=now.monotonic_ms):
            draft = _Draft(self.groups[group_id])
            self._remove(draft, member_ids)
            try:
                self._commit(draft.records, now)
            except KafkaError:
                for member_id in member_ids:
                    self._sessions.set((group_id, member_id), now.monotonic_ms + RETRY_MS)

    # --- a heartbeat

    def _group(self, request: ShareHeartbeat) -> ShareGroup:
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_epoch != JOINING:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {request.group_id} not found.")
            group = ShareGroup(request.group_id)
        return group

    def _member(self, group: ShareGroup, request: ShareHeartbeat) -> ShareMember:
        """The member, which may be new. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, or
        GROUP_MAX_SIZE_REACHED."""
        member = group.members.get(request.member_id)
        if request.member_epoch == JOINING:
            members_max = self._settings(group.group_id).members_max
            if member is None and len(group.members) >= members_max:
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {members_max} members.",
                )
            return member or ShareMember(request.member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of group {group.group_id}."
            )
        if request.member_epoch not in (member.member_epoch, member.previous_epoch):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The member epoch {request.member_epoch} is not the one of the coordinator, {member.member_epoch}."
                " The member must rejoin.",
            )
        return member

    def _beat(self, draft: _Draft, member: ShareMember, request: ShareHeartbeat, now: Now) -> None:
        group_id = draft.group.group_id
        is_new = request.member_id not in draft.group.members
        names = member.topic_names if request.topic_names is None else tuple(sorted(set(request.topic_names)))
        subscribed = ShareMemberSubscribed(
            group_id,
            member.member_id,
            member.rack_id if request.rack_id is None else request.rack_id,
            request.client_id,
            request.client_host,
            names,
        )
        known = ShareMemberSubscribed(
            group_id, member.member_id, member.rack_id, member.client_id, member.client_host, member.topic_names
        )
        if is_new or subscribed != known:
            draft.add(subscribed)
        changed = is_new or names != member.topic_names
        if changed or self._seen.get(group_id) != self._topics_version:
            self._follow_topics(draft, now, bump=changed)
        if draft.group.group_epoch > draft.group.assignment_epoch:
            self._assign(draft)
        self._give(draft, request.member_id)

    def _follow_topics(self, draft: _Draft, now: Now, *, bump: bool) -> None:
        """Raise the group epoch if the topics have changed, and have state created for new partitions."""
        group = draft.group
        subscribed = self._partitions_of(group)
        exists = frozenset(
            partition for partition in group.initialized | group.initializing if self._is_known(group, partition[0])
        )
        missing = subscribed.keys() - exists
        if missing or exists != group.initialized | group.initializing:
            initializing = (group.initializing & exists) | missing
            self._change_state_partitions(draft, initializing, group.initialized & exists, subscribed, now)
        new_hash = metadata_hash(self._topics, group.topic_names())
        if bump or new_hash != group.metadata_hash:
            draft.add(ShareGroupEpochBumped(group.group_id, group.group_epoch + 1, new_hash))

    def _change_state_partitions(
        self,
        draft: _Draft,
        initializing: Partitions,
        initialized: Partitions,
        subscribed: Mapping[tuple[UUID, int], str],
        now: Now,
    ) -> None:
        group = draft.group
        names = group.names | {topic_id: name for (topic_id, _), name in subscribed.items()}
        kept = {topic_id for topic_id, _ in initializing | initialized} | group.deleting
        shown = tuple(sorted((topic_id, name) for topic_id, name in names.items() if topic_id in kept))
        draft.add(StatePartitionsChanged(group.group_id, initializing, initialized, group.deleting, shown, now.wall_ms))

    def _partitions_of(self, group: ShareGroup) -> dict[tuple[UUID, int], str]:
        """The partitions of the subscribed topics that exist, with the names of the topics."""
        found: dict[tuple[UUID, int], str] = {}
        for name in group.topic_names():
            shape = self._topics.shape(name)
            if shape is not None:
                found |= dict.fromkeys(((shape.topic_id, number) for number in range(shape.partition_count)), name)
        return found

    def _is_known(self, group: ShareGroup, topic_id: UUID) -> bool:
        shape = self._topics.shape(group.names.get(topic_id, ""))
        return shape is not None and shape.topic_id == topic_id

    def _assign(self, draft: _Draft) -> None:
        group = draft.group
        subscribers: dict[UUID, list[str]] = {}
        for member in group.members.values():
            for name in member.topic_names:
                shape = self._topics.shape(name)
                if shape is not None:
                    subscribers.setdefault(shape.topic_id, []).append(member.member_id)
        target = assign({topic_id: tuple(ids) for topic_id, ids in subscribers.items()}, group.initialized)
        for member_id in sorted(group.members):
            mine = target.get(member_id, NO_PARTITIONS)
            if mine != group.target.get(member_id):
                draft.add(ShareMemberTargeted(group.group_id, member_id, mine))
        draft.add(ShareTargetDecided(group.group_id, draft.group.group_epoch))

    def _give(self, draft: _Draft, member_id: str) -> None:
        """The member that sends the heartbeat gets its target assignment."""
        group = draft.group
        member = group.members[member_id]
        if member.member_epoch != group.assignment_epoch:
            mine = group.target.get(member_id, NO_PARTITIONS)
            draft.add(ShareMemberAssigned(group.group_id, member_id, group.assignment_epoch, member.member_epoch, mine))

    # --- the state of partitions

    def _ask(self, group_id: str, now: Now) -> None:
        group = self.groups[group_id]
        asked = group.initializing - self._asked.get(group_id, NO_PARTITIONS)
        if not asked:
            return
        self._asked[group_id] = self._asked.get(group_id, NO_PARTITIONS) | asked

        def answered(initialized: Partitions, now: Now) -> None:
            rest = self._asked.get(group_id, NO_PARTITIONS) - asked
            if rest:
                self._asked[group_id] = rest
            else:
                self._asked.pop(group_id, None)
            self._initialized(group_id, initialized, now)

        self._initialize(group_id, asked, group.group_epoch, answered, now)

    def _initialized(self, group_id: str, partitions: Partitions, now: Now) -> None:
        """Assign what has state now. If that cannot be recorded, the next heartbeat asks once more."""
        group = self.groups.get(group_id)
        partitions &= NO_PARTITIONS if group is None else group.initializing
        if group is None or not partitions:
            return
        draft = _Draft(group)
        self._change_state_partitions(draft, group.initializing - partitions, group.initialized | partitions, {}, now)
        draft.add(ShareGroupEpochBumped(group_id, group.group_epoch + 1, group.metadata_hash))
        try:
            self._commit(draft.records, now)
        except KafkaError:
            return

    # --- departures

    def _leave(self, request: ShareHeartbeat, now: Now) -> ShareAnswer:
        group = self._group(request)
        if request.member_id not in group.members:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of group {group.group_id}."
            )
        draft = _Draft(group)
        self._remove(draft, [request.member_id])
        self._commit(draft.records, now)
        return ShareAnswer(request.member_id, LEAVING)

    def _remove(self, draft: _Draft, member_ids: Sequence[str]) -> None:
        group_id = draft.group.group_id
        for member_id in member_ids:
            for kind in (records.MEMBER_ASSIGNMENT, records.MEMBER_TARGET, records.MEMBER):
                draft.add(ShareRecordDeleted(group_id, kind, member_id))
        new_hash = metadata_hash(self._topics, draft.group.topic_names())
        draft.add(ShareGroupEpochBumped(group_id, draft.group.group_epoch + 1, new_hash))

    def _commit(self, decided: Sequence[ShareGroupRecord], now: Now) -> None:
        if decided:
            self._append(decided, now)
        for record in decided:
            if isinstance(record, ShareRecordDeleted) and record.kind == records.MEMBER:
                self._sessions.discard((record.group, record.name))


def check(request: ShareHeartbeat) -> None:
    """Raises KafkaError(INVALID_REQUEST) for a heartbeat that no member sends."""
    wrong = ""
    if not request.group_id:
        wrong = "GroupId can't be empty."
    elif not request.member_id:
        wrong = "MemberId can't be empty."
    elif request.member_epoch < LEAVING:
        wrong = f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -1."
    elif request.rack_id is not None and not request.rack_id:
        wrong = "RackId can't be empty."
    elif request.member_epoch == JOINING and not request.topic_names:
        wrong = "SubscribedTopicNames must be set in first request."
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
