"""How far the groups that this node coordinates are behind the ends of their partitions, in records and in seconds.

The coordinator has the committed offsets; it asks the leaders of other partitions for their end offsets, once for
each scrape, so that without scrapes nothing is asked. Seconds come from the end offsets of earlier scrapes: the record
at the committed offset was written when the end of the log passed it. Timestamps of records are what producers claim.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from raylog.broker.latest_offsets import ask_leader
from raylog.core.clock import Now
from raylog.core.ids import NO_BROKER_ID, BrokerId, TopicPartition
from raylog.groupcoord.shards import GroupShards
from raylog.metadata.image import MetadataImage
from raylog.replication.partition import Partition
from raylog.transport.peer_link import PeerLink

KNOWN_MS_MAX: Final = 2000
"""The lag of a partition is not shown if its end was read longer ago: its leader has not answered."""
REQUEST_PARTITIONS_MAX: Final = 1000
SAMPLES_MAX: Final = 64
"""End offsets that are kept for each partition. When there are more, every other one of the older half is dropped."""
SERIES_MAX: Final = 20_000
"""Committed offsets of which the lag is shown. Clients choose the names of groups."""


class EndOffsets:
    """The end offset of one partition at some times in the past, the oldest first."""

    __slots__ = ("_offsets", "_times_ms")

    def __init__(self) -> None:
        self._times_ms = array("q")
        self._offsets = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def latest(self) -> int:
        return self._offsets[-1]

    @property
    def latest_ms(self) -> int:
        """When the latest one was read."""
        return self._times_ms[-1]

    def add(self, offset: int, now_ms: int) -> None:
        """The end offset now (monotonic). A log that was truncated begins anew."""
        if self._offsets and (offset < self._offsets[-1] or now_ms < self._times_ms[-1]):
            del self._offsets[:], self._times_ms[:]
        if len(self._offsets) >= 2 and self._offsets[-1] == self._offsets[-2] == offset:
            self._times_ms[-1] = now_ms  # nothing was written: the first and the last time say so
            return
        self._offsets.append(offset)
        self._times_ms.append(now_ms)
        if len(self._offsets) > SAMPLES_MAX:
            del self._offsets[1 : SAMPLES_MAX // 2 : 2], self._times_ms[1 : SAMPLES_MAX // 2 : 2]

    def age_ms(self, offset: int, now_ms: int) -> int:
        """For how long there has been a record at `offset`; 0 if there is none.

        Between two known ends it is interpolated. What was written before the first one is as old as that at least.
        """
        if offset >= self._offsets[-1]:
            return 0
        after = bisect_right(self._offsets, offset)
        if after == 0:
            return now_ms - self._times_ms[0]
        before_offset, before_ms = self._offsets[after - 1], self._times_ms[after - 1]
        share = (offset - before_offset) / (self._offsets[after] - before_offset)
        return now_ms - round(before_ms + share * (self._times_ms[after] - before_ms))


class Lag(NamedTuple):
    """One committed offset of a group."""

    group: str
    tp: TopicPartition
    committed_offset: int
    records: int | None
    """How many records the group has not processed; None if the end of the partition is not known."""
    age_ms: int | None
    """For how long the first of them has been there."""


class ConsumerLag:
    """`refresh` before `lags`; neither does anything in between."""

    def __init__(
        self,
        broker_id: BrokerId,
        groups: GroupShards,
        partitions: Mapping[TopicPartition, Partition],
        image: Callable[[], MetadataImage],
        link_to: Callable[[BrokerId], PeerLink],
    ) -> None:
        self._broker_id = broker_id
        self._groups = groups
        self._partitions = partitions
        self._image = image
        self._link_to = link_to
        self._ends: dict[TopicPartition, EndOffsets] = {}
        self._busy: Counter[BrokerId] = Counter()
        """Requests in flight to each leader. One that hangs is not asked again before it has answered or is lost."""

    def refresh(self, now: Now, done: Callable[[], None]) -> None:
        """Find the end of every partition with a committed offset. `done` is called once, unless a leader hangs."""
        wanted: dict[BrokerId, list[TopicPartition]] = {}
        image = self._image()
        committed = self._committed()
        for tp in committed:
            partition = self._partitions.get(tp)
            if partition is not None and partition.is_leader:
                self._end_is(tp, partition.high_watermark, now)
                continue
            shown = image.partition(tp)
            if shown is not None and shown.leader not in (NO_BROKER_ID, self._broker_id, *self._busy):
                wanted.setdefault(shown.leader, []).append(tp)
        self._ends = {tp: ends for tp, ends in self._ends.items() if tp in committed}
        requests = [
            (leader, tps[start : start + REQUEST_PARTITIONS_MAX])
            for leader, tps in wanted.items()
            for start in range(0, len(tps), REQUEST_PARTITIONS_MAX)
        ]
        if not requests:
            done()
            return
        missing = len(requests)

        def ended(leader: BrokerId) -> None:
            nonlocal missing
            missing -= 1
            self._busy -= Counter([leader])
            if not missing:
                done()

        self._busy.update(leader for leader, _ in requests)
        for leader, tps in requests:
            ask_leader(self._link_to(leader), tps, self._end_is, partial(ended, leader), now)

    def lags(self, now: Now) -> Iterator[Lag]:
        """The lag of every committed offset whose partition exists, SERIES_MAX at most."""
        image, left = self._image(), SERIES_MAX
        for shard in self._groups.coordinated():
            for group in sorted(shard.offsets.groups()):
                for tp, committed in list(shard.offsets.committed(group).items()):
                    if image.partition(tp) is None:
                        continue
                    if not left:
                        return
                    left -= 1
                    yield self._lag(group, tp, committed.offset, now)

    def _lag(self, group: str, tp: TopicPartition, offset: int, now: Now) -> Lag:
        ends = self._ends.get(tp)
        if ends is None or now.monotonic_ms - ends.latest_ms > KNOWN_MS_MAX:
            return Lag(group, tp, offset, None, None)
        return Lag(group, tp, offset, max(0, ends.latest - offset), ends.age_ms(offset, now.monotonic_ms))

    def _committed(self) -> set[TopicPartition]:
        found = (
            tp
            for shard in self._groups.coordinated()
            for group in shard.offsets.groups()
            for tp in shard.offsets.committed(group)
        )
        return set(islice(found, SERIES_MAX))

    def _end_is(self, tp: TopicPartition, offset: int, now: Now) -> None:
        self._ends.setdefault(tp, EndOffsets()).add(offset, now.monotonic_ms)
