"""Which partition a record goes to when the caller has not chosen one. Pure.

Sources: KIP-480 and KIP-794 for records without a key; murmur2 of Kafka's Java client for those with one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from raylog.client.partitioner import partition_for_key

Choose = Callable[[int], int]
"""`choose(n)` returns any number from 0 to n - 1."""
Partition = Callable[[str, bytes | None, bytes | None, int], int]
"""A partitioner: the partition for topic, key, value and the number of partitions."""
NONE_WAIT: Final[Sequence[int]] = ()


class StickyTopic:
    """Records without a key of one topic: to one partition until it has got as much as a batch, then to another."""

    def __init__(self, choose: Choose, batch_bytes: int) -> None:
        self._choose = choose
        self._batch_bytes = batch_bytes
        self._partition = -1
        self._bytes = 0

    def partition(self, record_bytes: int, partition_count: int, waiting: Sequence[int]) -> int:
        """`waiting` are the numbers of batches that wait for each partition; empty to treat all alike."""
        if self._partition < 0 or self._partition >= partition_count or self._bytes >= self._batch_bytes:
            self._partition = self._next(partition_count, waiting)
            self._bytes = 0
        self._bytes += record_bytes
        return self._partition

    def _next(self, partition_count: int, waiting: Sequence[int]) -> int:
        """The more batches wait, the less likely a partition is chosen."""
        if not waiting or max(waiting) == min(waiting):
            return self._choose(partition_count)
        longest = max(waiting)
        sums = list(accumulate(longest + 1 - length for length in waiting))
        return bisect_right(sums, self._choose(sums[-1]))


class DefaultPartitioner:
    """By the hash of the key; records without one stick to a partition for a batch."""

    def __init__(
        self, choose: Choose, batch_bytes: int, *, ignore_keys: bool, waiting: Callable[[str, int], Sequence[int]]
    ) -> None:
        """`waiting(topic, partitions)` tells how many batches wait for each partition; empty to treat all alike."""
        self._choose = choose
        self._batch_bytes = batch_bytes
        self._ignore_keys = ignore_keys
        self._waiting = waiting
        self._sticky: dict[str, StickyTopic] = {}

    def partition(self, topic: str, key: bytes | None, record_bytes: int, partition_count: int) -> int:
        if key is not None and not self._ignore_keys:
            return partition_for_key(key, partition_count)
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = self._sticky[topic] = StickyTopic(self._choose, self._batch_bytes)
        return sticky.partition(record_bytes, partition_count, self._waiting(topic, partition_count))


class RoundRobinPartitioner:
    """Each record of a topic goes to the next partition, whatever its key."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._next: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, record_bytes: int, partition_count: int) -> int:
        last = self._next.get(topic)
        chosen = self._choose(partition_count) if last is None else (last + 1) % partition_count
        self._next[topic] = chosen
        return chosen
