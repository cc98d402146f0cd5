"""Three replicas: whoever is killed or hangs, no acknowledged record is lost, doubled or moved, and writing goes on.

`RAYLOG_FAILOVERS=100` makes it the long form. How long a failover takes is in `script/bench --only replication`.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

import raylog
from raylog.actors.cluster import cluster_status
from tests.compat.topics import create_topic
from tests.ray.clients import read
from tests.ray.test_three_brokers import PartitionLoad, until_more, wait_until_all_run

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

NAME = "failover"
TOPIC = "spread"
PARTITIONS = 3
ROUNDS = int(os.environ.get("RAYLOG_FAILOVERS", "6"))
ROLES = ("leader", "leader", "follower", "controller", "leader hangs")
"""Of the first partition. One that hangs is killed once the others have gone on without it."""
RECOVERY_SECONDS = 60.0


@pytest.fixture(scope="module")
def cluster(ray_runtime: None) -> Iterator[raylog.Cluster]:
    config = {"min.insync.replicas": "2", "broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}
    with raylog.start(NAME, brokers=3, config=config) as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS, replication_factor=3)
        yield cluster


def partitions_of(cluster: raylog.Cluster) -> dict[int, tuple[int, list[int]]]:
    """Leader and ISR of each partition, as some broker knows them."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    shown = admin.list_topics(TOPIC, timeout=RECOVERY_SECONDS).topics[TOPIC].partitions
    return {number: (partition.leader, sorted(partition.isrs)) for number, partition in shown.items()}


def wait_for_all_in_sync(cluster: raylog.Cluster) -> None:
    deadline = time.monotonic() + RECOVERY_SECONDS
    while any(isr != [0, 1, 2] for _, isr in partitions_of(cluster).values()):
        assert time.monotonic() < deadline, partitions_of(cluster)
        time.sleep(0.1)


def test_no_acknowledged_record_is_lost_doubled_or_moved(cluster: raylog.Cluster) -> None:
    rng = random.Random(3)
    # Where nobody hangs up, a client notices a broker that hangs by its own timeout alone.
    loads = [
        PartitionLoad(cluster.bootstrap_servers, number, **{"socket.timeout.ms": 3000}) for number in range(PARTITIONS)
    ]
    until_more(loads, loads, 500)
    for number in range(ROUNDS):
        wait_for_all_in_sync(cluster)
        role = ROLES[number % len(ROLES)]
        leader = partitions_of(cluster)[0][0]
        pid = cluster.status()[leader].pid
        if role == "follower":
            pid = cluster.status()[rng.choice([one for one in range(3) if one != leader])].pid
        elif role == "controller":
            pid = cluster_status(NAME).controllers[0].pid
        os.kill(pid, signal.SIGSTOP if role == "leader hangs" else signal.SIGKILL)
        until_more(loads, loads, 500)
        if role == "leader hangs":
            os.kill(pid, signal.SIGKILL)
        wait_until_all_run(pid, NAME)
    wait_for_all_in_sync(cluster)
    for load in loads:
        load.finish()
        assert read(cluster.bootstrap_servers, TOPIC, load.partition) == load.ledger
