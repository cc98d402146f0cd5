"""(shell) Waits until the process in which a node ran before has ended, which Ray reports a little early."""

from __future__ import annotations

import asyncio
import errno
from typing import Final

from raylog.logstore.disk import Disk
from raylog.logstore.log_dir import LOCK_FILE

FORMER_PROCESS_SECONDS = 5.0
POLL_SECONDS = 0.05
_LOCKED: Final = (errno.EWOULDBLOCK, errno.EACCES)


async def wait_until_unlocked(disk: Disk, directory: str) -> None:
    """Wait until no other process has locked the log directory, or for FORMER_PROCESS_SECONDS. Raises OSError."""
    path = f"{directory}/{LOCK_FILE}"
    deadline = asyncio.get_running_loop().time() + FORMER_PROCESS_SECONDS
    while disk.exists(path) and asyncio.get_running_loop().time() < deadline:
        try:
            disk.close(disk.lock(path))
            return
        except OSError as error:
            if error.errno not in _LOCKED:
                raise
        await asyncio.sleep(POLL_SECONDS)
