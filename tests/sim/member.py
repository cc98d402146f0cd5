"""A group member that behaves like the stock consumers.

It leaves, dies without LeaveGroup, returns as another member, or hangs for longer than its session timeout and then
continues. All responses go to the ledger of its group, which compares them with those of the other members.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId
from raylog.groupcoord.classic.subscription import CONSUMER
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.heartbeat import HeartbeatRequest
from raylog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from raylog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.sim.broker_host import BrokerHost
from tests.sim.client import SimClient
from tests.sim.group_ledger import NO_GENERATION, GroupLedger, SentCommit
from tests.sim.world import World

RANGE = "range"
NOBODY = BrokerId(-1)
COORDINATOR_IS_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
TOPIC_IS_NEWS = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""The coordinator's image may lag behind that of the broker that returned the topic."""
NO_MEMBER = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""Errors of the group, not of the log: nothing was or will be written."""


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """The timeouts that all members of a group request."""

    session_ms: int
    rebalance_ms: int
    heartbeat_ms: int

    @staticmethod
    def some(rng: random.Random) -> GroupTimes:
        session_ms = rng.choice((400, 800, 1500))
        return GroupTimes(session_ms, rng.choice((500, 1000, 2000)), session_ms // rng.choice((3, 5)))


class Member(SimClient):
    """A member of the group of `ledger`. Members with the same `instance` fence one another."""

    def __init__(
        self,
        world: World,
        hosts: list[BrokerHost],
        ledger: GroupLedger,
        times: GroupTimes,
        partition_count: int,
        *,
        elected: Callable[[], BrokerId],
        instance: str | None,
        name: str,
    ) -> None:
        self.trouble = True
        """While this holds it may leave, die and hang."""
        self.quiet = False
        """Whether it has stopped committing."""
        self.dead = False
        """Whether it has ended for good: it left, or another process has its instance id."""
        self.looked = False
        """Whether it has fetched the committed offsets since it stopped committing."""
        self.generation_id = NO_GENERATION
        self.member_id = ""
        self.instance = instance
        self.part: frozenset[int] | None = None
        """The partitions that it owns; None while it must join."""
        self._former: tuple[int, frozenset[int]] | None = None
        """A past generation, and the partitions that this life owned in it."""
        self._ledger = ledger
        self._times = times
        self._elected = elected
        self._partition_count = partition_count
        self._life = object()
        self._topic_id: UUID | None = None
        self._coordinator = NOBODY
        self._protocol: tuple[str | None, str | None] = (None, None)
        self._positions: dict[int, int] = {}
        super().__init__(world, hosts, name)

    @property
    def is_settled(self) -> bool:
        return self.dead or (self.part is not None and self.quiet and self.looked)

    # --- finding the coordinator

    def begin(self) -> None:
        if self.finished or self.dead:
            return
        if self._topic_id is None:
            self.describe(self._ledger.topic, self._described, create=True)
        else:
            self._find_coordinator()

    def _described(self, topic: Any) -> None:
        if topic.error_code != ErrorCode.NONE or len(topic.partitions) < self._partition_count:
            self.restart()
            return
        self._topic_id = topic.topic_id
        self._find_coordinator()

    def _find_coordinator(self) -> None:
        request = FindCoordinatorRequest(coordinator_keys=(self._ledger.group_id,))
        self.ask(self.any_broker(), request, self._coordinator_found)

    def _coordinator_found(self, answer: Any) -> None:
        (found,) = answer.coordinators
        if found.error_code != ErrorCode.NONE:
            assert found.error_code.retriable, found.error_code
            self.restart()
            return
        if found.node_id != self._coordinator and self._coordinator != NOBODY and self.part is not None:
            self.world.marks["coordinator moved with members"] += 1
        self._coordinator = found.node_id
        if self.part is None:
            self._join()
        else:
            self._fetch()

    # --- joining

    def _join(self) -> None:
        if self.part and self.member_id:
            self._former = (self.generation_id, self.part)
        self.part = None
        self.looked = False
        request = JoinGroupRequest(
            group_id=self._ledger.group_id,
            session_timeout_ms=self._times.session_ms,
            rebalance_timeout_ms=self._times.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=CONSUMER,
            protocols=(JoinGroupRequestProtocol(name=RANGE, metadata=_subscription(self._ledger.topic)),),
        )
        self.ask(self._coordinator, request, partial(self._joined, self._ledger.generation_id))

    def _joined(self, known_before: int, answer: Any) -> None:
        code = answer.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            assert self.instance is None
            assert not self.member_id, "MEMBER_ID_REQUIRED for a member that has an id"
            self._ledger.id_given(answer.member_id)
            self.member_id = answer.member_id
            self._next(self._join)
            return
        if code != ErrorCode.NONE:
            self._heed(code)
            return
        self.member_id, self.generation_id = answer.member_id, answer.generation_id
        self._protocol = (answer.protocol_type, answer.protocol_name)
        if self._is_deposed():
            known_before = NO_GENERATION
        self._ledger.joined(self.generation_id, self.member_id, self._life, known_before=known_before)
        self.world.marks["member joined"] += 1
        plan: dict[str, frozenset[int]] = {}
        if answer.leader == self.member_id and not answer.skip_assignment:
            named = sorted((member.group_instance_id or "", member.member_id) for member in answer.members)
            assert self.member_id in {member_id for _, member_id in named}, "the leader is not among the members"
            plan = _range([member_id for _, member_id in named], self._partition_count)
        elif answer.skip_assignment:
            self.world.marks["static leader kept the assignment"] += 1
        self._next(partial(self._sync, plan))

    def _sync(self, plan: dict[str, frozenset[int]]) -> None:
        protocol_type, protocol_name = self._protocol
        request = SyncGroupRequest(
            group_id=self._ledger.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=_assignment(self._ledger.topic, part))
                for member_id, part in plan.items()
            ),
        )
        self.ask(self._coordinator, request, partial(self._synced, self._ledger.generation_id))

    def _synced(self, known_before: int, answer: Any) -> None:
        if answer.error_code != ErrorCode.NONE:
            self._heed(answer.error_code)
            return
        if self._is_deposed():
            known_before = NO_GENERATION
        self.part = self._ledger.part(bytes(answer.assignment))
        self._ledger.synced(self.generation_id, self.member_id, self.instance, self.part, known_before=known_before)
        self.world.marks["member has its part"] += 1
        self._next(self._fetch)

    def _is_deposed(self) -> bool:
        """Whether the responding coordinator may have been replaced without knowing it. Its reads may be outdated."""
        deposed = self._elected() != self._coordinator
        if deposed:
            self.world.marks["member answered by a deposed coordinator"] += 1
        return deposed

    # --- being a member

    def _fetch(self) -> None:
        """Fetch the committed offsets of all partitions."""
        assert self._topic_id is not None
        numbers = range(self._partition_count)
        least = [self._ledger.least(number) for number in numbers]
        topic = OffsetFetchRequestTopics(
            name=self._ledger.topic, topic_id=self._topic_id, partition_indexes=tuple(numbers)
        )
        group = OffsetFetchRequestGroup(group_id=self._ledger.group_id, topics=(topic,))
        self.ask(self._coordinator, OffsetFetchRequest(groups=(group,)), partial(self._fetched, least, self.quiet))

    def _fetched(self, least: list[SentCommit | None], quiet: bool, answer: Any) -> None:
        (group,) = answer.groups
        code = group.error_code or group.topics[0].partitions[0].error_code
        if code != ErrorCode.NONE:
            self._heed(code)
            return
        if self._is_deposed():
            least = [None] * len(least)
        for found in group.topics[0].partitions:
            number = found.partition_index
            self._ledger.fetched(number, found.committed_offset, found.metadata or "", least=least[number])
            self._positions[number] = max(found.committed_offset, 0)
        self.looked = quiet
        self._go_on()

    def _go_on(self) -> None:
        self._next(self._act, within_ms=self._times.heartbeat_ms)

    def _act(self) -> None:
        if self.quiet and not self.looked:
            self._fetch()
        elif self._former is not None and self.trouble and self.world.rng.random() < 0.2:
            self._commit_late()
        elif self.part and not self.quiet and self.world.rng.random() < 0.5:
            self._commit()
        elif self.world.rng.random() < 0.05:
            self._fetch()
        else:
            self._beat()

    def _beat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._ledger.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        self.ask(self._coordinator, request, self._heartbeat_answered)

    def _heartbeat_answered(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.NONE:
            self._go_on()
        else:
            self._heed(answer.error_code)

    def _commit(self) -> None:
        assert self.part is not None
        for number in self.part:
            self._positions[number] += self.world.rng.randint(1, 5)
        self._send_commit(self.generation_id, self.part, self._heed)

    def _commit_late(self) -> None:
        """Commit for a generation that has ended, as a slow thread of a client does."""
        assert self._former is not None
        former, self._former = self._former, None
        self.world.marks["member committed under a former generation"] += 1
        self._send_commit(*former, lambda code: self.restart() if code.retriable else self._go_on())

    def _send_commit(self, generation_id: int, part: frozenset[int], refused: Callable[[ErrorCode], None]) -> None:
        assert self._topic_id is not None
        ledger = self._ledger
        commits = {
            number: ledger.commit(generation_id, self.member_id, number, self._positions[number])
            for number in sorted(part)
        }
        topic = OffsetCommitRequestTopic(
            name=ledger.topic,
            topic_id=self._topic_id,
            partitions=tuple(
                OffsetCommitRequestPartition(
                    partition_index=number, committed_offset=sent.offset, committed_metadata=str(sent.number)
                )
                for number, sent in commits.items()
            ),
        )
        request = OffsetCommitRequest(
            group_id=ledger.group_id,
            generation_id_or_member_epoch=generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=(topic,),
        )
        self.ask(self._coordinator, request, partial(self._committed, commits, refused, ledger.generation_id))

    def _committed(
        self,
        commits: dict[int, SentCommit],
        refused: Callable[[ErrorCode], None],
        known_before: int,
        answer: Any,
    ) -> None:
        code = ErrorCode.NONE
        for result in answer.topics[0].partitions:
            sent = commits[result.partition_index]
            code = code or result.error_code
            if result.error_code == ErrorCode.NONE:
                self._ledger.acknowledged(sent, known_before=known_before)
                self.world.marks["commit acknowledged under a generation"] += 1
            elif result.error_code in NO_MEMBER:
                sent.refused = True
                self.world.marks["commit refused by the group"] += 1
        if code == ErrorCode.NONE:
            self._go_on()
        else:
            refused(code)

    # --- errors and faults

    def _heed(self, code: ErrorCode) -> None:
        """React to an error code as a client does."""
        self.world.marks[f"member met {code.name}"] += 1
        if code in COORDINATOR_IS_ELSEWHERE or code in TOPIC_IS_NEWS:
            self.restart()
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            busy = self.part is not None and self.trouble and self.world.rng.random() < 0.4
            self._next(self._act if busy else self._join, within_ms=self._times.heartbeat_ms if busy else 5)
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            assert self.instance is not None
            self._end()
        else:
            assert code in NO_MEMBER, f"unexpected error {code.name}"
            if code != ErrorCode.ILLEGAL_GENERATION or self.world.rng.random() < 0.5:
                self.member_id, self._former = "", None
            self.generation_id, self.part = NO_GENERATION, None
            self._next(self._join)

    def _next(self, step: Callable[[], None], *, within_ms: int = 5) -> None:
        """Continue with `step`, possibly after a fault, or with a fault in place of it."""
        chance = self.world.rng.random()
        if not self.trouble or chance > 0.11:
            self.later(within_ms, step)
        elif chance < 0.04:
            self.world.marks["member hung"] += 1
            hang_ms = self.world.rng.randint(100, 3 * self._times.session_ms)
            self.at(hang_ms, self._commit if step == self._act and self.part else step)
        elif chance < 0.06:
            self.world.marks["member wanted to join again"] += 1
            self.later(within_ms, self._join)
        elif chance < 0.075:
            self.later(within_ms, self._leave)
        else:
            self.world.marks["member died"] += 1
            self._end()

    def _leave(self) -> None:
        named = self.instance is None or self.world.rng.random() < 0.5
        leaving = MemberIdentity(member_id=self.member_id if named else "", group_instance_id=self.instance)
        request = LeaveGroupRequest(group_id=self._ledger.group_id, members=(leaving,))
        self.ask(self._coordinator, request, self._left, self._end)

    def _left(self, answer: Any) -> None:
        code = answer.error_code or answer.members[0].error_code
        self.world.marks["member left" if code == ErrorCode.NONE else f"member met {code.name}"] += 1
        assert code in NO_MEMBER | COORDINATOR_IS_ELSEWHERE | {ErrorCode.NONE}, code.name
        self._end()

    def end_trouble(self) -> None:
        """End the faults. As the last one it may die, which only the end of its session reveals."""
        if self.trouble and self.part is not None and self.world.rng.random() < 0.3:
            self.world.marks["member died when all else came right"] += 1
            self.trouble = False
            self._end()
        self.trouble = False

    def _end(self) -> None:
        """End this life. While faults are injected it may return as another member."""
        self._life = object()
        self.member_id, self.generation_id, self.part, self._former = "", NO_GENERATION, None, None
        self._coordinator = NOBODY
        self.dead = not self.trouble or self.world.rng.random() < 0.2
        self.restart(within_ms=self.world.rng.choice((50, 500, 2000)))


def _range(member_ids: Sequence[str], partition_count: int) -> dict[str, frozenset[int]]:
    """The range assignment: a contiguous range for each member; the first ones may have one partition more."""
    plan, start = {}, 0
    for number, member_id in enumerate(member_ids):
        count = (partition_count + len(member_ids) - 1 - number) // len(member_ids)
        plan[member_id] = frozenset(range(start, start + count))
        start += count
    return plan


def _subscription(topic: str) -> bytes:
    return struct.pack(">hi", 0, 1) + _string(topic) + struct.pack(">i", 0)


def _assignment(topic: str, part: frozenset[int]) -> bytes:
    numbers = sorted(part)
    return struct.pack(">hi", 0, 1) + _string(topic) + struct.pack(f">i{len(numbers)}ii", len(numbers), *numbers, 0)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
