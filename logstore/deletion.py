"""Deleting what nothing needs any more, off the loop: files of segments, and directories of partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from raylog.logstore.disk import Disk


class Deletion(NamedTuple):
    """One file or directory, and what is to be called when it is gone."""

    path: str
    is_directory: bool
    deleted: Callable[[], None]


class DeletionPlan:
    """`run` belongs into another thread, `ended` is called on the loop afterwards. What is left goes with the next."""

    def __init__(self, disk: Disk, sync_first: str | None, deletions: Sequence[Deletion]) -> None:
        """`sync_first` is a directory whose renames must be durable before anything goes."""
        self._disk = disk
        self._sync_first = sync_first
        self._deletions = deletions
        self._deleted: list[Deletion] = []
        self.has_synced = False

    def run(self) -> None:
        """Blocks. What cannot be deleted does not keep the rest; the first failure is raised at the end, as OSError."""
        if self._sync_first is not None:
            self._disk.fsync_dir(self._sync_first)
            self.has_synced = True
        failure: OSError | None = None
        for deletion in self._deletions:
            try:
                self._delete(deletion)
            except OSError as error:
                failure = failure or error
            else:
                self._deleted.append(deletion)
        if failure is not None:
            raise failure

    def ended(self) -> None:
        """Whether or not `run` has raised."""
        for deletion in self._deleted:
            deletion.deleted()

    def _delete(self, deletion: Deletion) -> None:
        if deletion.is_directory:
            self._disk.rmtree(deletion.path)
        else:
            with suppress(FileNotFoundError):
                self._disk.unlink(deletion.path)
