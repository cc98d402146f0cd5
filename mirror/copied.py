"""Where copied records are in both clusters. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raylog.core.ids import TopicPartition
from raylog.mirror.batches import OutgoingBatch


@dataclass(frozen=True, slots=True)
class Copied:
    """A run of records that are committed in the target, and follow each other without a gap in both clusters."""

    tp: TopicPartition
    """In the source."""
    source_offset: int
    """Of the first one. BEFORE_FIRST: the topic was created again, and its records come behind `target_offset`."""
    target_offset: int
    count: int


def copied_runs(tp: TopicPartition, batch: OutgoingBatch, appended: Iterable[tuple[int, int]]) -> Iterator[Copied]:
    """The runs of a batch that was appended in parts of (base offset, number of records), -1 for an unknown offset.

    Of a batch with gaps between its records only the first and the last one are known.
    """
    has_gaps = batch.last_offset - batch.first_offset + 1 != batch.record_count
    passed = 0
    for base_offset, count in appended:
        if base_offset >= 0 and not has_gaps:
            yield Copied(tp, batch.first_offset + passed, base_offset, count)
        elif base_offset >= 0 and passed == 0:
            yield Copied(tp, batch.first_offset, base_offset, 1)
        passed += count
        if base_offset >= 0 and has_gaps and passed == batch.record_count > 1:
            yield Copied(tp, batch.last_offset, base_offset + count - 1, 1)
