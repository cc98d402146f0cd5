"""The control of a flow between two served clusters: the target follows, and a consumer fails over without a reset.

With --kafka, Apache Kafka is the source of one run and the target of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from raylog.client.admin.topics import NewTopic
from raylog.client.consumer.consumer import Consumer
from raylog.client.partition_reader import PartitionReader
from raylog.client.producer.producer import Producer
from raylog.config.authorization import STANDARD_AUTHORIZER
from raylog.core.ids import TopicPartition
from raylog.mirror.config import FlowConfig, mirror_config
from raylog.mirror.control import (
    ACLS,
    BEAT,
    CHECKPOINTS,
    CONFIGS,
    GROUP_OFFSETS,
    GROUPS,
    INTERNAL_TOPICS,
    TOPICS,
    FlowControl,
)
from raylog.mirror.control_clients import ControlClients
from raylog.mirror.formats import Checkpoint, Heartbeat, OffsetSync
from raylog.mirror.offset_translation import OffsetSyncEmitter
from raylog.security.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from tests.support.cluster_thread import cluster_thread
from tests.support.hang import wait_until
from tests.support.kafka_peer import kafka_peer

NOW = 1_700_000_000_000
STEP = 10_000
"""Milliseconds from one turn to the next: more than every interval."""
CONFIG = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
}


class Side:
    """A cluster, with an admin client of the test's own."""

    def __init__(self, servers: str, admin: AdminClient) -> None:
        self.servers = servers
        self.admin = admin

    def partitions(self, topic: str) -> int:
        return len(self.admin.describe_topics(topic)[topic].partitions)

    def config(self, topic: str, key: str) -> str | None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        return self.admin.describe_configs(resource)[resource][key].value

    def change(self, topic: str, **changes: str | None) -> None:
        given = {name.replace("_", "."): value for name, value in changes.items()}
        self.admin.incremental_alter_configs({ConfigResource(ConfigResourceType.TOPIC, topic): given})

    def create(self, topic: str, partitions: int, **configs: str) -> None:
        given = {name.replace("_", "."): value for name, value in configs.items()}
        self.admin.create_topics(NewTopic(topic, partitions, 1, configs=given))
        wait_until(lambda: topic in {each.name for each in self.admin.list_topics()}, lambda: topic)

    def records(self, topic: str) -> list[tuple[bytes, bytes]]:
        with PartitionReader(self.servers, topic, 0) as reader:
            found = []
            while reader.position < reader.end_offset():
                found += [(bytes(each.key or b""), bytes(each.value or b"")) for each in reader.read_records()]
            return found


@contextmanager
def side(kind: str, folder: Path) -> Iterator[Side]:
    with ExitStack() as opened:
        if kind == "kafka":
            peer = opened.enter_context(kafka_peer(folder))
            peer.start()
            servers = peer.bootstrap_servers
        else:
            servers = opened.enter_context(cluster_thread(CONFIG, folder)).bootstrap_servers
        yield Side(servers, opened.enter_context(AdminClient(bootstrap_servers=servers)))


KAFKA = pytest.mark.kafka


