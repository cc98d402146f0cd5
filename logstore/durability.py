"""What of one log is on disk for certain, and what a flush, a background sync or a retirement still owes the disk.

The recovery point moves last: before it, the leader epochs and the indexes that a recovery would not make anew are on
disk. What may fail for want of space is written before anything is synced, so that it can be done again; a failed fsync
is never repeated, since the system may have dropped the pages that it could not write.
"""

from __future__ import annotations

from raylog.core.ids import Offset
from raylog.logstore.background_sync import SyncPlan
from raylog.logstore.checkpoint import LEADER_EPOCH_FILE, write_file_atomically
from raylog.logstore.disk import Disk, passes
from raylog.logstore.leader_epochs import LeaderEpochs
from raylog.logstore.segment_list import SegmentList


class Durability:
    """Of the log in `directory`, from its opening on. Raises OSError as the disk does."""

    __slots__ = (
        "_directory",
        "_directory_dirty",
        "_disk",
        "_leader_epochs",
        "_plan",
        "_segments",
        "dirty_since_ms",
        "recovery_point",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: SegmentList,
        leader_epochs: LeaderEpochs,
        *,
        recovery_point: Offset,
        dirty_since_ms: int | None,
    ) -> None:
        self.recovery_point = recovery_point
        """Everything below it is on disk for certain."""
        self.dirty_since_ms = dirty_since_ms
        """When the first record came that no flush covers; None when there is none."""
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._leader_epochs = leader_epochs
        self._directory_dirty = segments.active.dirty  # then it may be new
        self._plan: SyncPlan | None = None

    # Flush

    def prepare_flush(self) -> None:
        """Writes what needs space. Can be done again when it raises what `passes`."""
        if self._leader_epochs.dirty:
            self._write_leader_epochs()
        self._segments.write_indexes()

    def flush(self, log_end_offset: Offset) -> None:
        """Syncs everything, which `prepare_flush` has written."""
        self._segments.flush()
        self.sync_directory()
        self.recovery_point = log_end_offset
        self.dirty_since_ms = None

    # In the background

    @property
    def is_planned(self) -> bool:
        return self._plan is not None

    def plan(self, snapshot_path: str) -> SyncPlan | None:
        """What would make the closed segments durable, and the snapshot at their end; None when they are."""
        active = self._segments.active
        closed = tuple(segment for segment in self._segments if segment.dirty and segment is not active)
        if not closed:
            return None
        self.prepare_flush()
        paths = (*(path for segment in closed for path in segment.paths()), snapshot_path)
        self._plan = SyncPlan(self._directory, paths, closed, Offset(active.base_offset))
        return self._plan

    def drop_plan(self) -> None:
        """Other records may soon stand where it looks."""
        self._plan = None

    def end_plan(self, plan: SyncPlan) -> bool:
        """Whether it was in force still."""
        if plan is not self._plan:
            return False
        self._plan = None
        return True

    def carried_out(self, plan: SyncPlan) -> None:
        for segment in plan.segments:
            segment.dirty = False
        self.recovery_point = max(self.recovery_point, plan.upto)

    # Parts

    def directory_changed(self) -> None:
        """Files came or went."""
        self._directory_dirty = True

    def sync_directory(self) -> None:
        """Where files came or went."""
        if self._directory_dirty:
            self._disk.fsync_dir(self._directory)
            self._directory_dirty = False

    def write_leader_epochs_or_later(self) -> None:
        """After a truncation. A file that says too much is put right before the recovery point moves past the cut, and
        a recovery does not believe it beyond that: they are `dirty` if anything was forgotten."""
        try:
            self._write_leader_epochs()
        except OSError as error:
            if not passes(error):
                raise

    def _write_leader_epochs(self) -> None:
        write_file_atomically(self._disk, f"{self._directory}/{LEADER_EPOCH_FILE}", self._leader_epochs.encode())
        self._leader_epochs.dirty = False
