"""(shell) Adds a broker to a running cluster, or takes one away; by one program at a time.

What is done survives the program that does it: a broker is in cluster.json before it is there, and one that goes is in
it until nothing is left of it but its directory. So a change that was cut off is there, or can be made again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from raylog.actors.cluster_actors import (
    current_handles,
    known_everywhere,
    make_supervisor,
    nodes_of,
    tell_everywhere,
    wait_until_ready,
)
from raylog.actors.names import CHANGE_NAME, SUPERVISOR_NAME, broker_name, is_broker, namespace_of
from raylog.actors.waiting import wait_until_not
from raylog.client import admin
from raylog.client.cluster_client import ClusterClient
from raylog.client.reassignments import check_holds_nothing
from raylog.core.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from raylog.actors.broker import BrokerStatus
    from raylog.actors.node_actor import NodeSpec
    from raylog.actors.placement import Host

log = logging.getLogger("raylog.actors.cluster")
STOP_SECONDS = 60.0
FENCED_SECONDS = 30.0


class KeptDirectory(NamedTuple):
    """What is left of a removed broker."""

    host: str
    path: str


class _Change:
    """An actor that does nothing: its name is taken while it lives, which is no longer than its maker does."""


@contextmanager
def changing(name: str) -> Iterator[None]:
    """Nobody else adds or removes brokers within the block. Raises ConfigError where somebody does."""
    import ray

    change: Any = ray.remote(num_cpus=0)(_Change)
    try:
        taken = change.options(name=CHANGE_NAME, namespace=namespace_of(name)).remote()
    except ValueError:
        raise ConfigError(f"name={name!r}: somebody else adds or removes brokers of this cluster") from None
    try:
        yield
    finally:
        ray.kill(taken)


def add_broker(name: str) -> BrokerStatus:
    """As `Cluster.add_brokers` does with each; within `changing`."""
    import ray

    from raylog.actors.placement import addresses_in_reach, alive_hosts, spread
    from raylog.actors.supervisor import make_actor

    specs, hosts = _specs_of(name), alive_hosts()
    alike = next(spec for node, spec in specs.items() if is_broker(node))
    alike.given.check_several()
    addresses = addresses_in_reach(hosts, {spec.host: spec.address for spec in specs.values()})
    if not addresses:
        raise ConfigError(f"name={name!r}: none of the hosts that its brokers can be reached from is there")
    files = known_everywhere(alike.data_dir, name, hosts).with_brokers(1)
    broker_id = files.brokers - 1
    node = broker_name(broker_id)
    files = replace(files, hosts=spread([*files.hosts, node], list(addresses), files.hosts))
    host = files.hosts[node]
    spec = replace(alike, node_id=broker_id, host=host, address=addresses[host])
    tell_everywhere(files, hosts)
    handle = make_actor(node, spec, hosts[host])
    _supervise(name, {**specs, node: spec}, hosts)
    try:
        added: BrokerStatus = wait_until_ready(name, {node: handle})[node]
    except ray.exceptions.RayActorError:
        raise  # it began, and its process ended: Ray starts it again, and it may hold something
    except Exception:
        tell_everywhere(files.without_broker(broker_id), hosts, host)
        _supervise(name, specs, hosts)
        ray.kill(handle, no_restart=True)
        raise
    return added


def remove_broker(name: str, broker_id: int, others: str) -> KeptDirectory:
    """As `Cluster.remove_broker`; `others` are the bootstrap servers without it. Within `changing`."""
    import ray

    from raylog.actors.placement import alive_hosts

    node, specs, hosts = broker_name(broker_id), _specs_of(name), alive_hosts()
    if node not in specs:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not one of cluster {name!r}")
    if not others:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {broker_id} is the last that serves; stop the cluster")
    spec, handle = specs[node], current_handles(name, [node])[node]
    with ClusterClient(others, client_id="raylog-remove") as client:
        check_holds_nothing(client, broker_id)
        try:
            if handle is not None:
                _stop(handle, broker_id)
            _wait_until_fenced(client, broker_id)
            check_holds_nothing(client, broker_id)  # a topic may have been created meanwhile
        except BaseException:
            if handle is not None:
                ray.kill(handle, no_restart=False)
            raise
        _unregister(client, broker_id)
    files = known_everywhere(spec.data_dir, name, hosts).without_broker(broker_id)
    tell_everywhere(files, hosts, spec.host)
    _supervise(name, {other: each for other, each in specs.items() if other != node}, hosts)
    if handle is not None:
        ray.kill(handle, no_restart=True)
    return KeptDirectory(spec.host, str(Path(spec.data_dir) / node))


def _stop(handle: Any, broker_id: int) -> None:
    """The actor lives on, and serves nothing. Raises KafkaError(REQUEST_TIMED_OUT)."""
    import ray

    try:
        ray.get(handle.stop.remote(), timeout=STOP_SECONDS)
    except ray.exceptions.RayError as error:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"broker {broker_id} does not stop: {error}") from error


def _wait_until_fenced(client: ClusterClient, broker_id: int) -> None:
    """From then on nothing new is given to it while others can have it."""

    def alive() -> str:
        return "it still passes for alive" if broker_id in admin.broker_ids(client) else ""

    wait_until_not(alive, f"broker {broker_id} was stopped", time.monotonic() + FENCED_SECONDS)


def _unregister(client: ClusterClient, broker_id: int) -> None:
    try:
        admin.unregister_broker(client, broker_id)
    except KafkaError as error:
        if error.code != ErrorCode.BROKER_ID_NOT_REGISTERED:  # it has never come so far, or a removal was cut off
            raise


def _specs_of(name: str) -> Mapping[str, NodeSpec]:
    """Of all nodes, also of those that are away with their hosts: there is a supervisor where that can be."""
    import ray

    handles = current_handles(name, [SUPERVISOR_NAME, *nodes_of(name)])
    supervisor = handles.pop(SUPERVISOR_NAME)
    if supervisor is not None:
        specs: Mapping[str, NodeSpec] = ray.get(supervisor.specs.remote())
        return specs
    return {node: ray.get(handle.spec.remote()) for node, handle in handles.items()}


def _supervise(name: str, specs: Mapping[str, NodeSpec], hosts: Mapping[str, Host]) -> None:
    """A supervisor that watches over these, in place of the one there is."""
    import ray

    supervisor = current_handles(name, [SUPERVISOR_NAME])[SUPERVISOR_NAME]
    if supervisor is not None:
        ray.kill(supervisor, no_restart=True)
    if len(hosts) > 1:
        make_supervisor(name, specs, next(iter(hosts.values())))
