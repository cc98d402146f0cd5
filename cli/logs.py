"""`raylog logs`: print the last lines of each node's log, wherever its host is, and the file that Ray keeps it in.

With --json one object: {"broker-0": {"path": "/tmp/ray/.../worker-1-2-3.err", "lines": ["... INFO raylog.broker ..."]}}
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from raylog.actors.cluster import cluster_logs
from raylog.actors.log_file import LogTail
from raylog.cli.arguments import Subparsers, add_cluster, whole_number

DEFAULT_LINES = 20


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("logs", help="show the last lines of the logs of brokers and controllers")
    add_cluster(parser)
    parser.add_argument("--node", metavar="NODE", help="only this one: broker-0, controller-0, ...")
    parser.add_argument(
        "--lines", type=whole_number(1), default=DEFAULT_LINES, metavar="N", help=f"of each (default: {DEFAULT_LINES})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    tails = cluster_logs(options.name, lines=options.lines, node=options.node, address=options.address)
    print(as_json(tails) if options.json else as_text(tails))


def as_json(tails: Mapping[str, LogTail]) -> str:
    return json.dumps({node: tail._asdict() for node, tail in tails.items()})


def as_text(tails: Mapping[str, LogTail]) -> str:
    """Terminals must not obey what a line contains; `raylog` logs no such characters, but Ray and libraries might."""
    return "\n\n".join(
        "\n".join([f"{node}: {tail.path or 'its log does not go to a file'}", *map(_printable, tail.lines)])
        for node, tail in tails.items()
    )


def _printable(line: str) -> str:
    return "".join(each if each.isprintable() or each == "\t" else "\N{REPLACEMENT CHARACTER}" for each in line)
