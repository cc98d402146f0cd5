"""Apache's MirrorMaker clients read the internal topics that our flows write.

RemoteClusterUtils finds the clusters, and translates a group's offsets to those that we commit.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from raylog.client.producer.producer import Producer
from raylog.core.ids import TopicPartition
from raylog.mirror.formats import Checkpoint, Heartbeat, OffsetSync
from tests.mirror.test_control import NOW, STEP, control, flow_of, side
from tests.support.hang import wait_until
from tests.support.kafka_peer import class_path

pytestmark = pytest.mark.kafka

HEARTBEAT = Heartbeat("east", "west", NOW)
REST = "downstreamOffset=42, metadata=größer"
CHECKPOINT = Checkpoint("billing", TopicPartition("east.events", 3), 1 << 40, 42, "größer")


def run(folder: Path, *arguments: str) -> list[str]:
    source = Path(__file__).parent / "mirror" / "RemoteClusters.java"
    command = ["java", "-cp", class_path(), str(source), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def test_remote_cluster_utils_translate_offsets_as_we_do(tmp_path: Path) -> None:
    with side("raylog", tmp_path / "east") as east, side("raylog", tmp_path / "west") as west:
        east.create("events", 1)
        flow = flow_of((east, west), "events", groups="billing", **{"heartbeats.replication.enabled": "true"})
        with control(flow) as mirror:
            mirror.run_due(NOW)
            wait_until(lambda: "east.events" in {each.name for each in west.admin.list_topics()}, lambda: "no copy")
            with Producer(bootstrap_servers=east.servers) as origin, Producer(bootstrap_servers=west.servers) as copy:
                for number in range(100):
                    origin.send("events", b"%d" % number, partition=0)
                    copy.send("east.events", b"%d" % number, partition=0)
                key, value = OffsetSync(TopicPartition("events", 0), 30, 30).encode()
                origin.send(flow.offset_syncs_topic, value, key, partition=0)
            east.admin.alter_consumer_group_offsets("billing", {("events", 0): 50})
            west.create("east.heartbeats", 1)
            mirror.run_due(NOW + STEP)
        (committed,) = west.admin.list_consumer_group_offsets("billing").values()
        assert committed is not None
        assert committed.offset == 31
        encoded = [[part.hex() for part in each.encode()] for each in (HEARTBEAT, CHECKPOINT)]
        found = run(tmp_path, west.servers, "east", "billing", "Heartbeat", *encoded[0], "Checkpoint", *encoded[1])
    assert found == [
        "upstream [east]",
        "heartbeats [east.heartbeats, heartbeats]",
        "checkpoints [east.checkpoints.internal]",
        "offsets {east.events-0=31}",
        f"Heartbeat{{sourceClusterAlias=east, targetClusterAlias=west, timestamp={NOW}}}",
        f"Checkpoint{{consumerGroupId=billing, topicPartition=east.events-3, upstreamOffset={1 << 40}, {REST}}}",
    ]
