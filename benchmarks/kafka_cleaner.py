"""(shell) Apache Kafka's log cleaner on logs that raylog has written.

Each log is linked into the directory of a Kafka as several topics with the cleanup policy delete. A topic is cleaned as
soon as its policy becomes compact. The rate is what Kafka logs; the cost is the CPU time of its process meanwhile,
without what it uses when idle.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks.figures import cpu_seconds, progress
from tests.support.kafka_peer import ROOT, KafkaPeer, kafka_peer

SEGMENT_BYTES: Final = 100 << 20
SETTINGS: Final = {
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.dedupe.buffer.size": str(128 << 20),
}
JAVA_OPTIONS: Final = ("-Xmx1g", "-Xms1g")
CLEANED_SECONDS: Final = 300.0
IDLE_SECONDS: Final = 5.0
ADMIN_SECONDS: Final = 60.0
_CLEANED: Final = re.compile(r"cleaned log (?P<topic>\S+)-0 .*?in (?P<seconds>[0-9.,]+) seconds", re.DOTALL)


class Cost(NamedTuple):
    megabytes_per_second: float
    cpu_seconds_per_gb: float


class KafkaCleaner:
    """Cleans a copy of a log at each call."""

    def __init__(self, peer: KafkaPeer, sizes_bytes: Mapping[str, int], idle_load: float) -> None:
        self._peer = peer
        self._admin = peer.admin()
        self._sizes_bytes = sizes_bytes
        self._idle_load = idle_load
        self._copies = dict.fromkeys(sizes_bytes, 0)

    def clean(self, name: str) -> Cost:
        topic = f"{name}.{self._copies[name]}"
        self._copies[name] += 1
        begun, begun_cpu = time.perf_counter(), cpu_seconds(self._peer.pid)
        resource = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                for key, value in (("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.0001"))
            ],
        )
        for done in self._admin.incremental_alter_configs([resource]).values():
            done.result(ADMIN_SECONDS)
        while (seconds := self._logged_seconds(topic)) is None:
            if time.perf_counter() - begun > CLEANED_SECONDS:
                raise TimeoutError(f"Kafka has not cleaned {topic}")
            time.sleep(0.05)
        elapsed, cpu = time.perf_counter() - begun, cpu_seconds(self._peer.pid) - begun_cpu
        size_bytes = self._sizes_bytes[name]
        return Cost(size_bytes / 1e6 / seconds, (cpu - elapsed * self._idle_load) / (size_bytes / 1e9))

    def _logged_seconds(self, topic: str) -> float | None:
        for found in _CLEANED.finditer(self._peer.log()):
            if found["topic"] == topic:
                return float(found["seconds"].replace(",", ""))
        return None


@contextmanager
def kafka_cleaner(path: Path, logs: Mapping[str, Path], runs: int) -> Iterator[KafkaCleaner | None]:
    """A Kafka that can clean each of the logs that many times, after once to let it compile; None without Kafka."""
    if not any(ROOT.glob(".kafka/[0-9]*/classpath")) or shutil.which("java") is None:
        progress("compaction: not compared with Apache Kafka, which script/kafka brings")
        yield None
        return
    with kafka_peer(path, SETTINGS, JAVA_OPTIONS) as peer:
        peer.start()
        topics = {f"{name}.{number}": log for name, log in logs.items() for number in range(runs + 1)}
        config = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": str(SEGMENT_BYTES)}
        admin = peer.admin()
        for done in admin.create_topics([NewTopic(each, 1, 1, config=config) for each in topics]).values():
            done.result(ADMIN_SECONDS)
        del admin
        peer.stop()
        for topic, log in topics.items():
            _replace(peer.partition_path(topic), log)
        peer.start()
        begun_cpu = cpu_seconds(peer.pid)
        time.sleep(IDLE_SECONDS)
        idle_load = (cpu_seconds(peer.pid) - begun_cpu) / IDLE_SECONDS
        sizes_bytes = {name: sum(each.stat().st_size for each in log.glob("*.log")) for name, log in logs.items()}
        cleaner = KafkaCleaner(peer, sizes_bytes, idle_load)
        for name in logs:
            cleaner.clean(name)
        yield cleaner


def _replace(directory: Path, log: Path) -> None:
    """Put the segments of the log in place of those in the directory."""
    for old in directory.iterdir():
        if old.name != "partition.metadata":
            old.unlink()
    last = max(log.glob("*.log"))
    for file in log.iterdir():
        if file.suffix == ".log" and file != last:
            os.link(file, directory / file.name)
        elif file.suffix in (".log", ".index", ".timeindex"):
            shutil.copy(file, directory / file.name)
