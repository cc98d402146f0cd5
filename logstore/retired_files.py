"""Files that nothing needs any more: they stay for file.delete.delay.ms, for whoever still reads them, and then go."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from raylog.logstore.disk import Disk


class RetiredFiles:
    """Those of one log. In memory only: what a stop leaves, a start removes by its name."""

    __slots__ = ("_disk", "_due")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: list[tuple[int, str]] = []
        """(when to delete it, path)."""

    def add(self, paths: Iterable[str], *, due_ms: int) -> None:
        self._due += [(due_ms, path) for path in paths]

    def delete_due(self, now_ms: int) -> None:
        """Raises OSError as the disk does; what is left is tried again the next time."""
        for retired in [one for one in self._due if one[0] <= now_ms]:
            with suppress(FileNotFoundError):
                self._disk.unlink(retired[1])
            self._due.remove(retired)
