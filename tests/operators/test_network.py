"""Cut networks and lost packets cost no acknowledged record, also if only one direction is cut.

Each broker, each controller and the clients are on a host of their own, in a network namespace. A cut loses packets
without a notice, so that connections stay open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from raylog.client import io_thread
from tests.operators.conftest import Site
from tests.operators.load import load_on
from tests.operators.long_form import IS_LONG, long_only
from tests.support.network_namespaces import Network, network, why_no_networks
from tests.support.node_cluster import NODES, NodeCluster

pytestmark = pytest.mark.slow

CLIENT = "client"
CUT_SECONDS = 8.0
"""Longer than all timeouts that the nodes have: of sessions, of lagging replicas, of the quorum."""


class Parts(NamedTuple):
    """The hosts, by what they do at the moment."""

    leader: list[str]
    followers: list[str]
    active: list[str]
    standbys: list[str]

    @property
    def controllers(self) -> list[str]:
        return [*self.active, *self.standbys]


class Cut(NamedTuple):
    """Directions that are cut, and whether partition 0 can be written meanwhile."""

    name: str
    directions: Callable[[Parts], list[tuple[str, str]]]
    goes_on: bool = True
    usual: bool = False


def between(some: list[str], others: list[str]) -> list[tuple[str, str]]:
    return [*product(some, others), *product(others, some)]


def everything_of(host: str, parts: Parts) -> list[tuple[str, str]]:
    nodes = [*parts.leader, *parts.followers, *parts.controllers, CLIENT]
    return between([host], [other for other in nodes if other != host])


CUTS = (
    Cut("leader to a follower", lambda parts: [(parts.leader[0], parts.followers[0])]),
    Cut("a follower to the leader", lambda parts: [(parts.followers[0], parts.leader[0])]),
    Cut("leader and followers", lambda parts: between(parts.leader, parts.followers), goes_on=False),
    Cut("leader to the followers", lambda parts: [*product(parts.leader, parts.followers)], goes_on=False),
    Cut("leader and controllers", lambda parts: between(parts.leader, parts.controllers), usual=True),
    Cut("leader to the controllers", lambda parts: [*product(parts.leader, parts.controllers)]),
    Cut("controllers to the leader", lambda parts: [*product(parts.controllers, parts.leader)]),
    Cut("leader and everything", lambda parts: everything_of(parts.leader[0], parts)),
    Cut("a follower and everything", lambda parts: everything_of(parts.followers[0], parts)),
    Cut("active controller and everything", lambda parts: everything_of(parts.active[0], parts)),
    Cut("active controller to the others", lambda parts: [*product(parts.active, parts.standbys)]),
    Cut("the others to the active controller", lambda parts: [*product(parts.standbys, parts.active)]),
    Cut("active controller to one other", lambda parts: [(parts.active[0], parts.standbys[0])]),
    Cut("clients to the leader", lambda parts: [(CLIENT, parts.leader[0])], goes_on=False),
    Cut("leader to the clients", lambda parts: [(parts.leader[0], CLIENT)], goes_on=False),
)


class Plant(NamedTuple):
    """A cluster on hosts of its own."""

    site: Site
    network: Network


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    if reason := why_no_networks():
        pytest.skip(reason)
    with ExitStack() as stack:
        hosts = stack.enter_context(network([*NODES, CLIENT]))
        stack.enter_context(hosts.entered(CLIENT))
        # A thread stays on the host on which it was started; that of other tests' clients is not on this one.
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(io_thread, "_shared", None)
        cluster = NodeCluster(
            tmp_path_factory.mktemp("network"),
            broker_hosts=[hosts.addresses[name] for name in NODES if name.startswith("broker")],
            controller_hosts=[hosts.addresses[name] for name in NODES if name.startswith("controller")],
            prefixes={name: hosts.prefix(name) for name in NODES},
        )
        stack.callback(cluster.kill)
        yield Plant(Site(cluster, {}), hosts)


def parts_of(cluster: NodeCluster, topic: str) -> Parts:
    active = cluster.active_controller()
    return Parts(
        [cluster.leader(topic).spec.name],
        [node.spec.name for node in cluster.followers(topic)],
        [active.spec.name],
        [node.spec.name for node in cluster.controllers if node is not active],
    )


@pytest.mark.parametrize("cut", [cut for cut in CUTS if IS_LONG or cut.usual], ids=lambda cut: cut.name)
def test_a_cut_costs_no_acknowledged_record(plant: Plant, cut: Cut, tmp_path: Path, say: Callable[[str], None]) -> None:
    cluster = plant.site.cluster
    topic = plant.site.new_topic()
    with load_on(cluster.bootstrap_servers, topic, tmp_path / "ledger") as load:
        directions = cut.directions(parts_of(cluster, topic))
        began = time.monotonic()
        for sender, receiver in directions:
            plant.network.cut(sender, receiver)
        without = load.until_more() if cut.goes_on else 0.0
        time.sleep(max(0.0, CUT_SECONDS - (time.monotonic() - began)))
        for sender, receiver in directions:
            plant.network.restore(sender, receiver)
        recovered = cluster.wait_until_healthy(topic)
        load.until_more()
        progress = f"progress after {without:.1f} s" if cut.goes_on else "no progress expected"
        worst_ms = load.take_worst_ms()
        say(f"cut: {cut.name}: {progress}, in sync {recovered:.1f} s after it; worst latency {worst_ms} ms")


@long_only
@pytest.mark.parametrize("role", ["leader", "followers"])
def test_lost_packets_cost_no_acknowledged_record(
    plant: Plant, role: str, tmp_path: Path, say: Callable[[str], None]
) -> None:
    cluster = plant.site.cluster
    topic = plant.site.new_topic()
    with load_on(cluster.bootstrap_servers, topic, tmp_path / "ledger") as load:
        host = getattr(parts_of(cluster, topic), role)[0]
        plant.network.narrow(host)
        without = load.until_more()
        time.sleep(CUT_SECONDS)
        dropped = plant.network.widen(host)
        recovered = cluster.wait_until_healthy(topic)
        load.until_more()
        assert dropped
        worst_ms = load.take_worst_ms()
        say(
            f"{dropped} packets from {host} ({role}) lost: progress after {without:.1f} s,"
            f" in sync {recovered:.1f} s after it; worst latency {worst_ms} ms"
        )
