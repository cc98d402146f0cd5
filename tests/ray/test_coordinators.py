"""Killed or hanging coordinator actors cost groups and transactions a moment: brokers take over, and give back.

A transactional producer writes to a topic. A group with a single stock member reads and commits what was committed, and
a member of a share group acknowledges it. The actors are killed, both at once or one, or stopped by a signal. No
transaction may be lost or repeated, the member must keep its membership, and its commits must not go back. The share
group gets every record, and none again that it has acknowledged; its coordinator knows of each.

`-s` shows for each round how long the next commit of an offset, the next acknowledgement and the next transaction took.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import raylog
from raylog.actors.broker import BrokerStatus
from raylog.actors.cluster import cluster_status
from raylog.client.admin.partitions import ElectionType
from raylog.metadata.node_roles import NodeRole
from tests.compat.topics import create_topic
from tests.ray.test_group_kills import CLIENT, Party
from tests.support.forms import by_form
from tests.support.hang import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

KILLS = by_form(1, long=100)
NAME, TOPIC, GROUP, SHARE_GROUP = "coordinated", "payments", "clerks", "porters"
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
    "share.coordinator.state.topic.num.partitions": 2,
    "group.share.delivery.count.limit": 10,
    "group.share.record.lock.duration.ms": 15_000,
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


class Porter(Party):
    """Takes what was committed as a member of a share group, and acknowledges it."""

    def __init__(self, servers: str) -> None:
        super().__init__("porter", [])
        self.acknowledged: set[int] = set()
        self.again: list[int] = []
        """Delivered after they were acknowledged."""
        self.taken: set[int] = set()
        self.last_offset = -1
        """Of what was acknowledged."""
        self._servers = servers

    def act(self) -> None:
        config = {"bootstrap.servers": self._servers, "group.id": SHARE_GROUP, "request.timeout.ms": REQUEST_MS}
        with raylog.ShareConsumer(config, share_acknowledgement_mode="explicit") as consumer:
            consumer.subscribe([TOPIC])
            while self.goes_on:
                with suppress(raylog.KafkaError):
                    self._carry(consumer)

    def _carry(self, consumer: raylog.ShareConsumer) -> None:
        records = consumer.poll(0.1)
        numbers = {int(record.value) for record in records}
        self.taken |= numbers
        self.again += numbers & self.acknowledged
        for record in records:
            consumer.acknowledge(record)
        if set(consumer.commit_sync().values()) == {None}:
            self.acknowledged |= numbers
            self.last_offset = max([self.last_offset, *(record.offset for record in records)])


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
    servers = cluster.bootstrap_servers
    payer, clerk, porter = Payer(servers), Clerk(servers), Porter(servers)

    def story() -> object:
        for party in (payer, clerk, porter):
            party.look()
        done = payer.paid, payer.aborted, len(clerk.read), clerk.commits, len(porter.acknowledged)
        return *done, cluster_status(NAME).coordinators

    def go_on() -> tuple[float, ...]:
        """Seconds until the next commit of an offset, the next acknowledgement and the next transaction."""
        start = time.monotonic()
        open_ = {"offset": clerk.commits, "acknowledgement": len(porter.acknowledged), "transaction": payer.paid}
        seconds: dict[str, float] = {}

        def all_went_on() -> bool:
            now = {"offset": clerk.commits, "acknowledgement": len(porter.acknowledged), "transaction": payer.paid}
            for what in open_.keys() - seconds.keys():
                if now[what] > open_[what]:
                    seconds[what] = time.monotonic() - start
            return len(seconds) == len(open_)

        wait_until(all_went_on, story)
        return tuple(seconds[what] for what in open_)

    with raylog.AdminClient({"bootstrap.servers": servers}) as admin:
        group = raylog.ConfigResource(raylog.ConfigResourceType.GROUP, SHARE_GROUP)
        reads_all = {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"}
        admin.incremental_alter_configs({group: reads_all})
        for party in (payer, clerk, porter):
            party.start()
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
            times = ", ".join(f"{seconds:.2f}" for seconds in waits[-1])
            sys.stderr.write(f"{number + 1:4} {names} {how}: next commit, acknowledgement, transaction: {times} s\n")
        payer.end()
        wait_until(lambda: len(clerk.read) == payer.paid and len(porter.acknowledged) >= payer.paid, story)
        clerk.end()
        porter.end()
        [started] = admin.list_share_group_offsets(SHARE_GROUP).values()
    assert clerk.read == list(range(payer.paid))
    assert (clerk.assignments, clerk.lost) == (1, 0)
    assert porter.taken == porter.acknowledged == set(range(payer.paid))
    assert porter.again == []
    assert started is not None
    assert started.start_offset > porter.last_offset
    for what, seconds in zip(("offset", "acknowledgement", "transaction"), zip(*waits, strict=True), strict=True):
        ordered = sorted(seconds)
        sys.stderr.write(
            f"next {what} after {ordered[len(ordered) // 2]:.2f} s (median), {ordered[-1]:.2f} s (worst)\n"
        )
