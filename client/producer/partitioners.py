"""Which partition a record goes to when the caller has not chosen one. Pure.

Sources: KIP-480 and KIP-794 for records without a key; murmur2 of Kafka's Java client for those with one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, count

from raylog.client.partitioner import partition_for_key
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition

Choose = Callable[[int], int]
"""`choose(n)` returns any number from 0 to n - 1."""
Partition = Callable[[str, bytes | None, bytes | None, int], int]
"""A partitioner: the partition for topic, key, value and the number of partitions."""


class StickyTopic:
    """Records without a key of one topic: to one partition until it has got as much as a batch, then to another."""

    __slots__ = ("_batch_bytes", "_choose", "current", "current_bytes")

    def __init__(self, choose: Choose, batch_bytes: int) -> None:
        """`batch_bytes` is the room for records in a batch."""
        self._choose = choose
        self._batch_bytes = batch_bytes
        self.current = -1
        """The partition in use."""
        self.current_bytes = 0
        """What it has got since it was chosen."""

    def partition(
        self,
        record_bytes: int,
        partition_count: int,
        waiting: Callable[[], Sequence[int]],
        fits: Callable[[int], bool] = lambda _: False,
    ) -> int:
        """`waiting` tells how many batches wait for each partition; empty to treat all alike. `fits` tells whether the
        last batch of a partition takes the record: it is filled before another partition is chosen.
        """
        enough = self.current_bytes + record_bytes > self._batch_bytes
        if self.current < 0 or self.current >= partition_count or (enough and not fits(self.current)):
            self.current = self._next(partition_count, waiting())
            self.current_bytes = 0
        self.current_bytes += record_bytes
        return self.current

    def _next(self, partition_count: int, waiting: Sequence[int]) -> int:
        """The more batches wait, the less likely a partition is chosen."""
        if not waiting or max(waiting) == min(waiting):
            return self._choose(partition_count)
        longest = max(waiting)
        sums = list(accumulate(longest + 1 - length for length in waiting))
        return bisect_right(sums, self._choose(sums[-1]))


class DefaultPartitioner:
    """Chooses by the hash of the key; records without a key stick to a partition for a batch."""

    def __init__(
        self,
        choose: Choose,
        batch_bytes: int,
        *,
        ignore_keys: bool,
        waiting: Callable[[str, int], Sequence[int]],
        fits: Callable[[TopicPartition, int], bool],
    ) -> None:
        """`waiting(topic, partitions)` tells how many batches wait for each partition; empty to treat all alike.
        `fits(tp, bytes)` tells whether the last batch of a partition takes a record.
        """
        self._choose = choose
        self._batch_bytes = batch_bytes
        self._ignore_keys = ignore_keys
        self._waiting = waiting
        self._fits = fits
        self._sticky: dict[str, StickyTopic] = {}

    def partition(self, topic: str, key: bytes | None, record_bytes: int, partition_count: int) -> int:
        if key is not None and not self._ignore_keys:
            return partition_for_key(key, partition_count)
        waiting = partial(self._waiting, topic, partition_count)
        return self.sticky(topic).partition(
            record_bytes,
            partition_count,
            waiting,
            lambda current: self._fits(TopicPartition(topic, current), record_bytes),
        )

    def sticky(self, topic: str) -> StickyTopic:
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = self._sticky[topic] = StickyTopic(self._choose, self._batch_bytes)
        return sticky


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


class PriorityPartitioner:
    """Divides the partitions of a topic among priorities, so that consumers can read the urgent ones first.

    A partitioner for `Producer(partitioner=...)`. Within the range of its priority a record with a key goes to the
    partition of its hash, others to one partition until a batch is full, then to the next.
    """

    def __init__(
        self,
        shares: Mapping[str, int],
        priority_of: Callable[[str, bytes | None, bytes | None], str],
        *,
        batch_bytes: int = 16_384,
    ) -> None:
        """`shares` has the weight of each priority, the first one gets the lowest partitions; `priority_of(topic, key,
        value)` returns the priority of a record. `batch_bytes` should be batch.size. Raises ConfigError.
        """
        if not shares or min(shares.values()) < 1:
            raise ConfigError(f"shares={dict(shares)}: each priority needs a weight of at least 1")
        self._shares = dict(shares)
        self._priority_of = priority_of
        self._batch_bytes = batch_bytes
        self._turns = count()
        self._sticky: dict[tuple[str, str], StickyTopic] = {}

    def partitions(self, priority: str, partition_count: int) -> range:
        """The partitions of this priority: at least one, and the others by weight.

        Raises KafkaError for an unknown priority, and for a topic with fewer partitions than there are priorities.
        """
        names = list(self._shares)
        if priority not in self._shares:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"priority {priority!r}: must be one of {', '.join(names)}")
        if partition_count < len(names):
            text = f"{partition_count} partitions cannot be divided among {len(names)} priorities"
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
        total, spare, at = sum(self._shares.values()), partition_count - len(names), names.index(priority)
        before = sum(self._shares[name] for name in names[:at])
        return range(
            at + spare * before // total,
            at + 1 + spare * (before + self._shares[priority]) // total,
        )

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int:
        priority = self._priority_of(topic, key, value)
        found = self.partitions(priority, partition_count)
        if key is not None:
            return found[partition_for_key(key, len(found))]
        sticky = self._sticky.get((topic, priority))
        if sticky is None:
            sticky = self._sticky[topic, priority] = StickyTopic(lambda n: next(self._turns) % n, self._batch_bytes)
        return found[sticky.partition(len(value or b""), len(found), tuple)]
