"""`raylog metrics`: where each node of a cluster shows its metrics, and one endpoint for those of all nodes.

With --json the targets as Prometheus reads them by `file_sd_configs`, and as an endpoint for `http_sd_configs` answers:

    [{"targets": ["127.0.0.1:9404"], "labels": {"cluster": "raylog", "node": "broker-0"}},
     {"targets": ["127.0.0.1:9416"], "labels": {"cluster": "raylog", "node": "controller-1000"}}]

A node is named by its id, as in `raylog status`; `raylog logs` calls controller 1000 controller-0.

Nodes that are not running are left out: list them in a file that is written again when nodes are added. An error if no
node shows metrics.

With --serve it prints `raylog metrics are ready: http://127.0.0.1:9400/metrics` and serves until SIGINT or SIGTERM: the
metrics of all nodes at /metrics, with the label `node`, and the targets at /targets. With --target it serves those of
the given nodes, and needs no Ray. --otlp and --to-ray push them, with or without --serve.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import uvloop

from raylog.actors.cluster import ClusterStatus, cluster_status
from raylog.actors.ray_metrics import RayMetrics
from raylog.cli.arguments import Subparsers, add_cluster, key_and_value, whole_number
from raylog.cli.columns import columns
from raylog.cli.metrics_push import HEADERS_VARIABLE, otlp_target, push, send_otlp
from raylog.cli.usage import UsageError
from raylog.config.metrics import RAYLOG_METRICS_ADDRESS, MetricsAddress, metrics_address
from raylog.core.errors import ConfigError, KafkaError
from raylog.core.logs import log_to_stderr
from raylog.transport.cluster_metrics import ANSWER_SECONDS_MAX, ClusterMetrics
from raylog.transport.endpoints import Endpoint
from raylog.transport.metrics_endpoint import MetricsEndpoint

log = logging.getLogger("raylog.cli")
PUSH_SECONDS: Final = 30
LOOK_SECONDS: Final = 15.0
"""How often Ray is asked which nodes there are."""


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "metrics", help="print where the nodes of a cluster show their metrics, or serve those of all nodes"
    )
    add_cluster(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON array: targets for Prometheus")
    parser.add_argument(
        "--serve",
        type=_address,
        metavar="HOST:PORT",
        help="serve the metrics of all nodes at /metrics there, and the targets at /targets, until interrupted",
    )
    parser.add_argument(
        "--target",
        type=_target,
        action="append",
        metavar="NODE=HOST:PORT",
        help="a node and the address of its metrics, instead of those that Ray runs; repeatable",
    )
    parser.add_argument(
        "--otlp",
        metavar="URL",
        help="push them to a receiver of OpenTelemetry (OTLP over HTTP), such as http://127.0.0.1:4318/v1/metrics,"
        f" until interrupted; {HEADERS_VARIABLE} has headers, as for a token",
    )
    parser.add_argument(
        "--to-ray", action="store_true", help="show those of the nodes among Ray's own metrics, until interrupted"
    )
    parser.add_argument(
        "--push-seconds",
        type=whole_number(1),
        default=PUSH_SECONDS,
        metavar="S",
        help=f"how often to push (default: {PUSH_SECONDS})",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    if options.serve is not None or options.otlp is not None or options.to_ray:
        log_to_stderr()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run_on(options))
        return
    if options.target:
        raise UsageError("--target: needs --serve, --otlp or --to-ray")
    found = targets(options.name, endpoints(cluster_status(options.name, address=options.address)))
    rows = [[each["labels"]["node"], f"http://{each['targets'][0]}/metrics"] for each in found]
    print(json.dumps(found) if options.json else columns(["NODE", "METRICS"], rows))


def endpoints(cluster: ClusterStatus) -> dict[str, Endpoint | None]:
    """Where each node shows its metrics; None for one that is not running."""
    nodes = [
        *((f"broker-{broker.id}", broker.metrics) for broker in cluster.brokers),
        *((f"coordinator-{each.id}", each.metrics) for each in cluster.coordinators),
        *((f"controller-{controller.id}", controller.metrics) for controller in cluster.controllers),
    ]
    return {node: _endpoint(address) if address else None for node, address in nodes}


def targets(name: str, nodes: Mapping[str, Endpoint | None]) -> list[dict[str, Any]]:
    """One entry for each node. Raises ConfigError if there is none."""
    found = _entries(name, nodes)
    if not found:
        raise ConfigError(f"no node of {name} shows metrics: set {RAYLOG_METRICS_ADDRESS.name} when the cluster starts")
    return found


def _entries(name: str, nodes: Mapping[str, Endpoint | None]) -> list[dict[str, Any]]:
    return [
        {"targets": [str(endpoint)], "labels": {"cluster": name, "node": node}}
        for node, endpoint in nodes.items()
        if endpoint is not None
    ]


async def _run_on(options: argparse.Namespace) -> None:
    """Until SIGINT or SIGTERM. Raises ConfigError and UsageError."""
    if options.target and options.to_ray:
        raise UsageError("--target: --to-ray shows the nodes that Ray runs")
    pushes = _pushes(options)
    nodes = dict(options.target or ()) or await _look(options)
    metrics = ClusterMetrics()
    metrics.use(nodes)
    endpoint = None if options.serve is None else await _endpoint_of(metrics, options)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    pushing = [asyncio.create_task(push(metrics, options.push_seconds, what, send)) for what, send in pushes.items()]
    print(f"raylog metrics are ready: {_shown_at(endpoint) or ', '.join(pushes)}", flush=True)
    try:
        while not ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await ended.wait()
            if not options.target and not ended.is_set():
                await _look_again(options, metrics)
    finally:
        for task in pushing:
            task.cancel()
        if endpoint is not None:
            endpoint.close()
        metrics.close()


async def _endpoint_of(metrics: ClusterMetrics, options: argparse.Namespace) -> MetricsEndpoint:
    """One that is open. Raises ConfigError."""
    endpoint = MetricsEndpoint(
        metrics.pieces,
        lambda: True,
        metrics.prepare,
        prepare_seconds_max=ANSWER_SECONDS_MAX,
        targets=lambda: json.dumps(_entries(options.name, metrics.endpoints)),
    )
    await endpoint.open(options.serve, 0)
    if endpoint.bound is None:
        raise ConfigError(f"--serve {options.serve.host}:{options.serve.first_port}: cannot be used")
    return endpoint


def _shown_at(endpoint: MetricsEndpoint | None) -> str:
    return "" if endpoint is None else f"http://{endpoint.bound}/metrics"


def _pushes(options: argparse.Namespace) -> dict[str, Callable[[Mapping[str, str]], None]]:
    """What is pushed, by the name of its target. Raises ConfigError."""
    found: dict[str, Callable[[Mapping[str, str]], None]] = {}
    if options.otlp is not None:
        target = otlp_target(options.otlp, os.environ.get(HEADERS_VARIABLE, ""))
        found[target.url] = partial(send_otlp, target, options.name)
    if options.to_ray:
        found["Ray"] = RayMetrics(options.name).show
    return found


async def _look(options: argparse.Namespace) -> dict[str, Endpoint | None]:
    """What Ray runs. Raises ConfigError if no node shows metrics."""
    status = await asyncio.to_thread(cluster_status, options.name, address=options.address)
    found = endpoints(status)
    targets(options.name, found)
    return found


async def _look_again(options: argparse.Namespace, metrics: ClusterMetrics) -> None:
    try:
        metrics.use(await _look(options))
    except KafkaError as error:  # as while the cluster is being restarted: the nodes are shown as down
        log.warning("nodes not found", extra={"cluster": options.name, "reason": error.message})


def _address(text: str) -> MetricsAddress:
    """For argparse: `host:port`."""
    try:
        found = metrics_address(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(error.message) from None
    if found is None or found.last_port != found.first_port:
        raise argparse.ArgumentTypeError(f"{text!r}: must be host:port")
    return found


def _target(text: str) -> tuple[str, Endpoint]:
    """For argparse: `node=host:port`."""
    node, address = key_and_value(text)
    found = _address(address)
    if not found.host or not found.first_port:
        raise argparse.ArgumentTypeError(f"{text!r}: must be node=host:port")
    return node, Endpoint(found.host, found.first_port)


def _endpoint(address: str) -> Endpoint:
    host, _, port = address.rpartition(":")
    return Endpoint(host.strip("[]"), int(port))
