"""Deletes retired segment files and partition directories off the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from raylog.logstore.disk import Disk


class Deletion(NamedTuple):
    """A file or directory to delete, and a callback after its deletion."""

    path: str
    is_directory: bool
    deleted: Callable[[], object]


class DeletionPlan:
    """The caller calls `run` in another thread, then `ended` on the loop. The next plan retries failed deletions."""

    def __init__(self, disk: Disk, sync_first: str | None, deletions: Sequence[Deletion]) -> None:
        """`sync_first` is a directory whose renames must be durable before the deletions."""
        self._disk = disk
        self._sync_first = sync_first
        self._deletions = deletions
        self._deleted: list[Deletion] = []
        self.has_synced = False

    def run(self) -> None:
        """Blocks. A failed deletion does not prevent the others; the first OSError is raised at the end."""
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
