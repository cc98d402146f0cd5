"""Which partition a record goes to: each of the ways in which a producer chooses, and what it does to the same records.

python -m examples.partitioners
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import raylog

PARTITIONS = 6
RECORDS = 600


def by_country(topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int:
    """A partitioner of one's own: customers of one country, whose number is behind the dash, stay together."""
    return int((key or b"-0").split(b"-")[1]) % partition_count


priorities = raylog.PriorityPartitioner(
    {"urgent": 1, "normal": 2}, priority_of=lambda topic, key, value: "urgent" if value == b"!" else "normal"
)

WAYS: Mapping[str, Mapping[str, Any]] = {
    "by the key's hash, as in Kafka's Java client": {},
    "whichever partition's batch is open": {"partitioner_ignore_keys": True, "batch_size": 200},
    "each in turn": {"partitioner_class": "RoundRobinPartitioner"},
    "by a function": {"partitioner": by_country},
    "by priority": {"partitioner": priorities},
}
"""The settings of a producer for each way."""


def partitions_of(servers: str, topic: str, settings: Mapping[str, Any]) -> dict[bytes, Counter[int]]:
    """By key, how many of its records went to each partition. One record in ten is urgent."""
    with raylog.AdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([raylog.NewTopic(topic, PARTITIONS)])
    found: dict[bytes, Counter[int]] = {}
    with raylog.Producer(bootstrap_servers=servers, linger_ms=5, **settings) as producer:
        for number in range(RECORDS):
            key = b"customer-%d" % (number % 12)
            value = b"!" if number % 10 == 0 else b"."
            producer.send(topic, value, key, on_delivery=Count(found.setdefault(key, Counter())))
    return found


class Count:
    """A callback that counts the partition of its record."""

    def __init__(self, counter: Counter[int]) -> None:
        self._counter = counter

    def __call__(self, error: raylog.KafkaError | None, metadata: raylog.RecordMetadata | None) -> None:
        if metadata is not None:
            self._counter[metadata.partition] += 1


def main() -> None:
    with raylog.start("partitioners") as cluster:
        for number, (way, settings) in enumerate(WAYS.items()):
            found = partitions_of(cluster.bootstrap_servers, f"records-{number}", settings)
            total = sum(found.values(), Counter[int]())
            spread = sum(len(counter) > 1 for counter in found.values())
            print(f"{way}: {dict(sorted(total.items()))}; {spread} of {len(found)} keys in several partitions")


if __name__ == "__main__":
    main()
