"""What docs/migration.md says: groups and then producers move from Apache Kafka to raylog under load, and back.

No group misses a record, and none is copied twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from raylog.cli.main import main
from raylog.client.admin.admin_client import AdminClient
from raylog.core import errors
from raylog.core.ids import TopicPartition
from raylog.mirror.config import FlowConfig, parse_mirror_config
from tests.client.served import Target
from tests.mirror.flows import create, running, seen
from tests.support.cluster_thread import cluster_thread
from tests.support.hang import HANG_SECONDS
from tests.support.kafka_peer import kafka_peer

pytestmark = pytest.mark.kafka
PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "migration.md"
TOPIC = "orders"
THERE, BACK = "kafka->raylog", "raylog->kafka"
FACTORS = "".join(f"{each}replication.factor=1\n" for each in ("", "offset-syncs.topic.", "checkpoints.topic."))
QUICK = ("refresh.topics", "refresh.groups", "sync.group.offsets", "emit.checkpoints")


class Shop:
    """Sells numbered orders in one of the clusters until `stop`."""

    def __init__(self, servers: str, first: int) -> None:
        self.sold: list[bytes] = []
        self._failed: list[KafkaError] = []
        self._number = first
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """The number of the next order."""
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(HANG_SECONDS) == 0
        assert self._failed == []
        return self._number

    def _run(self) -> None:
        while not self._stopping.wait(0.02):
            for _ in range(5):
                self._producer.produce(TOPIC, b"%d" % self._number, partition=0, on_delivery=self._delivered)
                self._number += 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        self.sold.append(value)
        if error is not None:
            self._failed.append(error)


def read(servers: str, group: str, count: int = 0, *, last: int = -1) -> list[int]:
    """So many orders at least, up to the `last` one, that a member processes and commits; then it leaves the group."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
        }
    )
    found: list[int] = []
    deadline = time.monotonic() + HANG_SECONDS
    try:
        consumer.subscribe([TOPIC])
        while len(found) < count or max(found, default=-1) < last:
            assert time.monotonic() < deadline
            for message in consumer.consume(100, 0.2):
                assert message.error() is None, message.error()
                value = message.value()
                assert isinstance(value, bytes)
                found += [] if value == b"test" else [int(value)]
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def write_test_record(servers: str) -> bool:
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(TOPIC, b"test", partition=0)
    return producer.flush(HANG_SECONDS) == 0


def begin(servers: str, group: str) -> None:
    """Have the group begin at the first record."""
    with AdminClient(bootstrap_servers=servers) as admin:
        admin.alter_consumer_group_offsets(group, {TopicPartition(TOPIC, 0): 0})


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[Target, Target]]:
    with (
        kafka_peer(tmp_path / "kafka") as kafka,
        cluster_thread({"group.initial.rebalance.delay.ms": 0}, tmp_path / "raylog") as raylog,
    ):
        kafka.start()
        yield Target(kafka.bootstrap_servers), Target(raylog.bootstrap_servers)


def flow_of(page_file: Path) -> FlowConfig:
    (flow,) = parse_mirror_config(page_file.read_text()).flows
    return flow


def command(*arguments: str) -> None:
    assert main(["mirror", *arguments]) == 0


def test_groups_and_producers_move_and_could_go_back(clusters: tuple[Target, Target], tmp_path: Path) -> None:
    kafka, raylog = (each.plain for each in clusters)
    there, back = (tmp_path / f"{name}.properties" for name in ("there", "back"))
    blocks = PAGE.read_text().split("```properties\n")[1:]
    for file, block in zip((there, back), blocks, strict=True):
        written = block.partition("```")[0].replace("kafka-1:9092", kafka).replace("raylog-1:9092", raylog)
        file.write_text(written + "".join(f"{each}.interval.seconds=1\n" for each in QUICK) + FACTORS)
    create(clusters[0], TOPIC)
    for group in ("billing", "shipping"):
        begin(kafka, group)
    shop = Shop(kafka, 0)
    billed, shipped = read(kafka, "billing", 100), read(kafka, "shipping", 50)
    with running(flow_of(there)) as run:
        run.wait(lambda _: (at := run.partition(TOPIC)) and (at.next_offset or 0) > 200)
        billed += read(kafka, "billing", 300)
        fail_over(there, THERE, raylog, "billing")
        billed += read(raylog, "billing", 100)
        command("failback", "--config", str(there), "--flow", THERE)  # billing's way back, and there again
        billed += read(kafka, "billing", 100)
        fail_over(there, THERE, raylog, "billing")
        billed += read(raylog, "billing", 50)
        shipped += read(kafka, "shipping", 500)
        fail_over(there, THERE, raylog, "shipping")
        shipped += read(raylog, "shipping", 50)
        number = shop.stop()
        run.wait(lambda _: (at := run.partition(TOPIC)) and at.lag == 0 and at.next_offset == number)
    assert [record[1] for record in seen(clusters[1], TOPIC)] == [record[1] for record in seen(clusters[0], TOPIC)]
    with running(flow_of(back)) as run:
        run.wait(lambda _: write_test_record(raylog) and (at := run.partition(TOPIC)) and at.records)
        shop = Shop(raylog, number)
        shipped += read(raylog, "shipping", last=number + 100)
        run.wait(lambda _: (at := run.partition(TOPIC)) and at.records > 100)
        fail_over(back, BACK, kafka, "shipping")
        number = shop.stop()
        run.wait(lambda _: (at := run.partition(TOPIC)) and at.lag == 0)
        shipped += read(kafka, "shipping", last=number - 1)
    values = [record[1] for record in seen(clusters[0], TOPIC) if record[1] != b"test"]
    assert values == [b"%d" % each for each in range(number)]
    for orders in (billed, shipped):
        assert set(orders) == set(range(max(orders) + 1)), "a group has missed orders"
    assert max(shipped) == number - 1


def fail_over(file: Path, flow: str, servers: str, group: str) -> None:
    """As soon as an offset of the group is known there."""
    deadline = time.monotonic() + HANG_SECONDS
    with AdminClient(bootstrap_servers=servers) as admin:
        while True:
            command("failover", "--config", str(file), "--flow", flow)
            with suppress(errors.KafkaError):  # the group does not exist yet
                if any(admin.list_consumer_group_offsets(group).values()):
                    return
            assert time.monotonic() < deadline
            time.sleep(0.5)