@pytest.fixture(
    scope="module",
    params=["raylog raylog", pytest.param("kafka raylog", marks=KAFKA), pytest.param("raylog kafka", marks=KAFKA)],
)
def sides(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    source, target = request.param.split()
    with (
        side(source, tmp_path_factory.mktemp("source")) as east,
        side(target, tmp_path_factory.mktemp("target")) as west,
    ):
        yield east, west


def flow_of(sides: tuple[Side, Side], topics: str, **changes: str) -> FlowConfig:
    entries = {
        "clusters": "east, west",
        "east.bootstrap.servers": sides[0].servers,
        "west.bootstrap.servers": sides[1].servers,
        "east->west.enabled": "true",
        "topics": topics,
        "heartbeats.replication.enabled": "false",
        "sync.group.offsets.enabled": "true",
        "offset.lag.max": "10",
        "replication.factor": "1",
    }
    entries |= {f"{name}.topic.replication.factor": "1" for name in ("checkpoints", "heartbeats", "offset-syncs")}
    intervals = ("refresh.topics", "refresh.groups", "sync.topic.configs", "sync.topic.acls", "emit.checkpoints")
    entries |= {f"{name}.interval.seconds": "10" for name in (*intervals, "sync.group.offsets", "emit.heartbeats")}
    return mirror_config(entries | changes).pairs[0]


@contextmanager
def control(flow: FlowConfig) -> Iterator[FlowControl]:
    with ControlClients(flow) as clients:
        yield FlowControl(flow, clients, NOW, clock=partial(next, count(NOW, 5)))


def errors(control: FlowControl) -> Mapping[str, str]:
    return {name: status.last_error for name, status in control.status.items() if status.last_error is not None}


def test_topics_configurations_and_acls_follow(sides: tuple[Side, Side]) -> None:
    east, west = sides
    east.create("orders", 2, retention_ms="7200000", message_timestamp_type="LogAppendTime")
    with control(flow_of(sides, "orders", groups="none")) as mirror:
        assert mirror.run_due(NOW, lambda: True) == NOW
        assert not any(each.runs for each in mirror.status.values()), "no task begins after a stop"
        assert mirror.run_due(NOW) == NOW + STEP
        assert mirror.remotes == {"orders": "east.orders"}
        assert mirror.partitions == {"orders": 2}
        wait_until(lambda: "east.orders" in {each.name for each in west.admin.list_topics()}, lambda: "no copy")
        assert west.partitions("east.orders") == 2
        assert west.config("east.orders", "retention.ms") == "7200000"
        assert west.config("east.orders", "message.timestamp.type") == "CreateTime"
        for place, topic in ((east, "mm2-offset-syncs.west.internal"), (west, "east.checkpoints.internal")):
            assert (place.partitions(topic), place.config(topic, "cleanup.policy")) == (1, "compact")

        east.admin.create_partitions({"orders": 3})
        east.change("orders", retention_ms="3600000")
        west.change("east.orders", segment_bytes="20000000")
        wait_until(lambda: east.partitions("orders") == 3, lambda: "orders did not grow")
        mirror.run_due(NOW + STEP)
        wait_until(lambda: west.partitions("east.orders") == 3, lambda: f"{mirror.status[TOPICS]}")
        wait_until(lambda: west.config("east.orders", "retention.ms") == "3600000", lambda: f"{mirror.status[CONFIGS]}")
        wait_until(lambda: west.config("east.orders", "segment.bytes") != "20000000", lambda: "not set back")
        assert mirror.status[TOPICS].problems == mirror.status[CONFIGS].problems == []
        assert errors(mirror) == {}


def test_acls_follow_without_the_right_to_write(sides: tuple[Side, Side], request: pytest.FixtureRequest) -> None:
    east, west = sides
    if "kafka" in request.node.callspec.params["sides"]:
        pytest.skip("the Kafka of these tests has no authorizer")
    east.create("secrets", 1)

    def acl(topic: str, operation: Operation) -> AclBinding:
        literal = PatternType.LITERAL
        return AclBinding(ResourceType.TOPIC, topic, literal, "User:alice", "*", operation, Permission.ALLOW)

    east.admin.create_acls([acl("secrets", Operation.READ), acl("secrets", Operation.WRITE)])
    wait_until(lambda: len(east.admin.describe_acls()) == 2, lambda: "no ACLs")
    with control(flow_of(sides, "secrets")) as mirror:
        mirror.run_due(NOW)
        of_copy = AclFilter(resource_name="east.secrets")
        wait_until(lambda: bool(west.admin.describe_acls(of_copy)), lambda: f"{mirror.status[ACLS]}")
        assert west.admin.describe_acls(of_copy) == [acl("east.secrets", Operation.READ)]


def test_acls_that_a_target_without_an_authorizer_cannot_have_are_a_problem(
    tmp_path: Path, sides: tuple[Side, Side], request: pytest.FixtureRequest
) -> None:
    """A source without one has none to copy."""
    if "kafka" in request.node.callspec.params["sides"]:
        pytest.skip("the Kafka of these tests has no authorizer")
    _, west = sides
    west.create("guarded", 1)
    read = AclBinding(
        ResourceType.TOPIC, "guarded", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW
    )
    west.admin.create_acls([read])
    wait_until(lambda: read in west.admin.describe_acls(), lambda: "no ACL")
    with (
        cluster_thread({}, tmp_path / "open") as running,
        AdminClient(bootstrap_servers=running.bootstrap_servers) as admin,
    ):
        plain = Side(running.bootstrap_servers, admin)
        for ends, problems in (
            ((plain, west), []),
            ((west, plain), ["the target has no authorizer: 1 ACLs are not copied"]),
        ):
            with control(flow_of(ends, "guarded")) as mirror:
                mirror.run_due(NOW)
                assert [problem.reason for problem in mirror.status[ACLS].problems] == problems
                assert errors(mirror) == {}


def test_a_copied_topic_s_consumers_fail_over_without_a_reset(sides: tuple[Side, Side]) -> None:
    east, west = sides
    east.create("events", 1)
    flow = flow_of(sides, "events", groups="billing")
    with control(flow) as mirror:
        mirror.run_due(NOW)
        wait_until(lambda: "east.events" in {each.name for each in west.admin.list_topics()}, lambda: "no copy")
        with (
            Producer(bootstrap_servers=east.servers) as origin,
            Producer(bootstrap_servers=west.servers) as copy,
        ):
            for _ in range(7):  # the offsets of the two sides differ
                copy.send("east.events", b"older", partition=0)
            for number in range(100):
                origin.send("events", b"%d" % number, partition=0)
            origin.flush()
            emitter = OffsetSyncEmitter(flow.offset_lag_max)
            syncs: list[OffsetSync] = []
            for number in range(90):
                at = copy.send("east.events", b"%d" % number, partition=0).result().offset
                syncs += emitter.observe(TopicPartition("events", 0), number, at)
            for sync in syncs + emitter.pending():
                key, value = sync.encode()
                origin.send(flow.offset_syncs_topic, value, key, partition=0)

        tp = TopicPartition("events", 0)
        east.admin.alter_consumer_group_offsets("billing", {tp: 50})
        mirror.run_due(NOW + STEP)
        assert errors(mirror) == {}
        (offset,) = west.admin.list_consumer_group_offsets("billing").values()
        assert offset is not None
        assert 57 - 10 <= offset.offset <= 57
        latency = mirror.latencies["billing", TopicPartition("east.events", 0)].read(NOW)
        assert latency is not None
        assert latency.last == 5  # a step of the clock

        def checkpoints() -> list[Checkpoint]:
            found = [Checkpoint.decode(*record) for record in west.records(flow.checkpoints_topic)]
            return [each for each in found if each.tp == TopicPartition("east.events", 0)]

        (checkpoint,) = checkpoints()
        assert checkpoint == Checkpoint("billing", TopicPartition("east.events", 0), 50, offset.offset)

        mirror.run_due(NOW + 2 * STEP)  # nothing has changed
        assert len(checkpoints()) == 1

        settings: dict[str, Any] = {"group_id": "billing", "auto_offset_reset": "none", "enable_auto_commit": False}
        with Consumer(bootstrap_servers=west.servers, **settings) as consumer:
            consumer.subscribe("east.events")
            first = next(iter(consumer))
            assert 40 <= int(first.value or b"") <= 50
            east.admin.alter_consumer_group_offsets("billing", {tp: 90})
            mirror.run_due(NOW + 3 * STEP)
            (kept,) = west.admin.list_consumer_group_offsets("billing").values()
            assert kept == offset  # while a consumer is there
        mirror.run_due(NOW + 4 * STEP)
        (moved,) = west.admin.list_consumer_group_offsets("billing").values()
        assert moved is not None
        assert (
            moved.offset
            == 97
            == west.admin.list_offsets({("east.events", 0): -1})[TopicPartition("east.events", 0)].offset
        )

        east.admin.alter_consumer_group_offsets("billing", {tp: 20})  # reset in the source
        mirror.run_due(NOW + 5 * STEP)
        (still,) = west.admin.list_consumer_group_offsets("billing").values()
        assert still == moved
        east.admin.alter_consumer_group_offsets("billing", {tp: 95})
        mirror.run_due(NOW + 6 * STEP)

    with control(flow) as again:  # another process
        before = len(west.records(flow.checkpoints_topic))
        again.run_due(NOW)
        assert len(west.records(flow.checkpoints_topic)) == before
        assert errors(again) == {}


def test_a_group_that_was_deleted_in_both_clusters_does_not_come_back(sides: tuple[Side, Side]) -> None:
    east, west = sides
    east.create("left", 1)
    flow = flow_of(sides, "left", groups="gone")

    def groups() -> set[str]:
        return {each.group_id for each in west.admin.list_consumer_groups()} & {"gone"}

    with control(flow) as mirror:
        mirror.run_due(NOW)
        wait_until(lambda: "east.left" in {each.name for each in west.admin.list_topics()}, lambda: "no copy")
        with (
            Producer(bootstrap_servers=east.servers) as origin,
            Producer(bootstrap_servers=west.servers) as copy,
        ):
            copy.send("east.left", b"record", partition=0)
            key, value = OffsetSync(TopicPartition("left", 0), 0, 0).encode()
            origin.send(flow.offset_syncs_topic, value, key, partition=0)
        east.admin.alter_consumer_group_offsets("gone", {("left", 0): 1})
        mirror.run_due(NOW + STEP)
        assert groups() == {"gone"}
        assert [group for group, _ in mirror.latencies] == ["gone"]
        for each in sides:
            each.admin.delete_consumer_groups("gone")
        mirror.run_due(NOW + 2 * STEP)
        assert groups() == set()
        assert mirror.latencies == {}
    with control(flow) as again:  # which reads its checkpoint
        again.run_due(NOW)
        assert groups() == set()


def test_heartbeats_are_written_even_by_a_flow_that_copies_nothing(sides: tuple[Side, Side]) -> None:
    _, west = sides
    before = len(west.records("heartbeats")) if "heartbeats" in {e.name for e in west.admin.list_topics()} else 0
    with control(replace(flow_of(sides, "x"), enabled=False)) as mirror:
        assert list(mirror.status) == [INTERNAL_TOPICS, BEAT]
        mirror.run_due(NOW)
        mirror.run_due(NOW + 1)
        mirror.run_due(NOW + STEP)
    found = [Heartbeat.decode(*record) for record in west.records("heartbeats")[before:]]
    assert found == [Heartbeat("east", "west", NOW), Heartbeat("east", "west", NOW + STEP)]


def test_a_cluster_out_of_reach_is_reported_and_the_rest_goes_on(sides: tuple[Side, Side]) -> None:
    flow = flow_of(sides, "x", **{"east.bootstrap.servers": "localhost:1", "emit.heartbeats.interval.seconds": "1"})
    with control(flow) as mirror:
        next_ms = mirror.run_due(NOW)
        assert next_ms == NOW + 1_000
        found = errors(mirror)
        assert {INTERNAL_TOPICS, TOPICS, GROUPS} <= set(found)
        assert not {BEAT, CHECKPOINTS} & set(found)  # no wait for what cannot be read
        assert mirror.status[TOPICS].last_error_ms == NOW
        assert mirror.status[GROUP_OFFSETS].last_success_ms == NOW
