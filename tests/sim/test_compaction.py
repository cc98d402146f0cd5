"""Compacted topics in a simulated cluster: cleaning on leaders and followers, with kills, power cuts, full and broken
disks, truncations and leader changes.

The last value of a key that was written with acks=all is readable, and a deleted key stays deleted.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from raylog.core.ids import TopicPartition
from raylog.logstore.log import Log
from raylog.protocol.records.reader import Record, read_batches
from tests.sim.bursts import Bursts
from tests.sim.cluster import SimCluster
from tests.sim.quorum_bursts import QuorumBursts
from tests.sim.scenario import PARTITIONS, QUIET_MS, SERVED_MS_MAX, random_config
from tests.sim.table_writer import TableWriter
from tests.sim.trouble import USUAL_MS, end_trouble, plan_trouble
from tests.sim.world import World
from tests.support.forms import by_form

TOPIC = "table"
SEEDS = by_form(10, quick=5, long=1500)
SEEDS_PER_TEST = 5
AWAY_SEEDS = by_form(3, quick=2, long=200)
AWAY_MS = 15_000


def config(rng: random.Random, *, replicas: int, power_cuts: bool) -> dict[str, str]:
    return {
        **random_config(rng, broker_count=replicas, power_cuts=power_cuts),
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(max(1, replicas - 1)),
        "log.segment.bytes": str(rng.choice((500, 1500))),
        "log.cleanup.policy": "compact",
        "log.cleaner.backoff.ms": str(rng.choice((100, 700))),
        "log.cleaner.min.cleanable.ratio": rng.choice(("0.01", "0.5")),
        "log.cleaner.threads": str(rng.choice((1, 2))),
        # A replica that was away must see every deletion; a single one is never away.
        "log.cleaner.delete.retention.ms": "0" if replicas == 1 else "86400000",
    }


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_a_table_contains_what_was_written_last(first: int) -> None:
    ends = [run(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    assert sum(acknowledged for acknowledged, _ in ends) > 20 * SEEDS_PER_TEST
    assert sum(cleaned for _, cleaned in ends) > 0, "nothing was cleaned"


def run(seed: int) -> tuple[int, int]:
    """(the number of records that were acknowledged, the sum of the offsets up to which logs were cleaned)."""
    world = World(seed)
    rng = world.rng
    replicas = rng.choice((1, 3, 3))
    power_cuts = rng.random() < 0.5
    settings = config(rng, replicas=replicas, power_cuts=power_cuts)
    cluster = SimCluster(world, settings, broker_count=replicas, controller_count=1, power_cuts=power_cuts)
    cluster.start()
    assert world.run(until=cluster.serves, limit_ms=SERVED_MS_MAX)
    cluster.replica_watch.compacted = frozenset({TOPIC})
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    writers = [TableWriter(world, cluster.brokers, tp, name=f"writer-{number}") for number, tp in enumerate(partitions)]
    breaks = [writer.break_connection for writer in writers]
    trouble = Bursts(cluster, settings, partitions), QuorumBursts(cluster, settings)
    plan_trouble(cluster, breaks, *trouble, trouble_ms=USUAL_MS)
    world.run(until=lambda: False, limit_ms=USUAL_MS)
    end_trouble(cluster)
    for writer in writers:
        writer.ends = True
    assert world.run(until=lambda: all(writer.finished for writer in writers), limit_ms=QUIET_MS)
    assert world.run(until=cluster.serves, limit_ms=SERVED_MS_MAX)
    if rng.random() < 0.5:
        cluster.restart()
        assert world.run(until=cluster.serves, limit_ms=SERVED_MS_MAX)
    cleaned = sum(check_tables(cluster, writer) for writer in writers)
    return sum(writer.acknowledged for writer in writers), cleaned


def test_a_replica_that_was_away_for_less_than_the_retention_of_tombstones_has_no_deleted_key() -> None:
    run_with_one_away(range(AWAY_SEEDS), retention_ms=10 * AWAY_MS)


def test_a_replica_that_was_away_for_longer_has_deleted_keys() -> None:
    """So the test above would find a tombstone that is removed too early."""
    with pytest.raises(AssertionError, match=r"is b'.*', not one of \[None\]"):
        run_with_one_away(range(AWAY_SEEDS), retention_ms=0)


def run_with_one_away(seeds: Iterable[int], *, retention_ms: int) -> None:
    for seed in seeds:
        _run_with_one_away(seed, retention_ms)


def _run_with_one_away(seed: int, retention_ms: int) -> None:
    """One broker of three hangs, while the others go on to write, delete and clean."""
    world = World(seed)
    settings = {
        **config(world.rng, replicas=3, power_cuts=False),
        "log.segment.bytes": "500",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.cleaner.delete.retention.ms": str(retention_ms),
    }
    cluster = SimCluster(world, settings, broker_count=3, controller_count=1, power_cuts=False)
    cluster.start()
    assert world.run(until=cluster.serves, limit_ms=SERVED_MS_MAX)
    cluster.replica_watch.compacted = frozenset({TOPIC})
    writer = TableWriter(world, cluster.brokers, TopicPartition(TOPIC, 0), name="writer")
    assert world.run(until=lambda: writer.acknowledged > 20, limit_ms=QUIET_MS)
    world.rng.choice(cluster.brokers).hang(AWAY_MS)
    world.run(until=lambda: False, limit_ms=AWAY_MS)
    writer.ends = True
    assert world.run(until=lambda: writer.finished, limit_ms=QUIET_MS)
    assert world.run(until=cluster.serves, limit_ms=SERVED_MS_MAX)
    assert check_tables(cluster, writer) > 0, "nothing was cleaned"


def check_tables(cluster: SimCluster, writer: TableWriter) -> int:
    """The sum of the offsets up to which the replicas were cleaned."""
    cleaned = 0
    for host in cluster.brokers:
        assert host.node is not None
        partition = host.node.partitions[writer.tp]
        cleaned += partition.log.cleaned_upto
        check_table(writer, records_in(partition.log), host.name)
    return cleaned


def records_in(log: Log) -> list[Record]:
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, max_bytes=1000, upto=log.log_end_offset)
        found += read_batches(piece.records, from_offset=offset)
        offset = piece.next_offset
    return found


def check_table(writer: TableWriter, records: list[Record], where: str) -> None:
    table = {record.key: record.value for record in records}
    for key, possible in writer.possible.items():
        value = table.get(key)
        assert value in possible, f"{writer.tp} on {where}: {key!r} is {value!r}, not one of {possible}"
