"""What a log wants made durable in the disk's own time, so that a crash need not read its closed segments again.

A roll does not wait for the disk: a gigabyte can take seconds. The plan names files by path, so that it can be carried
out in another thread, on handles of its own, while the log goes on, and even deletes some of them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from raylog.core.ids import Offset
from raylog.logstore.disk import Disk
from raylog.logstore.segment import Segment


@dataclass(frozen=True, slots=True, eq=False)
class SyncPlan:
    """Once carried out, everything below `upto` is durable. Each plan is itself: it is told apart by identity."""

    directory: str
    paths: tuple[str, ...]
    segments: tuple[Segment, ...]
    upto: Offset

    def run(self, disk: Disk) -> None:
        """Blocks; touches nothing of the log. A file that was deleted meanwhile needs no sync. Raises OSError."""
        for path in self.paths:
            with suppress(FileNotFoundError):
                disk.fsync_path(path)
        with suppress(FileNotFoundError):
            disk.fsync_dir(self.directory)
