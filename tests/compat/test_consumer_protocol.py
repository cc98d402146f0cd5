"""librdkafka's consumers with group.protocol=consumer share topics, and go on where the group has committed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove
from kafka.errors import NoError

import raylog
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from tests.compat.group_member import GroupMember, group_members
from tests.compat.test_groups import places, produce, values_read, wait_for_share, wait_for_values
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import wait_until

pytestmark = pytest.mark.compat
MAY_BE_LOGGED = ("Connection reset",)
"""Of a process that is killed the broker may hear nothing but a reset."""

LIBRARY = "confluent-kafka"
ANSWER_SECONDS = 20.0
PARTITIONS = 6
LONG_SESSION_MS = 60_000
CONFIG = {
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 3000,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 3,
}
_NUMBERS = itertools.count()
Start = Callable[..., GroupMember]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster_thread(CONFIG, tmp_path_factory.mktemp("consumer-groups"), brokers=3) as running:
        yield running


@pytest.fixture
def topic(cluster: RunningCluster) -> str:
    name = f"kept-{next(_NUMBERS)}"
    create_topic(cluster.bootstrap_servers, name, partitions=PARTITIONS)
    return name


@pytest.fixture
def start(bootstrap_servers: str) -> Iterator[Start]:
    """Starts a member of a group with the consumer protocol: `start(group, topics)`."""
    with group_members() as start_any:

        def start_one(
            group: str, topics: list[str], *, assignor: str = "uniform", protocol: str = "consumer", **more: Any
        ) -> GroupMember:
            return start_any(LIBRARY, bootstrap_servers, group, topics, assignor=assignor, protocol=protocol, **more)

        yield start_one


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_join_leave_and_die(bootstrap_servers: str, topic: str, start: Start, assignor: str) -> None:
    """Every record is read, by one member as long as none is killed."""
    group = f"shared-{assignor}"
    first, second = (start(group, [topic], assignor=assignor) for _ in range(2))
    wait_for_share([first, second], places(topic))
    produce(bootstrap_servers, topic, range(60))
    wait_for_values([first, second], range(60))

    third = start(group, [topic], assignor=assignor)
    wait_for_share([first, second, third], places(topic))
    second.close()
    wait_for_share([first, third], places(topic))
    produce(bootstrap_servers, topic, range(60, 120))
    wait_for_values([first, second, third], range(120))
    assert values_read(first, second, third) == list(range(120))

    third.kill()
    wait_for_share([first], places(topic))
    produce(bootstrap_servers, topic, range(120, 180))
    wait_for_values([first, second, third], range(180))


def test_another_member_goes_on_after_what_was_committed(bootstrap_servers: str, topic: str, start: Start) -> None:
    first = start("resumed", [topic])
    produce(bootstrap_servers, topic, range(60))
    wait_for_values([first], range(60))
    first.close()
    produce(bootstrap_servers, topic, range(60, 90))
    second = start("resumed", [topic])
    wait_for_values([second], range(60, 90))
    assert values_read(second) == list(range(60, 90))


def test_the_broker_resolves_regular_expressions(bootstrap_servers: str, start: Start) -> None:
    for name in ("match-1", "match-2", "no-match"):
        create_topic(bootstrap_servers, name, partitions=2)
    first, second = (start("by-pattern", ["^match-[0-9]"]) for _ in range(2))
    wait_for_share([first, second], places("match-1", 2) | places("match-2", 2))


def test_a_static_member_that_restarts_gets_what_it_had(topic: str, start: Start) -> None:
    first, second = (start("static", [topic], instance=name) for name in ("one", "two"))
    wait_for_share([first, second], places(topic))
    had, before = second.holds, len(first.assignments)
    second.close()
    again = start("static", [topic], instance="two")
    wait_until(lambda: again.holds == had, lambda: again.holds)
    assert len(first.assignments) == before


def test_an_administrator_removes_a_static_member_that_left(bootstrap_servers: str, topic: str, start: Start) -> None:
    """By LeaveGroup. Otherwise its partitions wait for it until its session timeout."""
    first, second = (start("removed", [topic], instance=name) for name in ("one", "two"))
    wait_for_share([first, second], places(topic))
    second.close()
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap_servers)) as admin:
        removed = admin.remove_group_members("removed", [MemberToRemove(group_instance_id="two")])
    assert list(removed.values()) == [NoError]
    wait_for_share([first], places(topic))


def test_groups_are_listed_and_described(bootstrap_servers: str, topic: str, start: Start) -> None:
    member = start("shown", [topic])
    wait_for_share([member], places(topic))
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(ANSWER_SECONDS)
    assert [each.type for each in listed.valid if each.group_id == "shown"] == [ConsumerGroupType.CONSUMER]
    found = admin.describe_consumer_groups(["shown"])["shown"].result(ANSWER_SECONDS)
    assert (found.state, found.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    (each,) = found.members
    assert {(tp.topic, tp.partition) for tp in each.assignment.topic_partitions} == places(topic)
    assert each.target_assignment.topic_partitions == each.assignment.topic_partitions
    with raylog.AdminClient(bootstrap_servers=bootstrap_servers) as ours:
        described = ours.describe_consumer_groups("shown")["shown"]
    assert (described.state, described.type, described.protocol) == ("Stable", "consumer", "uniform")
    assert described.group_epoch == described.target_assignment_epoch == described.members[0].member_epoch
    (shown,) = described.members
    assert shown.partitions == shown.target_partitions
    assert {(tp.topic, tp.partition) for tp in shown.partitions} == places(topic)
    assert (shown.topics, shown.topic_regex, shown.is_classic) == ((topic,), None, False)
    member.close()
    admin.delete_consumer_groups(["shown"])["shown"].result(ANSWER_SECONDS)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_rolling_upgrade_and_downgrade_loses_nothing(
    bootstrap_servers: str, topic: str, start: Start, assignor: str
) -> None:
    """Members are replaced one by one, while records come: each is read, and none twice by members that close.

    A member that a busy machine holds up for longer than its session would have lost its partitions uncommitted.
    """
    group, written = f"rolling-{assignor}", itertools.count()
    resource = ConfigResource(ConfigResourceType.GROUP, group)
    with raylog.AdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.incremental_alter_configs({resource: {"consumer.session.timeout.ms": str(LONG_SESSION_MS)}})

    def type_of() -> str:
        with raylog.AdminClient(bootstrap_servers=bootstrap_servers) as admin:
            return admin.describe_consumer_groups(group)[group].type

    def write() -> range:
        first = 30 * next(written)
        batch = range(first, first + 30)
        produce(bootstrap_servers, topic, batch)
        return batch

    def classic() -> GroupMember:
        return start(group, [topic], assignor=assignor, protocol="classic", session_ms=LONG_SESSION_MS)

    def one() -> GroupMember:
        return start(group, [topic])

    members = [classic(), classic()]
    everybody = list(members)
    wait_for_share(members, places(topic))
    sent = [*write()]
    wait_for_values(everybody, sent)
    kinds = []
    for replacement in (one, one, classic, classic):
        members[0].close()
        members = [members[1], replacement()]
        everybody.append(members[1])
        wait_for_share(members, places(topic))
        kinds.append(type_of())
        sent += write()
        wait_for_values(everybody, sent)
    assert kinds == ["consumer", "consumer", "consumer", "classic"]
    assert values_read(*everybody) == sorted(sent)
