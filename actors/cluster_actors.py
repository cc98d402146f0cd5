"""(shell) The actors of a cluster: create them on their hosts, find them, and delete their temporary data."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from raylog.actors.data_dir import ClusterFiles, check_same_cluster, delete_data_dir, find_data_dir, share_data_dir
from raylog.actors.given_config import LOOPBACK, GivenConfig
from raylog.actors.names import (
    CHANGE_NAME,
    GATEWAY_NAME,
    STOPPED,
    SUPERVISOR_NAME,
    by_number,
    controller_name,
    is_broker,
    is_coordinator,
    is_node,
    namespace_of,
    node_id_of,
    node_name,
)
from raylog.actors.waiting import wait_until_done
from raylog.core.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from raylog.actors.node_actor import NodeSpec
    from raylog.actors.placement import Host

log = logging.getLogger("raylog.actors.cluster")
RECREATED_SECONDS = 60.0
RECREATED_POLL_SECONDS = 0.1
READY_POLL_SECONDS = 0.1
"""An interrupted start ends within this time."""
REMAINS_SECONDS = 5.0
"""How long another program may take from its first actor to its first broker, and from its last broker to the end."""
SUPERVISOR_SECONDS = 5.0
"""An actor that does not respond within this time is restarting; its answer is then left out."""


def make_actors(files: ClusterFiles, given: GivenConfig) -> tuple[dict[str, Any], dict[str, NodeSpec]]:
    """Create the brokers and controllers whose hosts are alive, and a supervisor if there are several hosts.

    Returns handles by name, and the specs of all nodes: coordinators are for the caller to create. Raises ConfigError
    if a cluster of this name is running, or a host has the data of another cluster.
    """
    import ray

    from raylog.actors.node_actor import NodeSpec
    from raylog.actors.placement import alive_hosts, reachable_addresses, spread
    from raylog.actors.supervisor import make_actor

    hosts = alive_hosts()
    own, addresses = next(iter(hosts)), reachable_addresses(hosts)
    wanted, files = files, merged_from_hosts(str(files.path), files.name, hosts)
    files = replace(
        files,
        secure=wanted.secure,
        authority_host=wanted.authority_host,
        group_coordinators=wanted.group_coordinators,
        transaction_coordinators=wanted.transaction_coordinators,
    )
    given.check_ids(files.broker_ids)
    given.check_addresses(files.broker_ids)
    given.check_controller_addresses(len(files.controller_numbers))
    nodes = [
        *map(controller_name, files.controller_numbers),
        *map(node_name, (*files.broker_ids, *files.coordinator_ids)),
    ]
    retiring = [node for node in files.hosts if is_coordinator(node) and node not in nodes]
    known = {node: own if _is_placed(files, node, host, hosts) else host for node, host in files.hosts.items()}
    given, passwords = given.without_passwords()
    files = replace(files, hosts=spread([*nodes, *retiring], list(hosts), known), passwords=passwords)
    share_with_hosts(files, hosts, own, replace_passwords=True)
    specs = {}
    for node, host in files.hosts.items():
        address = addresses.get(host, LOOPBACK)
        specs[node] = NodeSpec(files.name, node_id_of(node), str(files.path), host, address, given)
    handles: dict[str, Any] = {}
    try:
        for node, spec in specs.items():
            if is_coordinator(node):
                continue
            if spec.host in hosts:
                handles[node] = make_actor(node, spec, hosts[spec.host])
            else:
                log.warning("actor host unavailable", extra={"node": node, "host": spec.host})
        if len(hosts) > 1:
            supervised = {node: specs[node] for node in nodes}
            handles[SUPERVISOR_NAME] = make_supervisor(files.name, supervised, hosts[own])
    except BaseException as error:
        for handle in handles.values():
            ray.kill(handle, no_restart=True)
        if isinstance(error, ValueError):
            raise already_running(files.name) from error
        raise
    return handles, specs


def already_running(name: str) -> ConfigError:
    return ConfigError(f"name={name!r}: a cluster with this name is already running; use raylog.connect")


def discard_remains(name: str) -> None:
    """Kill the actors that a start or a stop has left behind, if its program was killed in the middle of it.

    Raises ConfigError if the cluster is running. Another program may be starting or stopping it: that is waited for.
    """
    import ray

    deadline, killed = time.monotonic() + REMAINS_SECONDS, False
    while nodes := nodes_of(name):
        if not _are_remains(name, nodes) or time.monotonic() > deadline + REMAINS_SECONDS:
            raise already_running(name)
        if time.monotonic() > deadline and not killed:
            log.warning("killing what is left of the cluster", extra={"cluster": name, "nodes": ", ".join(nodes)})
            for handle in current_handles(name, [GATEWAY_NAME, *nodes]).values():
                if handle is not None:
                    ray.kill(handle, no_restart=True)
            killed = True
        time.sleep(READY_POLL_SECONDS)


def _are_remains(name: str, nodes: Sequence[str]) -> bool:
    """Whether all brokers among the nodes were stopped for good. The supervisor is started last, and stopped first."""
    import ray

    handles = current_handles(name, [SUPERVISOR_NAME, CHANGE_NAME, *filter(is_broker, nodes)])
    if handles.pop(SUPERVISOR_NAME) is not None or handles.pop(CHANGE_NAME) is not None:
        return False
    asked = [handle.status.remote() for handle in handles.values() if handle is not None]
    answered, silent = ray.wait(asked, num_returns=len(asked), timeout=SUPERVISOR_SECONDS) if asked else ([], [])
    try:
        return not silent and all(status.state == STOPPED for status in ray.get(answered))
    except ray.exceptions.RayError:  # it ends, or Ray restarts it
        return False


def make_supervisor(name: str, specs: Mapping[str, NodeSpec], host: Host) -> Any:
    """Create the supervisor. Raises ValueError if it exists."""
    from raylog.actors.placement import placed_on
    from raylog.actors.supervisor import Supervisor

    supervisor: Any = Supervisor
    options = {"name": SUPERVISOR_NAME, "namespace": namespace_of(name), "lifetime": "detached"}
    return supervisor.options(scheduling_strategy=placed_on(host, soft=True), **options).remote(specs)


def specs_of(name: str) -> Mapping[str, NodeSpec]:
    """The specs of all nodes, including those of lost hosts, which the supervisor of a cluster on several hosts has."""
    import ray

    handles = current_handles(name, [SUPERVISOR_NAME, *nodes_of(name)])
    supervisor = handles.pop(SUPERVISOR_NAME)
    if supervisor is not None:
        specs: Mapping[str, NodeSpec] = ray.get(supervisor.specs.remote())
        return specs
    return {node: _spec_of(node, handle) for node, handle in handles.items()}


def _spec_of(node: str, handle: Any) -> NodeSpec:
    """Waits for an actor that Ray is restarting, since its node may have to be removed. Raises KafkaError."""
    import ray

    found: list[NodeSpec] = []

    def not_found() -> str:
        with suppress(ray.exceptions.ActorUnavailableError):
            found.append(ray.get(handle.spec.remote()))
        return "" if found else "its process is not running"

    wait_until_done(not_found, f"{node} is part of the cluster", time.monotonic() + RECREATED_SECONDS)
    return found[0]


def supervise(name: str, specs: Mapping[str, NodeSpec], hosts: Mapping[str, Host]) -> None:
    """Replace the supervisor by one for these nodes."""
    import ray

    supervisor = current_handles(name, [SUPERVISOR_NAME])[SUPERVISOR_NAME]
    if supervisor is not None:
        ray.kill(supervisor, no_restart=True)
    if len(hosts) > 1:
        make_supervisor(name, specs, next(iter(hosts.values())))


def merged_from_hosts(path: str, name: str, hosts: Mapping[str, Host]) -> ClusterFiles:
    """The merged identity files of all hosts that are alive. Raises ConfigError if one has another cluster's data."""
    from raylog.actors.placement import on_hosts

    found = [files for files in on_hosts(hosts.values(), find_data_dir, path, name=name) if files is not None]
    if not found:
        raise ConfigError(f"data_dir={path!r}: no host that is alive has it")
    for files in found[1:]:
        check_same_cluster(found[0], files)
    return reduce(ClusterFiles.merged, found)


