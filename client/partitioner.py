"""Chooses the partition of a key like Kafka's default partitioner, so that all clients agree on keys."""

from __future__ import annotations

from raylog.protocol.records.record_encoding import murmur2


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of all records with this key, as long as the number of partitions does not change."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
