"""(shell) Files in the user's home that announce the clusters of `raylog start`; each is locked while it is valid.

~/.raylog/run/<name>.json      {"pid": 4711, "ray_address": "127.0.0.1:6379", "ray_auth_mode": "token"}

The file is for programs of the same user, which can read Ray's token (~/.ray/auth_token). The lock ends with the
process that holds it, so that the file of a killed process is ignored.
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
"""A reader takes the lock briefly to see whether it is held; an owner must not mistake it for another owner."""


@contextmanager
def announcing(name: str, *, taken: str | None = None) -> Iterator[Announcement]:
    """Reserve the name of a cluster for the length of the block. `taken` is the error if another process has it.

    Raises ConfigError if another process has it, or there is no home directory that is writable.
    """
    try:
        path = _file_of(name)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = _open_locked(path)
    except BlockingIOError:
        default = f"name={name!r}: another `raylog start` of this user runs a cluster with this name"
        raise ConfigError(taken or default) from None
    except OSError as error:
        raise ConfigError(f"cannot announce the cluster in the home directory: {error}") from error
    try:
        yield Announcement(descriptor)
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


class Announcement:
    """The locked file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def announce(self, ray_address: str, ray_auth_mode: str | None) -> None:
        announced = {"pid": os.getpid(), "ray_address": ray_address, "ray_auth_mode": ray_auth_mode}
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(announced).encode(), 0)


class Announced(NamedTuple):
    """What another process needs to connect to the Ray of a cluster."""

    ray_address: str
    ray_auth_mode: str | None


def find_announced(name: str) -> Announced | None:
    """The Ray that runs the cluster of this name; None if no running `raylog start` announces it."""
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
    """Open and lock the file at `path`. Its previous owner may remove it between the two calls; then try again."""
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
    """Raises OSError if the user has no home directory, as in a container with an arbitrary user id."""
    try:
        home = Path.home()
    except RuntimeError:
        raise FileNotFoundError("this user has none; set HOME") from None
    return home / ".raylog" / "run" / f"{name}.json"
