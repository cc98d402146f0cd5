"""Which partition of an internal topic keeps a group, or a transactional id; whoever leads it coordinates."""

from __future__ import annotations


def coordinator_partition(key: str, partition_count: int) -> int:
    """|hash| modulo the count, with Java's String.hashCode, as every Kafka does."""
    encoded = key.encode("utf-16-be", "surrogatepass")
    hash_code = 0
    for position in range(0, len(encoded), 2):
        hash_code = (31 * hash_code + int.from_bytes(encoded[position : position + 2], "big")) & 0xFFFFFFFF
    signed = hash_code - (1 << 32) if hash_code >= 1 << 31 else hash_code
    return (0 if signed == -(1 << 31) else abs(signed)) % partition_count
