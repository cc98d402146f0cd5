"""One partition's classic groups over a list, on a clock that the test moves; answers are caught as they come."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from raylog.config.groups import GroupLimits
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord import records
from raylog.groupcoord.classic.group import ClassicGroup, GroupState, Joined, Synced
from raylog.groupcoord.classic.groups import ClassicGroups, JoinRequest, SyncRequest
from raylog.groupcoord.records import GroupCommitted, GroupDeleted, GroupRecord

Kind = TypeVar("Kind", Joined, Synced)
WALL_START_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = ("range", b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff")
"""An assignor's name, and the metadata of somebody subscribed to the topic `t`."""
ROUND_ROBIN = ("roundrobin", RANGE[1])


class Waiting(Generic[Kind]):
    """One request's answer, which comes at most once."""

    def __init__(self) -> None:
        self.answers: list[Kind] = []

    def __call__(self, answer: Kind) -> None:
        assert not self.answers, f"answered twice: {self.answers[0]}, then {answer}"
        self.answers.append(answer)

    @property
    def answered(self) -> bool:
        return bool(self.answers)

    @property
    def answer(self) -> Kind:
        (answer,) = self.answers
        return answer

    @property
    def code(self) -> ErrorCode:
        return self.answer.error_code


class Coordinator:
    def __init__(self, *, delay_ms: int = 0, members_max: int = 100) -> None:
        self.limits = GroupLimits(
            session_timeout_min_ms=1000,
            session_timeout_max_ms=1_800_000,
            initial_rebalance_delay_ms=delay_ms,
            members_max=members_max,
            groups_max=1000,
        )
        self.log: list[tuple[bytes, bytes | None]] = []
        self.appends_fail_with: ErrorCode | None = None
        self._ids = itertools.count(1)
        self._ms = 1000
        self.restart()

    def restart(self) -> None:
        """Another one takes over, from the log."""
        self.classic = ClassicGroups(lambda: self.limits, append=self._append, new_id=lambda: str(next(self._ids)))
        for key, value in self.log:
            record = records.decode(key, value)
            assert isinstance(record, GroupCommitted | GroupDeleted)
            self.classic.replay(record)
        self.classic.loaded(self.now)

    @property
    def now(self) -> Now:
        return Now(self._ms, WALL_START_MS + self._ms)

    @property
    def group(self) -> ClassicGroup:
        return self.classic.groups["g"]

    @property
    def state(self) -> GroupState:
        return self.group.state

    def last_record(self) -> GroupRecord | None:
        return records.decode(*self.log[-1])

    def pass_time(self, ms: int) -> None:
        end_ms = self._ms + ms
        while (due_ms := self.classic.next_deadline_ms()) is not None and due_ms <= end_ms:
            self._ms = max(self._ms, due_ms)
            self.classic.tick(self.now)
        self._ms = end_ms

    # --- requests

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (RANGE,),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        require_known_member_id: bool = False,
        supports_skip_assignment: bool = True,
        client_id: str = "client",
    ) -> Waiting[Joined]:
        waiting: Waiting[Joined] = Waiting()
        request = JoinRequest(
            group,
            member_id,
            instance,
            client_id,
            "/127.0.0.1",
            session_ms,
            rebalance_ms,
            protocol_type,
            tuple(protocols),
            require_known_member_id,
            supports_skip_assignment,
        )
        self.classic.join(request, waiting, self.now)
        return waiting

    def sync(
        self,
        member_id: str,
        generation_id: int,
        plan: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
    ) -> Waiting[Synced]:
        waiting: Waiting[Synced] = Waiting()
        request = SyncRequest("g", generation_id, member_id, instance, protocol_type, protocol_name, plan or {})
        self.classic.sync(request, waiting, self.now)
        return waiting

    def heartbeat(self, member_id: str, generation_id: int, instance: str | None = None) -> ErrorCode:
        return self.classic.heartbeat("g", generation_id, member_id, instance, self.now)

    def leave(self, member_id: str, instance: str | None = None) -> ErrorCode:
        (code,) = self.classic.leave("g", [(member_id, instance)], self.now)
        return code

    def check_commit(self, generation_id: int, member_id: str, instance: str | None = None) -> ErrorCode:
        try:
            self.classic.check_commit("g", generation_id, member_id, instance, self.now)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    # --- whole stories

    def stable(self, count: int = 2, *, static: bool = False) -> list[str]:
        """Generation 1: so many members hold what the first of them has planned; their ids, the leader's first."""
        limits, self.limits = self.limits, replace(self.limits, initial_rebalance_delay_ms=10)
        joins = [self.join(instance=f"i{number}" if static else None) for number in range(count)]
        self.pass_time(20)
        self.limits = limits
        members = [each.answer.member_id for each in joins]
        self.sync_all(members)
        return members

    def sync_all(self, members: Sequence[str]) -> None:
        """The first of them leads; each gets its own id as its part."""
        leader, *others = members
        generation_id = self.group.generation_id
        waiting = [self.sync(member_id, generation_id) for member_id in others]
        plan = {member_id: member_id.encode() for member_id in members}
        assert self.sync(leader, generation_id, plan).answer.assignment == leader.encode()
        assert [each.answer.assignment for each in waiting] == [member_id.encode() for member_id in others]
        assert self.state is GroupState.STABLE

    def _append(self, group_records: Sequence[GroupRecord], now: Now) -> None:
        if self.appends_fail_with is not None:
            raise KafkaError(self.appends_fail_with)
        for record in group_records:
            assert isinstance(record, GroupCommitted | GroupDeleted)
            self.log.append(records.encode(record))
            self.classic.replay(record)
