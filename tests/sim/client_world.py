"""The clusters in which raylog's own clients are simulated, and the troubles they go through."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from raylog.core.ids import TopicPartition
from tests.sim.bursts import Bursts
from tests.sim.cluster import SimCluster
from tests.sim.quorum_bursts import QuorumBursts
from tests.sim.scenario import PARTITIONS, TOPIC, random_config
from tests.sim.trouble import USUAL_MS, end_trouble, plan_trouble
from tests.sim.world import World

CALM_MS = 3_000
ALL_PARTITIONS = tuple(TopicPartition(TOPIC, number) for number in range(PARTITIONS))


def client_world(seed: int, more: Mapping[str, str] | None = None) -> tuple[World, dict[str, str], SimCluster]:
    """A world with a cluster of one or three brokers that has been started, and its configuration, with `more`."""
    world = World(seed)
    rng = world.rng
    brokers = rng.choice((1, 3, 3))
    power_cuts = rng.random() < 0.5
    config = random_config(rng, broker_count=brokers, power_cuts=power_cuts) | dict(more or {})
    cluster = SimCluster(world, config, broker_count=brokers, controller_count=1, power_cuts=power_cuts)
    cluster.replica_watch.producers_give_up = True
    cluster.start()
    return world, config, cluster


def go_through_trouble(
    world: World, config: dict[str, str], cluster: SimCluster, breaks: Sequence[Callable[[], None]]
) -> None:
    """Kills, cuts and all else, and the repair; `breaks` break the connections of clients."""
    trouble = Bursts(cluster, config, list(ALL_PARTITIONS)), QuorumBursts(cluster, config)
    plan_trouble(cluster, list(breaks), *trouble, trouble_ms=USUAL_MS)
    world.run(until=lambda: False, limit_ms=USUAL_MS)
    end_trouble(cluster)
