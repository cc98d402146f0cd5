"""An offset checkpoint of a log directory, written directly or by a plan that runs off the event loop.

A plan writes and syncs a temporary file, which is renamed to the checkpoint on the loop when the plan has ended. An
older plan therefore never replaces a newer checkpoint, and two writers never have the same file open. The new name is
durable with the next plan or write; until then a power failure restores the previous checkpoint, which is still valid.
"""

from __future__ import annotations

from collections.abc import Mapping

from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.checkpoint import TEMPORARY_SUFFIX, encode_offsets, write_file_atomically
from raylog.logstore.disk import Disk

PLANNED_SUFFIX = ".planned" + TEMPORARY_SUFFIX


class OffsetCheckpoint:
    """The file `name` in the log directory. Raises the OSErrors of the disk."""

    def __init__(self, disk: Disk, directory: str, name: str) -> None:
        self.path = f"{directory}/{name}"
        self._disk = disk
        self._directory = directory
        self._written: Mapping[TopicPartition, Offset] | None = None
        """The content of the file; None before this process has written it, or if a write has failed."""
        self._former: Mapping[TopicPartition, Offset] | None = {}
        """What a power failure may restore, until the name of the current file is durable."""
        self._deleted: set[TopicPartition] = set()
        """Deleted partitions that the file may contain after a power failure."""
        self._unsynced: frozenset[TopicPartition] = frozenset()
        """Those of them that the current file does not contain, whose name is not durable yet."""
        self._plan: CheckpointPlan | None = None

    def partition_deleted(self, topic_partition: TopicPartition) -> None:
        self._deleted.add(topic_partition)

    def may_name_deleted(self, topic_partition: TopicPartition) -> bool:
        """Whether the file may contain a deleted partition of this name, whose offset would apply to a new one."""
        return topic_partition in self._deleted

    def contains(self, offsets: Mapping[TopicPartition, Offset]) -> bool:
        """Whether the file contains exactly these offsets, and did not contain deleted partitions before."""
        return offsets == self._written and not self._deleted

    def is_at_most(self, topic_partition: TopicPartition, offset: Offset) -> bool:
        """Whether the offset of the partition, 0 if it has none, is at most `offset` in every version of the file that
        a start may find if nothing else is planned or written."""
        versions = [self._written, self._former, {} if self._plan is None else self._plan.offsets]
        return all(version is not None and version.get(topic_partition, 0) <= offset for version in versions)

    def was_read(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """The file contains these offsets, as a start has found."""
        self._written = dict(offsets)

    def write(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Write the file durably. A running plan has no effect then."""
        self._plan = self._written = None
        write_file_atomically(self._disk, self.path, encode_offsets(offsets))
        self._written, self._former = dict(offsets), {}
        self._deleted.clear()
        self._unsynced = frozenset()

    def plan(self, offsets: Mapping[TopicPartition, Offset]) -> CheckpointPlan | None:
        """A plan that writes these offsets; None if the file contains them, or another plan is running."""
        if self._plan is not None or self.contains(offsets):
            return None
        self._plan = CheckpointPlan(self, dict(offsets), frozenset(self._deleted), self._unsynced)
        return self._plan

    def write_planned(self, plan: CheckpointPlan) -> None:
        """Runs off the loop and changes no state."""
        planned = self.path + PLANNED_SUFFIX
        if self._disk.exists(planned):
            self._disk.unlink(planned)
        handle = self._disk.open(planned, create=True)
        try:
            self._disk.pwrite(handle, encode_offsets(plan.offsets), 0)
            self._disk.fsync(handle)
        finally:
            self._disk.close(handle)
        self._disk.fsync_dir(self._directory)  # makes this file durable, and the renaming of the last plan

    def end_plan(self, plan: CheckpointPlan, failure: OSError | None) -> None:
        """Runs on the loop: rename the file unless the plan was superseded. Raises `failure`."""
        if plan is not self._plan:
            return
        self._plan = None
        if failure is not None:
            raise failure
        self._former, self._written = self._written, None
        self._disk.rename(self.path + PLANNED_SUFFIX, self.path)
        self._written = plan.offsets
        self._deleted -= plan.unsynced
        self._unsynced = plan.deleted - plan.unsynced


class CheckpointPlan:
    """A checkpoint to write, from `OffsetCheckpoint.plan`.

    The caller calls `run` in another thread, then `ended` on the loop.
    """

    def __init__(
        self,
        checkpoint: OffsetCheckpoint,
        offsets: Mapping[TopicPartition, Offset],
        deleted: frozenset[TopicPartition],
        unsynced: frozenset[TopicPartition],
    ) -> None:
        self.offsets = offsets
        self.deleted = deleted
        self.unsynced = unsynced
        self._checkpoint = checkpoint

    @property
    def path(self) -> str:
        return self._checkpoint.path

    def run(self) -> None:
        """Blocks. Raises OSError."""
        self._checkpoint.write_planned(self)

    def ended(self, failure: OSError | None) -> None:
        """Raises OSError if the file was not written."""
        self._checkpoint.end_plan(self, failure)
