"""(shell) How long a cluster takes to start inside a Ray that runs, and what its brokers weigh then."""

from __future__ import annotations

import time

import raylog
from benchmarks.figures import Figure, anonymous_megabytes, figure, progress


def measure(runs: int) -> list[Figure]:
    figures = []
    for brokers, solid, aim in ((1, 3.0, 1.0), (3, None, None)):
        seconds, megabytes = [], []
        for run in range(runs):
            begun = time.perf_counter()
            with raylog.start(f"bench-start-{brokers}-{run}", brokers=brokers) as cluster:
                seconds.append(time.perf_counter() - begun)
                megabytes += [anonymous_megabytes(broker.pid) for broker in cluster.status()]
        figures.append(figure(f"start of {brokers} broker(s) in a running Ray", "s", seconds, solid=solid, aim=aim))
        figures.append(figure(f"memory of each of {brokers} new broker(s) (RssAnon)", "MB", megabytes))
        progress(f"start of {brokers}: {figures[-2].median:.2f} s, {figures[-1].median:.0f} MB each")
    return figures
