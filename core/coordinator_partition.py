"""The partition of an internal topic that stores a group or a transactional id; its leader is the coordinator."""

from __future__ import annotations


def coordinator_partition(key: str, partition_count: int) -> int:
    """Kafka's rule: the absolute value of Java's String.hashCode, modulo the number of partitions."""
    encoded = key.encode("utf-16-be", "surrogatepass")
    hash_code = 0
    for position in range(0, len(encoded), 2):
        hash_code = (31 * hash_code + int.from_bytes(encoded[position : position + 2], "big")) & 0xFFFFFFFF
    signed = hash_code - (1 << 32) if hash_code >= 1 << 31 else hash_code
    return (0 if signed == -(1 << 31) else abs(signed)) % partition_count
