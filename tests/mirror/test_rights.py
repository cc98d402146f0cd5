"""A mirror needs just the rights in docs/mirror-config.md: with them it does all its work, and not without any one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

import raylog
from raylog.config.authorization import STANDARD_AUTHORIZER
from raylog.mirror.config import FlowConfig, mirror_config
from raylog.mirror.control import TOPICS
from raylog.mirror.flow_status import FlowStatus
from raylog.mirror.formats import Checkpoint, Heartbeat
from raylog.protocol.records.reader import Record
from raylog.security.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from tests.mirror.flows import QUICK, RunningFlow, running
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.forms import by_form

PAGE = Path(__file__).parent.parent.parent / "docs/mirror-config.md"
ROW = re.compile(r"\| (source|target) \| ([^|]+) \| ([A-Z_, ]+) \| ([^|]+) \|")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGIN = f'{MODULE} username="mirror" password="in the mirror";'
PRINCIPAL = "User:mirror"
CONFIG = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} user_mirror="in the mirror";',
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
RECORDS = 5
RETENTION_MS = "777000"
LATER = frozenset({"partitions", "configuration"})
"""What the source has only once the first run has ended."""
RUNS = 5
"""So often the control looks at the topics, once a second, before the work counts as not done."""
RESOURCES = {
    "cluster": (ResourceType.CLUSTER, "kafka-cluster"),
    "copied topics": (ResourceType.TOPIC, "{topic}"),
    "their copies": (ResourceType.TOPIC, "{source}.{topic}"),
    "translated groups": (ResourceType.GROUP, "{group}"),
}
"""Others are names of topics and transactional ids, with aliases in angle brackets."""


class Right(NamedTuple):
    """One operation of a row."""

    cluster: str
    resource: str
    operation: Operation


def documented() -> list[Right]:
    section = PAGE.read_text().partition("## Rights")[2].partition("\n## ")[0]
    return [
        Right(cluster, resource, Operation[operation.strip()])
        for cluster, resources, operations, _ in ROW.findall(section)
        for resource in re.split(r", (?=`)", resources)
        for operation in operations.split(",")
    ]


RIGHTS = documented()
LEFT_OUT = RIGHTS[:: by_form(12, long=1)]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningCluster]]:
    folder = tmp_path_factory.mktemp("rights")
    with cluster_thread(CONFIG, folder / "source") as source, cluster_thread(CONFIG, folder / "target") as target:
        yield {"source": source, "target": target}


numbers = count()


class Mirrored:
    """A flow between new aliases, a topic with records and a configuration, and a group that has read them."""

    def __init__(self, clusters: dict[str, RunningCluster]) -> None:
        self.number = next(numbers)
        self.expected = RECORDS
        self.servers = {side: str(each.broker.endpoints["PLAINTEXT"]) for side, each in clusters.items()}
        self.secure = {side: str(each.broker.endpoints["SASL_PLAINTEXT"]) for side, each in clusters.items()}
        self.aliases = {"source": f"s{self.number}", "target": f"t{self.number}"}
        self.topic, self.group = f"orders-{self.number}", f"readers-{self.number}"
        self.copy = f"{self.aliases['source']}.{self.topic}"
        with self.admin("source") as admin:
            admin.create_topics([raylog.NewTopic(self.topic, 1, 1)])
            admin.create_acls([self.binding(ResourceType.TOPIC, self.topic, Operation.READ, "User:reader")])
        with raylog.Producer(bootstrap_servers=self.servers["source"]) as producer:
            for _ in range(RECORDS):
                producer.send(self.topic, b"order", partition=0)
        with self.admin("source") as admin:
            admin.alter_consumer_group_offsets(self.group, {(self.topic, 0): RECORDS})
        with self.admin("target") as admin, suppress(raylog.KafkaError):
            admin.delete_topics(["heartbeats"])  # of the flow before

    def admin(self, side: str) -> raylog.AdminClient:
        return raylog.AdminClient(bootstrap_servers=self.servers[side])

    @staticmethod
    def binding(kind: ResourceType, name: str, operation: Operation, principal: str = PRINCIPAL) -> AclBinding:
        return AclBinding(kind, name, PatternType.LITERAL, principal, "*", operation, Permission.ALLOW)

    def grant(self, rights: list[Right]) -> None:
        for side in ("source", "target"):
            with self.admin(side) as admin:
                admin.delete_acls([AclFilter(principal=PRINCIPAL)])
                admin.create_acls([self._entry(each) for each in rights if each.cluster == side])

    def _entry(self, right: Right) -> AclBinding:
        kind, name = RESOURCES.get(right.resource, (ResourceType.TOPIC, right.resource.strip("`")))
        if name.startswith("raylog-mirror-") and name.endswith("<shard>"):
            kind = ResourceType.TRANSACTIONAL_ID
        filled = name.format(topic=self.topic, group=self.group, **self.aliases)
        for side, alias in self.aliases.items():
            filled = filled.replace(f"<{side}>", alias)
        pattern = PatternType.LITERAL
        if filled.endswith("<shard>"):
            filled, pattern = filled.removesuffix("<shard>"), PatternType.PREFIXED
        return AclBinding(kind, filled, pattern, PRINCIPAL, "*", right.operation, Permission.ALLOW)

    def flow(self) -> FlowConfig:
        source, target = self.aliases.values()
        entries = {"clusters": f"{source},{target}", f"{source}->{target}.enabled": "true"}
        for side, alias in self.aliases.items():
            entries |= {
                f"{alias}.bootstrap.servers": self.secure[side],
                f"{alias}.security.protocol": "SASL_PLAINTEXT",
                f"{alias}.sasl.mechanism": "PLAIN",
                f"{alias}.sasl.jaas.config": LOGIN,
            }
        entries |= {f"{kind}replication.factor": "1" for kind in ("", "offset-syncs.topic.", "checkpoints.topic.")}
        entries |= {f"{task}.interval.seconds": "1" for task in (*QUICK, "sync.topic.acls", "emit.heartbeats")}
        entries |= {
            "topics": self.topic,
            "groups": self.group,
            "heartbeats.topic.replication.factor": "1",
            "heartbeats.replication.enabled": "false",
            "exactly.once.source.support": "enabled",
            "sync.group.offsets.enabled": "true",
            "sync.topic.acls.enabled": "true",
        }
        (flow,) = (each for each in mirror_config(entries).flows if each.source.alias == source and each.enabled)
        return flow

    # --- what is done

    def missing(self) -> set[str]:
        """What the mirror has not done yet."""
        found = {
            "records": len(copied := self._records(self.copy)) == self.expected,
            "heartbeats": any(
                Heartbeat.decode(each.key or b"", each.value or b"").source == self.aliases["source"]
                for each in self._records("heartbeats")
            ),
            "checkpoints": any(
                Checkpoint.decode(each.key or b"", each.value or b"").group == self.group
                for each in self._records(f"{self.aliases['source']}.checkpoints.internal")
            ),
        }
        with self.admin("target") as admin:
            if self.copy not in {each.name for each in admin.list_topics()}:
                return {"the topic"}
            resource = raylog.ConfigResource(raylog.ConfigResourceType.TOPIC, self.copy)
            found["configuration"] = admin.describe_configs([resource])[resource]["retention.ms"].value == RETENTION_MS
            found["partitions"] = len(admin.describe_topics(self.copy)[self.copy].partitions) == 2
            committed = admin.list_consumer_group_offsets(self.group).values()
            found["group"] = bool(copied) and [each.offset for each in committed if each is not None] == [
                copied[-1].offset + 1
            ]
            entries = admin.describe_acls(AclFilter(principal="User:reader"))
            found["ACLs"] = self.copy in {each.resource_name for each in entries}
        return {what for what, is_done in found.items() if not is_done}

    def _records(self, topic: str) -> list[Record]:
        with self.admin("target") as admin:
            if topic not in {each.name for each in admin.list_topics()}:
                return []
        with raylog.PartitionReader(self.servers["target"], topic, 0) as reader:
            found: list[Record] = []
            while reader.position < reader.end_offset():
                found += reader.read_records()
            return found

    def run(self) -> tuple[set[str], FlowStatus]:
        """What is missing in the end, and what the flow says."""
        with running(self.flow()) as flow:
            self._wait(flow, until_missing=LATER)
        with self.admin("source") as admin:
            admin.create_partitions({self.topic: 2})
            resource = raylog.ConfigResource(raylog.ConfigResourceType.TOPIC, self.topic)
            admin.incremental_alter_configs({resource: {"retention.ms": RETENTION_MS}})
        with raylog.Producer(bootstrap_servers=self.servers["source"]) as producer:
            producer.send(self.topic, b"order", partition=0)
        with self.admin("source") as admin:
            admin.alter_consumer_group_offsets(self.group, {(self.topic, 0): RECORDS + 1})
        self.expected = RECORDS + 1
        with running(self.flow()) as flow:  # which reads what the first one has written
            self._wait(flow, until_missing=frozenset())
            return self.missing(), flow.status()

    def _wait(self, flow: RunningFlow, *, until_missing: frozenset[str]) -> None:
        before = _runs(flow.status())
        flow.wait(lambda status: self.missing() <= until_missing or _runs(status) >= before + RUNS)


def _runs(status: FlowStatus) -> int:
    """Of the task that is carried out every second whatever fails."""
    return max((each.runs for each in status.control if each.task == TOPICS), default=0)


def test_with_these_rights_all_is_done(clusters: dict[str, RunningCluster]) -> None:
    mirrored = Mirrored(clusters)
    mirrored.grant(RIGHTS)
    missing, status = mirrored.run()
    assert missing == set(), status


@pytest.mark.parametrize("right", LEFT_OUT, ids=lambda each: f"{each.cluster}-{each.resource}-{each.operation.name}")
def test_without_one_of_them_something_is_missing(clusters: dict[str, RunningCluster], right: Right) -> None:
    mirrored = Mirrored(clusters)
    mirrored.grant([each for each in RIGHTS if each != right])
    missing, status = mirrored.run()
    assert missing, status
