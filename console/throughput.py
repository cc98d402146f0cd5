"""Throughput from two looks at the ends and sizes of all partitions. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from raylog.console.series import Series
from raylog.core.ids import TopicPartition

TOPICS_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Look:
    """Log end offsets, and the sizes of the leaders' logs; `sizes` is None where they may not be seen."""

    time_ms: int
    ends: Mapping[TopicPartition, int]
    sizes: Mapping[TopicPartition, int] | None


@dataclass(slots=True)
class Throughput:
    """Records and bytes per second. Bytes are those added net of those deleted, 0 at least for each partition.

    A partition that one of the two looks does not have, such as a new one or one without a leader, has no rate.
    """

    series: Series = field(default_factory=Series)
    last: Look | None = None
    topics: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, look: Look) -> None:
        last = self.last
        if last is not None and look.time_ms <= last.time_ms:
            return
        self.last = look
        if last is None:
            return
        seconds = (look.time_ms - last.time_ms) / 1000
        records = _growth(last.ends, look.ends)
        added = _growth(last.sizes or {}, look.sizes or {})
        self.topics = {topic: (count / seconds, added.get(topic, 0) / seconds) for topic, count in records.items()}
        self.series.add(look.time_ms, sum(records.values()) / seconds, sum(added.values()) / seconds)

    def shown(self) -> dict[str, Any]:
        busiest = sorted(self.topics.items(), key=lambda each: (-each[1][0], each[0]))[:TOPICS_SHOWN]
        return {
            "points": self.series.shown(),
            "topics": [
                {"name": name, "records_per_sec": records, "bytes_per_sec": size} for name, (records, size) in busiest
            ],
            "bytes_known": self.last is not None and self.last.sizes is not None,
        }


def _growth(before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]) -> dict[str, int]:
    """By topic, without topics that have not grown."""
    grown: defaultdict[str, int] = defaultdict(int)
    for tp, end in after.items():
        start = before.get(tp)
        if start is not None and end > start:
            grown[tp.topic] += end - start
    return grown
