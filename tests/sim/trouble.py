"""The faults of a run and their times, planned from its seed before it begins."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.sim.bursts import Bursts
from tests.sim.cluster import SimCluster
from tests.sim.node_host import NodeHost
from tests.sim.quorum_bursts import QuorumBursts

USUAL_MS = 4_000
"""How long faults are injected, in most runs; afterwards the cluster must recover by itself."""
LONG_MS = (7_000, 12_000)
BURST_PAUSE_MS = 900
"""Average time between two bursts, in a run that has them."""
QUORUM_BURST_PAUSE_MS = 1_300
"""The same for bursts of controllers."""
CUT_MS_MAX = 2_500
HANG_MS_MAX = 1_500


def plan_trouble(
    cluster: SimCluster,
    break_connections: list[Callable[[], None]],
    bursts: Bursts,
    quorum_bursts: QuorumBursts,
    *,
    trouble_ms: int,
) -> None:
    """`break_connections` break the connections of the clients."""
    world = cluster.world
    rng = world.rng

    def at_some_time(do: Callable[[], None]) -> None:
        world.after(rng.randint(0, trouble_ms), do)

    for host in cluster.hosts:
        kinds = rng.choices((host.kill, _kill_in_write(host), host.stop_cleanly, _hang(host)), (2, 4, 1, 1), k=3)
        for kind in kinds[: rng.randint(0, 3)]:
            at_some_time(kind)
        if rng.random() < 0.15:
            at_some_time(partial(host.jump_wall_clock, rng.choice((-3_600_000, 86_400_000 // 2))))
        if rng.random() < 0.15:
            start = rng.randint(0, trouble_ms - 1000)
            world.after(start, partial(_fill_disk, host))
            world.after(start + rng.randint(10, 900), partial(_make_room, host))
    if rng.random() < 0.1:
        at_some_time(partial(_fail_fsync, rng.choice(cluster.controllers)))
    for _ in range(rng.randint(0, 4)):
        at_some_time(rng.choice(break_connections))
    for _ in range(rng.randint(0, 2)):
        at_some_time(rng.choice(cluster.hosts).break_links)
    for _ in range(rng.choice((0, 0, 1, 2, 3))):
        one, other = rng.sample(cluster.hosts, 2)
        start = rng.randint(0, trouble_ms - 100)
        world.after(start, partial(cluster.cut, one, other))
        world.after(min(start + rng.randint(50, CUT_MS_MAX), trouble_ms), partial(cluster.heal, one, other))
    if rng.random() < 0.7:
        for _ in range(trouble_ms // BURST_PAUSE_MS):
            at_some_time(bursts.some)
    if len(cluster.controllers) > 1 and rng.random() < 0.8:
        for _ in range(trouble_ms // QUORUM_BURST_PAUSE_MS):
            at_some_time(quorum_bursts.some)


def end_trouble(cluster: SimCluster) -> None:
    for host in cluster.hosts:
        host.trouble = False
        host.disk.arm(kill_at_op=None)
        _make_room(host)
        host.forget_moment()
    for broker in cluster.brokers:
        if broker.has_offline_log:  # only a restart recovers it
            cluster.world.marks["broker restarted for a log that was offline"] += 1
            broker.kill()


def _kill_in_write(host: NodeHost[Any]) -> Callable[[], None]:
    return partial(host.disk.arm, kill_at_op=host.world.rng.randint(1, 40))


def _hang(host: NodeHost[Any]) -> Callable[[], None]:
    return partial(host.hang, host.world.rng.randint(1, HANG_MS_MAX))


def _fail_fsync(host: NodeHost[Any]) -> None:
    host.disk_failed = True
    host.disk.fail_next("fsync", errno.EIO)


def _fill_disk(host: NodeHost[Any]) -> None:
    host.world.marks["disk full"] += 1
    host.disk_failed = True
    host.changed_ms = host.world.time_ms
    host.disk.capacity_bytes = host.disk.used_bytes() + host.world.rng.randint(0, 2000)


def _make_room(host: NodeHost[Any]) -> None:
    host.changed_ms = host.world.time_ms
    host.disk.capacity_bytes = None
