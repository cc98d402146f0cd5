"""Regenerates tests/golden/kafka-files with Apache Kafka: `python -m tests.kafka.golden`.

The files are those of a clean stop, as Kafka left them; `told.json` holds what Kafka itself says of them: what its dump
tool prints, what a consumer saw, and the ids that its admin API names. tests/logstore/test_golden_files.py holds our
code against both.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import TopicCollection

from tests.kafka.history import (
    ANSWER_SECONDS,
    NOW,
    SEGMENT_AGE,
    Row,
    consume,
    create_topic,
    write_codecs,
    write_deleted,
    write_transactions,
)
from tests.support.kafka_peer import ROOT, KafkaPeer, dump_log_segments, kafka_peer

GOLDEN = ROOT / "tests" / "golden" / "kafka-files"
TOPICS = ("codecs", "deleted", "transactions")
DUMPED_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
OF_THE_DIRECTORY = (
    ".kafka_cleanshutdown",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)


def main() -> None:
    with TemporaryDirectory() as folder, kafka_peer(Path(folder) / "kafka") as peer:
        peer.start()
        create_topic(peer, "codecs", config={"index.interval.bytes": "200"})
        write_codecs(peer)
        create_topic(peer, "deleted")
        write_deleted(peer)
        peer.stop()
        peer.start()  # under other leader epochs
        write_codecs(peer, timestamp_ms=NOW + 2 * SEGMENT_AGE + 1000)
        create_topic(peer, "transactions")
        write_transactions(peer)
        told = {
            "cluster.id": peer.cluster_id,
            "topic ids": topic_ids(peer),
            "rows": {topic: [shown(row) for row in consume(peer, topic)] for topic in TOPICS},
        }
        peer.stop()
        shutil.rmtree(GOLDEN, ignore_errors=True)
        GOLDEN.mkdir(parents=True)
        for name in OF_THE_DIRECTORY:
            shutil.copy(peer.log_dir / name, GOLDEN)
        for topic in TOPICS:
            shutil.copytree(
                peer.partition_path(topic), GOLDEN / f"{topic}-0", ignore=shutil.ignore_patterns("*.deleted")
            )
    dumped = sorted(path for path in GOLDEN.glob("*-0/*") if path.suffix in DUMPED_SUFFIXES)
    told["dumped"] = {str(path.relative_to(GOLDEN)): dumped_lines(path) for path in dumped}
    (GOLDEN / "told.json").write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")


def dumped_lines(path: Path) -> list[str]:
    """One for each batch or entry; without those that speak of the path, which is of this machine."""
    return [line for line in dump_log_segments(path).splitlines() if line and str(path) not in line]


def topic_ids(peer: KafkaPeer) -> dict[str, str]:
    admin = peer.admin()
    described = admin.describe_topics(TopicCollection(list(TOPICS)))
    ids = {topic: str(future.result(ANSWER_SECONDS).topic_id) for topic, future in described.items()}
    return {topic: text.replace("+", "-").replace("/", "_") for topic, text in ids.items()}  # as Kafka writes them


def shown(row: Row) -> list[object]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else data.decode()

    headers = [[name, text(value)] for name, value in row.headers]
    return [row.offset, text(row.key), text(row.value), row.timestamp_ms, headers]


if __name__ == "__main__":
    main()
