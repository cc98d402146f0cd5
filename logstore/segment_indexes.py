"""Both indexes of one segment, and their files: `.index` finds an offset, `.timeindex` a timestamp.

They are complete in memory. The files of the active segment are written when it is closed, those of a closed segment
that are missing or wrong are made anew and replaced as a whole, so that a closed segment never shows a part of one.
"""

from __future__ import annotations

from raylog.logstore import offset_index, time_index
from raylog.logstore.checkpoint import write_file_atomically
from raylog.logstore.disk import Disk
from raylog.logstore.offset_index import OffsetIndex
from raylog.logstore.time_index import TimeIndex

OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"


class SegmentIndexes:
    """Empty when made; `read` gives those that the files hold. `stem` is the files' path without a suffix."""

    __slots__ = ("_disk", "_stem", "offsets", "times")

    def __init__(self, disk: Disk, stem: str) -> None:
        self._disk = disk
        self._stem = stem
        self.offsets = OffsetIndex()
        self.times = TimeIndex()

    @classmethod
    def read(cls, disk: Disk, stem: str, *, log_size: int) -> SegmentIndexes | None:
        """None when a file is missing, or holds what cannot be the index of a log of `log_size` bytes."""
        indexes = cls(disk, stem)
        try:
            indexes.offsets = OffsetIndex.decode(disk.read_file(stem + OFFSET_INDEX_SUFFIX), log_size=log_size)
            indexes.times = TimeIndex.decode(disk.read_file(stem + TIME_INDEX_SUFFIX))
        except (FileNotFoundError, ValueError):
            return None
        return indexes

    def is_full(self, segment_index_bytes: int) -> bool:
        """One entry of the time index is kept free for the last timestamp."""
        if len(self.times) >= segment_index_bytes // time_index.ENTRY_SIZE - 1:
            return True
        return len(self.offsets) >= segment_index_bytes // offset_index.ENTRY_SIZE

    def are_useless(self, *, log_size: int, index_interval: int) -> bool:
        """Whether they lost their entries, as files that a crash left empty: not wrong, but no help."""
        if not len(self.offsets):
            return log_size > 2 * index_interval
        return not len(self.times)

    def write(self, *, sync: bool) -> None:
        """Adds to the files what they do not hold yet."""
        self._write(OFFSET_INDEX_SUFFIX, self.offsets, offset_index.ENTRY_SIZE, sync=sync)
        self._write(TIME_INDEX_SUFFIX, self.times, time_index.ENTRY_SIZE, sync=sync)

    def replace(self) -> None:
        """Writes both files anew: after a crash within, each is the old one or the new one, whole."""
        for suffix, index in ((OFFSET_INDEX_SUFFIX, self.offsets), (TIME_INDEX_SUFFIX, self.times)):
            write_file_atomically(self._disk, self._stem + suffix, index.encode_from(0))
            index.written = len(index)

    def _write(self, suffix: str, index: OffsetIndex | TimeIndex, entry_size: int, *, sync: bool) -> None:
        path = self._stem + suffix
        handle = self._disk.open(path, create=not self._disk.exists(path))
        try:
            size = index.written * entry_size
            if self._disk.size(handle) != size:
                self._disk.truncate(handle, size)
            if index.written < len(index):
                self._disk.pwrite(handle, index.encode_from(index.written), size)
                index.written = len(index)
            if sync:
                self._disk.fsync(handle)
        finally:
            self._disk.close(handle)


def read_last_time_entry(disk: Disk, stem: str) -> tuple[int, int] | None:
    """(timestamp, relative offset) of the last entry in the file; None when it is missing, empty or no whole number."""
    try:
        handle = disk.open(stem + TIME_INDEX_SUFFIX, writable=False)
    except FileNotFoundError:
        return None
    try:
        size = disk.size(handle)
        if not size or size % time_index.ENTRY_SIZE:
            return None
        entry = disk.pread(handle, time_index.ENTRY_SIZE, size - time_index.ENTRY_SIZE)
    finally:
        disk.close(handle)
    return time_index.decode_entry(entry) if len(entry) == time_index.ENTRY_SIZE else None
