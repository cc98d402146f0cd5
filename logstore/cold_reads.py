"""Reads that would wait for the disk: found out before they are made, so that they can be made off the loop.

`Log.read` with `resident_only` raises `ColdRead` in place of waiting. A job then reads the pages into the page cache
with `warm`, and the read is made again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from raylog.logstore.disk import Disk

PIECE_BYTES = 1 << 20


class FileRange(NamedTuple):
    """Some bytes of a file."""

    path: str
    position: int
    size: int


class ColdRead(Exception):
    """The bytes are not in the page cache."""

    def __init__(self, cold: FileRange) -> None:
        super().__init__(f"{cold.path}: {cold.size} bytes at {cold.position} are not in the page cache")
        self.cold = cold


def warm(disk: Disk, ranges: Iterable[FileRange]) -> None:
    """Read the ranges, so that their pages are in the page cache. A file that is gone, or fails, is passed over.

    Opens the files by name: the caller's may be closed, and their descriptors reused, while this waits for the disk.
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
