"""The `.snapshot` files of one partition: the producer state as of an offset, so that a start need not scan the log.

A snapshot is written at the start of a segment and when a log is closed. It need not be synced, because its checksum
detects a partial file. A snapshot of truncated records must be durably deleted before new records reuse their offsets.
"""

from __future__ import annotations

import logging

from raylog.logstore.disk import Disk
from raylog.logstore.producer_state import AbortedTransaction, ProducerState
from raylog.logstore.segment import DELETED_SUFFIX, Segment, file_name
from raylog.logstore.segment_list import SegmentList

SNAPSHOT_SUFFIX = ".snapshot"

_RECALL_BYTES = 8 << 20
"""How many bytes before a snapshot are scanned for earlier batches of its producers."""

events = logging.getLogger("raylog.logstore")


class ProducerSnapshots:
    """The snapshots in one directory. Stateless; methods raise the OSErrors of the disk."""

    __slots__ = ("_directory", "_disk")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def write(self, producers: ProducerState, offset: int, *, sync: bool) -> None:
        """Write a snapshot of the state as of `offset`."""
        path = self.path_at(offset)
        if self._disk.exists(path):
            self._disk.unlink(path)
        handle = self._disk.open(path, create=True)
        try:
            self._disk.pwrite(handle, producers.encode_snapshot(), 0)
            if sync:
                self._disk.fsync(handle)
        finally:
            self._disk.close(handle)

    def retire(self, offset: int) -> list[str]:
        """Retire the snapshot as of `offset`, if it exists, like `Segment.retire`."""
        path = self.path_at(offset)
        if not self._disk.exists(path):
            return []
        self._disk.rename(path, path + DELETED_SUFFIX)
        return [path + DELETED_SUFFIX]

    def remove_all(self) -> None:
        self._remove(self._offsets())

    def load(self, segments: SegmentList, *, log_end_offset: int, now_ms: int) -> ProducerState:
        """Producer state as of the log end: the latest valid snapshot, then the batches after it.

        Missing transaction indexes of segments are rebuilt from an earlier snapshot; the producers still come from the
        latest one, which may have been written to drop some of them (partition_copy.py). Snapshots outside the log, and
        all but the latest that belong to no segment, are deleted.
        """
        offsets = self._offsets()
        kept = [offset for offset in offsets if segments[0].base_offset <= offset <= log_end_offset]
        kept = [offset for offset in kept if segments.has_base(offset) or offset == kept[-1]]
        self._remove([offset for offset in offsets if offset not in kept])
        unknown = min((segment.base_offset for segment in segments if segment.transactions is None), default=None)
        if unknown is not None:
            before, replay_from = self._newest(kept, segments, upto=unknown, now_ms=now_ms)
            for number in range(segments.number_of(replay_from), len(segments)):
                _replay(segments[number], before, replay_from, now_ms)
        producers, replay_from = self._newest(kept, segments, upto=log_end_offset, now_ms=now_ms)
        _recall(producers, segments, replay_from)
        if replay_from < log_end_offset:
            for number in range(segments.number_of(replay_from), len(segments)):
                _replay(segments[number], producers, replay_from, now_ms)
        return producers

    def _newest(
        self, offsets: list[int], segments: SegmentList, *, upto: int, now_ms: int
    ) -> tuple[ProducerState, int]:
        """(producers, offset) of the latest valid snapshot up to `upto`; no producers and the log start without one."""
        for offset in reversed(offsets):
            if offset > upto:
                continue
            try:
                return ProducerState.decode_snapshot(self._disk.read_file(self.path_at(offset)), now_ms=now_ms), offset
            except ValueError:
                # A power failure can damage snapshots, since they are not synced.
                events.info("producer snapshot malformed", extra={"path": self.path_at(offset)})
                continue
        return ProducerState(), segments[0].base_offset

    def _offsets(self) -> list[int]:
        """The offsets of all snapshots, in order."""
        offsets = []
        for name in self._disk.listdir(self._directory):
            stem, dot, suffix = name.partition(".")
            if dot + suffix == SNAPSHOT_SUFFIX and len(stem) == 20 and stem.isdecimal():
                offsets.append(int(stem))
        return offsets

    def _remove(self, offsets: list[int]) -> None:
        for offset in offsets:
            self._disk.unlink(self.path_at(offset))
        if offsets:
            self._disk.fsync_dir(self._directory)

    def path_at(self, offset: int) -> str:
        """The path of the snapshot as of `offset`."""
        return f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"


def _replay(segment: Segment, producers: ProducerState, replay_from: int, now_ms: int) -> None:
    """Update `producers` with the batches from `replay_from` on."""
    aborted: list[AbortedTransaction] = []
    for position, header in segment.scan():
        if header.last_offset < replay_from or header.producer_id < 0:
            continue
        marker = segment.marker_at(position, header) if header.is_control else None
        ended = producers.update(header, base_offset=header.base_offset, now_ms=now_ms, marker=marker)
        if ended is not None:
            aborted.append(ended)
    if segment.transactions is None:
        segment.remake_transactions(aborted)


def _recall(producers: ProducerState, segments: SegmentList, offset: int) -> None:
    """Restore earlier batches from the log, since a snapshot has only the last batch of each producer."""
    if not len(producers):
        return
    budget_bytes = _RECALL_BYTES
    for segment in reversed(list(segments)):
        if segment.base_offset >= offset or budget_bytes <= 0:
            continue
        for header in reversed(segment.headers_before(offset, budget_bytes=budget_bytes)):
            producers.recall(header)
        budget_bytes -= segment.size_bytes
