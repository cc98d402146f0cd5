"""A stock consumer group survives `kill -9` of its coordinator, of other brokers and of the active controller.

Three members consume and commit what an idempotent producer keeps writing to three brokers. Again and again somebody is
killed; each time the group must be stable again by itself and go on. What happened is in a ledger, which
tests/support/group_ledger.py checks in the end: at least once for every record, and no commit that goes back.

`-s` shows each kill.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription  # type: ignore[attr-defined]

import raylog
from raylog.actors.cluster import cluster_status
from tests.compat.topics import create_topic
from tests.ray.conftest import KILLED
from tests.support.forms import by_form
from tests.support.group_ledger import (
    Acknowledged,
    Assigned,
    CommitBegun,
    Committed,
    Consumed,
    Entry,
    FetchBegun,
    Fetched,
    Killed,
    Recovered,
    check,
)
from tests.support.hang import HANG_SECONDS, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

KILLS = by_form(4, long=100)
TOPIC, GROUP = "orders", "accountants"
PARTITIONS, MEMBERS = 6, 3
RECORDS_PER_SECOND = 900
BATCH_MAX = 100
CONSUMED_PER_KILL_MIN = 100
"""Records of each partition between two kills."""
DESCRIBE_SECONDS = 2.0
CLIENT = {"log_level": 0, "reconnect.backoff.max.ms": 1000}
"""Silence about brokers that are gone; and no waiting of ten seconds for one that has been back for nine."""


class Party(threading.Thread):
    """A thread that runs until `end`, which raises the thread's exception."""

    def __init__(self, name: str, ledger: list[Entry]) -> None:
        super().__init__(name=name, daemon=True)
        self.ledger = ledger
        self._asked_to_end = threading.Event()
        self._failure: BaseException | None = None

    @property
    def goes_on(self) -> bool:
        return not self._asked_to_end.is_set()

    def act(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        try:
            self.act()
        except BaseException as error:
            self._failure = error

    def look(self) -> None:
        """Raises what it died of."""
        if self._failure is not None:
            raise self._failure

    def ask_to_end(self) -> None:
        self._asked_to_end.set()

    def end(self) -> None:
        self.ask_to_end()
        self.join(HANG_SECONDS)
        assert not self.is_alive(), f"{self.name} is still at {self.where()}"
        self.look()

    def where(self) -> list[str]:
        """The calls that the thread is in, the innermost last: a client that hangs is in one of its library's."""
        frame = None if self.ident is None else sys._current_frames().get(self.ident)
        return [f"{each.name}:{each.lineno}" for each in traceback.extract_stack(frame)] if frame is not None else []


class Writer(Party):
    """At an even pace, to all partitions in turn. No record may fail, however long a broker is away."""

    def __init__(
        self,
        bootstrap_servers: str,
        ledger: list[Entry],
        *,
        topic: str = TOPIC,
        partitions: int = PARTITIONS,
        per_second: int = RECORDS_PER_SECOND,
    ) -> None:
        super().__init__("writer", ledger)
        self._topic, self._partitions, self._per_second = topic, partitions, per_second
        self.acknowledged: Counter[int] = Counter()
        self._servers = bootstrap_servers
        self._errors: list[KafkaError] = []

    def act(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 20, **CLIENT})
        given, start = 0, time.monotonic()
        while self.goes_on:
            while given < (time.monotonic() - start) * self._per_second:
                partition = given % self._partitions
                producer.produce(self._topic, b"%d" % given, partition=partition, on_delivery=self._delivered)
                given += 1
            producer.poll(0.01)
        assert producer.flush(HANG_SECONDS) == 0
        assert self._errors == []
        assert self.acknowledged.total() == given

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self.acknowledged[partition] += 1
        self.ledger.append(Acknowledged(partition, offset, value))


