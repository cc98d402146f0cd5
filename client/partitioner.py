"""Chooses the partition of a record like Kafka's default partitioner, so that all clients agree on keys."""

from __future__ import annotations

from collections.abc import Callable

from raylog.protocol.records.record_encoding import murmur2


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of all records with this key, as long as the number of partitions does not change."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class Partitioner:
    """Records with a key go to the partition of its hash, others to one partition until `next_batch`."""

    def __init__(self, partition_count: int, choose: Callable[[int], int]) -> None:
        """`choose(n)` returns any number from 0 to n - 1."""
        self._partition_count = partition_count
        self._choose = choose
        self._sticky = choose(partition_count)

    def partition_for(self, key: bytes | None) -> int:
        return self._sticky if key is None else partition_for_key(key, self._partition_count)

    def next_batch(self) -> None:
        """A batch was sent: records without a key now go to another partition (KIP-480)."""
        self._sticky = self._choose(self._partition_count)
