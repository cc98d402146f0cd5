"""raylog's own clients in a simulated cluster with kills, power cuts, cuts of the network and leader changes.

What a producer was told is true: an acknowledged record is in the log once, at its offset, and in the order of `send`.
"""

from __future__ import annotations

import random
from functools import partial

import pytest

from raylog.client.producer.core import ProducerCore
from raylog.client.producer.delivery import ProducerRecord, RecordMetadata
from raylog.config.producer import PRODUCER_CONFIG, ProducerSettings, producer_settings
from raylog.core.config import Configs, ConfigSource, Layer
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from tests.sim.broker_host import PORT, BrokerHost
from tests.sim.client_driver import ClientDriver
from tests.sim.client_world import ALL_PARTITIONS, CALM_MS, client_world, go_through_trouble
from tests.sim.scenario import PARTITIONS, QUIET_MS, SERVED_MS_MAX, TOPIC
from tests.sim.world import World
from tests.support.forms import by_form

SEEDS = by_form(12, quick=4, long=2000)
SEEDS_PER_TEST = 4
MAY_FAIL = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
"""The latter where a batch may have been appended, and the leader does not know any more."""


def random_settings(rng: random.Random, transactional_id: str = "") -> ProducerSettings:
    request_ms = rng.choice((300, 1000, 3000))
    linger_ms = rng.choice((0, 5, 50))
    texts = {
        "batch.size": rng.choice(("0", "200", "2000")),
        "linger.ms": str(linger_ms),
        "buffer.memory": rng.choice(("3000", "33554432")),
        "max.request.size": rng.choice(("3000", "1048576")),
        "max.in.flight.requests.per.connection": rng.choice(("1", "2", "5")),
        "request.timeout.ms": str(request_ms),
        "delivery.timeout.ms": str(linger_ms + request_ms + rng.choice((0, 1000, 100_000, 100_000))),
        "compression.type": rng.choice(("none", "none", "lz4")),
        "metadata.max.age.ms": rng.choice(("100", "300000")),
        "connections.max.idle.ms": rng.choice(("200", "540000")),
        "metadata.recovery.strategy": rng.choice(("none", "rebootstrap")),
    }
    if transactional_id:
        texts["transactional.id"] = transactional_id
        texts["transaction.timeout.ms"] = rng.choice(("500", "3000", "60000"))
    layer = Layer(ConfigSource.STATIC_BROKER_CONFIG, PRODUCER_CONFIG.parse(texts))
    return producer_settings(Configs(PRODUCER_CONFIG, [layer]))


class SimProducer:
    """Sends numbered values to random partitions until it is told to end."""

    def __init__(self, world: World, hosts: list[BrokerHost], name: str) -> None:
        self.world = world
        self.name = name
        self.ends = False
        self.sent: dict[TopicPartition, list[bytes]] = {TopicPartition(TOPIC, n): [] for n in range(PARTITIONS)}
        self.acknowledged: dict[TopicPartition, dict[bytes, int]] = {tp: {} for tp in self.sent}
        """The offset of each value."""
        self.failed: dict[bytes, KafkaError] = {}
        servers = ",".join(f"{host.name}:{PORT}" for host in hosts)
        self.core = ProducerCore(servers, random_settings(world.rng), world.rng)
        self.driver = ClientDriver(world, hosts, self.core.network)
        self.driver.on_event = self._tell
        self._number = 0
        world.after(1, self._send)

    @property
    def finished(self) -> bool:
        return self.ends and not any(True for _ in self.core.sender.unfinished)

    def _send(self) -> None:
        if self.ends:
            return
        rng = self.world.rng
        for _ in range(rng.choice((1, 1, 3, 20))):
            tp = rng.choice(list(self.sent))
            value = b"%s/%d" % (self.name.encode(), self._number) + b"." * rng.choice((0, 10, 300))
            now = self.world.now()
            told = partial(self._told, tp, value)
            record = ProducerRecord(tp.topic, None, value, (), tp.partition, now.wall_ms, told)
            appended = self.core.try_append(record, now)
            if appended is None:
                self.world.marks["record waits"] += 1
                break
            self._number += 1
            self.sent[tp].append(value)
        self.driver.event(self.core.network.run)
        self.world.after(rng.choice((1, 5, 30, 300)), self._send)

    def _tell(self) -> None:
        completed, self.core.sender.completed = self.core.sender.completed, []
        for batch in completed:
            for index, timestamp_ms, on_delivery in batch.callbacks:
                if batch.error is not None:
                    on_delivery(batch.error, None)
                else:
                    on_delivery(None, batch.metadata(index, timestamp_ms))

    def _told(
        self, tp: TopicPartition, value: bytes, error: KafkaError | None, metadata: RecordMetadata | None
    ) -> None:
        assert value not in self.acknowledged[tp], f"{value!r} was told about twice"
        assert value not in self.failed, f"{value!r} was told about twice"
        if error is not None:
            self.failed[value] = error
            self.world.marks[f"failed {error.code.name}"] += 1
        else:
            assert metadata is not None
            self.acknowledged[tp][value] = metadata.offset


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_what_a_producer_was_told_is_true(first: int) -> None:
    acknowledged = [run(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    assert sum(acknowledged) > 50 * SEEDS_PER_TEST


def run(seed: int) -> int:
    """The number of records that were acknowledged."""
    return run_world(seed)[1]


def run_world(seed: int) -> tuple[World, int]:
    world, config, cluster = client_world(seed)
    rng = world.rng
    producers = [SimProducer(world, cluster.brokers, f"producer-{number}") for number in range(rng.randint(1, 2))]
    go_through_trouble(world, config, cluster, [producer.driver.break_connection for producer in producers])
    world.run(until=cluster.serves, limit_ms=CALM_MS)  # it may not be so at any instant while records are sent
    world.run(until=lambda: False, limit_ms=CALM_MS)
    for producer in producers:
        producer.ends = True
    assert world.run(until=lambda: all(each.finished for each in producers), limit_ms=QUIET_MS), "records are not told"
    assert world.run(until=cluster.serves, limit_ms=SERVED_MS_MAX)
    for tp in ALL_PARTITIONS:
        wanted = any(producer.sent[tp] for producer in producers)
        values = cluster.values(tp) if wanted else []  # without records the topic was perhaps never created
        for producer in producers:
            check(producer, tp, values)
    return world, sum(len(found) for producer in producers for found in producer.acknowledged.values())


def check(producer: SimProducer, tp: TopicPartition, values: list[bytes | None]) -> None:
    """The log has each record at most once, in the order of `send`, and the acknowledged ones at their offsets."""
    own = [value for value in values if value is not None and value.startswith(producer.name.encode() + b"/")]
    assert len(own) == len(set(own)), f"{tp}: a record is in the log twice"
    present = set(own)
    assert own == [value for value in producer.sent[tp] if value in present], f"{tp}: the order is another one"
    for value, offset in producer.acknowledged[tp].items():
        assert value in present, f"{tp}: {value!r} was acknowledged at {offset}, and is not in the log"
        assert offset < 0 or values[offset] == value, f"{tp}: another record is at {offset} than {value!r}"
    for value in producer.sent[tp]:
        assert value in producer.acknowledged[tp] or value in producer.failed, f"{tp}: {value!r} was never told about"
    for value in producer.sent[tp]:
        error = producer.failed.get(value)
        assert error is None or error.code in MAY_FAIL, f"{value!r}: {error}"
