"""Killed or hanging coordinator actors cost groups and transactions a moment: brokers take over, and give back.

A transactional producer writes to a topic, and a group with a single stock member reads and commits what was committed.
The actors are killed, both at once or one, or stopped by a signal. No transaction may be lost or repeated, the member
must keep its membership, and its commits must not go back.

`-s` shows for each round how long the next commit of an offset and the next transaction took.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import raylog
from raylog.actors.broker import BrokerStatus
from raylog.actors.cluster import cluster_status
from raylog.client.admin.partitions import ElectionType
from raylog.metadata.node_roles import NodeRole
from tests.compat.topics import create_topic
from tests.ray.test_group_kills import CLIENT, Party, wait_until
from tests.support.forms import by_form

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

KILLS = by_form(1, long=100)
NAME, TOPIC, GROUP = "coordinated", "payments", "clerks"
RECORDS, WAIT_SECONDS = 5, 60.0
REQUEST_MS = 3000
"""How long clients wait for an answer of a coordinator before they ask who that is now: less than a session."""
LED = {"__consumer_offsets": NodeRole.GROUP_COORDINATOR, "__transaction_state": NodeRole.TRANSACTION_COORDINATOR}
CONFIG = {
    "default.replication.factor": 3,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
    "group.initial.rebalance.delay.ms": 0,
}


class Payer(Party):
    """Numbers, five in each transaction."""

    def __init__(self, servers: str) -> None:
        super().__init__("payer", [])
        self.paid = 0
        self.aborted = 0
        self._servers = servers

    def act(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": "payer",
                "socket.timeout.ms": REQUEST_MS,
                **CLIENT,
            }
        )
        producer.init_transactions(WAIT_SECONDS)
        while self.goes_on:
            producer.begin_transaction()
            for number in range(self.paid, self.paid + RECORDS):
                producer.produce(TOPIC, b"%d" % number, partition=0)
            if self._committed(producer):
                self.paid += RECORDS
            time.sleep(0.01)

    def _committed(self, producer: Producer) -> bool:
        while True:
            try:
                producer.commit_transaction(WAIT_SECONDS)
            except KafkaException as error:
                [reason, *_] = error.args
                if reason.retriable():
                    continue
                if not reason.txn_requires_abort():
                    raise
                producer.abort_transaction(WAIT_SECONDS)
                self.aborted += 1
                return False
            return True


class Clerk(Party):
    """Reads what was committed, and commits how far it has come."""

    def __init__(self, servers: str) -> None:
        super().__init__("clerk", [])
        self.read: list[int] = []
        self.commits = 0
        self.assignments = 0
        self.lost = 0
        self._servers = servers

    def act(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 300,
                "socket.timeout.ms": REQUEST_MS,
                **CLIENT,
            }
        )
        consumer.subscribe([TOPIC], on_assign=self._assigned, on_lost=self._lost, on_revoke=lambda *_: None)
        while self.goes_on:
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            self.read.append(int(message.value() or b"-1"))
            self._commit(consumer, (message.offset() or 0) + 1)
        consumer.close()

    def _commit(self, consumer: Consumer, offset: int) -> None:
        try:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
        except KafkaException:
            return
        self.commits += 1

    def _assigned(self, *_: object) -> None:
        self.assignments += 1

    def _lost(self, *_: object) -> None:
        self.lost += 1


@pytest.fixture
def cluster() -> Iterator[raylog.Cluster]:
    """With the default: one coordinator of each role."""
    with raylog.start(NAME, brokers=3, config=CONFIG) as cluster:
        wait_until(lambda: len(coordinators()) == 2, lambda: cluster_status(NAME))
        yield cluster


def coordinators() -> dict[NodeRole, BrokerStatus]:
    """Those that run."""
    return {each.role: each for each in cluster_status(NAME).coordinators if each.state == "running"}


def leaders(admin: raylog.AdminClient, topic: str) -> set[int | None]:
    return {each.leader for each in admin.describe_topics([topic])[topic].partitions}


def has_moved(admin: raylog.AdminClient, topic: str, coordinator: int) -> bool:
    return coordinator not in leaders(admin, topic)


def are_back(admin: raylog.AdminClient, gone: set[int]) -> bool:
    """Whether all coordinators run in other processes than these, and lead all partitions of their topics."""
    found = coordinators()
    if len(found) < 2 or gone & {each.pid for each in found.values()}:
        return False
    return all(leaders(admin, topic) == {found[role].id} for topic, role in LED.items())


def give_back(admin: raylog.AdminClient, gone: set[int]) -> bool:
    """As `are_back`, but asks for the elections in place of the controller, which lets them wait after each crash."""
    if len(coordinators()) == 2:
        admin.elect_leaders(ElectionType.PREFERRED, [(topic, number) for topic in LED for number in (0, 1)])
    return are_back(admin, gone)


def test_groups_and_transactions_survive_the_loss_of_their_coordinators(cluster: raylog.Cluster) -> None:
    rng = random.Random(KILLS)
    create_topic(cluster.bootstrap_servers, TOPIC, partitions=1, replication_factor=3)
    payer, clerk = Payer(cluster.bootstrap_servers), Clerk(cluster.bootstrap_servers)

    def story() -> object:
        for party in (payer, clerk):
            party.look()
        return (payer.paid, payer.aborted, len(clerk.read), clerk.commits, cluster_status(NAME).coordinators)

    def go_on() -> tuple[float, float]:
        """Seconds until the next commit of an offset, and until the next transaction."""
        start, commits, paid = time.monotonic(), clerk.commits, payer.paid
        wait_until(lambda: clerk.commits > commits, story)
        committed = time.monotonic() - start
        wait_until(lambda: payer.paid > paid, story)
        return committed, time.monotonic() - start

    payer.start()
    clerk.start()
    with raylog.AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        go_on()
        wait_until(lambda: are_back(admin, set()), story)
        waits = []
        for number in range(KILLS):
            victims = rng.sample(sorted(coordinators().values(), key=lambda each: each.id), rng.choice((1, 2)))
            if number == 0:
                victims = list(coordinators().values())
            hangs = number % 3 == 2
            for victim in victims:
                os.kill(victim.pid, signal.SIGSTOP if hangs else signal.SIGKILL)
            waits.append(go_on())
            for victim in victims:
                topic = next(topic for topic, role in LED.items() if role is victim.role)
                wait_until(partial(has_moved, admin, topic, victim.id), story)
            revived = hangs and rng.random() < 0.5
            if hangs:
                for victim in victims:
                    os.kill(victim.pid, signal.SIGCONT if revived else signal.SIGKILL)
            gone = set() if revived else {victim.pid for victim in victims}
            wait_until(partial(are_back if number == 0 else give_back, admin, gone), story)
            go_on()
            how = "stopped" if hangs else "killed"
            names = ", ".join(victim.role.value for victim in victims)
            sys.stderr.write(f"{number + 1:4} {names} {how}: next commit and transaction after {waits[-1]} s\n")
        payer.end()
        wait_until(lambda: len(clerk.read) == payer.paid, story)
        clerk.end()
    assert clerk.read == list(range(payer.paid))
    assert (clerk.assignments, clerk.lost) == (1, 0)
    for what, seconds in zip(("offset", "transaction"), zip(*waits, strict=True), strict=True):
        ordered = sorted(seconds)
        sys.stderr.write(
            f"next {what} after {ordered[len(ordered) // 2]:.2f} s (median), {ordered[-1]:.2f} s (worst)\n"
        )
