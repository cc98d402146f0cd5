"""Files that nothing needs any more: they stay for file.delete.delay.ms, for whoever still reads them, and then go."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from raylog.logstore.deletion import Deletion


class RetiredFiles:
    """Those of one log. In memory only: what a stop leaves, a start removes by its name."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: list[tuple[int, str]] = []
        """(when to delete it, path)."""

    def add(self, paths: Iterable[str], *, due_ms: int) -> None:
        self._due += [(due_ms, path) for path in paths]

    def deletions(self, now_ms: int) -> list[Deletion]:
        """Of the files that are due; a file is forgotten when it is deleted."""
        return [
            Deletion(path, False, partial(self._due.remove, (due_ms, path)))
            for due_ms, path in self._due
            if due_ms <= now_ms
        ]
