"""One seed, one run: clients work, things break, and at the end the log is held against what was promised."""

from __future__ import annotations

from collections import Counter
from functools import partial

from raylog.core.ids import Offset, TopicPartition
from raylog.protocol.records.reader import read_batches
from tests.sim.broker_host import BrokerHost
from tests.sim.client import SimClient
from tests.sim.consumer import Consumer
from tests.sim.producer import Producer
from tests.sim.vandal import Vandal
from tests.sim.world import World

TOPIC = "ledger"
PARTITIONS = 2
TROUBLE_MS = 4_000
"""How long things go wrong; then they stop, and everything must come right by itself."""
QUIET_MS = 120_000
READ_BYTES = 1 << 20


def run(seed: int) -> Counter[str]:
    """The marks of the run. Raises AssertionError for a broken promise."""
    world = World(seed)
    rng = world.rng
    power_cuts = rng.random() < 0.5
    config = {
        "num.partitions": str(PARTITIONS),
        "offsets.topic.num.partitions": "3",
        "log.segment.bytes": str(rng.choice((7_000, 10_000, 40_000))),
        "log.index.interval.bytes": str(rng.choice((0, 200, 4096))),
        "log.retention.ms": "-1",
        "message.max.bytes": "100000",
        "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
        "max.incremental.fetch.session.cache.slots": str(rng.choice((0, 1, 1000))),
    }
    if power_cuts:
        config["log.flush.interval.messages"] = "1"
    host = BrokerHost(world, config, power_cuts=power_cuts)
    world.after(0, host.start)
    producers = [
        Producer(world, host, TopicPartition(TOPIC, number), batch_count=rng.randint(20, 60), name=f"producer-{number}")
        for number in range(PARTITIONS)
    ]
    consumers = [Consumer(world, host, TOPIC, PARTITIONS, name=f"consumer-{number}") for number in range(2)]
    vandal = Vandal(world, host)
    _plan_trouble(world, host, [*producers, *consumers])
    assert not world.run(until=lambda: False, limit_ms=TROUBLE_MS)
    host.trouble = False
    host.disk.arm(kill_at_op=None)
    host.disk.capacity_bytes = None
    vandal.finished = True
    done = world.run(until=lambda: all(producer.finished for producer in producers), limit_ms=QUIET_MS)
    assert done, "a producer never came to its end"
    caught_up = world.run(until=lambda: all(_has_read(c, producers) for c in consumers), limit_ms=QUIET_MS)
    assert caught_up, "a consumer never saw all that was acknowledged"
    for client in (*producers, *consumers):
        client.finished = True
    assert world.run(until=lambda: host.broker is not None, limit_ms=QUIET_MS), "the broker never came back"
    _check(host, producers, consumers)
    world.marks["records acknowledged"] += sum(len(producer.acknowledged) for producer in producers)
    return world.marks


def _plan_trouble(world: World, host: BrokerHost, clients: list[SimClient]) -> None:
    rng = world.rng
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, TROUBLE_MS)
        kind = rng.choice(("kill", "kill in a write", "kill in a write", "stop"))
        if kind == "kill":
            world.after(at, host.kill)
        elif kind == "stop":
            world.after(at, host.stop_cleanly)
        else:
            ops = rng.randint(1, 60)
            world.after(at, partial(host.disk.arm, kill_at_op=ops))
    for _ in range(rng.randint(0, 8)):
        world.after(rng.randint(0, TROUBLE_MS), rng.choice(clients).break_link)
    if rng.random() < 0.2:
        world.after(
            rng.randint(0, TROUBLE_MS), lambda: world.jump_wall_clock(rng.choice((-3_600_000, 86_400_000 // 2)))
        )
    if rng.random() < 0.2:
        start = rng.randint(0, TROUBLE_MS - 1000)
        world.after(start, lambda: _fill_disk(world, host))
        world.after(start + rng.randint(10, 900), lambda: _make_room(host))


def _fill_disk(world: World, host: BrokerHost) -> None:
    world.marks["disk full"] += 1
    host.disk.capacity_bytes = host.disk.used_bytes() + world.rng.randint(0, 2000)


def _make_room(host: BrokerHost) -> None:
    host.disk.capacity_bytes = None


def _has_read(consumer: Consumer, producers: list[Producer]) -> bool:
    return all(len(consumer.seen[producer.tp]) >= len(producer.sent) for producer in producers)


def _check(host: BrokerHost, producers: list[Producer], consumers: list[Consumer]) -> None:
    """Every record sent is in the log once and in order, each acknowledged one at the offset it was promised."""
    broker = host.broker
    assert broker is not None
    for producer in producers:
        log = broker.partitions[producer.tp].log
        position, values = log.log_start_offset, []
        while position < log.log_end_offset:
            piece = log.read(Offset(position), max_bytes=READ_BYTES, upto=log.log_end_offset)
            values += [record.value for record in read_batches(piece.records, from_offset=position)]
            position = piece.next_offset
        assert values == producer.sent, f"{producer.tp}: the log is not what was sent, in order, once"
        for offset, value in producer.acknowledged.items():
            assert values[offset] == value, f"{producer.tp}: {value!r} was acknowledged at {offset}"
        for consumer in consumers:
            for offset, value in consumer.seen[producer.tp].items():
                assert values[offset] == value, f"{producer.tp}: {value!r} was read at {offset}"