class Member(Party):
    """Takes records, then commits them; a commit that fails is followed by another one."""

    def __init__(self, name: str, bootstrap_servers: str, ledger: list[Entry]) -> None:
        super().__init__(name, ledger)
        self.holds: frozenset[int] = frozenset()
        self._servers = bootstrap_servers
        self._commits = 0
        self._taken: dict[int, int] = {}
        """The offsets to commit for what came since the last assignment: meanwhile another member may have gone on."""

    def act(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                **CLIENT,
            }
        )
        consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._gave_up, on_lost=self._gave_up)
        while self.goes_on:
            offsets = self._take(consumer)
            if offsets:
                self._commit(consumer, offsets)
        consumer.close()
        self.holds = frozenset()

    def _take(self, consumer: Consumer) -> dict[int, int]:
        """The offsets to commit for what came."""
        offsets = self._taken = {}
        for _ in range(BATCH_MAX):
            message = consumer.poll(0.05)
            if message is None:
                break
            if message.error() is not None:
                continue
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            self.ledger.append(Consumed(self.name, partition, offset, value))
            offsets[partition] = offset + 1
        return offsets

    def _commit(self, consumer: Consumer, offsets: dict[int, int]) -> None:
        """Of a partition that went to another member meanwhile nothing is to be committed any more."""
        offsets = {partition: offset for partition, offset in offsets.items() if partition in self.holds}
        if not offsets:
            return
        self._commits += 1
        self.ledger.append(CommitBegun(self.name, self._commits, offsets))
        try:
            wanted = [TopicPartition(TOPIC, partition, offset) for partition, offset in offsets.items()]
            answered = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            return
        assert answered is not None
        done = {each.partition: each.offset for each in answered if each.error is None}
        self.ledger.append(Committed(self.name, self._commits, done))

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.holds = frozenset(each.partition for each in partitions)
        self.ledger.append(Assigned(self.name, self.holds))

    def _gave_up(self, _: Consumer, __: list[TopicPartition]) -> None:
        self.holds = frozenset()
        self._taken.clear()


class Observer(Party):
    """Asks all the time what is committed, as a group of its own members would not."""

    def __init__(self, bootstrap_servers: str, ledger: list[Entry]) -> None:
        super().__init__("observer", ledger)
        self.committed: dict[int, int] = {}
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": GROUP, "enable.auto.commit": False, **CLIENT}
        )
        self._questions = 0

    def act(self) -> None:
        while self.goes_on:
            self.ask()
            time.sleep(0.2)

    def close(self) -> None:
        self._consumer.close()

    def ask(self) -> None:
        self._questions += 1
        self.ledger.append(FetchBegun(self._questions))
        try:
            found = self._consumer.committed([TopicPartition(TOPIC, number) for number in range(PARTITIONS)], 5)
        except KafkaException:
            return
        self.committed = {each.partition: max(each.offset, 0) for each in found if each.error is None}
        self.ledger.append(Fetched(self._questions, self.committed))


@dataclass(frozen=True)
class Victims:
    """Whom to kill at once; `rejoin` lets a member leave and another one come at the same time."""

    roles: tuple[str, ...]
    rejoin: bool = False


ROUNDS = (
    Victims(("coordinator",)),
    Victims(("controller",)),
    Victims(("broker",)),
    Victims(("coordinator",), rejoin=True),
    Victims(("coordinator", "controller")),
    Victims(("broker",), rejoin=True),
    Victims(("coordinator", "broker")),
    Victims(("controller",), rejoin=True),
    Victims(("coordinator", "broker", "controller")),
)


