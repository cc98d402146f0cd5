"""The offset index and the time index of one segment, and their files `.index` and `.timeindex`.

The indexes are complete in memory. The files of the active segment are written when it is closed. Missing or invalid
files of a closed segment are rebuilt and replaced as a whole, so that they are never incomplete.
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
    """New instances are empty; `read` loads the files.

    `stem` is the path of the files without suffix, and `ending` what their names have after it.
    """

    __slots__ = ("_disk", "_ending", "_stem", "offsets", "times")

    def __init__(self, disk: Disk, stem: str, *, ending: str = "") -> None:
        self._disk = disk
        self._stem = stem
        self._ending = ending
        self.offsets = OffsetIndex()
        self.times = TimeIndex()

    @classmethod
    def read(cls, disk: Disk, stem: str, *, log_size: int) -> SegmentIndexes | None:
        """Load the files. None if one is missing, or is not a valid index of a log of `log_size` bytes."""
        indexes = cls(disk, stem)
        try:
            indexes.offsets = OffsetIndex.decode(disk.read_file(stem + OFFSET_INDEX_SUFFIX), log_size=log_size)
            indexes.times = TimeIndex.decode(disk.read_file(stem + TIME_INDEX_SUFFIX))
        except (FileNotFoundError, ValueError):
            return None
        return indexes

    def is_full(self, segment_index_bytes: int) -> bool:
        """Whether an index is full; one entry of the time index is reserved for the last timestamp."""
        if len(self.times) >= segment_index_bytes // time_index.ENTRY_SIZE - 1:
            return True
        return len(self.offsets) >= segment_index_bytes // offset_index.ENTRY_SIZE

    def need_rebuild(self, *, log_size: int, index_interval: int) -> bool:
        """Whether entries are missing, as in files that are empty after a crash: valid, but useless."""
        if not len(self.offsets):
            return log_size > 2 * index_interval
        return not len(self.times)

    def write(self, *, sync: bool) -> None:
        """Append new entries to the files."""
        self._write(OFFSET_INDEX_SUFFIX, self.offsets, offset_index.ENTRY_SIZE, sync=sync)
        self._write(TIME_INDEX_SUFFIX, self.times, time_index.ENTRY_SIZE, sync=sync)

    def replace(self) -> None:
        """Replace both files atomically."""
        for suffix, index in ((OFFSET_INDEX_SUFFIX, self.offsets), (TIME_INDEX_SUFFIX, self.times)):
            write_file_atomically(self._disk, self._stem + suffix + self._ending, index.encode_from(0))
            index.written = len(index)

    def _write(self, suffix: str, index: OffsetIndex | TimeIndex, entry_size: int, *, sync: bool) -> None:
        path = self._stem + suffix + self._ending
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
    """(timestamp, relative offset) of the last entry in the file; None if the file is missing, empty or malformed."""
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
