"""One partition's streams groups over a list, on a clock that the test moves, and members that follow the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from raylog.config.streams_groups import StreamsGroupSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.groupcoord import records
from raylog.groupcoord.streams.configured import StatusCode
from raylog.groupcoord.streams.group import StreamsGroup
from raylog.groupcoord.streams.groups import StreamsGroups
from raylog.groupcoord.streams.heartbeat import StreamsAnswer, StreamsHeartbeat
from raylog.groupcoord.streams.records import StreamsRecord
from raylog.groupcoord.streams.tasks import NO_TASKS, Tasks
from raylog.protocol.messages.streams_group_heartbeat import CopartitionGroup, Subtopology, TopicInfo, Topology
from tests.groupcoord.consumer_coordinator import FakeTopics

WALL_START_MS = 1_700_000_000_000
SESSION_MS = 45_000
REBALANCE_MS = 60_000
HEARTBEAT_MS = 5000
DELAY_MS = 3000
REJOIN_CODES = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)


def subtopology(
    name: str,
    *sources: str,
    writes: Sequence[str] = (),
    reads: Sequence[str | TopicInfo] = (),
    stores: Sequence[str] = (),
    together: Sequence[tuple[Sequence[int], Sequence[int]]] = (),
) -> Subtopology:
    """`reads` and `writes` are repartition topics; `together` are copartition groups."""
    return Subtopology(
        subtopology_id=name,
        source_topics=sources,
        repartition_sink_topics=tuple(writes),
        repartition_source_topics=tuple(TopicInfo(name=each) if isinstance(each, str) else each for each in reads),
        state_changelog_topics=tuple(TopicInfo(name=each) for each in stores),
        copartition_groups=tuple(
            CopartitionGroup(source_topics=tuple(topics), repartition_source_topics=tuple(repartition))
            for topics, repartition in together
        ),
    )


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=subtopologies)


COUNT = topology(subtopology("0", "words", writes=["mid"]), subtopology("1", reads=["mid"], stores=["counts"]))
"""Words are written to another partition by their text, and counted there."""


def tasks(name: str, *partitions: int) -> frozenset[tuple[str, int]]:
    return frozenset((name, partition) for partition in partitions)


class StreamsCoordinator:
    """Creates missing internal topics at once if `creates`, as the broker does."""

    def __init__(
        self,
        *,
        members_max: int = 2000,
        standby_replicas: int = 0,
        delay_ms: int = 0,
        creates: bool = True,
        **topics: int,
    ) -> None:
        self.settings = StreamsGroupSettings(SESSION_MS, HEARTBEAT_MS, members_max, standby_replicas, delay_ms)
        self.topics = FakeTopics()
        self.creates = creates
        self.log: list[tuple[bytes, bytes | None]] = []
        self.decided: list[StreamsRecord] = []
        """The records of the last append."""
        self.appends_fail_with: ErrorCode | None = None
        self._ms = 1000
        self.restart()
        for name, count in topics.items():
            self.create_topic(name, count)

    def restart(self) -> None:
        """Another one takes over, from the log."""
        self.streams = self.replayed(self.log)
        self.streams.loaded(self.now)

    def replayed(self, log: Sequence[tuple[bytes, bytes | None]]) -> StreamsGroups:
        groups = StreamsGroups(lambda _: self.settings, append=self._append, topics=self.topics)
        for key, value in log:
            groups.replay(_streams_record(key, value))
        return groups

    def compacted(self) -> list[tuple[bytes, bytes | None]]:
        """The log as compaction leaves it in the end: the last record of each key, without tombstones."""
        last = {key: number for number, (key, _) in enumerate(self.log)}
        return [self.log[number] for number in sorted(last.values()) if self.log[number][1] is not None]

    @property
    def now(self) -> Now:
        return Now(self._ms, WALL_START_MS + self._ms)

    @property
    def group(self) -> StreamsGroup:
        return self.streams.groups["g"]

    def pass_time(self, ms: int) -> None:
        end_ms = self._ms + ms
        while (due_ms := self.streams.next_deadline_ms()) is not None and due_ms <= end_ms:
            self._ms = max(self._ms, due_ms)
            self.streams.tick(self.now)
        self._ms = end_ms

    def create_topic(self, name: str, count: int) -> None:
        self.topics.create(name, count)
        self.streams.topics_changed()

    def delete_topic(self, name: str) -> None:
        del self.topics.shapes[name]
        self.streams.topics_changed()

    def heartbeat(self, member_id: str, member_epoch: int, group: str = "g", **more: Any) -> StreamsAnswer:
        request = StreamsHeartbeat(group_id=group, member_id=member_id, member_epoch=member_epoch, **more)
        answer = self.streams.heartbeat(request, self.now)
        if self.creates:
            for topic in answer.missing_topics:
                self.create_topic(topic.name, topic.partitions)
        return answer

    def join(self, member_id: str, which: Topology = COUNT, **more: Any) -> StreamsAnswer:
        given: dict[str, Any] = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "topology": which,
            "owned": NO_TASKS,
            "process_id": f"process-of-{member_id}",
            "client_tags": (),
        }
        return self.heartbeat(member_id, 0, **{**given, **more})

    def refusal(self, member_id: str, member_epoch: int, **more: Any) -> ErrorCode:
        """The code with which the heartbeat is refused."""
        try:
            self.heartbeat(member_id, member_epoch, **more)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def settle(self, *members: StreamsClient) -> None:
        """All members send heartbeats until nothing changes any more."""
        for _ in range(10 * len(members) + 10):
            before = len(self.log)
            for member in members:
                member.beat()
                member.revoke()
            if len(self.log) == before and all(member.is_member for member in members):
                return
        raise AssertionError("the group does not become stable")

    def _append(self, decided: Sequence[StreamsRecord], now: Now) -> None:
        if self.appends_fail_with is not None:
            raise KafkaError(self.appends_fail_with)
        self.decided = list(decided)
        for record in decided:
            self.log.append(records.encode(record))
            decoded = _streams_record(*self.log[-1])
            assert decoded == record
            self.streams.replay(decoded)


def _streams_record(key: bytes, value: bytes | None) -> StreamsRecord:
    record: Any = records.decode(key, value)
    assert record is not None
    return record  # type: ignore[no-any-return]


@dataclass(eq=False)
class StreamsClient:
    """A member as Kafka Streams implements it. It takes new tasks at once, and revokes others at `revoke`."""

    coordinator: StreamsCoordinator
    member_id: str
    process_id: str = ""
    topology: Topology = COUNT
    endpoint: tuple[str, int] | None = None
    epoch: int = 0
    owned: Tasks = NO_TASKS
    assigned: Tasks = NO_TASKS
    told: Tasks | None = None
    """What it said last that it owns; None if the coordinator may not have heard it."""
    statuses: tuple[StatusCode, ...] = ()
    errors: list[ErrorCode] = field(default_factory=list)

    @property
    def is_member(self) -> bool:
        return self.epoch > 0

    def beat(self, *, response_is_lost: bool = False) -> None:
        said: dict[str, Any] = {}
        if self.told != self.owned:
            said = {"owned": self.owned}
        if self.epoch == 0:
            said |= {
                "owned": NO_TASKS,
                "rebalance_timeout_ms": REBALANCE_MS,
                "topology": self.topology,
                "process_id": self.process_id or self.member_id,
                "endpoint": self.endpoint,
                "client_tags": (),
            }
        try:
            answer = self.coordinator.heartbeat(self.member_id, self.epoch, **said)
        except KafkaError as error:
            self.errors.append(error.code)
            self.told = None
            if error.code in REJOIN_CODES:
                self.abandon()
            return
        if response_is_lost:
            self.told = None
            return
        self.told = said.get("owned", self.told)
        self.epoch = answer.member_epoch
        self.statuses = tuple(status.code for status in answer.statuses)
        if answer.tasks is not None:
            self.assigned = answer.tasks
            self.owned |= answer.tasks

    def revoke(self) -> None:
        self.owned &= self.assigned

    def leave(self) -> None:
        self.coordinator.heartbeat(self.member_id, -1)
        self.abandon()

    def abandon(self) -> None:
        """It has lost all its tasks, and is to join again."""
        self.epoch, self.owned, self.assigned, self.told = 0, NO_TASKS, NO_TASKS, None
