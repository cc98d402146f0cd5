"""Which partition a record goes to: as Kafka's default partitioner decides, so that every client agrees about a key."""

from __future__ import annotations

from collections.abc import Callable

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24


def murmur2(data: bytes) -> int:
    """The 32-bit hash Kafka's Java client has of a key, as an unsigned number.

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
    """The partition of every record with this key, while the number of partitions stays."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class Partitioner:
    """Keyed records go where their key hashes to; the others to one partition at a time, changed by `next_batch`."""

    def __init__(self, partition_count: int, choose: Callable[[int], int]) -> None:
        """`choose` answers any number below the one it is given."""
        self._partition_count = partition_count
        self._choose = choose
        self._sticky = choose(partition_count)

    def partition_for(self, key: bytes | None) -> int:
        return self._sticky if key is None else partition_for_key(key, self._partition_count)

    def next_batch(self) -> None:
        """What was collected has been sent: records without a key go elsewhere now (KIP-480)."""
        self._sticky = self._choose(self._partition_count)
