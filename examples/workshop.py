"""(shell) The environment of a demonstration with Ray and Spark: temporary directory, quiet output, clean shutdown."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ASK_TO_END = frozenset({signal.SIGINT, signal.SIGTERM})
END_SECONDS = 1.0
"""How long to wait for processes to end. Spark's JVM would run until this process has ended."""
NOISE_LINES = 20
"""Number of hidden output lines that are shown after a failure."""
_UNPACKED_BY_JAVA = re.compile(r"/tmp/ray/\d+(?=/)")


class Workshop:
    """The temporary directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._litter: set[Path] = set()

    @contextmanager
    def spark_cleaned_up_after(self) -> Iterator[None]:
        """Delete the directories in /tmp/ray, 40 MB each, into which Ray's Java unpacks its library. Leave the block
        while Spark is still running."""
        try:
            yield
        finally:
            self._look_for_litter()

    def close(self) -> None:
        """Wait for the processes of this directory, kill those that do not end, and delete their files."""
        deadline = time.monotonic() + END_SECONDS
        while processes := self._look_for_litter():
            if time.monotonic() > deadline:
                for process in processes:
                    try:
                        os.kill(int(process.name), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            time.sleep(0.1)
        for directory in (self.path, *self._litter):
            shutil.rmtree(directory, ignore_errors=True)

    def _look_for_litter(self) -> list[Path]:
        processes = _processes_of(self.path)
        for process in processes:
            self._litter |= _unpacked_by(process)
        return processes


@contextmanager
def workshop() -> Iterator[Workshop]:
    """A directory for the data and all files of Ray and Spark. At the end it is deleted, and all processes that use it
    have ended.

    Its path must be short: Ray creates sockets in it, whose paths are limited to 107 bytes.
    """
    place = Workshop(Path(tempfile.mkdtemp(prefix="raylog-demo-", dir="/tmp")))
    os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = str(place.path)
    try:
        yield place
    finally:
        place.close()


@contextmanager
def quiet_screen(log: Path) -> Iterator[None]:
    """Redirect the output of this process and its children to `log`; its last lines are shown if the block fails."""
    sys.stdout.flush()
    sys.stderr.flush()
    screen = [os.dup(1), os.dup(2)]
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    failed = True
    try:
        yield
        failed = False
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in enumerate(screen, start=1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        if failed and not interrupted():
            lines = log.read_text(errors="replace").splitlines()[-NOISE_LINES:]
            print("   Last output of Ray and Spark:", *lines, sep="\n   | ", file=sys.stderr)


def take_signals() -> None:
    """Let SIGINT and SIGTERM raise KeyboardInterrupt. Call it again after a library has installed its own handlers."""
    signal.set_wakeup_fd(_Signals.written.fileno(), warn_on_full_buffer=False)
    for number in ASK_TO_END:
        signal.signal(number, _interrupt)


def interrupted() -> bool:
    """Whether this process has received SIGINT or SIGTERM, which explains later errors.

    This works even if a library has installed its own handler, since Python records every signal.
    """
    try:
        _Signals.seen |= not ASK_TO_END.isdisjoint(_Signals.noted.recv(1000))
    except BlockingIOError:
        pass
    return _Signals.seen


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Delay interrupts until the end of the block: a partial start could not be stopped cleanly."""
    _Signals.held_back = True
    try:
        yield
    finally:
        _Signals.held_back = False
        take_signals()
    if interrupted():
        raise KeyboardInterrupt


class _Signals:
    noted, written = socket.socketpair()
    noted.setblocking(False)
    written.setblocking(False)
    seen = False
    held_back = False


def _interrupt(*_: object) -> None:
    if not _Signals.held_back:
        raise KeyboardInterrupt


def _processes_of(path: Path) -> list[Path]:
    mark = f"TMPDIR={path}".encode()
    found = []
    for process in Path("/proc").iterdir():
        try:
            if not process.name.isdecimal():
                continue
            environment = (process / "environ").read_bytes()
            if mark in environment.split(b"\0") or (not environment and _is_starting_child(process)):
                found.append(process)
        except OSError:  # it has ended, or belongs to another user
            continue
    return found


def _is_starting_child(process: Path) -> bool:
    """Whether it is a child of this process that has no environment yet, since its program is just being loaded."""
    state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
    return state != "Z" and int(parent) == os.getpid()


def _unpacked_by(process: Path) -> set[Path]:
    try:
        return {Path(name) for name in _UNPACKED_BY_JAVA.findall((process / "maps").read_text())}
    except OSError:
        return set()
