"""(shell) Adds brokers to a running cluster and removes them; only one process at a time can do so.

A change survives a crash of the process that makes it: a new broker is written to cluster.json before it is started,
and a removed one stays there until only its directory is left. An interrupted change is complete or can be repeated.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from raylog.actors.cluster_actors import (
    EndedDuringStart,
    current_handles,
    merged_from_hosts,
    share_with_hosts,
    specs_of,
    supervise,
    wait_until_ready,
)
from raylog.actors.names import CHANGE_NAME, broker_name, is_broker, namespace_of
from raylog.actors.waiting import wait_until_done
from raylog.client.admin.admin_client import AdminClient, admin_client
from raylog.client.client_config import ClientConfig
from raylog.client.reassignments import broker_ids, check_holds_nothing
from raylog.core.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from raylog.actors.broker import BrokerStatus

log = logging.getLogger("raylog.actors.cluster")
STOP_SECONDS = 60.0
FENCED_SECONDS = 30.0


class KeptDirectory(NamedTuple):
    """The log directory of a removed broker."""

    host: str
    path: str


class _Change:
    """An actor used as a lock: its name is taken as long as the process that created it lives."""


@contextmanager
def changing(name: str) -> Iterator[None]:
    """Lock the cluster against other changes for the length of the block. Raises ConfigError if it is locked."""
    import ray

    change: Any = ray.remote(num_cpus=0)(_Change)
    try:
        taken = change.options(name=CHANGE_NAME, namespace=namespace_of(name)).remote()
    except ValueError:
        rule = "brokers of this cluster are being added, removed or restarted already"
        raise ConfigError(f"name={name!r}: {rule}") from None
    try:
        yield
    finally:
        ray.kill(taken)


def add_broker(name: str) -> BrokerStatus:
    """Add one broker, see `Cluster.add_brokers`. Call it within `changing`."""
    import ray

    from raylog.actors.placement import addresses_in_reach, alive_hosts, spread
    from raylog.actors.supervisor import make_actor

    specs, hosts = specs_of(name), alive_hosts()
    alike = next(spec for node, spec in specs.items() if is_broker(node))
    addresses = addresses_in_reach(hosts, {spec.host: spec.address for spec in specs.values()})
    if not addresses:
        raise ConfigError(f"name={name!r}: no host from which its brokers can be reached is alive")
    files = merged_from_hosts(alike.data_dir, name, hosts).with_brokers(1)
    alike.given.check_addresses(files.broker_ids)
    broker_id = files.broker_ids[-1]
    node = broker_name(broker_id)
    files = replace(files, hosts=spread([*files.hosts, node], list(addresses), files.hosts))
    host = files.hosts[node]
    spec = replace(alike, node_id=broker_id, host=host, address=addresses[host])
    share_with_hosts(files, hosts)
    handle = make_actor(node, spec, hosts[host])
    supervise(name, {**specs, node: spec}, hosts)
    try:
        added: BrokerStatus = wait_until_ready(name, {node: handle})[node]
    except EndedDuringStart:
        raise  # its process has ended after the start: Ray restarts it, and it may have replicas
    except Exception:
        share_with_hosts(files.without_broker(broker_id), hosts, host)
        supervise(name, specs, hosts)
        ray.kill(handle, no_restart=True)
        raise
    return added


def remove_broker(name: str, broker_id: int, others: ClientConfig) -> KeptDirectory:
    """See `Cluster.remove_broker`; `others` leads to the other brokers. Call it within `changing`."""
    import ray

    from raylog.actors.placement import alive_hosts

    node, specs, hosts = broker_name(broker_id), specs_of(name), alive_hosts()
    if node not in specs:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"cluster {name!r} has no broker {broker_id}")
    if not others.bootstrap_servers:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"broker {broker_id} is the last one running; stop the cluster instead"
        )
    spec, handle = specs[node], current_handles(name, [node])[node]
    with admin_client(others, client_id="raylog-remove") as client:
        check_holds_nothing(client, broker_id)
        try:
            if handle is not None:
                _stop(handle, broker_id)
            _wait_until_fenced(client, broker_id)
            check_holds_nothing(client, broker_id)  # a topic may have been created in the meantime
        except BaseException:
            if handle is not None:
                ray.kill(handle, no_restart=False)
            raise
        _unregister(client, broker_id)
    files = merged_from_hosts(spec.data_dir, name, hosts).without_broker(broker_id)
    share_with_hosts(files, hosts, spec.host)
    supervise(name, {other: each for other, each in specs.items() if other != node}, hosts)
    if handle is not None:
        ray.kill(handle, no_restart=True)
    return KeptDirectory(spec.host, str(Path(spec.data_dir) / node))


def _stop(handle: Any, broker_id: int) -> None:
    """Stop the broker; its actor remains. Raises KafkaError(REQUEST_TIMED_OUT)."""
    import ray

    try:
        ray.get(handle.stop.remote(), timeout=STOP_SECONDS)
    except ray.exceptions.RayError as error:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"broker {broker_id} did not stop in time: {error}") from error


def _wait_until_fenced(client: AdminClient, broker_id: int) -> None:
    """A fenced broker gets no replicas of new topics."""

    def alive() -> str:
        return "it is not fenced yet" if broker_id in broker_ids(client) else ""

    wait_until_done(alive, f"broker {broker_id} was stopped", time.monotonic() + FENCED_SECONDS)


def _unregister(client: AdminClient, broker_id: int) -> None:
    try:
        client.unregister_broker(broker_id)
    except KafkaError as error:
        if (
            error.code != ErrorCode.BROKER_ID_NOT_REGISTERED
        ):  # it has never registered, or an earlier removal was interrupted
            raise
