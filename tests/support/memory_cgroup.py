"""A limit of memory for single processes, page cache included: a control group (cgroup v1 or v2) of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path

from tests.support.hang import HANG_SECONDS

VERSION_1, VERSION_2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
_numbers = count()


@cache
def why_no_memory_cgroups() -> str:
    """Why this process cannot limit the memory of others; empty if it can."""
    try:
        with memory_cgroup():
            return ""
    except OSError as error:
        return f"memory cgroups cannot be used: {error}"


class MemoryCgroup:
    """Without a limit at first. What a process has taken before it was added does not count."""

    def __init__(self, path: Path) -> None:
        """Use `memory_cgroup` instead."""
        self._path = path
        self._is_first = path.parent == VERSION_1
        self._limit = path / ("memory.limit_in_bytes" if self._is_first else "memory.max")
        self._limit.read_bytes()  # OSError if the controller is not there

    def limit(self, size_bytes: int) -> None:
        """Of memory that cannot be reclaimed the kernel kills a process that takes more."""
        self._limit.write_text(str(size_bytes))

    def add(self, pid: int) -> None:
        """A process with all its threads."""
        (self._path / "cgroup.procs").write_text(str(pid))

    @property
    def reached(self) -> bool:
        """Whether memory had to be reclaimed."""
        if self._is_first:
            return int((self._path / "memory.failcnt").read_text()) > 0
        events = dict(line.split() for line in (self._path / "memory.events").read_text().splitlines())
        return int(events["max"]) > 0


@contextmanager
def memory_cgroup() -> Iterator[MemoryCgroup]:
    """All processes in it must have ended at the end of the block. Raises OSError."""
    path = (VERSION_1 if VERSION_1.is_dir() else VERSION_2) / f"raylog-tests-{os.getpid()}-{next(_numbers)}"
    path.mkdir()
    try:
        yield MemoryCgroup(path)
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    """A process that has ended may stay in its group for a moment."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        try:
            return path.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
