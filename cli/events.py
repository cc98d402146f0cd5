"""`raylog events`: print the recent events of each broker and controller, for analysing a failure.

With --json one object: {"broker-0": [{"time_ms": 1700000000250, "event": "partition led", "fields": {"tp": "t-0"}}]}
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence

from raylog.actors.cluster import cluster_events
from raylog.cli.arguments import Subparsers, add_cluster
from raylog.core.journal import JournalEvent


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("events", help="show the recent events of brokers and controllers")
    add_cluster(parser)
    parser.add_argument("--node", metavar="NODE", help="only this one: broker-0, controller-0, ...")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    events = cluster_events(options.name, node=options.node, address=options.address)
    print(as_json(events) if options.json else as_text(events))


def as_json(events: Mapping[str, Sequence[JournalEvent]]) -> str:
    return json.dumps(
        {
            node: [{"time_ms": each.wall_ms, "event": each.event, "fields": each.fields} for each in noted]
            for node, noted in events.items()
        }
    )


def as_text(events: Mapping[str, Sequence[JournalEvent]]) -> str:
    return "\n\n".join("\n".join([f"{node}:", *(f"  {each}" for each in noted)]) for node, noted in events.items())
