"""`raylog api-versions`: print the requests and versions that each broker serves (kafka-broker-api-versions).

`usable` is the highest version that raylog's own client has in common with the broker. With --json an array:

    [{"id": 0, "host": "127.0.0.1", "port": 9092, "rack": null,
      "apis": [{"api": "Produce", "key": 0, "min_version": 0, "max_version": 13, "usable": 13}]}]

An api that this version does not know is null, as is a version that is not usable.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from raylog.cli.arguments import Subparsers, add_bootstrap_server, open_client
from raylog.cli.output import add_json, show
from raylog.client.admin.cluster import ApiVersionRange, ClusterNode
from raylog.protocol.registry import APIS, KAFKA_APIS

OURS: Final = {spec.key: spec for spec in APIS}


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("api-versions", help="print the requests and versions that each broker serves")
    add_json(parser)
    add_bootstrap_server(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        nodes = client.describe_cluster().nodes
        served = client.describe_api_versions(node.node_id for node in nodes)
    found = [
        {
            "id": node.node_id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "apis": [_entry(each) for each in served[node.node_id]],
        }
        for node in nodes
    ]
    show(options, found, "\n".join(_text(node, each["apis"]) for node, each in zip(nodes, found, strict=True)))


def _entry(served: ApiVersionRange) -> dict[str, Any]:
    ours = OURS.get(served.api_key)
    usable = None
    if ours is not None and max(ours.lowest, served.min_version) <= min(ours.highest, served.max_version):
        usable = min(ours.highest, served.max_version)
    return {
        "api": KAFKA_APIS.get(served.api_key),
        "key": served.api_key,
        "min_version": served.min_version,
        "max_version": served.max_version,
        "usable": usable,
    }


def _text(node: ClusterNode, apis: Any) -> str:
    head = f"{node.host}:{node.port} (id: {node.node_id} rack: {node.rack or 'null'} isFenced: false) -> ("
    return "\n".join([head, ",\n".join(map(_line, apis)), ")"])


def _line(api: Mapping[str, Any]) -> str:
    name, lowest, highest = api["api"] or "UNKNOWN", api["min_version"], api["max_version"]
    versions = f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
    usable = "unusable" if api["usable"] is None else f"usable: {api['usable']}"
    return f"\t{name}({api['key']}): {versions} [{usable}]"
