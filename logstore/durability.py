"""Tracks which part of a log is durable, and flushes the rest: by a flush, a background sync, or a deletion.

The recovery point moves last: the leader epochs, and the indexes that recovery would not rebuild, are synced before it.
Writes that need space come before the first fsync, so that they can be retried. A failed fsync is never retried, since
the system may have dropped the pages that it could not write.
"""

from __future__ import annotations

from raylog.core.ids import Offset
from raylog.logstore.background_sync import SyncPlan
from raylog.logstore.checkpoint import LEADER_EPOCH_FILE, write_file_atomically
from raylog.logstore.disk import Disk, is_transient
from raylog.logstore.leader_epochs import LeaderEpochs
from raylog.logstore.segment_list import SegmentList


class Durability:
    """The state of the log in `directory` since it was opened. Raises the OSErrors of the disk."""

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
        """Everything below it is durable."""
        self.dirty_since_ms = dirty_since_ms
        """When the first unflushed record was appended; None if there is none."""
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._leader_epochs = leader_epochs
        self._directory_dirty = segments.active.dirty  # then it may be new
        self._plan: SyncPlan | None = None

    # Flush

    def prepare_flush(self) -> None:
        """Write what needs space. Can be retried if the error `is_transient`."""
        if self._leader_epochs.dirty:
            self._write_leader_epochs()
        self._segments.write_indexes()

    def flush(self, log_end_offset: Offset) -> None:
        """Sync everything that `prepare_flush` has written."""
        self._segments.flush()
        self.sync_directory()
        self.recovery_point = log_end_offset
        self.dirty_since_ms = None

    # In the background

    @property
    def is_planned(self) -> bool:
        return self._plan is not None

    def plan(self, snapshot_path: str, *, upto: Offset | None) -> SyncPlan | None:
        """A plan that makes the closed segments durable, and the snapshot at their end; None if they are.

        With `upto`, the log end offset, it makes everything durable, and the time until the next flush begins anew.
        """
        active = self._segments.active
        closed = tuple(segment for segment in self._segments if segment.dirty and segment is not active)
        if not closed and upto is None:
            return None
        self.prepare_flush()
        paths = [path for segment in closed for path in segment.paths()]
        dirty_since_ms = None
        if upto is not None:
            paths.append(active.path)
            dirty_since_ms, self.dirty_since_ms = self.dirty_since_ms, None
        self._plan = SyncPlan(
            self._directory,
            (*paths, snapshot_path),
            closed,
            active if upto is not None else None,
            active.size_bytes,
            Offset(active.base_offset) if upto is None else upto,
            dirty_since_ms,
        )
        return self._plan

    def drop_plan(self) -> None:
        """Discard the plan, because its files are about to be overwritten."""
        if self._plan is not None:
            self.not_carried_out(self._plan)
        self._plan = None

    def end_plan(self, plan: SyncPlan) -> bool:
        """Whether the plan was still current."""
        if plan is not self._plan:
            return False
        self._plan = None
        return True

    def carried_out(self, plan: SyncPlan) -> None:
        for segment in plan.closed:
            segment.dirty = False
        active = plan.active
        if active is not None and active is self._segments.active and active.size_bytes == plan.active_bytes:
            active.dirty = False
        self.recovery_point = max(self.recovery_point, plan.upto)

    def not_carried_out(self, plan: SyncPlan) -> None:
        """Its records are still to be flushed."""
        if plan.dirty_since_ms is not None:
            self.dirty_since_ms = plan.dirty_since_ms

    # Helpers

    def directory_changed(self) -> None:
        """Files were created or deleted."""
        self._directory_dirty = True

    def sync_directory(self) -> None:
        """Sync the directory if files were created or deleted."""
        if self._directory_dirty:
            self._disk.fsync_dir(self._directory)
            self._directory_dirty = False

    def write_leader_epochs_or_later(self) -> None:
        """After a truncation. If the write fails, the file has entries beyond the end of the log. `dirty` stays set,
        so that it is written before the recovery point moves; until then recovery ignores such entries."""
        try:
            self._write_leader_epochs()
        except OSError as error:
            if not is_transient(error):
                raise

    def _write_leader_epochs(self) -> None:
        write_file_atomically(self._disk, f"{self._directory}/{LEADER_EPOCH_FILE}", self._leader_epochs.encode())
        self._leader_epochs.dirty = False
