"""Detects reads that would wait for the disk, so that a job can load the pages off the event loop.

`Log.read` with `resident_only` raises `ColdRead` instead of waiting. A job then loads the pages into the page cache
with `warm`, and the read is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from raylog.logstore.disk import Disk

PIECE_BYTES = 1 << 20


class FileRange(NamedTuple):
    """A range of bytes in a file."""

    path: str
    position: int
    size: int


class ColdRead(Exception):
    """The bytes are not in the page cache."""

    def __init__(self, cold: FileRange) -> None:
        super().__init__(f"{cold.path}: {cold.size} bytes at {cold.position} are not in the page cache")
        self.cold = cold


def warm(disk: Disk, ranges: Iterable[FileRange]) -> None:
    """Load the ranges into the page cache. Ignores files that were deleted or cannot be read.

    Opens the files by name, since the caller may close its own descriptors while this waits for the disk.
    """
    for path, position, size in ranges:
        try:
            handle = disk.open(path, writable=False)
        except OSError:
            continue
        try:
            for at in range(position, position + size, PIECE_BYTES):
                if not disk.pread(handle, min(PIECE_BYTES, position + size - at), at):
                    break
        except OSError:
            continue
        finally:
            disk.close(handle)
