"""The consumer groups of one partition of __consumer_offsets: heartbeats, departures and timeouts.

A command decides against a copy of the group, to which each record is applied as soon as it is decided on, appends all
records at once, and replays them on the group itself. Sessions and the time that members have for revoking partitions
are soft state, which begins anew with each coordinator.
Source: KIP-848; for what it leaves open, the behaviour of Apache Kafka 4.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from raylog.config.consumer_groups import REBALANCE_HEARTBEAT_MS_PER_MEMBER, ConsumerGroupSettings
from raylog.core import regular_expressions
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.outcome import Outcome
from raylog.groupcoord.consumer import records
from raylog.groupcoord.consumer.assignors import ASSIGNORS, Candidate
from raylog.groupcoord.consumer.draft import Draft
from raylog.groupcoord.consumer.group import LEFT_FOR_A_WHILE, ConsumerGroup, Member
from raylog.groupcoord.consumer.heartbeat import JOINING, LEAVING, Answer, Heartbeat, check
from raylog.groupcoord.consumer.member_records import (
    assignment_of,
    delete_member,
    drop_regexes,
    replace_static,
    subscription_of,
)
from raylog.groupcoord.consumer.reconciliation import reconciled
from raylog.groupcoord.consumer.records import (
    NO_PARTITIONS,
    ConsumerRecord,
    ConsumerRecordDeleted,
    GroupEpochBumped,
    MemberAssigned,
    MemberState,
    MemberSubscribed,
    MemberTargeted,
    Partitions,
    RegexResolved,
    TargetDecided,
)
from raylog.groupcoord.deadlines import Deadlines, MemberKey, earliest_ms, members_due
from raylog.groupcoord.topics import Topics, metadata_hash

REGEX_REFRESH_MS_MIN: Final = 10_000
"""How long topics may appear and disappear before expressions are matched again: that takes time for many topics."""
INTERVAL_MS_PER_MEMBER: Final = 1
"""Between two computations of an assignment, which take a time in proportion to the members."""
RETRY_MS: Final = 1000
"""When the removal of an expired member is tried again after the log could not be written."""

Append = Callable[[Sequence[ConsumerRecord], Now], None]
"""Append records to the log and replay them. Raises KafkaError with the client's error code; nothing changes then."""
MayDescribe = Callable[[str], bool]
"""Whether the client may know of the topic."""
Downgrade = Callable[[ConsumerGroup, ConsumerGroup, Now], bool]
"""Make a classic group of the second, which the first becomes, if that is possible. Raises KafkaError as `Append`."""


@dataclass(slots=True)
class _Seen:
    """The topics as of which a group was last checked."""

    version: int = -1
    regex_version: int = -1
    regex_ms: int | None = None
    """When its regular expressions were matched last (monotonic)."""
    assigned_ms: int | None = None
    """When its assignment was computed last (monotonic)."""


