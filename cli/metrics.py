"""`raylog metrics`: where each node of a cluster shows its metrics.

With --json the targets as Prometheus reads them by `file_sd_configs`, and as an endpoint for `http_sd_configs` answers:

    [{"targets": ["127.0.0.1:9404"], "labels": {"cluster": "raylog", "node": "broker-0"}},
     {"targets": ["127.0.0.1:9416"], "labels": {"cluster": "raylog", "node": "controller-0"}}]

Nodes that are not running are left out: list them in a file that is written again when nodes are added. An error if no
node shows metrics.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from raylog.actors.cluster import ClusterStatus, cluster_status
from raylog.cli.arguments import Subparsers, add_cluster
from raylog.cli.columns import columns
from raylog.config.metrics import RAYLOG_METRICS_ADDRESS
from raylog.core.errors import ConfigError


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("metrics", help="print where the nodes of a cluster show their metrics")
    add_cluster(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON array: targets for Prometheus")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    found = targets(options.name, cluster_status(options.name, address=options.address))
    rows = [[each["labels"]["node"], f"http://{each['targets'][0]}/metrics"] for each in found]
    print(json.dumps(found) if options.json else columns(["NODE", "METRICS"], rows))


def targets(name: str, cluster: ClusterStatus) -> list[dict[str, Any]]:
    """One entry for each node. Raises ConfigError if there is none."""
    nodes = [
        *((f"broker-{broker.id}", broker.metrics) for broker in cluster.brokers),
        *((f"coordinator-{each.id}", each.metrics) for each in cluster.coordinators),
        *((f"controller-{controller.id}", controller.metrics) for controller in cluster.controllers),
    ]
    found = [{"targets": [address], "labels": {"cluster": name, "node": node}} for node, address in nodes if address]
    if not found:
        raise ConfigError(f"no node of {name} shows metrics: set {RAYLOG_METRICS_ADDRESS.name} when the cluster starts")
    return found
