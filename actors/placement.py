"""On which host each actor of a cluster lives: spread over all there are at first, and then for ever where its disk is.

A host is known by a name that outlives its Ray node: the label `raylog-host` of the node where it has one, else the
name of the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raylog.actors.given_config import LOOPBACK
from raylog.core.errors import ConfigError

HOST_LABEL = "raylog-host"


class Host(NamedTuple):
    """A host as Ray knows it today."""

    name: str
    node_id: str
    address: str


def alive_hosts() -> dict[str, Host]:
    """By name, that of this process first. Of two nodes of one host the first will do."""
    own = ray.get_runtime_context().get_node_id()
    nodes = sorted((node for node in _nodes() if node["Alive"]), key=lambda node: node["NodeID"] != own)
    hosts: dict[str, Host] = {}
    for node in nodes:
        name = _name_of(node)
        hosts.setdefault(name, Host(name, node["NodeID"], node["NodeManagerAddress"]))
    return hosts


def spread(nodes: Sequence[str], hosts: Sequence[str], known: Mapping[str, str]) -> dict[str, str]:
    """A host for each node: the one that is known, else, in turn, those that have the fewest of its kind.

    A kind is what stands before the number: brokers are spread, and so are controllers.
    """
    placed = {node: known[node] for node in nodes if node in known}
    for node in nodes:
        if node not in placed:
            kind = node.rpartition("-")[0]
            alike = [host for other, host in placed.items() if other.rpartition("-")[0] == kind]
            placed[node] = min(hosts, key=alike.count)
    return placed


def reachable_addresses(hosts: Mapping[str, Host]) -> dict[str, str]:
    """Where each host's nodes are to listen: on the loopback address, unless the hosts are different machines."""
    if len({host.address for host in hosts.values()}) == 1:
        return dict.fromkeys(hosts, LOOPBACK)
    return {name: host.address for name, host in hosts.items()}


def addresses_in_reach(hosts: Mapping[str, Host], listening: Mapping[str, str]) -> dict[str, str]:
    """The hosts that more nodes may go to, and where they are to listen; those there are listen so, by host.

    Nodes that listen on the loopback address are reached from their own machine alone.
    """
    if any(address != LOOPBACK for address in listening.values()):
        return {name: host.address for name, host in hosts.items()}
    machines = {hosts[name].address for name in listening if name in hosts}
    return {name: LOOPBACK for name, host in hosts.items() if host.address in machines}


def placed_on(host: Host, *, soft: bool = True) -> Any:
    """For the options of an actor or a task. `soft` lets Ray place it elsewhere, which it does also without need.

    For actors it is soft, since one that Ray can place nowhere is lost for good: one that finds itself on another host
    ends itself (NodeActor), and the supervisor makes it anew when its own is there. A task looks at the disk it is on.
    """
    return NodeAffinitySchedulingStrategy(host.node_id, soft=soft)


def own_host() -> str:
    """The name of the host that this actor runs on."""
    own = ray.get_runtime_context().get_node_id()
    return next(_name_of(node) for node in _nodes() if node["NodeID"] == own)


async def check_host(expected: str) -> None:
    """Raises ConfigError on another host: the data of this actor is not here."""
    found = await asyncio.get_running_loop().run_in_executor(None, own_host)
    if found != expected:
        raise ConfigError(f"runs on host {found!r}, and its data is on {expected!r}")


def _nodes() -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return nodes


def _name_of(node: Mapping[str, Any]) -> str:
    return str(node["Labels"].get(HOST_LABEL) or node["NodeManagerHostname"])
