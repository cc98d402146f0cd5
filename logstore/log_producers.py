"""The producers of one log: their state as of the log end, their snapshots, and the segments' transaction indexes.

The log itself writes the batches.
"""

from __future__ import annotations

from raylog.core.ids import Offset
from raylog.logstore.disk import Disk
from raylog.logstore.producer_snapshots import ProducerSnapshots
from raylog.logstore.producer_state import AbortedTransaction, BatchMetadata, ProducerState
from raylog.logstore.segment import Segment
from raylog.logstore.segment_list import SegmentList
from raylog.logstore.transaction_index import TransactionIndex
from raylog.protocol.records.batch import BatchHeader
from raylog.protocol.records.markers import EndTransactionMarker, read_marker


class LogProducers:
    """`state` is as of the log end offset. Methods that access files raise the OSErrors of the disk."""

    __slots__ = ("_opened_ms", "_segments", "_snapshots", "aborted_upto", "state")

    def __init__(
        self, disk: Disk, directory: str, segments: SegmentList, state: ProducerState, *, opened_ms: int
    ) -> None:
        self.state = state
        self.aborted_upto = Offset(max(_transactions_of(segment).next_offset for segment in segments))
        """The offset after the newest marker of an aborted transaction since the log was opened; 0 for none. It never
        decreases, since readers may still have files that were truncated, or replaced by a cleaning."""
        self._snapshots = ProducerSnapshots(disk, directory)
        self._segments = segments
        self._opened_ms = opened_ms

    # Appending

    def check(
        self, header: BatchHeader, record_set: memoryview
    ) -> tuple[EndTransactionMarker | None, BatchMetadata | None]:
        """(the marker in a control batch, the earlier append of a duplicate). Raises KafkaError like `ProducerState`.

        The batch is the first of `record_set` and has a producer id.
        """
        if not header.is_control:
            return None, self.state.check(header)
        marker = read_marker(record_set, 0, header)
        if marker is not None:
            self.state.check_marker(header, marker)
        return marker, None

    def note(self, header: BatchHeader, *, base_offset: int, now_ms: int, marker: EndTransactionMarker | None) -> None:
        """The batch was appended to the active segment at `base_offset`."""
        aborted = self.state.update(header, base_offset=base_offset, now_ms=now_ms, marker=marker)
        if aborted is not None:
            _transactions_of(self._segments.active).add(aborted)
            self.aborted_upto = Offset(aborted.last_offset + 1)

    # Reading

    def last_stable_offset(self, high_watermark: Offset, *, log_start_offset: Offset) -> Offset:
        """The offset below which all transactions are complete and their markers committed."""
        first = self.state.first_unstable_offset(high_watermark)
        return high_watermark if first is None else min(max(Offset(first), log_start_offset), high_watermark)

    def aborted_transactions(self, start: int, upto: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [start, upto), ordered by their end."""
        found: list[AbortedTransaction] = []
        for number in range(self._segments.number_of(start), len(self._segments)):
            if _transactions_of(self._segments[number]).collect(start, upto, found):
                break
        return found

    def list_aborted(
        self, start: int, *, wanted: int, upto: int, count_max: int
    ) -> tuple[list[AbortedTransaction], int]:
        """(aborted transactions with records in [start, end), ordered by their end; `end`).

        `end` is `upto`; or less, but at least `wanted`, if there are more than `count_max`.
        """
        found: list[AbortedTransaction] = []
        for number in range(self._segments.number_of(start), len(self._segments)):
            for entry in _transactions_of(self._segments[number]).ending_from(start):
                if entry.first_offset < upto:
                    found.append(entry)
                # Those that end later begin at this offset or behind it.
                stable = entry.last_stable_offset
                if stable >= upto:
                    return found, upto
                if len(found) >= count_max and stable >= wanted:
                    return found, stable
        return found, upto

    # Snapshots

    def write_snapshot(self, offset: int, *, sync: bool) -> None:
        """Write a snapshot of the current state; `offset` is the log end offset."""
        self._snapshots.write(self.state, offset, sync=sync)

    def snapshot_path(self, offset: int) -> str:
        """The path of the snapshot as of `offset`."""
        return self._snapshots.path_at(offset)

    def retire_snapshot(self, offset: int) -> list[str]:
        """Retire the snapshot as of `offset`, if it exists, like `Segment.retire`."""
        return self._snapshots.retire(offset)

    def remove_snapshots(self) -> None:
        """Delete all snapshots. Durable on return."""
        self._snapshots.remove_all()

    def reload(self, log_end_offset: int) -> None:
        """Rebuild the state after a truncation. Remaining producers keep their last-seen times."""
        before = self.state.producers()
        self.state = self._snapshots.load(self._segments, log_end_offset=log_end_offset, now_ms=self._opened_ms)
        for producer_id, entry in self.state.producers().items():
            if producer_id in before:
                entry.last_seen_ms = before[producer_id].last_seen_ms


def _transactions_of(segment: Segment) -> TransactionIndex:
    assert segment.transactions is not None  # rebuilt on opening if it could not be read
    return segment.transactions
