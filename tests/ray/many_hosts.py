"""A cluster on three hosts, which are three Ray nodes of one machine; a whole host is lost and comes back, then Ray is;
and in the end the cluster grows by a broker, and shrinks again.

    python -m tests.ray.many_hosts DATA_DIR LEDGER

A process has one Ray, so this has one of its own. The ledger is for tests.support.record_ledger.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from ray.cluster_utils import Cluster as RayCluster

import raylog
from raylog.actors.broker import BrokerStatus
from raylog.actors.cluster import cluster_status
from raylog.actors.placement import HOST_LABEL
from tests.compat.topics import create_topic
from tests.ray.clients import read
from tests.ray.test_three_brokers import PartitionLoad, until_in_the_middle_of_a_burst, until_more
from tests.support.environment import WITHOUT_COORDINATORS
from tests.support.hang import HANG_SECONDS, wait_until

NAME, TOPIC = "many-hosts", "spread"
HOSTS = ("a", "b", "c")
PARTITIONS = 3
MORE = 300
CONFIG = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
}


def ray_of_three() -> tuple[RayCluster, dict[str, Any]]:
    """The head is host a."""
    head = {"labels": {HOST_LABEL: "a"}, "include_dashboard": False, "wait": False, **ray_node()}
    cluster = RayCluster(initialize_head=True, head_node_args=head)
    nodes = {"a": cluster.head_node}
    for host in HOSTS[1:]:
        nodes[host] = add_host(cluster, host)
    return cluster, nodes


def add_host(cluster: RayCluster, host: str) -> Any:
    node = cluster.add_node(wait=False, labels={HOST_LABEL: host}, **ray_node())
    cluster.wait_for_nodes(timeout=HANG_SECONDS)
    return node


def ray_node() -> dict[str, Any]:
    return {"num_cpus": 1, "object_store_memory": 100 << 20}


def states() -> dict[int, str]:
    return {broker.id: broker.state for broker in cluster_status(NAME).brokers}


def all_serve(cluster: raylog.Cluster) -> bool:
    """Every broker runs, every controller is there, and every partition is in sync on all hosts."""
    status = cluster_status(NAME)
    if len(status.brokers) < len(HOSTS) or any(broker.state != "running" for broker in status.brokers):
        return False
    if sum(each.pid > 0 for each in status.controllers) < len(HOSTS):
        return False
    try:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        shown = admin.list_topics(TOPIC, timeout=10).topics[TOPIC]
    except KafkaException:  # no answer yet
        return False
    return all(len(partition.isrs) == len(HOSTS) for partition in shown.partitions.values())


def runs_anew(before: BrokerStatus) -> bool:
    """In another process. The death itself may pass between two looks."""
    [status] = [each for each in cluster_status(NAME).brokers if each.id == before.id]
    return status.state == "running" and status.pid != before.pid


def told(what: str) -> Callable[[], str]:
    """With what there is of the cluster."""
    return lambda: f"{what}: {cluster_status(NAME)}"


def nodes_of_brokers() -> dict[int, str]:
    return {broker.id: broker.node for broker in cluster_status(NAME).brokers}


def lose_a_host(data_dir: str) -> list[PartitionLoad]:
    """One is lost, the others go on; it is back on another Ray node, and so is everything that was on it."""
    ray_cluster, nodes = ray_of_three()
    ray.init(address=ray_cluster.address, log_to_driver=False)
    cluster = raylog.start(NAME, data_dir=data_dir, brokers=3, controllers=3, config=CONFIG, **WITHOUT_COORDINATORS)
    create_topic(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS, replication_factor=3)
    placed = nodes_of_brokers()
    assert len(set(placed.values())) == len(HOSTS), placed
    servers = cluster.bootstrap_servers
    loads = [PartitionLoad(servers, number, **{"socket.timeout.ms": 3000}) for number in range(PARTITIONS)]
    until_more(loads, loads, MORE)
    until_in_the_middle_of_a_burst(loads)
    ray_cluster.remove_node(nodes["b"], allow_graceful=False)
    until_more(loads, loads, MORE)
    [lost] = [number for number, host in cluster_hosts(data_dir).items() if host == "b"]
    wait_until(lambda: states().get(lost, "away") != "running", told("a broker runs where its data is not"))
    until_more(loads, loads, MORE)
    add_host(ray_cluster, "b")
    wait_until(lambda: all_serve(cluster), told("the host is back, and not all that was on it"))
    assert nodes_of_brokers()[lost] != placed[lost]
    until_more(loads, loads, MORE)
    for load in loads:
        load.finish()
    ray.shutdown()
    ray_cluster.shutdown()  # type: ignore[no-untyped-call]
    return loads


def cluster_hosts(data_dir: str) -> dict[int, str]:
    hosts = json.loads((Path(data_dir) / "cluster.json").read_text())["hosts"]
    return {int(node.removeprefix("broker-")): host for node, host in hosts.items() if node.startswith("broker-")}


def grow_and_shrink(cluster: raylog.Cluster, data_dir: str) -> None:
    """A new broker is put on a host and looked after there as the others are; a removed one does not come back."""
    [added] = cluster.add_brokers()
    assert cluster_hosts(data_dir)[added.id] == "a", "all hosts have one, and the first was as good as the others"
    wait_until(lambda: states() == dict.fromkeys(range(4), "running"), told("one was added"))
    ray.kill(cluster.broker(added.id), no_restart=True)
    wait_until(lambda: runs_anew(added), told("the added broker was killed and did not come back"))
    ray.get(cluster.broker(added.id).ready.remote())
    cluster.remove_broker(added.id)
    assert sorted(cluster_hosts(data_dir)) == sorted(states()) == [0, 1, 2]


def come_back(data_dir: str, ledger: Path, loads: list[PartitionLoad]) -> None:
    """In another Ray, from what is on the disks: every broker on the host it was on."""
    ray_cluster, _ = ray_of_three()
    ray.init(address=ray_cluster.address, log_to_driver=False)
    placed = cluster_hosts(data_dir)
    cluster = raylog.start(NAME, data_dir=data_dir)
    wait_until(lambda: all_serve(cluster), told("all is back, and not all of it serves"))
    assert cluster_hosts(data_dir) == placed
    with ledger.open("w") as file:
        for load in loads:
            partition = load.partition
            lines: list[list[object]] = [["sent", partition, f"{partition}-{each}"] for each in range(load.given)]
            lines += [["acknowledged", partition, offset, value.decode()] for offset, value in load.ledger]
            found = read(cluster.bootstrap_servers, TOPIC, partition)
            lines += [["read", partition, offset, (value or b"").decode()] for offset, value in found]
            file.writelines(json.dumps(line) + "\n" for line in lines)
    grow_and_shrink(cluster, data_dir)
    cluster.stop()
    ray.shutdown()
    ray_cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    os.environ.pop("RAY_ADDRESS", None)
    come_back(sys.argv[1], Path(sys.argv[2]), lose_a_host(sys.argv[1]))
