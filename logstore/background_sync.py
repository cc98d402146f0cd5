"""Syncs closed segments in the background, so that recovery after a crash does not scan them.

Rolling a segment does not wait for the disk, since a gigabyte can take seconds. A plan refers to files by path, so that
another thread can carry it out with its own handles while the log is used, and even deletes some of the files.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from raylog.core.ids import Offset
from raylog.logstore.disk import Disk
from raylog.logstore.segment import Segment


@dataclass(frozen=True, slots=True, eq=False)
class SyncPlan:
    """When it has run, everything below `upto` is durable. Plans are compared by identity."""

    directory: str
    paths: tuple[str, ...]
    segments: tuple[Segment, ...]
    upto: Offset

    def run(self, disk: Disk) -> None:
        """Blocks; does not access the log. Ignores files that were deleted in the meantime. Raises OSError."""
        for path in self.paths:
            with suppress(FileNotFoundError):
                disk.fsync_path(path)
        with suppress(FileNotFoundError):
            disk.fsync_dir(self.directory)