class Run:
    def __init__(self, cluster: raylog.Cluster) -> None:
        self.rng = random.Random(KILLS)
        self.cluster = cluster
        self.servers = cluster.bootstrap_servers
        self.ledger: list[Entry] = []
        self.kills: Counter[str] = Counter()
        self.writer = Writer(self.servers, self.ledger)
        self.observer = Observer(self.servers, self.ledger)
        self.members: list[Member] = []
        self.described: object = None
        self._rounds = itertools.cycle(ROUNDS)
        self._names = (f"member-{number}" for number in itertools.count())

    def start(self) -> None:
        self.writer.start()
        for _ in range(MEMBERS):
            self.join()
        self.observer.start()
        self.wait_until_recovered(gone=set())

    def go(self) -> None:
        while self.kills.total() < KILLS:
            wait_until(partial(self.has_consumed_since, len(self.ledger)), self.story)
            time.sleep(self.rng.random())
            self.kill(next(self._rounds))

    def finish(self) -> None:
        self.writer.end()
        wait_until(lambda: self.observer.committed == dict(self.writer.acknowledged), self.story)
        for member in self.members:
            member.end()
        self.observer.end()
        self.observer.ask()

    def stop_all(self) -> None:
        """Whatever has happened: nothing of it goes on."""
        for party in (self.writer, self.observer, *self.members):
            if party.is_alive():
                party.end()
        self.observer.close()

    def kill(self, victims: Victims) -> None:
        pids = self.pids_of(victims.roles)
        before = Counter(self.writer.acknowledged)
        self.kills.update(victims.roles)
        leaving = [self.members.pop(0)] if victims.rejoin else []
        for member in leaving:
            member.ask_to_end()
            time.sleep(self.rng.random() / 5)
        start = time.monotonic()
        self.ledger.append(Killed(victims.roles))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for member in leaving:
            self.join()
            member.end()
        self.wait_until_recovered(gone=pids, committed=before)
        seconds = time.monotonic() - start
        self.ledger.append(Recovered(seconds))
        told = f"{self.kills.total():4} {', '.join(victims.roles)}{' while members change' * victims.rejoin}"
        sys.stderr.write(f"{told}: recovered after {seconds:.1f} s\n")

    def join(self) -> None:
        member = Member(next(self._names), self.servers, self.ledger)
        self.members.append(member)
        member.start()

    def pids_of(self, roles: tuple[str, ...]) -> set[int]:
        """The processes of the roles; a process with several roles is returned once."""
        status = cluster_status(KILLED)
        coordinator = self.coordinator()
        others = [broker for broker in status.brokers if broker.id != coordinator]
        found = {
            "coordinator": next(each.pid for each in status.brokers if each.id == coordinator),
            "broker": self.rng.choice(others).pid,
            "controller": next(each.pid for each in status.controllers if each.active),
        }
        return {found[role] for role in roles}

    def coordinator(self) -> int:
        return int(self.describe().coordinator.id)

    def describe(self) -> ConsumerGroupDescription:
        """Raises KafkaException. Each time by a client of its own: librdkafka's sends nothing more to a broker that
        had gone while a request to it was being made, though it has long been back."""
        admin = AdminClient({"bootstrap.servers": self.servers, **CLIENT})
        described = admin.describe_consumer_groups([GROUP], request_timeout=DESCRIBE_SECONDS)
        found = described[GROUP].result(HANG_SECONDS)
        assert isinstance(found, ConsumerGroupDescription)
        return found

    def wait_until_recovered(self, gone: set[int], committed: Counter[int] | None = None) -> None:
        wait_until(lambda: self.all_run(gone), lambda: cluster_status(KILLED))
        wait_until(self.is_stable, self.story)
        if committed is not None:
            wait_until(lambda: self.has_committed(committed), self.story)

    def all_run(self, gone: set[int]) -> bool:
        status = cluster_status(KILLED)
        pids = {broker.pid for broker in status.brokers} | {each.pid for each in status.controllers}
        return (
            all(broker.state == "running" for broker in status.brokers)
            and any(controller.active for controller in status.controllers)
            and not pids & {0, *gone}
        )

    def is_stable(self) -> bool:
        for party in (self.writer, self.observer, *self.members):
            party.look()
        held = sorted(number for member in self.members for number in member.holds)
        if held != list(range(PARTITIONS)) or not all(member.holds for member in self.members):
            return False
        try:
            described = self.describe()
        except KafkaException as error:
            self.described = error
            return False
        self.described = (described.state, [(m.client_id, m.member_id) for m in described.members])
        return described.state == ConsumerGroupState.STABLE and len(described.members) == MEMBERS

    def has_committed(self, offsets: Counter[int]) -> bool:
        return all(self.observer.committed.get(number, 0) >= offset for number, offset in offsets.items())

    def has_consumed_since(self, mark: int) -> bool:
        counts = Counter(each.partition for each in self.ledger[mark:] if isinstance(each, Consumed))
        return all(counts[number] >= CONSUMED_PER_KILL_MIN for number in range(PARTITIONS))

    def story(self) -> object:
        """A description for the error message of a hang."""
        return {
            "described": self.described,
            "holds": {member.name: sorted(member.holds) for member in self.members},
            "at": {member.name: member.where()[-1:] for member in self.members},
            "acknowledged": dict(self.writer.acknowledged),
            "committed": self.observer.committed,
            "last": [entry for entry in self.ledger if not isinstance(entry, Acknowledged | Consumed)][-20:],
        }


@contextmanager
def running(cluster: raylog.Cluster) -> Iterator[Run]:
    create_topic(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS)
    run = Run(cluster)
    try:
        run.start()
        yield run
    finally:
        run.stop_all()


def test_a_group_survives_every_kill(killed_cluster: raylog.Cluster) -> None:
    with running(killed_cluster) as run:
        run.go()
        run.finish()
    check(run.ledger, partitions=PARTITIONS, consumed_per_kill_min=CONSUMED_PER_KILL_MIN)
    assert set(run.kills) == {"coordinator", "controller", "broker"}
    assert run.kills.total() >= KILLS
    seconds = sorted(entry.seconds for entry in run.ledger if isinstance(entry, Recovered))
    counts = Counter(type(entry).__name__ for entry in run.ledger)
    sys.stderr.write(
        f"{dict(run.kills)} killed; recovered after {seconds[len(seconds) // 2]:.1f} s (median), {seconds[-1]:.1f} s"
        f" (longest); {dict(counts)}\n"
    )
