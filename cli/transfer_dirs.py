"""`raylog import-dir` and `raylog export-dir`: copy partitions between the log directories of Kafka and of raylog.

Both clusters must be stopped. Files are copied and checked, and cluster and topic ids in them are replaced
(logstore/partition_copy.py). Records keep their offsets, timestamps, keys, values and headers.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from uuid import uuid4

from raylog.actors.data_dir import find_log_dirs
from raylog.cli.arguments import Subparsers
from raylog.cli.columns import columns
from raylog.cli.output import add_json, show
from raylog.logstore.disk import RealDisk
from raylog.logstore.transfer import transfer


def add_to(subparsers: Subparsers) -> None:
    for name, what, source, target in (
        ("import-dir", "copy topics from Kafka's log directories into raylog's", "Kafka", "raylog"),
        ("export-dir", "copy topics from raylog's log directories into Kafka's", "raylog", "Kafka"),
    ):
        parser = subparsers.add_parser(name, help=what)
        parser.add_argument(
            "--data-dir",
            metavar="DIR",
            required=True,
            help="the data directory of a raylog cluster, or the log directory of one broker",
        )
        parser.add_argument("log_dirs", metavar="LOG_DIR", nargs="+", help="a log directory of Kafka, as in log.dirs")
        parser.add_argument(
            "--topic",
            metavar="NAME",
            action="append",
            help=f"copy only this topic; can be repeated (default: all of {source} except internal ones)",
        )
        parser.add_argument("--force", action="store_true", help=f"replace partitions of {target} that hold records")
        add_json(parser)
        parser.set_defaults(run=partial(_run, into_raylog=target == "raylog"))


def _run(options: argparse.Namespace, *, into_raylog: bool) -> None:
    ours, kafkas = find_log_dirs(options.data_dir), options.log_dirs
    carried = transfer(
        RealDisk(),
        kafkas if into_raylog else ours,
        ours if into_raylog else kafkas,
        topics=options.topic,
        force=options.force,
        new_id=uuid4,
        now_ms=int(time.time() * 1000),
    )
    copied = [
        {
            "partition": str(step.topic_partition),
            "log_start_offset": log.log_start_offset,
            "log_end_offset": log.log_end_offset,
            "bytes": log.size_bytes,
            "into": list(step.targets),
        }
        for step, log in carried
    ]
    rows = [[", ".join(cell) if isinstance(cell, list) else str(cell) for cell in each.values()] for each in copied]
    show(options, copied, columns(["PARTITION", "LOG-START-OFFSET", "LOG-END-OFFSET", "BYTES", "INTO"], rows))
