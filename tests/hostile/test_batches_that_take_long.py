"""Batches that take long to check, or expand a thousandfold, delay other clients little and take no memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from tests.protocol.records.raw_batches import raw_batch, raw_record
from tests.support.administration import create_topic
from tests.support.cluster_process import ClusterProcess
from tests.support.hang import HANG_SECONDS
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.slow

VICTIM, TARGET = TopicPartition("victim", 0), TopicPartition("target", 0)
ATTACKERS = 4
CONFIG = {"message.max.bytes": "20000000"}
MEMORY_BYTES_MAX = 200 << 20
"""The four attackers' own batches are 60 MB, which the broker holds once or twice while it checks them."""


def bomb(codec: Codec, size_bytes: int) -> bytes:
    return bytes(build_batch([NewRecord(None, bytes(size_bytes), 0)], codec=codec))


def many(count: int, codec: Codec) -> bytes:
    return raw_batch(b"".join(raw_record(number) for number in range(count)), count, codec=codec)


ATTACKS: dict[str, tuple[Callable[[], bytes], ErrorCode]] = {
    "400,000 records": (lambda: many(400_000, Codec.NONE), ErrorCode.NONE),
    "400,000 records, gzip": (lambda: many(400_000, Codec.GZIP), ErrorCode.NONE),
    "200 MB in gzip": (lambda: bomb(Codec.GZIP, 200 << 20), ErrorCode.NONE),
    "200 MB in zstd": (lambda: bomb(Codec.ZSTD, 200 << 20), ErrorCode.NONE),
    "200 MB in lz4": (lambda: bomb(Codec.LZ4, 200 << 20), ErrorCode.NONE),
    "zeros in zstd": (lambda: raw_batch(bytes(200 << 20), 1, codec=Codec.ZSTD), ErrorCode.INVALID_RECORD),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    process = ClusterProcess(CONFIG, folder / "log")
    try:
        with RawClient(process.bootstrap_servers, client_id="tests") as client:
            for tp in (VICTIM, TARGET):
                create_topic(client, tp.topic, num_partitions=1, replication_factor=1, configs={})
                client.produce(tp, build_batch([NewRecord(None, b"first", 0)]))
        yield process
        process.stop()
    finally:
        process.kill()


@pytest.mark.parametrize("name", ATTACKS)
def test_others_are_served_meanwhile(broker: ClusterProcess, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    make, expected = ATTACKS[name]
    batch = make()
    before, files = broker.anonymous_bytes(), broker.open_files()
    codes: list[ErrorCode] = []
    attackers = [threading.Thread(target=attack, args=(broker, batch, codes)) for _ in range(ATTACKERS)]
    latencies: list[float] = []
    memory = before
    with RawClient(broker.bootstrap_servers, client_id="victim") as client:
        client.produce(VICTIM, build_batch([NewRecord(None, b"warm", 0)]))
        for attacker in attackers:
            attacker.start()
        while any(attacker.is_alive() for attacker in attackers):
            begin = time.perf_counter()
            client.produce(VICTIM, build_batch([NewRecord(None, b"small", 0)]))
            latencies.append(time.perf_counter() - begin)
            memory = max(memory, broker.anonymous_bytes())
    for attacker in attackers:
        attacker.join()
    assert codes == [expected] * ATTACKERS
    assert memory - before < MEMORY_BYTES_MAX + ATTACKERS * 2 * len(batch)
    until = time.monotonic() + HANG_SECONDS
    while broker.open_files() > files + 2 * ATTACKERS:  # the broker closes connections a little later than clients
        assert time.monotonic() < until, "descriptors are not closed"
        time.sleep(0.1)
    latencies.sort()
    with capsys.disabled():
        worst, median = 1000 * latencies[-1], 1000 * latencies[len(latencies) // 2]
        grown = (memory - before) / 1e6
        report = (
            f"{name} ({len(batch):,} bytes): others {median:.1f} ms, at worst {worst:.1f} ms; memory +{grown:.0f} MB"
        )
        os.write(1, f"\n  {report}\n".encode())


def attack(broker: ClusterProcess, batch: bytes, codes: list[ErrorCode]) -> None:
    with RawClient(broker.bootstrap_servers, client_id="attacker") as client:
        try:
            client.produce(TARGET, bytearray(batch))
        except KafkaError as error:
            codes.append(error.code)
        else:
            codes.append(ErrorCode.NONE)
