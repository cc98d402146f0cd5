"""(shell) Ack latency on a broker while it cleans a log of another topic, and before, in turn."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from confluent_kafka import Message, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks.figures import Figure, figure, percentile, progress
from benchmarks.turns import longest_turn

KEYS: Final = 100_000
VALUE_BYTES: Final = 1000
PER_SECOND: Final = 250
IDLE_SECONDS: Final = 8.0
CLEANED_SECONDS: Final = 300.0
CONFIG: Final = {
    "num.partitions": 1,
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.segment.bytes": 20 << 20,
    "log.segment.delete.delay.ms": 0,
}


def measure(runs: int, megabytes: int, folder: str | None) -> list[Figure]:
    import raylog

    samples: dict[str, list[float]] = {name: [] for name in ("idle p50", "idle p99", "p50", "p99", "p99 to idle")}
    turns: list[float] = []
    with (
        TemporaryDirectory(prefix="raylog-bench-", dir=folder) as path,
        raylog.start("bench-cleaning", data_dir=f"{path}/data", config=CONFIG) as cluster,
    ):
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for run in range(runs):
            topic = f"table-{run}"
            _fill(admin, servers, topic, megabytes)
            idle = _latencies(servers, _after(IDLE_SECONDS))
            longest_turn(cluster)
            _compact(admin, topic)
            cleaning = _latencies(servers, _cleaned(Path(path), topic))
            turns += longest_turn(cluster).runs
            idle += _latencies(servers, _after(IDLE_SECONDS))
            before, during = sorted(idle), sorted(cleaning)
            for name, ordered in (("idle ", before), ("", during)):
                samples[f"{name}p50"].append(percentile(ordered, 50))
                samples[f"{name}p99"].append(percentile(ordered, 99))
            samples["p99 to idle"].append(samples["p99"][-1] / samples["idle p99"][-1])
            progress(
                f"run {run}: ack latency of {len(before)} records p50 {percentile(before, 50):.2f} ms, p99"
                f" {percentile(before, 99):.2f} ms; of {len(during)} during a cleaning {percentile(during, 50):.2f} and"
                f" {percentile(during, 99):.2f} ms"
            )
            admin.delete_topics([topic])[topic].result()
    return [
        figure("ack latency p50 of an idle broker", "ms", samples["idle p50"]),
        figure("ack latency p50 while it cleans", "ms", samples["p50"]),
        figure("ack latency p99 of an idle broker", "ms", samples["idle p99"]),
        figure("ack latency p99 while it cleans", "ms", samples["p99"]),
        figure("  to that of an idle one, run by run", "ratio", samples["p99 to idle"], solid=1.5, aim=1.2),
        figure("  longest turn of the event loop while it cleans", "ms", turns),
    ]


def _fill(admin: AdminClient, servers: str, topic: str, megabytes: int) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    rng = random.Random(1)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "batch.size": 16_000, "acks": "1"})
    value = rng.randbytes(VALUE_BYTES)
    for _ in range(megabytes * 1_000_000 // VALUE_BYTES):
        producer.produce(topic, value, b"key-%d" % rng.randrange(KEYS))
        producer.poll(0)
        while len(producer) > 50_000:
            producer.poll(0.1)
    producer.flush()


def _compact(admin: AdminClient, topic: str) -> None:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def _cleaned(path: Path, topic: str) -> Callable[[], bool]:
    """Whether the topic is in a checkpoint of what was cleaned."""
    end = time.monotonic() + CLEANED_SECONDS

    def is_cleaned() -> bool:
        if time.monotonic() > end:
            raise TimeoutError(f"{topic} was not cleaned")
        files = path.glob("data/**/cleaner-offset-checkpoint")
        return any(f"{topic} 0 " in each.read_text() for each in files)

    return is_cleaned


def _latencies(servers: str, done: Callable[[], bool]) -> list[float]:
    """Of records that are sent one at a time, in milliseconds, as librdkafka measures them."""
    latencies: list[float] = []

    def delivered(_: object, message: Message) -> None:
        latencies.append((message.latency() or 0.0) * 1000)

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "acks": "all"})
    producer.produce("latency", b"warm")
    producer.flush()
    begun, sent = time.monotonic(), 0
    while sent % PER_SECOND or not done():
        producer.produce("latency", b"x", on_delivery=delivered)
        sent += 1
        while (wait_seconds := begun + sent / PER_SECOND - time.monotonic()) > 0:
            producer.poll(wait_seconds)
    producer.flush()
    return latencies
