"""The descriptors that this process holds, as one test or one test file sees them.

A count of the whole process would also count what other tests hold, and may give back at any moment.
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
    """What each descriptor refers to: a path, or the kind of it. That of a socket or a pipe names its inode."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the descriptor by which the directory was listed
            continue
    return found


def opened_since(before: dict[int, str]) -> list[str]:
    """What is open now and was not when `before` was taken, without what only waits for the collector."""
    gc.collect()
    return sorted(
        target
        for number, target in descriptors().items()
        if before.get(number) != target and not any(target.startswith(path) for path in _kept)
    )


def left_since(before: dict[int, str]) -> list[str]:
    """As `opened_since`, once a broker in another thread has closed what it was just using."""
    deadline = time.monotonic() + HANG_SECONDS
    while (left := opened_since(before)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def open_within(folder: Path) -> int:
    """How many descriptors refer to files in `folder`, deleted ones included."""
    return sum(target.startswith(f"{folder}/") for target in descriptors().values())


def mapped_within(folder: Path) -> int:
    """How many mappings there are of files in `folder`, deleted ones included."""
    return Path("/proc/self/maps").read_text().count(f" {folder}/")


@contextmanager
def kept(folder: Path) -> Iterator[None]:
    """Files in `folder` belong to a fixture that several test files share: `opened_since` leaves them out."""
    _kept.add(f"{folder}/")
    try:
        yield
    finally:
        _kept.discard(f"{folder}/")
