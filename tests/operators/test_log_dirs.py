"""A log directory that is unmounted under load takes only its replicas offline, and replicas are moved between
directories under load and kill -9: nothing acknowledged is lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from raylog.client.admin.admin_client import AdminClient
from raylog.core.ids import TopicPartition
from tests.compat.topics import create_topic
from tests.operators.load import PARTITIONS, load_on
from tests.support.forms import by_form
from tests.support.hang import HANG_SECONDS
from tests.support.node_cluster import COUNT, NodeCluster

pytestmark = pytest.mark.slow
DISKS = 3
KILLS = by_form(2, long=30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    cluster = NodeCluster(tmp_path_factory.mktemp("disks"), log_dirs=DISKS)
    yield cluster
    cluster.kill()


def new_topic(cluster: NodeCluster, name: str) -> str:
    configs = {"segment.bytes": str(1 << 20), "message.timestamp.after.max.ms": str((1 << 63) - 1)}
    create_topic(cluster.bootstrap_servers, name, partitions=PARTITIONS, replication_factor=COUNT, configs=configs)
    cluster.wait_until_healthy(name)
    return name


def disk_of(cluster: NodeCluster, tp: TopicPartition, broker_id: int) -> Path:
    """The log directory of this broker that has the replica."""
    [found] = [path for path in directories(cluster, broker_id) if (path / str(tp)).is_dir()]
    return found


def is_moved(tp: TopicPartition, source: Path, target: Path) -> bool:
    return (target / str(tp)).is_dir() and not (source / str(tp)).is_dir()


def directories(cluster: NodeCluster, broker_id: int) -> list[Path]:
    return [cluster.path / f"disk-{number}" / f"broker-{broker_id}" for number in range(DISKS)]


def wait_until(holds: Callable[[], bool], what: str) -> float:
    """Returns how many seconds it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + HANG_SECONDS, what
        time.sleep(0.05)
    return time.monotonic() - began


def test_only_the_replicas_of_an_unmounted_directory_move(
    cluster: NodeCluster, tmp_path: Path, say: Callable[[str], None]
) -> None:
    topic = new_topic(cluster, "unmounted")
    with load_on(cluster.bootstrap_servers, topic, tmp_path / "ledger") as load:
        before = cluster.partitions(topic)
        broker_id = before[0][0]
        disk = disk_of(cluster, TopicPartition(topic, 0), broker_id)
        lost = {number for number in before if (disk / f"{topic}-{number}").is_dir()}
        node, elsewhere = cluster.brokers[broker_id], disk.with_name("unmounted")
        load.take_worst_ms()
        os.rename(disk, elsewhere)
        seconds = wait_until(
            lambda: all(broker_id not in cluster.partitions(topic)[number][1] for number in lost), "not noticed"
        )
        load.until_more(200)
        worst_ms = load.take_each_worst_ms()
        others_ms = max(worst_ms[number] for number in before if number not in lost)
        worst = f"worst acknowledgement {max(worst_ms)} ms, of other partitions {others_ms} ms"
        say(f"another replica led after {seconds:.1f} s; {worst}")
        after = cluster.partitions(topic)
        assert {number: after[number] for number in after if number not in lost} == {
            number: before[number] for number in before if number not in lost
        }
        assert node.running
        with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            found = client.describe_log_dirs(broker_id)[broker_id]
            failed = {path for path, each in found.items() if each.error is not None}
        assert failed == {str(disk)}
        node.kill()
        node.start()
        node.wait_until_started()
        load.until_more(100)
        assert not any(broker_id in cluster.partitions(topic)[number][1] for number in lost), "it is still unmounted"
        node.kill()
        os.rename(elsewhere, disk)
        node.start()
        node.wait_until_started()
        cluster.wait_until_healthy(topic)
        load.until_more(100)


def test_replicas_are_moved_under_load_and_kills(
    cluster: NodeCluster, tmp_path: Path, say: Callable[[str], None]
) -> None:
    topic = new_topic(cluster, "moved")
    with load_on(cluster.bootstrap_servers, topic, tmp_path / "ledger") as load:
        for kill in range(KILLS):
            tp = TopicPartition(topic, kill % PARTITIONS)
            broker_id = int(cluster.leader(topic, tp.partition).spec.node_id)
            node, source = cluster.brokers[broker_id], disk_of(cluster, tp, broker_id)
            target = next(path for path in directories(cluster, broker_id) if path != source)
            load.until_more(300, partitions=[tp.partition])
            with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as client:
                client.alter_replica_log_dirs({(*tp, broker_id): str(target)})
            if kill % 2:
                time.sleep(0.01 * kill)
                node.kill()
                node.start()
                node.wait_until_started()
                cluster.wait_until_healthy(topic)
            seconds = wait_until(partial(is_moved, tp, source, target), f"{tp} was not moved")
            load.until_more(100)
            say(f"{tp} moved in {seconds:.1f} s, worst acknowledgement {load.take_worst_ms()} ms")
        cluster.wait_until_healthy(topic)
