"""Syncs segments in the background: closed ones, so that recovery after a crash does not scan them, and the active one
when flush.ms has passed.

Neither rolling a segment nor flush.ms waits for the disk, since a gigabyte can take seconds. A plan refers to files by
path, so that another thread can carry it out with its own handles while the log is used, and even deletes some of the
files.
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
    closed: tuple[Segment, ...]
    active: Segment | None
    """The active segment, if it is synced as well; it may be appended to meanwhile, and be closed."""
    active_bytes: int
    """Its size when the plan was made."""
    upto: Offset
    dirty_since_ms: int | None
    """When the first record was appended that only this plan flushes; None without the active segment."""

    def run(self, disk: Disk) -> None:
        """Blocks; does not access the log. Ignores files that were deleted in the meantime. Raises OSError."""
        for path in self.paths:
            with suppress(FileNotFoundError):
                disk.fsync_path(path)
        with suppress(FileNotFoundError):
            disk.fsync_dir(self.directory)
