"""(shell) Measures the paths of the data against their budgets: `script/bench --runs 3 --megabytes 500`.

Machines are shared and noisy, so every figure is a median over runs, throughput stands as a ratio to a yardstick run
in turn with ours, and cost is CPU seconds of the broker's process per GB (10**9 bytes) of record batches.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import (
    actor_latency,
    audit,
    clients,
    compaction,
    coordinator_load,
    groups,
    latency_while_cleaning,
    local,
    many_partitions,
    mirror,
    replication,
    security,
    small_records,
    spark,
    start_up,
    storm,
    wire,
)
from benchmarks.figures import Figure, anonymous_megabytes, figure, show, write
from benchmarks.page import write_page
from benchmarks.turns import longest_turn

PARTS = (
    "start-up",
    "groups",
    "storm",
    "partitions",
    "replication",
    "small-records",
    "audit",
    "security",
    "compaction",
    "mirror",
    "wire",
    "clients",
    "local",
    "spark",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="script/bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each path; the median is shown")
    parser.add_argument("--megabytes", type=int, default=400, help="record bytes of each run")
    parser.add_argument("--dir", help="where the broker's temporary directory is made: the disk to measure")
    parser.add_argument("--only", choices=PARTS, help="one part of it")
    parser.add_argument("--page", action="store_true", help="only write docs/benchmarks.md from the newest results")
    arguments = parser.parse_args()
    if arguments.page:
        write_page()
        return 0
    logging.disable(logging.WARNING)

    from raylog.raydp_bridge.session import prepare_environment

    prepare_environment()
    import raylog

    with raylog.start("bench-ray"):
        figures = _measure(arguments)
    show(figures)
    write(figures, vars(arguments))
    return 0


def _measure(arguments: argparse.Namespace) -> list[Figure]:
    import raylog

    runs, megabytes, only = arguments.runs, arguments.megabytes, arguments.only
    figures: list[Figure] = []
    if only in (None, "start-up"):
        figures += start_up.measure(runs)
    if only in (None, "groups"):
        figures += groups.measure(runs)
    if only in (None, "storm"):
        figures += storm.measure()
    if only in (None, "partitions"):
        figures += many_partitions.measure(runs, arguments.dir)
    if only in (None, "replication"):
        figures += replication.measure(runs, megabytes)
    if only in (None, "small-records"):
        figures += small_records.measure(runs)
    if only in (None, "audit"):
        figures += audit.measure(runs)
    if only in (None, "security"):
        figures += security.measure(runs, megabytes, arguments.dir)
    if only in (None, "compaction"):
        figures += compaction.measure(runs, megabytes, arguments.dir)
        figures += latency_while_cleaning.measure(runs, megabytes, arguments.dir)
        figures += coordinator_load.measure(runs, arguments.dir)
    if only in (None, "mirror"):
        figures += mirror.measure(runs, megabytes, arguments.dir)
    if only not in (None, "wire", "clients", "local", "spark"):
        return figures
    config = {"message.max.bytes": 2_000_000, "num.partitions": 1, "log.segment.delete.delay.ms": 0}
    with (
        TemporaryDirectory(prefix="raylog-bench-", dir=arguments.dir) as folder,
        raylog.start("bench", data_dir=f"{folder}/data", config=config) as cluster,
    ):
        pid, servers = cluster.status()[0].pid, cluster.bootstrap_servers
        if only in (None, "wire"):
            figures += wire.produce_and_fetch(servers, pid, Path(folder), runs, megabytes)
            figures.append(longest_turn(cluster))
            figures += wire.ack_latency(servers)
            figures.append(longest_turn(cluster))
        if only in (None, "clients"):
            figures += clients.measure(servers, pid, runs)
            figures += actor_latency.measure(servers, runs)
        if only in (None, "local"):
            figures += local.measure(cluster, runs, megabytes)
        if only in (None, "spark"):
            figures += spark.measure(servers, runs, Path(folder))
        figures.append(figure("memory of the broker after all this (RssAnon)", "MB", [anonymous_megabytes(pid)]))
    return figures


if __name__ == "__main__":
    sys.exit(main())
