"""One offset checkpoint of a log directory, written at once or by a plan that is carried out off the loop.

A plan writes a file of its own name and syncs it; only when it has ended does that file take the checkpoint's name, on
the loop. A checkpoint that was written meanwhile is thus never replaced by an older one, and no two writers have the
same file open. The new name becomes durable with the next plan or write: until then a power cut brings back the state
before, which is as safe as it was.
"""

from __future__ import annotations

from collections.abc import Mapping

from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.checkpoint import TEMPORARY_SUFFIX, encode_offsets, write_file_atomically
from raylog.logstore.disk import Disk

PLANNED_SUFFIX = ".planned" + TEMPORARY_SUFFIX


class OffsetCheckpoint:
    """The file `name` in the log directory. Raises OSError as the disk does."""

    def __init__(self, disk: Disk, directory: str, name: str) -> None:
        self.path = f"{directory}/{name}"
        self._disk = disk
        self._directory = directory
        self._written: Mapping[TopicPartition, Offset] | None = None
        """What the file says; None before this process has written it."""
        self._deleted: set[TopicPartition] = set()
        """Partitions that are gone, and that the file may still name after a power cut."""
        self._unsynced: frozenset[TopicPartition] = frozenset()
        """Those of them that it does not name any more, by a name that is not durable yet."""
        self._plan: CheckpointPlan | None = None

    def partition_deleted(self, topic_partition: TopicPartition) -> None:
        self._deleted.add(topic_partition)

    def may_name_deleted(self, topic_partition: TopicPartition) -> bool:
        """Whether a partition of this name was deleted, and what the file says of it could be believed of a new one."""
        return topic_partition in self._deleted

    def write(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Durable when it returns. A plan that is under way has no effect any more."""
        self._plan = None
        write_file_atomically(self._disk, self.path, encode_offsets(offsets))
        self._written = dict(offsets)
        self._deleted.clear()
        self._unsynced = frozenset()

    def plan(self, offsets: Mapping[TopicPartition, Offset]) -> CheckpointPlan | None:
        """What would write these offsets; None where the file says so already, or another plan is under way."""
        if self._plan is not None or (offsets == self._written and not self._deleted):
            return None
        self._plan = CheckpointPlan(self, dict(offsets), frozenset(self._deleted), self._unsynced)
        return self._plan

    def write_planned(self, plan: CheckpointPlan) -> None:
        """Off the loop; changes nothing in memory."""
        planned = self.path + PLANNED_SUFFIX
        if self._disk.exists(planned):
            self._disk.unlink(planned)
        handle = self._disk.open(planned, create=True)
        try:
            self._disk.pwrite(handle, encode_offsets(plan.offsets), 0)
            self._disk.fsync(handle)
        finally:
            self._disk.close(handle)
        self._disk.fsync_dir(self._directory)  # the entry of this file; and the new name that the last plan has given

    def end_plan(self, plan: CheckpointPlan, failure: OSError | None) -> None:
        """On the loop: what was planned counts from now on, unless it was superseded, or `failure` is raised."""
        if plan is not self._plan:
            return
        self._plan = None
        if failure is not None:
            raise failure
        self._disk.rename(self.path + PLANNED_SUFFIX, self.path)
        self._written = plan.offsets
        self._deleted -= plan.unsynced
        self._unsynced = plan.deleted - plan.unsynced


class CheckpointPlan:
    """Made by `OffsetCheckpoint.plan`: `run` belongs into another thread, `ended` is called on the loop afterwards."""

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
        """Raises OSError where the file was not written."""
        self._checkpoint.end_plan(self, failure)
