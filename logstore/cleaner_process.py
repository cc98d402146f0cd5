"""(shell) Runs cleanings in child processes, so that they use neither the event loop of the broker nor its GIL.

A child gets plans on its standard input and writes results to its standard output, both as pickles behind their
length. It ends when its standard input does, in the middle of a cleaning too, and so never outlives its broker; and
when it has had nothing to do for a while.
"""

from __future__ import annotations

import errno
import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
import time
from typing import IO, Any, Final

from raylog.core.errors import KafkaError
from raylog.logstore.cleaner import CleanedLog, CleanerBuffers, CleaningPlan, clean
from raylog.logstore.disk import RealDisk
from raylog.logstore.segment import LOG_SUFFIX, file_name

NICENESS: Final = 10
"""Above that of the broker: cleaning is less urgent than what clients wait for."""
IDLE_SECONDS: Final = 60.0
PAUSE_SECONDS_MIN: Final = 0.01
_LENGTH: Final = struct.Struct(">Q")


class CleanerProcesses:
    """The children of one broker. Its methods may be called in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[subprocess.Popen[bytes]] = []
        self._busy: set[subprocess.Popen[bytes]] = set()
        self._aborted = False

    def run(self, plan: CleaningPlan, buffers: CleanerBuffers) -> CleanedLog:
        """Implements `CleaningRunner`. Raises OSError also if the child ends before it has a result."""
        child = self._take()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            _write(child.stdin, (plan, buffers))
            result = _read(child.stdout)
        except (OSError, EOFError) as error:
            self._end(child)
            raise OSError(errno.EAGAIN, f"the cleaner process has ended with {child.returncode}: {error}") from error
        with self._lock:
            self._busy.discard(child)
            self._idle.append(child)
        if isinstance(result, CleanedLog):
            return result
        raise result

    def abort(self) -> None:
        """Implements `CleaningRunner`."""
        with self._lock:
            self._aborted = True
            for child in self._busy:
                child.kill()
            idle, self._idle = self._idle, []
        for child in idle:
            self._end(child)

    def _take(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._aborted:
                raise OSError(errno.ECANCELED, "cleanings were aborted")
            while self._idle:
                child = self._idle.pop()
                if child.poll() is None:
                    self._busy.add(child)
                    return child
                _close(child)
            child = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            self._busy.add(child)
            return child

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        child.kill()
        _close(child)
        with self._lock:
            self._busy.discard(child)


def _close(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.close()
    except OSError:  # it was not read
        pass
    child.stdout.close()
    child.wait()


class Pace:
    """Sleeps as long as is needed to keep a limit of bytes per second. Called with the size of each read and write."""

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._due = time.monotonic()

    def __call__(self, size_bytes: int) -> None:
        now = time.monotonic()
        self._due = max(self._due, now - PAUSE_SECONDS_MIN) + size_bytes / self._bytes_per_second
        if self._due - now > PAUSE_SECONDS_MIN:
            time.sleep(self._due - now)


def _write(file: IO[bytes], value: object) -> None:
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    file.write(_LENGTH.pack(len(data)) + data)
    file.flush()


def _read(file: IO[bytes]) -> Any:
    """Raises EOFError if the other process has ended."""
    head = file.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError("no result")
    data = file.read(_LENGTH.unpack(head)[0])
    return pickle.loads(data)


def _read_plans(plans: queue.Queue[tuple[CleaningPlan, CleanerBuffers]]) -> None:
    while True:
        try:
            plans.put(_read(sys.stdin.buffer))
        except (EOFError, pickle.UnpicklingError):
            os._exit(0)


def drop_from_page_cache(directory: str, cleaned: CleanedLog) -> None:
    """Free the pages of the segments that will be replaced. Otherwise the broker does so when it deletes them, which
    delays what it serves by milliseconds each. Pages that a reader has mapped remain, and files that are gone are not
    missed.
    """
    for base_offset in (base_offset for segment in cleaned.segments for base_offset in segment.replaces):
        try:
            descriptor = os.open(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def main() -> None:
    """What a child does."""
    os.nice(NICENESS)
    plans: queue.Queue[tuple[CleaningPlan, CleanerBuffers]] = queue.Queue()
    threading.Thread(target=_read_plans, args=(plans,), daemon=True).start()
    disk = RealDisk()
    while True:
        try:
            plan, buffers = plans.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            os._exit(0)
        result: CleanedLog | Exception
        try:
            result = clean(disk, plan, buffers, Pace(buffers.io_bytes_per_second))
            drop_from_page_cache(plan.directory, result)
        except (OSError, KafkaError) as error:
            result = error
        _write(sys.stdout.buffer, result)


if __name__ == "__main__":
    main()