class ConsumerGroups:
    """Lifecycle: `replay` for each record of the log, `loaded` once, then commands and `tick`."""

    def __init__(
        self,
        settings: Callable[[str], ConsumerGroupSettings],
        *,
        append: Append,
        new_id: Callable[[], str],
        topics: Topics,
        on_rebalance: Callable[[], None] = lambda: None,
        downgrade: Downgrade = lambda *_: False,
    ) -> None:
        """`settings` returns what applies to a group; `on_rebalance` is called for each new target assignment."""
        self.groups: dict[str, ConsumerGroup] = {}
        self.settings = settings
        self._append = append
        self.new_id = new_id
        self.topics = topics
        self._on_rebalance = on_rebalance
        self._topics_version = 0
        self._seen: dict[str, _Seen] = {}
        self.sessions: Deadlines[MemberKey] = Deadlines()
        self._revocations: Deadlines[MemberKey] = Deadlines()
        self.rejoins: Deadlines[MemberKey] = Deadlines()
        """Until when classic members have to join again, or to sync."""
        self._downgrade = downgrade

    # --- commands

    def heartbeat(
        self,
        request: Heartbeat,
        now: Now,
        *,
        may_describe: MayDescribe,
        converted: Sequence[ConsumerRecord] = (),
    ) -> Answer:
        """A member joins, remains, or leaves. Raises KafkaError with the code for the member.

        `converted` are the records of the group if it was a classic one, which the member joins.
        """
        check(request, self.settings(request.group_id))
        if request.member_epoch < JOINING:
            return self._leave(request, now)
        seen = self._seen.get(request.group_id) or _Seen()
        matches = self._regexes_due(request.group_id, seen, now)
        draft = Draft(self._group(request))
        assignment_epoch = draft.group.assignment_epoch
        for record in converted:
            draft.add(record)
        outcome = self._beat(draft, request, now, seen=seen, matches=matches, may_describe=may_describe)
        self.commit(outcome.records, now)
        seen.version = self._topics_version
        if draft.group.assignment_epoch != assignment_epoch:
            seen.assigned_ms = now.monotonic_ms
        if matches:
            seen.regex_version, seen.regex_ms = self._topics_version, now.monotonic_ms
        self._seen[request.group_id] = seen
        settings = self.settings(request.group_id)
        session_end_ms = now.monotonic_ms + settings.session_timeout_ms
        self.sessions.set((request.group_id, outcome.response.member_id), session_end_ms)
        since_ms = None if seen.assigned_ms is None else now.monotonic_ms - seen.assigned_ms
        interval_ms = heartbeat_interval_ms(settings, len(self.groups[request.group_id].members), since_ms)
        return replace(outcome.response, heartbeat_interval_ms=interval_ms)

    def check_commit(self, group_id: str, member_epoch: int, member_id: str, *, in_transaction: bool = False) -> None:
        """Check that the offsets may be committed.

        Raises KafkaError: UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH, which is ILLEGAL_GENERATION in a transaction.
        """
        group = self.groups[group_id]
        if member_epoch < 0 and (not group.members or (in_transaction and not member_id)):
            return  # an admin client, or a consumer that uses assign()
        stale = ErrorCode.ILLEGAL_GENERATION if in_transaction else ErrorCode.STALE_MEMBER_EPOCH
        self._check_epoch(group, member_epoch, member_id, stale=stale)

    def check_fetch(self, group_id: str, member_epoch: int, member_id: str | None) -> None:
        """Check that a client that names a member may fetch offsets. Raises KafkaError as `check_commit`."""
        group = self.groups.get(group_id)
        if group is not None and member_id is not None and member_epoch >= 0:
            self._check_epoch(group, member_epoch, member_id)

    def check_delete(self, group_id: str) -> None:
        """Check that the group may be deleted. Raises KafkaError(NON_EMPTY_GROUP)."""
        if self.groups[group_id].members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def uses_epochs(self, group_id: str, member_id: str) -> bool:
        """Whether it is a member that has to know member epochs to commit: not one of the classic protocol."""
        group = self.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        return member is not None and member.classic is None

    def tombstones(self, group_id: str) -> list[ConsumerRecord]:
        """The records that delete a group; none if there is no such group."""
        group = self.groups.get(group_id)
        if group is None:
            return []
        gone = [
            ConsumerRecordDeleted(group_id, kind, member_id)
            for member_id in group.members
            for kind in records.OF_MEMBER
        ]
        gone += [ConsumerRecordDeleted(group_id, records.REGULAR_EXPRESSION, regex) for regex in group.regexes]
        return [
            *gone,
            ConsumerRecordDeleted(group_id, records.TARGET_EPOCH),
            ConsumerRecordDeleted(group_id, records.GROUP_EPOCH),
        ]

    def topics_changed(self) -> None:
        """A topic was created or deleted, or has more partitions: groups are checked at their next heartbeat."""
        self._topics_version += 1

    def assignor_of(self, group: ConsumerGroup) -> str:
        """The assignor that most members have chosen; else the first one of the configuration."""
        names = self.settings(group.group_id).assignors
        chosen = Counter(member.server_assignor for member in group.members.values())
        return max(names, key=lambda name: (chosen[name], -names.index(name)))

    # --- records

    def replay(self, record: ConsumerRecord) -> None:
        if not isinstance(record, ConsumerRecordDeleted):
            group = self.groups.get(record.group)
            if group is None:
                group = self.groups[record.group] = ConsumerGroup(record.group)
            group.replay(record)
        elif record.kind == records.GROUP_EPOCH:
            self.groups.pop(record.group, None)
            self._seen.pop(record.group, None)
        elif record.group in self.groups:
            self.groups[record.group].replay(record)

    def loaded(self, now: Now) -> None:
        """The log is replayed: start a session for every member."""
        for group in self.groups.values():
            for member in group.members.values():
                key = (group.group_id, member.member_id)
                self.sessions.set(key, now.monotonic_ms + self._session_ms(group.group_id, member))
                if member.classic is None and member.state is MemberState.UNREVOKED_PARTITIONS:
                    self._revocations.set(key, now.monotonic_ms + member.rebalance_timeout_ms)

    # --- time

    def next_deadline_ms(self) -> int | None:
        """The time of the next `tick` (monotonic); None if there is no deadline."""
        return earliest_ms(self.sessions, self._revocations, self.rejoins)

    def tick(self, now: Now) -> None:
        """Remove members whose session has expired, and those that did not revoke their partitions in time."""
        due = members_due(self.groups, self.sessions, self._revocations, self.rejoins, now_ms=now.monotonic_ms)
        for group_id, member_ids in due:
            if group_id not in self.groups:  # it is a classic group again
                continue
            try:
                self.remove_members(group_id, member_ids, now)
            except KafkaError:
                for member_id in member_ids:
                    self.sessions.set((group_id, member_id), now.monotonic_ms + RETRY_MS)

    # --- a heartbeat

    def _beat(
        self, draft: Draft, request: Heartbeat, now: Now, *, seen: _Seen, matches: bool, may_describe: MayDescribe
    ) -> Outcome[Answer, ConsumerRecord]:
        member_id = self._joined(draft, request)
        member = draft.group.members.get(member_id) or Member(member_id)
        is_new = member_id not in draft.group.members
        subscribed = subscription_of(draft.group.group_id, member, request)
        changed = is_new or subscribed != subscription_of(draft.group.group_id, member)
        if changed:
            draft.add(subscribed)
        bump = is_new or (subscribed.topic_names, subscribed.topic_regex) != (member.topic_names, member.topic_regex)
        if bump or matches:
            bump |= self._match(draft, now, again=matches, may_describe=may_describe)
        topics_changed = seen.version != self._topics_version
        if bump or topics_changed:
            self.bump(draft, always=bump)
        if draft.group.group_epoch > draft.group.assignment_epoch:
            others_changed = (bump and not is_new) or topics_changed
            if others_changed or self._is_assignment_due(draft.group, seen, now):
                self.assign(draft)
        self.reconcile(draft, member_id, request.owned)
        after = draft.group.members[member_id]
        tells = request.is_full or after.assigned != member.assigned
        return Outcome(Answer(member_id, after.member_epoch, after.assigned if tells else None), draft.records)

    def _group(self, request: Heartbeat) -> ConsumerGroup:
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_epoch != JOINING:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
            group = ConsumerGroup(request.group_id)
        return group

    def _joined(self, draft: Draft, request: Heartbeat) -> str:
        """The id of the member that sends the heartbeat, which may be new. Replaces a static member that has left.

        Raises KafkaError if the group does not know the member in this epoch, or has no room for it.
        """
        group = draft.group
        owner = None if request.instance_id is None else group.static.get(request.instance_id)
        if request.member_epoch != JOINING:
            self._check_member(group, request)
            return request.member_id
        member_id = request.member_id or self.new_id()
        if owner is None:
            if member_id not in group.members:
                self.check_room(group)
        elif owner != member_id:
            former = group.members[owner]
            if former.member_epoch != LEFT_FOR_A_WHILE and former.classic is None:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {owner} with instance id {request.instance_id} is still a member of the group.",
                )
            replace_static(draft, group.members[owner], member_id)
        return member_id

    def check_room(self, group: ConsumerGroup) -> None:
        """Check that another member may join. Raises KafkaError(GROUP_MAX_SIZE_REACHED)."""
        members_max = self.settings(group.group_id).members_max
        if len(group.members) >= members_max:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {members_max} members.",
            )

    def _check_member(self, group: ConsumerGroup, request: Heartbeat) -> Member:
        """The member. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or FENCED_MEMBER_EPOCH."""
        if request.instance_id is not None:
            owner = group.static.get(request.instance_id)
            if owner is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown to the group."
                )
            if owner != request.member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Static member {request.member_id} with instance id {request.instance_id} was fenced by {owner}.",
                )
        member = group.members.get(request.member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of group {group.group_id}."
            )
        if request.member_epoch > JOINING:
            _check_member_epoch(member, request)
        return member

    def _check_epoch(
        self,
        group: ConsumerGroup,
        member_epoch: int,
        member_id: str,
        *,
        stale: ErrorCode = ErrorCode.STALE_MEMBER_EPOCH,
    ) -> None:
        member = group.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member_epoch != member.member_epoch:
            raise KafkaError(
                stale if member.classic is None else ErrorCode.ILLEGAL_GENERATION,
                f"The member epoch {member_epoch} is stale: member {member_id} has {member.member_epoch}.",
            )

    # --- epochs and assignments

    def _regexes_due(self, group_id: str, seen: _Seen, now: Now) -> bool:
        """Whether the regular expressions of a group are to be matched again."""
        if seen.regex_ms is None:
            return True
        elapsed_ms = now.monotonic_ms - seen.regex_ms
        if seen.regex_version != self._topics_version and elapsed_ms >= REGEX_REFRESH_MS_MIN:
            return True
        return elapsed_ms >= self.settings(group_id).regex_refresh_interval_ms

    def _match(self, draft: Draft, now: Now, *, again: bool, may_describe: MayDescribe) -> bool:
        """Match new regular expressions, or all `again`, and drop unused ones. Returns whether topics have changed."""
        used = draft.group.used_regexes()
        changed = False
        drop_regexes(draft, used)
        for regex in sorted(used):
            known = draft.group.regexes.get(regex)
            if known is not None and not again:
                continue
            found = regular_expressions.matching(regex, self.topics.names())
            names = tuple(name for name in found if may_describe(name))
            if known is None or names != known.topic_names:
                draft.add(RegexResolved(draft.group.group_id, regex, names, self._topics_version, now.wall_ms))
                changed |= known is not None or bool(names)
        return changed

    def bump(self, draft: Draft, *, always: bool) -> None:
        """A new group epoch if the subscribed topics have changed, or `always`."""
        changed_to = metadata_hash(self.topics, draft.group.topic_names())
        if always or changed_to != draft.group.metadata_hash:
            draft.add(GroupEpochBumped(draft.group.group_id, draft.group.group_epoch + 1, changed_to))

    def _is_assignment_due(self, group: ConsumerGroup, seen: _Seen, now: Now) -> bool:
        """Whether to compute the assignment now. While many members join and leave, it is computed for several changes
        at once: until then those that have joined have no partitions, and the others keep theirs."""
        size, settings = len(group.members), self.settings(group.group_id)
        if seen.assigned_ms is None or size <= settings.assigned_at_once_max:  # as in a new group
            return True
        interval_ms = min(size * INTERVAL_MS_PER_MEMBER, settings.assignment_interval_ms)
        return now.monotonic_ms - seen.assigned_ms >= interval_ms

    def assign(self, draft: Draft) -> None:
        """The target assignment for the group epoch."""
        self._on_rebalance()
        group = draft.group
        shapes = {name: self.topics.shape(name) for name in sorted(group.topic_names())}
        ids: dict[tuple[tuple[str, ...], str | None], frozenset[UUID]] = {}
        candidates = {}
        for member in group.members.values():
            subscription = (member.topic_names, member.topic_regex)
            if subscription not in ids:
                found = (shapes[name] for name in group.topic_names_of(member))
                ids[subscription] = frozenset(shape.topic_id for shape in found if shape is not None)
            candidates[member.member_id] = Candidate(
                member.instance_id or member.member_id,
                ids[subscription],
                group.target.get(member.member_id, NO_PARTITIONS),
            )
        topics = [(shape.topic_id, shape.partition_count) for shape in shapes.values() if shape is not None]
        if candidates:
            for member_id, partitions in ASSIGNORS[self.assignor_of(group)](candidates, topics).items():
                if partitions != group.target.get(member_id, NO_PARTITIONS):
                    draft.add(MemberTargeted(group.group_id, member_id, partitions))
        draft.add(TargetDecided(group.group_id, group.group_epoch))

    def reconcile(self, draft: Draft, member_id: str, owned: Partitions | None) -> None:
        group = draft.group
        member = group.members[member_id]
        after = reconciled(
            member,
            group.target.get(member_id, NO_PARTITIONS),
            assignment_epoch=group.assignment_epoch,
            owners=group.owners,
            owned=owned,
        )
        if after != member:
            draft.add(assignment_of(group.group_id, after))

    # --- leaving

    def _leave(self, request: Heartbeat, now: Now) -> Answer:
        draft = Draft(self._group(request))
        member = self._check_member(draft.group, request)
        if request.member_epoch == LEAVING:
            self.remove(draft, [member.member_id])
            self.commit_or_downgrade(draft, now)
        else:
            left = replace(
                member,
                member_epoch=LEFT_FOR_A_WHILE,
                previous_epoch=member.member_epoch,
                state=MemberState.STABLE,
                revoking=NO_PARTITIONS,
            )
            draft.add(assignment_of(request.group_id, left))
            self.commit(draft.records, now)
            self._revocations.discard((request.group_id, request.member_id))
        return Answer(request.member_id, request.member_epoch)

    def remove(self, draft: Draft, member_ids: Sequence[str]) -> None:
        """Remove members; the others get their partitions at their next heartbeats."""
        for member_id in member_ids:
            delete_member(draft, member_id)
        drop_regexes(draft, draft.group.used_regexes())
        self.bump(draft, always=True)

    def remove_members(self, group_id: str, member_ids: Sequence[str], now: Now) -> None:
        """Raises KafkaError if the log cannot be written."""
        if member_ids:
            draft = Draft(self.groups[group_id])
            self.remove(draft, member_ids)
            self.commit_or_downgrade(draft, now)

    def commit_or_downgrade(self, draft: Draft, now: Now) -> None:
        """Append the records; or those of a classic group, if only classic members are left. Raises KafkaError."""
        after, group_id = draft.group, draft.group.group_id
        before = self.groups[group_id]
        if (
            self.settings(group_id).downgrades
            and after.members
            and all(member.classic is not None for member in after.members.values())
            and any(member.classic is None for member in before.members.values())
            and self._downgrade(before, after, now)
        ):
            for member_id in before.members:
                for deadlines in (self.sessions, self._revocations, self.rejoins):
                    deadlines.discard((group_id, member_id))
        else:
            self.commit(draft.records, now)

    def _session_ms(self, group_id: str, member: Member) -> int:
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self.settings(group_id).session_timeout_ms

    def commit(self, decided: Sequence[ConsumerRecord], now: Now) -> None:
        """Append the records, and note the deadlines that follow from them."""
        self._append(decided, now)
        for record in decided:
            if isinstance(record, MemberAssigned):
                key = (record.group, record.member_id)
                member = self.groups[record.group].members.get(record.member_id)
                if member is None:
                    continue  # a later record of the batch has replaced it
                if record.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                    self._revocations.set(key, now.monotonic_ms + member.rebalance_timeout_ms)
                else:
                    self._revocations.discard(key)
            elif isinstance(record, MemberSubscribed) and record.classic is not None:
                key = (record.group, record.member_id)
                if key not in self.sessions:  # the group was a classic one
                    self.sessions.set(key, now.monotonic_ms + record.classic.session_timeout_ms)
            elif isinstance(record, ConsumerRecordDeleted) and record.kind == records.MEMBER:
                for deadlines in (self.sessions, self._revocations, self.rejoins):
                    deadlines.discard((record.group, record.name))


def _check_member_epoch(member: Member, request: Heartbeat) -> None:
    """Raises KafkaError(FENCED_MEMBER_EPOCH). The previous epoch is accepted: the last response may have been lost."""
    if request.member_epoch == member.member_epoch:
        return
    lost_response = (
        request.member_epoch == member.previous_epoch and request.owned is not None and request.owned <= member.assigned
    )
    if request.member_epoch > member.member_epoch or not lost_response:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member epoch {request.member_epoch} is not the one of the coordinator, {member.member_epoch}."
            " The member must abandon all its partitions and rejoin.",
        )


def heartbeat_interval_ms(settings: ConsumerGroupSettings, members: int, since_assignment_ms: int | None) -> int:
    """When a member is to send its next heartbeat, in milliseconds.

    `since_assignment_ms` is the age of the group's assignment, None if this coordinator has not computed it.
    """
    usual, soon = settings.heartbeat_interval_ms, settings.rebalance_heartbeat_interval_ms
    if not soon or since_assignment_ms is None or since_assignment_ms >= usual:
        return usual
    return min(usual, max(soon, members * REBALANCE_HEARTBEAT_MS_PER_MEMBER))
