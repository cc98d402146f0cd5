"""raylog's consumer in a simulated cluster: a member of a group that polls, is late, is killed, leaves and returns."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from raylog.client.consumer.assignors import ASSIGNORS
from raylog.client.consumer.core import ConsumerCore
from raylog.client.consumer.rebalance_callbacks import CallbackKind
from raylog.config.consumer import CONSUMER_CONFIG, ConsumerSettings, consumer_settings
from raylog.core.config import Configs, ConfigSource, Layer
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.groupcoord.consumer.groups import ConsumerGroups
from tests.sim.broker_host import PORT, BrokerHost
from tests.sim.client_driver import ClientDriver
from tests.sim.planting import Replacement
from tests.sim.world import World

GROUP = "readers"
MAY_FAIL = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
)
BY_COORDINATOR = ""
"""In place of the names of assignors: the coordinator of the group assigns (KIP-848)."""


_SEATS = count()


class GroupLog:
    """What all members of the group have read."""

    def __init__(self) -> None:
        self.values: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self.returned = 0
        self.again = 0
        self.owners: dict[tuple[TopicPartition, int], object] = {}
        """Who has owned each partition in which member epoch, in a group whose coordinator assigns."""

    def read(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        before = self.values[tp].setdefault(offset, value)
        assert before == value, f"{tp}, offset {offset}: {before!r} has changed to {value!r}"
        self.returned += 1

    def owned(self, tp: TopicPartition, epoch: int, owner: object) -> None:
        before = self.owners.setdefault((tp, epoch), owner)
        assert before == owner, f"{tp} is owned by {owner} in epoch {epoch}, and by {before}"


def one_owner_each() -> list[Replacement]:
    """After every heartbeat: no partition is assigned to two members, or to one while another has yet to revoke it."""
    heartbeat = vars(ConsumerGroups)["heartbeat"]

    def watched(self: Any, request: Any, now: Any, **how: Any) -> Any:
        answer = heartbeat(self, request, now, **how)
        group = self.groups.get(request.group_id)
        owners: dict[object, str] = {}
        for member in () if group is None else group.members.values():
            for partition in member.assigned | member.revoking:
                before = owners.setdefault(partition, member.member_id)
                assert before == member.member_id, f"{partition} is owned by {before} and by {member.member_id}"
        return answer

    return [(ConsumerGroups, "heartbeat", watched)]


def random_settings(rng: random.Random, assignors: str, instance: str | None) -> ConsumerSettings:
    session_ms = rng.choice((400, 800, 1500))
    texts = {
        "group.id": GROUP,
        "group.instance.id": instance or "",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": rng.choice(("true", "false")),
        "auto.commit.interval.ms": rng.choice(("0", "50", "1000")),
        "session.timeout.ms": str(session_ms),
        "heartbeat.interval.ms": str(session_ms // rng.choice((3, 5))),
        "max.poll.interval.ms": rng.choice(("500", "1000", "5000")),
        "fetch.max.wait.ms": rng.choice(("20", "500")),
        "fetch.max.bytes": rng.choice(("1", "1000", "52428800")),
        "max.partition.fetch.bytes": rng.choice(("1", "500", "1048576")),
        "request.timeout.ms": rng.choice(("300", "1000", "3000")),
        "default.api.timeout.ms": "3000",
        "partition.assignment.strategy": assignors,
        "metadata.max.age.ms": rng.choice(("100", "300000")),
        "connections.max.idle.ms": rng.choice(("200", "540000")),
        "metadata.recovery.strategy": rng.choice(("none", "rebootstrap")),
    }
    if assignors == BY_COORDINATOR:
        for key in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
            del texts[key]
        texts["group.protocol"] = "consumer"
        texts["group.remote.assignor"] = rng.choice(("", "uniform", "range"))
    layer = Layer(ConfigSource.STATIC_BROKER_CONFIG, CONSUMER_CONFIG.parse(texts))
    return consumer_settings(Configs(CONSUMER_CONFIG, [layer]))


class GroupConsumer:
    """A seat in the group: each life of it is another consumer."""

    def __init__(
        self, world: World, hosts: list[BrokerHost], log: GroupLog, topic: str, assignors: str, *, instance: str | None
    ) -> None:
        self.world = world
        self.trouble = True
        """While this holds it may be late, leave and be killed."""
        self.commits = True
        self.driver: ClientDriver
        self.core: ConsumerCore
        self._hosts = hosts
        self._log = log
        self._topic = topic
        self._assignors = assignors
        self._instance = instance
        self._next: dict[TopicPartition, int] = {}
        """The offset that follows what this life has got; of partitions that it owns."""
        self._life = 0
        self._seat = next(_SEATS)
        self._begin()

    def break_connection(self) -> None:
        self.driver.break_connection()

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return {tp: offset.offset for tp, offset in self.core.positions().items()}

    # --- lives

    def _begin(self) -> None:
        settings = random_settings(self.world.rng, self._assignors, self._instance)
        servers = ",".join(f"{host.name}:{PORT}" for host in self._hosts)
        assignors = [] if settings.by_coordinator else [ASSIGNORS[name] for name in settings.assignors]
        self.core = ConsumerCore(servers, settings, self.world.rng, assignors=assignors)
        self.driver = ClientDriver(self.world, self._hosts, self.core.network)
        self.core.subscribe([self._topic], None)
        self._next = {}
        self._life += 1
        if settings.by_coordinator:
            self.driver.on_event = partial(self._check_ownership, (self._seat, self._life))
        self.world.after(self.world.rng.choice((1, 50, 500)), partial(self._poll, self._life))

    def _end(self) -> None:
        """The process is killed, or ends in order."""
        self._life += 1
        if self.world.rng.random() < 0.5:
            self.world.marks["consumer killed"] += 1
            self._close()
            return
        self.world.marks["consumer closed"] += 1
        now = self.world.now()
        commit = self.core.commit_positions(now, 300)
        self.driver.event(self.core.network.run)
        life = self._life

        def go_on() -> None:
            if life == self._life and commit is not None and not commit.done:
                self.world.after(10, go_on)
            elif life == self._life:
                self.core.unsubscribe("closed", self.world.now(), 300)
                self.driver.event(self.core.network.run)
                self.world.after(20, self._close)

        go_on()

    def _close(self) -> None:
        self.driver.close()
        self.world.after(self.world.rng.choice((1, 300, 3000)), self._begin)

    def _check_ownership(self, owner: object) -> None:
        member = self.core.member
        for tp in self._next if member.is_member else ():
            self._log.owned(tp, member.metadata.generation_id, owner)

    # --- polling

    def _poll(self, life: int) -> None:
        if life != self._life:
            return
        if not self.commits:
            self.core.settings = replace(self.core.settings, auto_commit=False)
        rng = self.world.rng
        if self.trouble and rng.random() < 0.01:
            self._end()
            return
        now = self.world.now()
        self.core.begin_poll(now)
        try:
            self._run_callbacks()
            self.core.raise_error()
            for record in self.core.take(rng.choice((1, 5, 500))):
                self._got(TopicPartition(record.topic, record.partition), record.offset, record.value or b"")
        except KafkaError as error:
            self.world.marks[f"consumer met {error.code.name}"] += 1
            if error.code not in MAY_FAIL:
                raise
            if error.code is ErrorCode.FENCED_INSTANCE_ID:
                self._life += 1
                self._close()
                return
        finally:
            self.core.end_poll(now)
        if self.trouble and rng.random() < 0.1 and any(offset > 0 for offset in self._next.values()):
            self._seek()
        if self.commits and not self.core.settings.auto_commit and rng.random() < 0.3:
            self._commit()
        self.driver.event(self.core.network.run)
        late = self.trouble and rng.random() < 0.01
        self.world.after(2000 if late else rng.choice((1, 5, 50)), partial(self._poll, life))

    def _run_callbacks(self) -> None:
        while (callback := self.core.member.next_callback()) is not None:
            self.world.marks[f"partitions {callback.kind.value}"] += bool(callback.partitions)
            for tp in callback.partitions:
                if callback.kind is CallbackKind.ASSIGNED:
                    assert tp not in self._next, f"{tp} was assigned twice"
                    self._next[tp] = -1
                else:
                    del self._next[tp]
            self.core.member.callback_done(self.world.now())

    def _got(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        assert tp in self._next, f"a record of {tp}, which is not assigned"
        assert self._next[tp] in (-1, offset), f"{tp}: offset {offset}, expected {self._next[tp]}"
        self._next[tp] = offset + 1
        self._log.read(tp, offset, value)

    def _seek(self) -> None:
        """Back to something that was read before."""
        tp = self.world.rng.choice([tp for tp, offset in self._next.items() if offset > 0])
        self._next[tp] = self.world.rng.randrange(self._next[tp])
        self.core.subscription.state(tp).seek(self._next[tp])
        self.world.marks["consumer went back"] += 1

    def _commit(self) -> None:
        try:
            self.core.commit(None, self.world.now(), 3000, retries=self.world.rng.random() < 0.5)
        except KafkaError as error:
            if error.code not in MAY_FAIL:
                raise
