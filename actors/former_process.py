"""(shell) Waits until the process in which a node ran before has ended, which Ray reports a little early, and tells
whether another one has the log directory."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Iterable
from typing import Final

from raylog.core.errors import ConfigError
from raylog.logstore.disk import Disk
from raylog.logstore.log_dir import LOCK_FILE

FORMER_PROCESS_SECONDS = 5.0
POLL_SECONDS = 0.05
_LOCKED: Final = (errno.EWOULDBLOCK, errno.EACCES)


async def wait_until_unlocked(disk: Disk, directory: str) -> None:
    """Wait until no other process has locked the log directory, or for FORMER_PROCESS_SECONDS."""
    await asyncio.to_thread(_is_unlocked_soon, disk, directory)


def check_unused(disk: Disk, directories: Iterable[str]) -> None:
    """Check that no process uses one of these log directories, waiting for one that ends. Raises ConfigError."""
    for directory in directories:
        if not _is_unlocked_soon(disk, directory):
            raise ConfigError(f"{directory}/{LOCK_FILE} is locked: another cluster runs with this directory")


def _is_unlocked_soon(disk: Disk, directory: str) -> bool:
    deadline = time.monotonic() + FORMER_PROCESS_SECONDS
    while _is_locked(disk, directory):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _is_locked(disk: Disk, directory: str) -> bool:
    """Whether another process has locked the log directory. False if its disk does not say, as opening it will."""
    path = f"{directory}/{LOCK_FILE}"
    try:
        if disk.exists(path):
            disk.close(disk.lock(path))
    except OSError as error:
        return error.errno in _LOCKED
    return False
