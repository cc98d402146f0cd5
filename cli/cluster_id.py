"""`raylog cluster-id`: print the id of a cluster (kafka-cluster cluster-id). With --json {"cluster_id": "..."}."""

from __future__ import annotations

import argparse

from raylog.cli.arguments import Subparsers, add_bootstrap_server, open_client
from raylog.cli.output import add_json, show


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("cluster-id", help="print the id of a cluster")
    add_json(parser)
    add_bootstrap_server(parser, or_controller=True)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        cluster_id = client.describe_cluster().cluster_id
    show(options, {"cluster_id": cluster_id}, f"Cluster ID: {cluster_id}")
