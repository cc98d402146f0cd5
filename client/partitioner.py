"""Chooses the partition of a record like Kafka's default partitioner, so that all clients agree on keys."""

from __future__ import annotations

from collections.abc import Callable

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24


def murmur2(data: bytes) -> int:
    """The 32-bit hash that Kafka's Java client computes of a key, as an unsigned number.

    Source: org.apache.kafka.common.utils.Utils.murmur2; Austin Appleby's MurmurHash2 with a fixed seed.
    """
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ word
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


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
