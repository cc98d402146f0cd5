"""Periodic work on all partitions of a broker, in bounded steps between requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from raylog.broker.partition_directories import Background, disk_may_fail
from raylog.core.clock import Now
from raylog.core.ids import TopicPartition
from raylog.replication.partition import Partition

STEP_LOOKS: Final = 200
"""Partitions that a step looks at, if there is nothing to do for them: less than a millisecond."""


class PartitionRound:
    """One kind of work. A round that takes longer than its interval is not begun again before it ends."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        background: Background,
        work: Callable[[Partition, Now], bool],
        *,
        on_progress: Callable[[Now], None],
    ) -> None:
        """`work` does a bounded piece of work for a partition, and returns False if there is nothing to do. It may
        raise KafkaError. A step ends after one piece; `on_progress` is called after each step."""
        self._partitions = partitions
        self._background = background
        self._work = work
        self._on_progress = on_progress
        self._remaining: deque[TopicPartition] = deque()

    def begin(self) -> None:
        if not self._remaining and self._partitions:
            self._remaining.extend(self._partitions)
            self._background.add_steps(self._step)

    def _step(self, now: Now) -> bool:
        worked = False
        for _ in range(STEP_LOOKS):
            if worked or not self._remaining:
                break
            partition = self._partitions.get(self._remaining[0])
            if partition is not None:
                with disk_may_fail():
                    worked = self._work(partition, now)
            if not worked:  # otherwise there may be more to do for it
                self._remaining.popleft()
        self._on_progress(now)
        return bool(self._remaining)
