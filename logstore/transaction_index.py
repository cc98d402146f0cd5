"""The aborted transactions that end in one segment, which read_committed skips, and their file `.txnindex` (KIP-98).

They are complete in memory, packed as in the file: 34 bytes each, ordered by their markers. Like the other indexes, the
file of the active segment is written when it is closed. Without aborted transactions there is no file.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator

from raylog.logstore.checkpoint import write_file_atomically
from raylog.logstore.disk import Disk
from raylog.logstore.producer_state import AbortedTransaction
from raylog.protocol.records.batch import BatchHeader

TRANSACTION_INDEX_SUFFIX = ".txnindex"

_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET = struct.Struct(">18xq8x")
ENTRY_SIZE = _ENTRY.size
_VERSION = 0


def decode(data: bytes | bytearray) -> Iterator[AbortedTransaction]:
    """The entries of a file. Raises ValueError for a partial entry or an unknown version."""
    if len(data) % ENTRY_SIZE:
        raise ValueError(f"an entry of {ENTRY_SIZE} bytes is truncated")
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise ValueError(f"version {version} is unknown")
        yield AbortedTransaction(*fields)


def transaction_agrees(aborted: AbortedTransaction, header_of: Callable[[int], BatchHeader | None]) -> bool:
    """Whether it begins and ends at batches of its producer, and its last stable offset is the start of another one.

    `header_of` returns the first batch whose last offset is at least the given one. Retention and compaction may have
    removed the first batches.
    """
    marker = header_of(aborted.last_offset)
    if marker is None or not marker.is_control or marker.producer_id != aborted.producer_id:
        return False
    first = header_of(aborted.first_offset)
    if _contradicts(first, aborted.first_offset) or (
        first is not None and first.base_offset == aborted.first_offset and first.producer_id != aborted.producer_id
    ):
        return False
    if aborted.last_stable_offset == aborted.last_offset + 1:
        return True
    stable = aborted.last_stable_offset
    return stable < aborted.last_offset and not _contradicts(header_of(stable), stable)


def _contradicts(header: BatchHeader | None, begins_at: int) -> bool:
    """Whether a transaction cannot begin there. A batch with a later offset means that the first one was removed."""
    if header is None or header.base_offset > begins_at:
        return False
    return header.base_offset < begins_at or header.is_control or not header.is_transactional


class TransactionIndex:
    """New instances are empty; `read` loads the file.

    `stem` is the path of the file without suffix, and `ending` what its name has after it.
    """

    __slots__ = ("_disk", "_entries", "_path", "_written")

    def __init__(self, disk: Disk, stem: str, *, ending: str = "") -> None:
        self._disk = disk
        self._path = stem + TRANSACTION_INDEX_SUFFIX + ending
        self._entries = bytearray()
        self._written = 0
        """Number of bytes that are known to be in the file."""

    @classmethod
    def read(cls, disk: Disk, stem: str, *, base_offset: int, next_offset: int) -> TransactionIndex | None:
        """Load the file. None if it is not valid for a segment with these offsets. A missing file means no entries."""
        index = cls(disk, stem)
        try:
            data = disk.read_file(index._path)
        except FileNotFoundError:
            return index
        if not data:  # empty files are not kept
            return None
        previous = base_offset - 1
        try:
            for entry in decode(data):
                if not previous < entry.last_offset < next_offset or not 0 <= entry.first_offset < entry.last_offset:
                    return None
                previous = entry.last_offset
        except ValueError:
            return None
        index._entries += data
        index._written = len(data)
        return index

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return decode(self._entries)

    @property
    def next_offset(self) -> int:
        """The offset after the last marker; 0 without entries."""
        return self._last_offset(len(self._entries) // ENTRY_SIZE - 1) + 1 if self._entries else 0

    def ending_from(self, offset: int) -> Iterator[AbortedTransaction]:
        """Those whose markers are at `offset` or behind it."""
        first = bisect_left(range(len(self._entries) // ENTRY_SIZE), offset, key=self._last_offset)
        return decode(self._entries[first * ENTRY_SIZE :] if first else self._entries)

    def add(self, aborted: AbortedTransaction) -> None:
        """Append a transaction that has just been aborted."""
        self._entries += _ENTRY.pack(_VERSION, *aborted)

    def collect(self, start: int, upto: int, found: list[AbortedTransaction]) -> bool:
        """Add those with records in [start, upto) to `found`. Returns whether later segments cannot have more."""
        for entry in self.ending_from(start):
            if entry.first_offset < upto:
                found.append(entry)
            if entry.last_stable_offset >= upto:
                return True
        return False

    def truncate_to(self, offset: int) -> None:
        """Remove transactions whose markers were truncated; the log now ends at `offset`."""
        kept = sum(entry.last_offset < offset for entry in self) * ENTRY_SIZE
        del self._entries[kept:]
        self._written = min(self._written, kept)

    def write(self, *, sync: bool) -> None:
        """Update the file: append new entries, remove truncated ones."""
        exists = self._disk.exists(self._path)
        if not self._entries:
            if exists:
                self._disk.unlink(self._path)
            return
        handle = self._disk.open(self._path, create=not exists)
        try:
            if self._disk.size(handle) != self._written:
                self._disk.truncate(handle, self._written)
            if self._written < len(self._entries):
                self._disk.pwrite(handle, bytes(self._entries[self._written :]), self._written)
                self._written = len(self._entries)
            if sync:
                self._disk.fsync(handle)
        finally:
            self._disk.close(handle)

    def replace(self) -> None:
        """Replace the file atomically."""
        if not self._entries:
            self.write(sync=False)
        else:
            write_file_atomically(self._disk, self._path, bytes(self._entries))
            self._written = len(self._entries)

    def _last_offset(self, number: int) -> int:
        (last_offset,) = _LAST_OFFSET.unpack_from(self._entries, number * ENTRY_SIZE)
        return int(last_offset)
