"""The open file descriptors of this process that belong to one test or one test file.

A count for the whole process would include those of other tests, which may close them at any time. Threads that outlive
a test, such as Ray's and those of stock clients, may also open some at any time: a test repeats what should leave
nothing open and asks for what each round has left (`left_by_rounds`).
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HANG_SECONDS = 20.0
_kept: set[str] = set()


def descriptors() -> dict[int, str]:
    """The target of each descriptor: a path or its kind, with the inode for sockets and pipes."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the descriptor by which the directory was listed
            continue
    return found


def opened_since(before: dict[int, str], *, at_most: int = 0) -> list[str]:
    """The descriptors opened since `before`, without those that only wait for garbage collection.

    Garbage is collected only if there are more than `at_most`, because that takes half a second.
    """
    found = _opened_since(before)
    if len(found) > at_most:
        gc.collect()
        found = _opened_since(before)
    return found


def _opened_since(before: dict[int, str]) -> list[str]:
    return sorted(
        target
        for number, target in descriptors().items()
        if before.get(number) != target and not any(target.startswith(path) for path in _kept)
    )


def left_by_rounds(before: dict[int, str], rounds: int) -> list[str]:
    """The descriptors opened since `before` if there is at least one for each of the rounds since then, else none.

    Fewer belong to other threads of the process.
    """
    left = opened_since(before)
    return left if len(left) >= rounds else []


def left_by_rounds_at_rest(before: dict[int, str], rounds: int) -> list[str]:
    """As `left_by_rounds`, after waiting for a broker in another thread to close those in use."""
    deadline = time.monotonic() + HANG_SECONDS
    while (left := left_by_rounds(before, rounds)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def open_within(folder: Path) -> int:
    """The number of descriptors of files in `folder`, deleted ones included."""
    return sum(target.startswith(f"{folder}/") for target in descriptors().values())


def mapped_within(folder: Path) -> int:
    """The number of mappings of files in `folder`, deleted ones included."""
    return Path("/proc/self/maps").read_text().count(f" {folder}/")


@contextmanager
def kept(folder: Path) -> Iterator[None]:
    """Files in `folder` belong to a fixture that several test files share: `opened_since` leaves them out."""
    _kept.add(f"{folder}/")
    try:
        yield
    finally:
        _kept.discard(f"{folder}/")
