"""Finds a cluster by its name in Ray, for clients with bootstrap.servers=ray://<cluster>."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from raylog.actors.cluster_actors import current_handles, errors_of_ended_actor, nodes_of
from raylog.actors.handle_door import HandleDoor
from raylog.actors.names import NAMESPACE_PREFIX, check_name, is_broker
from raylog.client.bootstrap import Bootstrap
from raylog.core.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from raylog.actors.broker import BrokerStatus

FIRST_SECONDS = 30.0
"""A broker that Ray has just restarted is running after a second or two."""
OTHERS_SECONDS = 1.0
"""How long to wait for the addresses of further brokers, which clients learn anyway."""
RETRY_SECONDS = 0.1


def find_cluster(name: str) -> Bootstrap:
    """The running brokers of a cluster in the Ray to which this process is connected.

    Raises ConfigError if there is no such cluster, or no Ray; KafkaError if none of its brokers responds.
    """
    check_name(name)
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"Ray is not installed in this environment: {error}") from error
    if not ray.is_initialized():
        raise ConfigError(
            f"this process is not connected to Ray: call ray.init(address=...) or raylog.connect({name!r}) first, or"
            " give the addresses of brokers"
        )
    handles = current_handles(name, [node for node in nodes_of(name) if is_broker(node)])
    if not handles:
        running = ", ".join(running_clusters()) or "none"
        raise ConfigError(f"no cluster with this name is running in this Ray; running clusters: {running}")
    brokers = ready_brokers([handle for handle in handles.values() if handle is not None])
    if not brokers:
        text = f"ray://{name}: no broker of {len(handles)} is running"
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text)
    return Bootstrap(servers_of(brokers), HandleDoor(name, {(each.host, each.port): each.id for each in brokers}))


def running_clusters() -> list[str]:
    """The names of the clusters in the Ray to which this process is connected."""
    import ray

    named = ray.util.list_named_actors(all_namespaces=True)
    spaces = {entry["namespace"] for entry in named if is_broker(entry["name"])}
    return sorted(each.removeprefix(NAMESPACE_PREFIX) for each in spaces if each.startswith(NAMESPACE_PREFIX))


def servers_of(brokers: Sequence[BrokerStatus]) -> str:
    """The addresses of the brokers that are running."""
    hosts = [(f"[{each.host}]" if ":" in each.host else each.host, each.port) for each in brokers if each.port]
    return ",".join(f"{host}:{port}" for host, port in hosts)


def ready_brokers(
    handles: Iterable[Any], *, first_seconds: float = FIRST_SECONDS, others_seconds: float = OTHERS_SECONDS
) -> list[BrokerStatus]:
    """Those that run, in the order of the handles: the first within so many seconds, further ones soon after it.

    One that is being restarted, hangs, or cannot start does not keep the others waiting.
    """
    import ray

    brokers = list(handles)
    asked = {broker.ready.remote(): number for number, broker in enumerate(brokers)}
    found: dict[int, BrokerStatus] = {}
    deadline = time.monotonic() + first_seconds
    while asked and (seconds := deadline - time.monotonic()) > 0:
        answered, _ = ray.wait(list(asked), num_returns=1, timeout=seconds)
        for each in answered:
            number = asked.pop(each)
            try:
                # not by ray.get, which warns about the loop of an asynchronous actor
                status: BrokerStatus = each.future().result(first_seconds)
            except errors_of_ended_actor():
                time.sleep(RETRY_SECONDS)
                asked[brokers[number].ready.remote()] = number
            except (KafkaError, ray.exceptions.RayError):
                continue
            else:
                deadline = deadline if found else time.monotonic() + others_seconds
                found[number] = status
    return [found[number] for number in sorted(found) if found[number].port]
