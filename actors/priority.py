"""(shell) The scheduling priority of a node. Ray starts its workers at niceness 15, behind every ordinary process."""

from __future__ import annotations

import os
from pathlib import Path

_NORMAL = 0


def raise_priority(threads: Path = Path("/proc/self/task")) -> int:
    """Set the niceness of this process to 0 if it is higher and the system permits it; returns the niceness.

    Linux sets it for each thread; later threads inherit it.
    """
    for thread in threads.iterdir():
        try:
            if os.getpriority(os.PRIO_PROCESS, int(thread.name)) > _NORMAL:
                os.setpriority(os.PRIO_PROCESS, int(thread.name), _NORMAL)
        except PermissionError:
            break
        except ProcessLookupError:
            continue
    return os.getpriority(os.PRIO_PROCESS, 0)
