"""A member of a streams group in a simulated cluster: it is late, is killed, leaves and returns."""

from __future__ import annotations

from itertools import count
from typing import Any

from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId
from raylog.groupcoord.streams.groups import StreamsGroups
from raylog.groupcoord.streams.tasks import NO_TASKS, TaskId, Tasks, by_subtopology
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.sim.broker_host import BrokerHost
from tests.sim.client import SimClient
from tests.sim.planting import Replacement
from tests.sim.world import World

GROUP = "streams"
STREAMS_CONFIG = {
    "group.streams.min.heartbeat.interval.ms": "50",
    "group.streams.heartbeat.interval.ms": "100",
    "group.streams.min.session.timeout.ms": "500",
    "group.streams.session.timeout.ms": "800",
    "group.streams.num.standby.replicas": "1",
    "group.streams.initial.rebalance.delay.ms": "100",
}
REBALANCE_MS = 1500
MAY_FAIL = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNSUPPORTED_VERSION,  # a broker that has just started does not know the levels of features yet
    ErrorCode.REQUEST_TIMED_OUT,
)
REJOIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


def topology_of(topic: str) -> Topology:
    """The topic is written to another partition, and counted there."""
    first = Subtopology(subtopology_id="0", source_topics=(topic,), repartition_sink_topics=("mid",))
    second = Subtopology(
        subtopology_id="1",
        repartition_source_topics=(TopicInfo(name="mid"),),
        state_changelog_topics=(TopicInfo(name="counts"),),
    )
    return Topology(subtopologies=(first, second))


class TaskLog:
    """Which member has had each active task in which member epoch."""

    def __init__(self) -> None:
        self._owners: dict[tuple[TaskId, int], str] = {}

    def owned(self, tasks: frozenset[TaskId], epoch: int, member_id: str) -> None:
        for task in tasks:
            before = self._owners.setdefault((task, epoch), member_id)
            assert before == member_id, f"{task} is active at {member_id} in epoch {epoch}, and at {before}"


def one_owner_each() -> list[Replacement]:
    """After every heartbeat: an active task has one member, and no process has a task twice."""
    heartbeat = vars(StreamsGroups)["heartbeat"]

    def watched(self: Any, request: Any, now: Any) -> Any:
        answer = heartbeat(self, request, now)
        group = self.groups.get(request.group_id)
        owners: dict[object, str] = {}
        for member in () if group is None else group.members.values():
            held = member.assigned | member.revoking
            for place in [*held.active, *((member.process_id, task) for task in held.active | held.passive)]:
                before = owners.setdefault(place, member.member_id)
                assert before == member.member_id, f"{place} is owned by {before} and by {member.member_id}"
        return answer

    return [(StreamsGroups, "heartbeat", watched)]


_LIVES = count()


class StreamsMember(SimClient):
    """A seat in the group: each life of it is another member, of the same process."""

    def __init__(self, world: World, hosts: list[BrokerHost], log: TaskLog, topic: str, process_id: str) -> None:
        self.trouble = True
        """While this holds it may be late, leave and be killed."""
        self.owned: Tasks = NO_TASKS
        self.settled = False
        """Whether its last heartbeat was answered without a change or a status."""
        self._log = log
        self._topic = topic
        self._process_id = process_id
        self._coordinator = BrokerId(-1)
        self._new_life()
        super().__init__(world, hosts, f"streams-{process_id}")

    def begin(self) -> None:
        self._told: Tasks | None = None
        self.describe(self._topic, lambda _: self._find(), create=True)

    def _find(self) -> None:
        request = FindCoordinatorRequest(coordinator_keys=(GROUP,))
        self.ask(self.any_broker(), request, self._found)

    def _found(self, answer: Any) -> None:
        (found,) = answer.coordinators
        if found.error_code is not ErrorCode.NONE:
            self.restart(within_ms=200)
            return
        self._coordinator = found.node_id
        self._beat()

    def _new_life(self) -> None:
        self._member_id = f"life-{next(_LIVES)}"
        self._abandon()

    def _abandon(self) -> None:
        self._epoch = 0
        self.owned = self._assigned = NO_TASKS
        self._told = None
        self.settled = False

    def _beat(self) -> None:
        rng = self.world.rng
        if self.trouble and rng.random() < 0.02:
            self._end(leaves=rng.random() < 0.5)
            return
        if self.trouble and rng.random() < 0.1:
            self.world.marks["tasks kept for long"] += 1
        else:
            self.owned &= self._assigned
        said = None if self._told == self.owned and self._epoch else self.owned
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=self._member_id, member_epoch=self._epoch, **self._owned(said), **self._first()
        )
        self.ask(self._coordinator, request, lambda answer: self._answered(answer, said))

    def _first(self) -> dict[str, Any]:
        if self._epoch:
            return {}
        topology = topology_of(self._topic)
        return {"rebalance_timeout_ms": REBALANCE_MS, "topology": topology, "process_id": self._process_id}

    @staticmethod
    def _owned(tasks: Tasks | None) -> dict[str, Any]:
        if tasks is None:
            return {}
        return {"active_tasks": _ids(tasks.active), "standby_tasks": _ids(tasks.standby), "warmup_tasks": ()}

    def _answered(self, answer: Any, said: Tasks | None) -> None:
        code = answer.error_code
        if code is not ErrorCode.NONE:
            self.world.marks[f"streams member met {code.name}"] += 1
            assert code in MAY_FAIL, answer
            self.settled = False
            if code in REJOIN:
                self._abandon()
            self.restart(within_ms=200)
            return
        self._told = self._told if said is None else said
        self._epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self._assigned = Tasks(_tasks(answer.active_tasks), _tasks(answer.standby_tasks))
            self.owned |= self._assigned
            self.world.marks["tasks assigned"] += 1
        self._log.owned(self.owned.active, self._epoch, self._member_id)
        self.settled = not answer.status and answer.active_tasks is None and self.owned == self._assigned
        late = self.trouble and self.world.rng.random() < 0.02
        self.at(2000 if late else self.world.rng.choice((50, 100)), self._beat)

    def _end(self, *, leaves: bool) -> None:
        """The process is killed, or the member leaves, as far as the coordinator hears of it."""
        self.world.marks["streams member left" if leaves else "streams member killed"] += 1
        member_id = self._member_id
        self._new_life()
        if leaves:
            request = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=-1)
            self.ask(self._coordinator, request, lambda _: self.restart(within_ms=300))
        else:
            self.restart(within_ms=self.world.rng.choice((1, 300, 3000)))


def _ids(tasks: frozenset[TaskId]) -> tuple[TaskIds, ...]:
    return tuple(TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in by_subtopology(tasks).items())


def _tasks(ids: tuple[TaskIds, ...]) -> frozenset[TaskId]:
    return frozenset((each.subtopology_id, partition) for each in ids for partition in each.partitions)
