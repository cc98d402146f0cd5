"""The consumer groups of one partition of __consumer_offsets: heartbeats, departures and timeouts.

A command decides against a copy of the group, to which each record is applied as soon as it is decided on, appends all
records at once, and replays them on the group itself. Sessions and the time that members have for revoking partitions
are soft state, which begins anew with each coordinator.
Source: KIP-848; for what it leaves open, the behaviour of Apache Kafka 4.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from raylog.config.consumer_groups import ConsumerGroupSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.outcome import Outcome
from raylog.groupcoord.consumer import records, regular_expressions
from raylog.groupcoord.consumer.assignors import ASSIGNORS, Candidate
from raylog.groupcoord.consumer.deadlines import Deadlines
from raylog.groupcoord.consumer.draft import Draft
from raylog.groupcoord.consumer.group import LEFT_FOR_A_WHILE, ConsumerGroup, Member
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
from raylog.groupcoord.consumer.topics import Topics, metadata_hash

JOINING: Final = 0
LEAVING: Final = -1
REGEX_REFRESH_MS_MIN: Final = 10_000
"""How long topics may appear and disappear before expressions are matched again: that takes time for many topics."""
RETRY_MS: Final = 1000
"""When the removal of an expired member is tried again after the log could not be written."""

Append = Callable[[Sequence[ConsumerRecord], Now], None]
"""Append records to the log and replay them. Raises KafkaError with the client's error code; nothing changes then."""
MayDescribe = Callable[[str], bool]
"""Whether the client may know of the topic."""
MemberKey = tuple[str, str]
"""Group id and member id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a member says. None, and -1 for the timeout: it is as it was."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether the member says everything, as it does when it joins or when it may have missed a response."""
        subscribes = self.topic_names is not None or self.topic_regex is not None
        return self.member_epoch == JOINING or (
            self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a heartbeat; without an assignment the member keeps the one it has."""

    member_id: str
    member_epoch: int
    assignment: Partitions | None = None


@dataclass(slots=True)
class _Seen:
    """The topics as of which a group was last checked."""

    version: int = -1
    regex_version: int = -1
    regex_ms: int | None = None
    """When its regular expressions were matched last (monotonic)."""


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
    ) -> None:
        """`settings` returns what applies to a group; `on_rebalance` is called for each new target assignment."""
        self.groups: dict[str, ConsumerGroup] = {}
        self._settings = settings
        self._append = append
        self._new_id = new_id
        self._topics = topics
        self._on_rebalance = on_rebalance
        self._topics_version = 0
        self._seen: dict[str, _Seen] = {}
        self._sessions: Deadlines[MemberKey] = Deadlines()
        self._revocations: Deadlines[MemberKey] = Deadlines()

    # --- commands

    def heartbeat(self, request: Heartbeat, now: Now, *, may_describe: MayDescribe) -> Answer:
        """A member joins, remains, or leaves. Raises KafkaError with the code for the member."""
        check(request, self._settings(request.group_id))
        if request.member_epoch < JOINING:
            return self._leave(request, now)
        seen = self._seen.get(request.group_id) or _Seen()
        matches = self._regexes_due(request.group_id, seen, now)
        outcome = self._beat(request, now, seen=seen, matches=matches, may_describe=may_describe)
        self._commit(outcome.records, now)
        seen.version = self._topics_version
        if matches:
            seen.regex_version, seen.regex_ms = self._topics_version, now.monotonic_ms
        self._seen[request.group_id] = seen
        self._sessions.set(
            (request.group_id, outcome.response.member_id),
            now.monotonic_ms + self._settings(request.group_id).session_timeout_ms,
        )
        return outcome.response

    def check_commit(self, group_id: str, member_epoch: int, member_id: str, *, in_transaction: bool = False) -> None:
        """Check that the offsets may be committed. Raises KafkaError: UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH."""
        group = self.groups[group_id]
        if member_epoch < 0 and (not group.members or (in_transaction and not member_id)):
            return  # an admin client, or a consumer that uses assign()
        self._check_epoch(group, member_epoch, member_id)

    def check_fetch(self, group_id: str, member_epoch: int, member_id: str | None) -> None:
        """Check that a client that names a member may fetch offsets. Raises KafkaError as `check_commit`."""
        group = self.groups.get(group_id)
        if group is not None and member_id is not None and member_epoch >= 0:
            self._check_epoch(group, member_epoch, member_id)

    def check_delete(self, group_id: str) -> None:
        """Check that the group may be deleted. Raises KafkaError(NON_EMPTY_GROUP)."""
        if self.groups[group_id].members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        group = self.groups.get(group_id)
        return group is not None and topic in group.topic_names()

    def tombstones(self, group_id: str) -> list[ConsumerRecord]:
        """The records that delete a group without members; none if there is no such group."""
        group = self.groups.get(group_id)
        if group is None:
            return []
        gone = [ConsumerRecordDeleted(group_id, records.REGULAR_EXPRESSION, regex) for regex in group.regexes]
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
        names = self._settings(group.group_id).assignors
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
                self._sessions.set(key, now.monotonic_ms + self._settings(group.group_id).session_timeout_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self._revocations.set(key, now.monotonic_ms + member.rebalance_timeout_ms)

    # --- time

    def next_deadline_ms(self) -> int | None:
        """The time of the next `tick` (monotonic); None if there is no deadline."""
        deadlines = (self._sessions.next_ms(), self._revocations.next_ms())
        return min((ms for ms in deadlines if ms is not None), default=None)

    def tick(self, now: Now) -> None:
        """Remove members whose session has expired, and those that did not revoke their partitions in time."""
        gone: dict[str, set[str]] = {}
        for deadlines in (self._sessions, self._revocations):
            for group_id, member_id in deadlines.expired(now.monotonic_ms):
                group = self.groups.get(group_id)
                if group is not None and member_id in group.members:
                    gone.setdefault(group_id, set()).add(member_id)
        for group_id, member_ids in gone.items():
            draft = Draft(self.groups[group_id])
            self._remove(draft, sorted(member_ids))
            try:
                self._commit(draft.records, now)
            except KafkaError:
                for member_id in member_ids:
                    self._sessions.set((group_id, member_id), now.monotonic_ms + RETRY_MS)

    # --- a heartbeat

    def _beat(
        self, request: Heartbeat, now: Now, *, seen: _Seen, matches: bool, may_describe: MayDescribe
    ) -> Outcome[Answer, ConsumerRecord]:
        draft = Draft(self._group(request))
        member_id = self._joined(draft, request)
        member = draft.group.members.get(member_id) or Member(member_id)
        is_new = member_id not in draft.group.members
        subscribed = _subscription(draft.group.group_id, member, request)
        changed = is_new or subscribed != _subscription(draft.group.group_id, member)
        if changed:
            draft.add(subscribed)
        bump = is_new or (subscribed.topic_names, subscribed.topic_regex) != (member.topic_names, member.topic_regex)
        if bump or matches:
            bump |= self._match(draft, now, again=matches, may_describe=may_describe)
        if bump or seen.version != self._topics_version:
            self._bump(draft, always=bump)
        if draft.group.group_epoch > draft.group.assignment_epoch:
            self._assign(draft)
        self._reconcile(draft, member_id, request.owned)
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
        member_id = request.member_id or self._new_id()
        if owner is None:
            members_max = self._settings(group.group_id).members_max
            if member_id not in group.members and len(group.members) >= members_max:
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The consumer group has reached its maximum capacity of {members_max} members.",
                )
        elif owner != member_id:
            if group.members[owner].member_epoch != LEFT_FOR_A_WHILE:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {owner} with instance id {request.instance_id} is still a member of the group.",
                )
            _replace_static(draft, group.members[owner], member_id)
        return member_id

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

    def _check_epoch(self, group: ConsumerGroup, member_epoch: int, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member_epoch != member.member_epoch:
            raise KafkaError(
                ErrorCode.STALE_MEMBER_EPOCH,
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
        return elapsed_ms >= self._settings(group_id).regex_refresh_interval_ms

    def _match(self, draft: Draft, now: Now, *, again: bool, may_describe: MayDescribe) -> bool:
        """Match new regular expressions, or all `again`, and drop unused ones. Returns whether topics have changed."""
        used = draft.group.used_regexes()
        changed = False
        _drop_regexes(draft, used)
        for regex in sorted(used):
            known = draft.group.regexes.get(regex)
            if known is not None and not again:
                continue
            found = regular_expressions.matching(regex, self._topics.names())
            names = tuple(name for name in found if may_describe(name))
            if known is None or names != known.topic_names:
                draft.add(RegexResolved(draft.group.group_id, regex, names, self._topics_version, now.wall_ms))
                changed |= known is not None or bool(names)
        return changed

    def _bump(self, draft: Draft, *, always: bool) -> None:
        """A new group epoch if the subscribed topics have changed, or `always`."""
        changed_to = metadata_hash(self._topics, draft.group.topic_names())
        if always or changed_to != draft.group.metadata_hash:
            draft.add(GroupEpochBumped(draft.group.group_id, draft.group.group_epoch + 1, changed_to))

    def _assign(self, draft: Draft) -> None:
        """The target assignment for the group epoch."""
        self._on_rebalance()
        group = draft.group
        shapes = {name: self._topics.shape(name) for name in sorted(group.topic_names())}
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

    def _reconcile(self, draft: Draft, member_id: str, owned: Partitions | None) -> None:
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
            draft.add(_assignment(group.group_id, after))

    # --- leaving

    def _leave(self, request: Heartbeat, now: Now) -> Answer:
        draft = Draft(self._group(request))
        member = self._check_member(draft.group, request)
        if request.member_epoch == LEAVING:
            self._remove(draft, [member.member_id])
        else:
            left = replace(
                member,
                member_epoch=LEFT_FOR_A_WHILE,
                previous_epoch=member.member_epoch,
                state=MemberState.STABLE,
                revoking=NO_PARTITIONS,
            )
            draft.add(_assignment(request.group_id, left))
        self._commit(draft.records, now)
        self._revocations.discard((request.group_id, request.member_id))
        return Answer(request.member_id, request.member_epoch)

    def _remove(self, draft: Draft, member_ids: Sequence[str]) -> None:
        """Remove members; the others get their partitions at their next heartbeats."""
        for member_id in member_ids:
            _delete_member(draft, member_id)
        _drop_regexes(draft, draft.group.used_regexes())
        self._bump(draft, always=True)

    def _commit(self, decided: Sequence[ConsumerRecord], now: Now) -> None:
        """Append the records, and note the deadlines that follow from them."""
        self._append(decided, now)
        for record in decided:
            if isinstance(record, MemberAssigned):
                key = (record.group, record.member_id)
                member = self.groups[record.group].members[record.member_id]
                if record.state is MemberState.UNREVOKED_PARTITIONS:
                    self._revocations.set(key, now.monotonic_ms + member.rebalance_timeout_ms)
                else:
                    self._revocations.discard(key)
            elif isinstance(record, ConsumerRecordDeleted) and record.kind == records.MEMBER:
                self._revocations.discard((record.group, record.name))
                self._sessions.discard((record.group, record.name))


def check(request: Heartbeat, settings: ConsumerGroupSettings) -> None:
    """Raises KafkaError, INVALID_REQUEST and others, for a heartbeat that no group could accept."""
    for name, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if request.member_epoch != JOINING and not request.member_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    if request.member_epoch == JOINING:
        _check_first(request)
    elif request.member_epoch == LEFT_FOR_A_WHILE:
        if request.instance_id is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif request.member_epoch < LEFT_FOR_A_WHILE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"MemberEpoch is invalid: {request.member_epoch}.")
    if request.rebalance_timeout_ms < -1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"RebalanceTimeoutMs is invalid: {request.rebalance_timeout_ms}.")
    if request.server_assignor is not None and request.server_assignor not in settings.assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors:"
            f" {', '.join(settings.assignors)}.",
        )
    if request.topic_regex:
        regular_expressions.check(request.topic_regex)


def _check_first(request: Heartbeat) -> None:
    """What a member must say when it joins."""
    if request.rebalance_timeout_ms == -1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if request.topic_names is None and request.topic_regex is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )


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


def _subscription(group_id: str, member: Member, request: Heartbeat | None = None) -> MemberSubscribed:
    """The record of the member's subscription, with what the heartbeat changes in it."""
    known = MemberSubscribed(
        group_id,
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topic_names,
        member.topic_regex,
        member.rebalance_timeout_ms,
        member.server_assignor,
    )
    if request is None:
        return known
    return replace(
        known,
        instance_id=_either(request.instance_id, known.instance_id),
        rack_id=_either(request.rack_id, known.rack_id),
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=known.topic_names if request.topic_names is None else tuple(sorted(set(request.topic_names))),
        topic_regex=known.topic_regex if request.topic_regex is None else request.topic_regex or None,
        rebalance_timeout_ms=(
            known.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        server_assignor=_either(request.server_assignor, known.server_assignor),
    )


def _either(said: str | None, known: str | None) -> str | None:
    return known if said is None else said


def _assignment(group_id: str, member: Member) -> MemberAssigned:
    return MemberAssigned(
        group_id,
        member.member_id,
        member.member_epoch,
        member.previous_epoch,
        member.state,
        member.assigned,
        member.revoking,
    )


def _replace_static(draft: Draft, old: Member, member_id: str) -> None:
    """A new process takes over what a static member had."""
    group = draft.group
    target = group.target.get(old.member_id, NO_PARTITIONS)
    _delete_member(draft, old.member_id)
    new = replace(
        old, member_id=member_id, member_epoch=0, previous_epoch=0, state=MemberState.STABLE, revoking=NO_PARTITIONS
    )
    draft.add(_subscription(group.group_id, new))
    draft.add(MemberTargeted(group.group_id, member_id, target))
    draft.add(_assignment(group.group_id, new))


def _delete_member(draft: Draft, member_id: str) -> None:
    for kind in (records.MEMBER_ASSIGNMENT, records.MEMBER_TARGET, records.MEMBER):
        draft.add(ConsumerRecordDeleted(draft.group.group_id, kind, member_id))


def _drop_regexes(draft: Draft, used: Iterable[str]) -> None:
    for regex in sorted(draft.group.regexes.keys() - set(used)):
        draft.add(ConsumerRecordDeleted(draft.group.group_id, records.REGULAR_EXPRESSION, regex))
