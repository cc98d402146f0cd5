"""(shell) The metrics of the process and its event loop: they are of the shell, and no state of the node."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from raylog.core.metrics import Kind, Metric, Sample, counter, gauge
from raylog.transport.metrics_endpoint import ScrapeCost
from raylog.transport.node import JobKind
from raylog.transport.turn_times import TurnTimes

NS_PER_SECOND: Final = 1_000_000_000
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_STARTED_AT: Final = 21
"""The field of /proc/<pid>/stat with the time at which the process started, counted from 0 (proc(5))."""


class Served(NamedTuple):
    """What a node's server measures."""

    turns: TurnTimes
    jobs: Mapping[JobKind, int]
    """Jobs that have not ended."""
    cost: ScrapeCost


def _jobs(served: Served) -> Iterator[Sample]:
    for kind, count in served.jobs.items():
        yield Sample((kind.value,), count)


def _resident_bytes(_: Served) -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES


def _cpu_seconds(_: Served) -> float:
    times = os.times()
    return times.user + times.system


def _started_seconds(_: Served) -> float:
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[_STARTED_AT - 2])
    with open("/proc/stat") as file:
        booted = next(int(line.split()[1]) for line in file if line.startswith("btime "))
    return booted + ticks / _TICKS_PER_SECOND


def _descriptors_max(_: Served) -> float:
    return os.sysconf("SC_OPEN_MAX")


SERVER_METRICS: Final[tuple[Metric[Served], ...]] = (
    counter(
        "raylog_event_loop_busy_seconds_total",
        "Time that the event loop has spent on events of the node; its rate is the load, 1 is all of one core.",
        lambda served: served.turns.busy_ns / NS_PER_SECOND,
    ),
    counter(
        "raylog_event_loop_slow_turns_total",
        "Events that held the loop for more than 50 ms.",
        lambda served: served.turns.slow_ever,
    ),
    gauge(
        "raylog_event_loop_longest_turn_seconds",
        "The longest event since `raylog` asked last for turn times, or since the start.",
        lambda served: served.turns.longest_ns / NS_PER_SECOND,
    ),
    Metric(
        "raylog_jobs",
        Kind.GAUGE,
        ("kind",),
        "Jobs that run in threads, or wait for one: work that would block the loop.",
        _jobs,
    ),
    counter("raylog_scrapes_total", "Scrapes of this node that were completed.", lambda served: served.cost.scrapes),
    counter(
        "raylog_scrape_seconds_total",
        "Time of the loop that scrapes have taken.",
        lambda served: served.cost.total_ns / NS_PER_SECOND,
    ),
    gauge(
        "raylog_scrape_longest_piece_seconds",
        "The longest time for which a scrape has held the loop.",
        lambda served: served.cost.longest_piece_ns / NS_PER_SECOND,
    ),
    gauge("process_resident_memory_bytes", "Resident memory, mapped pages included.", _resident_bytes),
    counter("process_cpu_seconds_total", "CPU time of the process.", _cpu_seconds),
    gauge("process_start_time_seconds", "When the process started, in seconds since 1970.", _started_seconds),
    gauge("process_open_fds", "Open file descriptors.", lambda served: len(os.listdir("/proc/self/fd"))),
    gauge("process_max_fds", "The limit of open file descriptors.", _descriptors_max),
)
