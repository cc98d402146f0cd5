"""One partition's consumer groups over a list, on a clock that the test moves, and clients that follow the protocol."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from raylog.config.consumer_groups import ASSIGNOR_NAMES, BIDIRECTIONAL, ConsumerGroupSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord import records
from raylog.groupcoord.consumer.group import ConsumerGroup
from raylog.groupcoord.consumer.groups import ConsumerGroups
from raylog.groupcoord.consumer.heartbeat import Answer, Heartbeat
from raylog.groupcoord.consumer.records import NO_PARTITIONS, ConsumerRecord, Partitions
from raylog.groupcoord.topics import TopicShape

WALL_START_MS = 1_700_000_000_000
SESSION_MS = 45_000
REBALANCE_MS = 60_000
HEARTBEAT_MS = 5000


class FakeTopics:
    """Topics whose ids are numbers in the order of their creation."""

    def __init__(self) -> None:
        self.shapes: dict[str, TopicShape] = {}
        self._ids = itertools.count(1)

    def shape(self, name: str) -> TopicShape | None:
        return self.shapes.get(name)

    def name(self, topic_id: UUID) -> str | None:
        return next((name for name, shape in self.shapes.items() if shape.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return self.shapes

    def deleted(self, names: Iterable[str]) -> set[str]:
        return set()

    def partitions(self, *names: str) -> Partitions:
        """All partitions of these topics that exist."""
        shapes = [self.shapes[name] for name in names if name in self.shapes]
        return frozenset((shape.topic_id, number) for shape in shapes for number in range(shape.partition_count))

    def create(self, name: str, count: int) -> None:
        self.shapes[name] = TopicShape(UUID(int=next(self._ids)), count)


class ConsumerCoordinator:
    def __init__(self, *, members_max: int = 2000, **topics: int) -> None:
        self.settings = ConsumerGroupSettings(
            True, SESSION_MS, HEARTBEAT_MS, members_max, ASSIGNOR_NAMES, 600_000, BIDIRECTIONAL
        )
        self.topics = FakeTopics()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.decided: list[ConsumerRecord] = []
        """The records of the last append."""
        self.appends_fail_with: ErrorCode | None = None
        self.hidden: set[str] = set()
        """Topics that members may not describe."""
        self._ids = itertools.count(1)
        self._ms = 1000
        self.restart()
        for name, count in topics.items():
            self.create_topic(name, count)

    def restart(self) -> None:
        """Another one takes over, from the log."""
        self.consumer = self.replayed(self.log)
        self.consumer.loaded(self.now)

    def replayed(self, log: Sequence[tuple[bytes, bytes | None]]) -> ConsumerGroups:
        groups = ConsumerGroups(
            lambda _: self.settings, append=self._append, new_id=lambda: str(next(self._ids)), topics=self.topics
        )
        for key, value in log:
            groups.replay(_consumer_record(key, value))
        return groups

    def compacted(self) -> list[tuple[bytes, bytes | None]]:
        """The log as compaction leaves it in the end: the last record of each key, without tombstones."""
        last = {key: number for number, (key, _) in enumerate(self.log)}
        return [self.log[number] for number in sorted(last.values()) if self.log[number][1] is not None]

    @property
    def now(self) -> Now:
        return Now(self._ms, WALL_START_MS + self._ms)

    @property
    def group(self) -> ConsumerGroup:
        return self.consumer.groups["g"]

    def pass_time(self, ms: int) -> None:
        end_ms = self._ms + ms
        while (due_ms := self.consumer.next_deadline_ms()) is not None and due_ms <= end_ms:
            self._ms = max(self._ms, due_ms)
            self.consumer.tick(self.now)
        self._ms = end_ms

    def create_topic(self, name: str, count: int) -> None:
        self.topics.create(name, count)
        self.consumer.topics_changed()

    def add_partitions(self, name: str, more: int) -> None:
        shape = self.topics.shapes[name]
        self.topics.shapes[name] = shape._replace(partition_count=shape.partition_count + more)
        self.consumer.topics_changed()

    def delete_topic(self, name: str) -> None:
        del self.topics.shapes[name]
        self.consumer.topics_changed()

    def heartbeat(self, member_id: str, member_epoch: int, group: str = "g", **more: Any) -> Answer:
        request = Heartbeat(group_id=group, member_id=member_id, member_epoch=member_epoch, **more)
        return self.consumer.heartbeat(request, self.now, may_describe=lambda name: name not in self.hidden)

    def join(self, member_id: str, *topics: str, **more: Any) -> Answer:
        given: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "topic_names": topics, "owned": NO_PARTITIONS}
        return self.heartbeat(member_id, 0, **{**given, **more})

    def refusal(self, member_id: str, member_epoch: int, **more: Any) -> ErrorCode:
        """The code with which the heartbeat is refused."""
        try:
            self.heartbeat(member_id, member_epoch, **more)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def settle(self, *clients: Client) -> None:
        """All clients send heartbeats until nothing changes any more."""
        for _ in range(10 * len(clients) + 10):
            before = len(self.log)
            for client in clients:
                client.beat()
                client.revoke()
            if len(self.log) == before and all(client.is_member for client in clients):
                return
        raise AssertionError("the group does not become stable")

    def _append(self, decided: Sequence[ConsumerRecord], now: Now) -> None:
        if self.appends_fail_with is not None:
            raise KafkaError(self.appends_fail_with)
        self.decided = list(decided)
        for record in decided:
            self.log.append(records.encode(record))
            decoded = _consumer_record(*self.log[-1])
            assert decoded == record
            self.consumer.replay(decoded)


def _consumer_record(key: bytes, value: bytes | None) -> ConsumerRecord:
    record: Any = records.decode(key, value)
    assert record is not None
    return record  # type: ignore[no-any-return]


@dataclass(eq=False)
class Client:
    """A member as clients implement it. It takes new partitions at once, and revokes others when `revoke` is called."""

    coordinator: ConsumerCoordinator
    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    epoch: int = 0
    owned: Partitions = NO_PARTITIONS
    assigned: Partitions = NO_PARTITIONS
    told: Partitions | None = None
    """What it said last that it owns; None if the coordinator may not have heard it."""
    errors: list[ErrorCode] = field(default_factory=list)

    @property
    def is_member(self) -> bool:
        return self.epoch > 0

    def beat(self, *, response_is_lost: bool = False) -> None:
        said: dict[str, Any] = {}
        if self.told != self.owned:
            said = {"owned": self.owned}
        if self.epoch == 0 or self.told is None:
            said |= {
                "owned": self.owned,
                "rebalance_timeout_ms": REBALANCE_MS,
                "topic_names": self.topics,
                "topic_regex": self.topic_regex,
                "server_assignor": self.server_assignor,
            }
        try:
            answer = self.coordinator.heartbeat(self.member_id, self.epoch, instance_id=self.instance_id, **said)
        except KafkaError as error:
            self.errors.append(error.code)
            self.told = None
            if error.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
                self.abandon()
            return
        if response_is_lost:
            self.told = None
            return
        self.told = said.get("owned", self.told)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned = answer.assignment
            self.owned |= answer.assignment

    def revoke(self) -> None:
        self.owned &= self.assigned

    def subscribe(self, *topics: str) -> None:
        self.topics, self.told = topics, None

    def leave(self, *, for_a_while: bool = False) -> None:
        self.coordinator.heartbeat(self.member_id, -2 if for_a_while else -1, instance_id=self.instance_id)
        self.abandon()

    def abandon(self) -> None:
        """It has lost all its partitions, and is to join again."""
        self.epoch, self.owned, self.assigned, self.told = 0, NO_PARTITIONS, NO_PARTITIONS, None
