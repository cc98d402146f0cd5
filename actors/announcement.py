"""(shell) Where the clusters of `raylog start` are: one small file each in the user's home, locked while it is true.

~/.raylog/run/<name>.json      {"pid": 4711, "ray_address": "127.0.0.1:6379", "ray_auth_mode": "token"}

It is for the reader of Ray's own token (~/.ray/auth_token): another program of the same user. The lock goes with the
process that took it, so that a file left by a killed one misleads nobody.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from raylog.core.errors import ConfigError

LOCK_ATTEMPTS = 5
LOCK_PAUSE_SECONDS = 0.02
"""A reader tries the lock for a moment, to see whether it is held; it must not pass for an owner."""


@contextmanager
def announcing(name: str) -> Iterator[Announcement]:
    """The right to announce the cluster of this name, for the length of the block.

    Raises ConfigError where another process has it, or the home directory cannot be written to.
    """
    path = _file_of(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = _open_locked(path)
    except BlockingIOError:
        raise ConfigError(f"name={name!r}: another `raylog start` of this user runs a cluster of this name") from None
    except OSError as error:
        raise ConfigError(f"cannot announce the cluster in the home directory: {error}") from error
    try:
        yield Announcement(descriptor)
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


class Announcement:
    """The file while it is ours."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def announce(self, ray_address: str, ray_auth_mode: str | None) -> None:
        announced = {"pid": os.getpid(), "ray_address": ray_address, "ray_auth_mode": ray_auth_mode}
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(announced).encode(), 0)


class Announced(NamedTuple):
    """What another process needs to join the Ray of a cluster."""

    ray_address: str
    ray_auth_mode: str | None


def find_announced(name: str) -> Announced | None:
    """The Ray that holds the cluster of this name; None where no living `raylog start` says so."""
    try:
        with _file_of(name).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                announced = json.load(file)
                return Announced(announced["ray_address"], announced["ray_auth_mode"])
    except (OSError, ValueError, KeyError):
        pass
    return None


def _open_locked(path: Path) -> int:
    """Locked, and still the file at `path`: its last owner may have removed it between our two calls."""
    for attempt in range(1, LOCK_ATTEMPTS + 1):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
            os.close(descriptor)
        except BlockingIOError:
            os.close(descriptor)
            if attempt == LOCK_ATTEMPTS:
                raise
        time.sleep(LOCK_PAUSE_SECONDS)
    raise BlockingIOError


def _file_of(name: str) -> Path:
    return Path.home() / ".raylog" / "run" / f"{name}.json"
