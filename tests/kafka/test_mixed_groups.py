"""Groups with members of three implementations, raylog's, librdkafka's and Java's; members come, leave and die."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.topics import create_topic
from tests.support.group_members import Group, Writer, more, own_member, stock_member, until
from tests.support.java_process import JavaProcess, killed_at_the_end
from tests.support.node_cluster import NodeCluster

pytestmark = [pytest.mark.kafka]

PARTITIONS = 6
ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class JavaMember:
    """Kafka's VerifiableConsumer, which prints each record that it has read and commits it."""

    def __init__(self, path: Path, group: Group) -> None:
        self._group = group
        arguments = ["--bootstrap-server", group.servers, "--topic", group.topic, "--group-id", group.topic]
        arguments += ["--reset-policy", "earliest", "--session-timeout", "6000", "--verbose"]
        arguments += ["--assignment-strategy", ASSIGNORS[group.strategy]]
        self.process = JavaProcess(path, "org.apache.kafka.tools.VerifiableConsumer", *arguments)
        self.process.start()

    def report(self) -> int:
        """Report what it has read to the group. The number of these records."""
        count = 0
        for line in self.process.log().splitlines():
            if line.startswith('{"') and line.endswith("}") and (event := json.loads(line))["name"] == "record_data":
                self._group.got(event["partition"], event["offset"], event["value"].encode())
                count += 1
        return count


@pytest.mark.parametrize("strategy", ASSIGNORS)
def test_every_record_is_read_by_one_member_or_another(
    cluster: NodeCluster, tmp_path: Path, strategy: str, say: Callable[[str], None]
) -> None:
    servers, topic = cluster.bootstrap_servers, f"mixed-{strategy}"
    create_topic(servers, topic, partitions=PARTITIONS, replication_factor=3)
    group, writer = Group(servers, topic, strategy), Writer(servers, topic, PARTITIONS)
    javas = [JavaMember(tmp_path / f"java-{number}", group) for number in range(2)]
    with killed_at_the_end([java.process for java in javas]):
        group.join(own_member)
        group.join(stock_member)
        until(lambda: all(java.report() > 0 for java in javas), group, "a Java member reads nothing")
        until(more(lambda: [len(group.read)]), group, "the group reads nothing")
        javas[0].process.kill()
        group.join(own_member)
        until(more(lambda: [len(group.read), javas[1].report()]), group, "it reads nothing after a death")
        group.end_one(1)
        javas[1].process.stop()
        until(more(lambda: [len(group.read)]), group, "raylog's members read nothing alone")
        javas[0].process.start()
        before = javas[0].report()
        until(lambda: javas[0].report() > before, group, "a Java member that comes back reads nothing")
        expected = writer.end()

        def all_read() -> bool:
            for java in javas:
                java.report()
            return expected.keys() <= group.read.keys()

        until(all_read, group, "the group does not read everything")
        group.end()
    assert not group.failures, group.failures
    assert sorted(group.read.values()) == sorted(value for sent in writer.sent for value, _ in sent)
    say(f"{strategy}: {len(group.read)} records, {sum(java.report() for java in javas)} of them by Java's members")
