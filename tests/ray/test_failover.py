"""With three replicas and controllers, kills and hangs lose, duplicate or reorder no acknowledged record.

Idempotent stock producers write all the time. What they have sent, what was acknowledged and what is read in the end
goes into a ledger, which another program judges (tests/support/record_ledger.py).

`-s` shows each fault. How long a failover takes is in
`script/bench --only replication`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import raylog
from raylog.actors.cluster import cluster_status
from tests.compat.topics import create_topic
from tests.ray.clients import read
from tests.ray.conftest import KILLED
from tests.ray.test_three_brokers import (
    PartitionLoad,
    until_in_the_middle_of_a_burst,
    until_more,
    wait_until_all_run,
)
from tests.support.forms import by_form
from tests.support.hang import HANG_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

TOPIC = "spread"
PARTITIONS = 3
FAULTS = by_form(5, long=100)
ROLES = ("leader", "controller", "machine", "leader hangs", "controller hangs", "standby", "follower hangs", "follower")
"""Of the first partition, or of the metadata log; a machine loses the leaders of both. One that hangs is killed once
the others have gone on without it."""
RECORDS_PER_FAULT = 500
"""Of each partition, before the next one."""


@pytest.fixture
def cluster(killed_cluster: raylog.Cluster) -> raylog.Cluster:
    create_topic(killed_cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS, replication_factor=3)
    return killed_cluster


def partitions_of(cluster: raylog.Cluster) -> dict[int, tuple[int, list[int]]]:
    """Leader and ISR of each partition, as some broker knows them."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    shown = admin.list_topics(TOPIC, timeout=HANG_SECONDS).topics[TOPIC].partitions
    return {number: (partition.leader, sorted(partition.isrs)) for number, partition in shown.items()}


def wait_for_all_in_sync(cluster: raylog.Cluster) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while any(isr != [0, 1, 2] for _, isr in partitions_of(cluster).values()):
        assert time.monotonic() < deadline, partitions_of(cluster)
        time.sleep(0.1)


def victims(cluster: raylog.Cluster, role: str, rng: random.Random) -> list[int]:
    """The processes that are to be hit at once."""
    who = role.removesuffix(" hangs")
    controllers = cluster_status(KILLED).controllers
    active, standby = ([each.pid for each in controllers if each.active is decides] for decides in (True, False))
    leader = partitions_of(cluster)[0][0]
    leads, follows = ([each.pid for each in cluster.status() if (each.id == leader) is led] for led in (True, False))
    if who == "machine":
        return [*active, *leads]
    return [rng.choice({"controller": active, "standby": standby, "leader": leads, "follower": follows}[who])]


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")


def test_no_acknowledged_record_is_lost_duplicated_or_reordered(cluster: raylog.Cluster, tmp_path: Path) -> None:
    rng = random.Random(3)
    roles = [*ROLES, *rng.choices(ROLES, k=FAULTS)][:FAULTS]
    rng.shuffle(roles)
    # A client notices a hanging broker only by its own timeout, since the connection stays open.
    loads = [
        PartitionLoad(cluster.bootstrap_servers, number, **{"socket.timeout.ms": 3000}) for number in range(PARTITIONS)
    ]
    until_more(loads, loads, RECORDS_PER_FAULT)
    for number, role in enumerate(roles, 1):
        wait_for_all_in_sync(cluster)
        pids = victims(cluster, role, rng)
        until_in_the_middle_of_a_burst(loads)
        began = time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP if role.endswith("hangs") else signal.SIGKILL)
        until_more(loads, loads, RECORDS_PER_FAULT)
        say(f"fault {number}: {role}, {RECORDS_PER_FAULT} more of each after {time.monotonic() - began:.1f} s")
        for pid in pids:
            if role.endswith("hangs"):
                os.kill(pid, signal.SIGKILL)
            wait_until_all_run(pid, KILLED)
    wait_for_all_in_sync(cluster)
    path = tmp_path / "ledger"
    with path.open("w") as ledger:
        for load in loads:
            load.finish()
            partition = load.partition
            lines: list[list[object]] = [["sent", partition, f"{partition}-{each}"] for each in range(load.given)]
            lines += [["acknowledged", partition, offset, value.decode()] for offset, value in load.ledger]
            found = read(cluster.bootstrap_servers, TOPIC, partition)
            lines += [["read", partition, offset, (value or b"").decode()] for offset, value in found]
            ledger.writelines(json.dumps(line) + "\n" for line in lines)
    least = str(FAULTS * RECORDS_PER_FAULT)
    command = [sys.executable, "-m", "tests.support.record_ledger", str(path), "--least", least]
    judged = subprocess.run(command, capture_output=True, text=True, check=False)
    say(judged.stdout)
    assert judged.returncode == 0, judged.stderr
