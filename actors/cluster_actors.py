"""(shell) All actors of one cluster at once: made on their hosts, and looked up; and their temporary data removed."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from raylog.actors.data_dir import ClusterFiles, share_data_dir
from raylog.actors.names import SUPERVISOR_NAME, broker_name, controller_name, is_broker, namespace_of, number_of
from raylog.controller.voters import FIRST_VOTER_ID
from raylog.core.errors import ConfigError

log = logging.getLogger("raylog.actors.cluster")
REMOVE_SECONDS = 30.0


def make_actors(files: ClusterFiles, texts_of: Callable[[int, str], dict[str, Any]]) -> dict[str, Any]:
    """The handles, by name: all those whose hosts are there, and a supervisor where there are several hosts.

    `texts_of` gives the configuration of a broker (of broker 0 for controllers) at an address. Raises ConfigError where
    a cluster of this name runs, or one of the hosts holds another one's data.
    """
    import ray

    from raylog.actors.node_actor import NodeSpec
    from raylog.actors.placement import LOOPBACK, alive_hosts, placed_on, reachable_addresses, spread
    from raylog.actors.supervisor import Supervisor, make_actor

    hosts = alive_hosts()
    own, addresses = next(iter(hosts)), reachable_addresses(hosts)
    nodes = [*map(controller_name, range(files.controllers)), *map(broker_name, range(files.brokers))]
    known = {node: own if _is_here(files, node, host, hosts) else host for node, host in files.hosts.items()}
    files = replace(files, hosts=spread(nodes, list(hosts), known))
    share = ray.remote(num_cpus=0)(share_data_dir)
    for host in sorted({*files.hosts.values()} & hosts.keys() - {own}):
        ray.get(share.options(scheduling_strategy=placed_on(hosts[host])).remote(files))
    share_data_dir(files)
    specs = {}
    for node, host in files.hosts.items():
        address = addresses.get(host, LOOPBACK)
        number = number_of(node)
        node_id = number if is_broker(node) else FIRST_VOTER_ID + number
        texts = texts_of(number if is_broker(node) else 0, address)
        specs[node] = NodeSpec(files.name, node_id, str(files.path), host, address, texts)
    handles: dict[str, Any] = {}
    try:
        for node, spec in specs.items():
            if spec.host in hosts:
                handles[node] = make_actor(node, spec, hosts[spec.host])
            else:
                log.warning("the host of an actor is not there", extra={"node": node, "host": spec.host})
        if len(hosts) > 1:
            options = {"namespace": namespace_of(files.name), "lifetime": "detached"}
            supervisor: Any = Supervisor
            placed = supervisor.options(name=SUPERVISOR_NAME, scheduling_strategy=placed_on(hosts[own]), **options)
            handles[SUPERVISOR_NAME] = placed.remote(specs)
    except BaseException as error:
        for handle in handles.values():
            ray.kill(handle, no_restart=True)
        if isinstance(error, ValueError):
            message = f"name={files.name!r}: a cluster of this name runs already; use raylog.connect"
            raise ConfigError(message) from error
        raise
    return handles


def current_handles(name: str, nodes: Sequence[str]) -> dict[str, Any]:
    """Of the actors of these names as they are now; None for those that are not there."""
    import ray

    handles: dict[str, Any] = dict.fromkeys(nodes)
    for node in nodes:
        with suppress(ValueError):
            handles[node] = ray.get_actor(node, namespace=namespace_of(name))
    return handles


def remove_everywhere(path: str) -> None:
    """The directory, on every host of the Ray."""
    import ray

    from raylog.actors.placement import alive_hosts, placed_on

    remove: Any = ray.remote(num_cpus=0)(shutil.rmtree)
    for host in list(alive_hosts().values())[1:]:
        try:
            removed = remove.options(scheduling_strategy=placed_on(host)).remote(path, ignore_errors=True)
            ray.get(removed, timeout=REMOVE_SECONDS)
        except ray.exceptions.RayError as error:
            log.warning("temporary data stays", extra={"host": host.name, "path": path, "reason": str(error)})
    shutil.rmtree(path, ignore_errors=True)


def _is_here(files: ClusterFiles, node: str, host: str, hosts: Mapping[str, Any]) -> bool:
    """Whether a host that is not there any more is this one, under the name it had before."""
    return host not in hosts and (files.path / node).is_dir()