def share_with_hosts(
    files: ClusterFiles, hosts: Mapping[str, Host], *others: str, replace_passwords: bool = False
) -> None:
    """Write `files` to every live host with a node of the cluster, and to `others`. Raises ConfigError."""
    from raylog.actors.placement import on_hosts

    hosts_to_update = {*files.hosts.values(), *others}
    to_update = [host for name, host in hosts.items() if name in hosts_to_update]
    on_hosts(to_update, share_data_dir, files, replace_passwords=replace_passwords)


class EndedDuringStart(KafkaError):
    """The process of an actor has ended before it was ready. Ray restarts it unless the actor is killed."""

    def __init__(self, node: str, reason: object) -> None:
        first_line = next(iter(str(reason).splitlines()), "")
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, f"the process of {node} has ended: {first_line}")


def wait_until_ready(
    name: str, handles: Mapping[str, Any], check_interruption: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """The status of each actor, in the order of the handles.

    Raises the error of the first actor that fails, for which the others may wait without end, EndedDuringStart, and
    what `check_interruption` raises.
    If the Ray node of an actor ends meanwhile, the supervisor creates the actor again.
    """
    import ray

    asked = {handle.ready.remote(): node for node, handle in handles.items()}
    deadline = time.monotonic() + RECREATED_SECONDS
    ready: dict[str, Any] = {}
    while asked:
        check_interruption()
        finished, _ = ray.wait(list(asked), num_returns=1, timeout=READY_POLL_SECONDS)
        if not finished:
            continue
        [done] = finished
        node = asked.pop(done)
        try:
            ready[node] = ray.get(done)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except errors_of_ended_actor() as error:
            handle = _recreated(name, node, deadline)
            if handle is None:
                raise EndedDuringStart(node, error) from error
            asked[handle.ready.remote()] = node
    return {node: ready[node] for node in handles}


def _recreated(name: str, node: str, deadline: float) -> Any | None:
    """The handle of the actor that the supervisor creates in place of one that ended; None after the deadline."""
    while time.monotonic() < deadline and current_handles(name, [SUPERVISOR_NAME])[SUPERVISOR_NAME] is not None:
        time.sleep(RECREATED_POLL_SECONDS)
        handle = current_handles(name, [node])[node]
        if handle is not None:
            return handle
    return None


def nodes_of(name: str) -> list[str]:
    """The names of all nodes, including those of lost hosts; empty if there is no cluster."""
    import ray

    namespace = namespace_of(name)
    named = {
        entry["name"] for entry in ray.util.list_named_actors(all_namespaces=True) if entry["namespace"] == namespace
    }
    supervisor = current_handles(name, [SUPERVISOR_NAME])[SUPERVISOR_NAME] if SUPERVISOR_NAME in named else None
    if supervisor is not None:
        with suppress(ray.exceptions.RayError):
            named.update(ray.get(supervisor.specs.remote(), timeout=SUPERVISOR_SECONDS))
    return sorted(filter(is_node, named), key=by_number)


def errors_of_ended_actor() -> tuple[type[Exception], ...]:
    """What calls of an actor raise that has ended, is being restarted, or whose Ray node is lost."""
    import ray

    return ray.exceptions.RayActorError, ray.exceptions.ActorUnschedulableError


def current_handles(name: str, nodes: Sequence[str]) -> dict[str, Any]:
    """The current handles of the actors with these names; None for actors that do not exist."""
    import ray

    handles: dict[str, Any] = dict.fromkeys(nodes)
    for node in nodes:
        with suppress(ValueError):
            handles[node] = ray.get_actor(node, namespace=namespace_of(name))
    return handles


def remove_on_all_hosts(path: str) -> None:
    """Delete the directory on every host of the Ray cluster."""
    import ray

    from raylog.actors.placement import alive_hosts, on_hosts

    for host in alive_hosts().values():
        try:
            on_hosts([host], delete_data_dir, path)
        except ray.exceptions.RayError as error:
            log.warning("temporary data not deleted", extra={"host": host.name, "path": path, "reason": str(error)})


def _is_placed(files: ClusterFiles, node: str, host: str, hosts: Mapping[str, Any]) -> bool:
    """Whether a host that no longer exists is this one under its former name."""
    return host not in hosts and (files.path / node).is_dir()
