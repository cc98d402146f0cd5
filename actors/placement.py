"""Placement of a cluster's actors: spread over all hosts at first, later always on the host that has the actor's data.

A host is identified by a name that survives a restart of its Ray node: the label `raylog-host` of the node if it is
set, else the name of the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raylog.actors.given_config import LOOPBACK
from raylog.core.errors import ConfigError

HOST_LABEL = "raylog-host"
Answer = TypeVar("Answer")


class Host(NamedTuple):
    """A host and its current Ray node."""

    name: str
    node_id: str
    address: str


def alive_hosts() -> dict[str, Host]:
    """Live hosts by name, that of this process first. If a host has several Ray nodes, the first is used."""
    own = ray.get_runtime_context().get_node_id()
    nodes = sorted((node for node in _nodes() if node["Alive"]), key=lambda node: node["NodeID"] != own)
    hosts: dict[str, Host] = {}
    for node in nodes:
        name = _name_of(node)
        hosts.setdefault(name, Host(name, node["NodeID"], node["NodeManagerAddress"]))
    return hosts


def spread(nodes: Sequence[str], hosts: Sequence[str], known: Mapping[str, str]) -> dict[str, str]:
    """A host for each node: its known host, else a host with the fewest nodes of its kind.

    The kind is the part of the name before the number: brokers and controllers are spread separately.
    """
    placed = {node: known[node] for node in nodes if node in known}
    for node in nodes:
        if node not in placed:
            kind = node.rpartition("-")[0]
            alike = [host for other, host in placed.items() if other.rpartition("-")[0] == kind]
            placed[node] = min(hosts, key=alike.count)
    return placed


def reachable_addresses(hosts: Mapping[str, Host]) -> dict[str, str]:
    """The listening address for the nodes of each host: loopback, unless the hosts are different machines."""
    if len({host.address for host in hosts.values()}) == 1:
        return dict.fromkeys(hosts, LOOPBACK)
    return {name: host.address for name, host in hosts.items()}


def addresses_in_reach(hosts: Mapping[str, Host], listening: Mapping[str, str]) -> dict[str, str]:
    """The hosts for additional nodes and their listening addresses; `listening` are those of existing nodes, by host.

    Nodes that listen on the loopback address can be reached only from their own machine.
    """
    if any(address != LOOPBACK for address in listening.values()):
        return {name: host.address for name, host in hosts.items()}
    machines = {hosts[name].address for name in listening if name in hosts}
    return {name: LOOPBACK for name, host in hosts.items() if host.address in machines}


def placed_on(host: Host, *, soft: bool = False) -> Any:
    """The scheduling strategy of an actor or a task that uses the disk of its host.

    With `soft`, Ray may choose another host, and does so at random: its first choice is any node, which then prefers
    itself. Without it an actor ends for good when its Ray node does, and the supervisor creates it again when the host
    is alive.
    """
    return NodeAffinitySchedulingStrategy(host.node_id, soft=soft)


def on_hosts(hosts: Iterable[Host], do: Callable[..., Answer], *arguments: Any, **options: Any) -> list[Answer]:
    """Run `do` on each host in turn, since hosts may share a file system. Raises what `do` raises."""
    own, task = ray.get_runtime_context().get_node_id(), ray.remote(num_cpus=0)(do)
    answers: list[Any] = []
    try:
        for host in hosts:
            if host.node_id == own:
                answers.append(do(*arguments, **options))
            else:
                there = task.options(scheduling_strategy=placed_on(host))
                answers.append(ray.get(there.remote(*arguments, **options)))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    return answers


def own_host() -> str:
    """The name of the host on which this actor runs."""
    own = ray.get_runtime_context().get_node_id()
    return next(_name_of(node) for node in _nodes() if node["NodeID"] == own)


async def check_host(expected: str) -> None:
    """Raises ConfigError on any other host, which does not have the data of this actor."""
    found = await asyncio.get_running_loop().run_in_executor(None, own_host)
    if found != expected:
        raise ConfigError(f"runs on host {found!r}, but its data is on {expected!r}")


def _nodes() -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return nodes


def _name_of(node: Mapping[str, Any]) -> str:
    return str(node["Labels"].get(HOST_LABEL) or node["NodeManagerHostname"])
