"""(shell) The longest single turn of a broker's event loop under a load: for so long no other client was served."""

from __future__ import annotations

import raylog
from benchmarks.figures import Figure, figure, progress
from raylog.actors.cluster_actors import current_handles
from raylog.actors.names import broker_name
from raylog.transport.turn_times import TurnTimes


def longest_turn(cluster: raylog.Cluster) -> Figure:
    """Of all brokers, since the last call for this cluster or since its start."""
    import ray

    handles = current_handles(cluster.name, [broker_name(broker.id) for broker in cluster.status()])
    times: list[TurnTimes] = ray.get([each.take_turn_times.remote() for each in handles.values() if each is not None])
    longest = max(times, key=lambda each: each.longest_ns)
    slow = sum(each.slow for each in times)
    progress(f"longest turn {longest.longest_ns / 1e6:.1f} ms ({longest.longest}); {slow} turns over 50 ms")
    return figure("  longest turn of a broker's event loop", "ms", [longest.longest_ns / 1e6])
