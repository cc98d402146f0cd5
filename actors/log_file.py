"""(shell) The file that this process's log goes to: Ray redirects the standard error of each actor into one."""

from __future__ import annotations

import os
import stat
import sys
from typing import NamedTuple

TAIL_BYTES_MAX = 1 << 20


class LogTail(NamedTuple):
    path: str
    """On the host of the node; empty if its log does not go to a file."""
    lines: list[str]
    """The last ones, oldest first."""


def log_tail(line_count: int) -> LogTail:
    """The last lines of this process's log, of its last MiB at most. Raises OSError."""
    descriptor = sys.stderr.fileno()
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return LogTail("", [])
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        first = max(size - TAIL_BYTES_MAX, 0)
        file.seek(first)
        lines = file.read(TAIL_BYTES_MAX).decode(errors="replace").splitlines()
    if first:
        del lines[0]  # probably a part of one
    return LogTail(path, lines[max(len(lines) - line_count, 0) :])
