"""(shell) How a process that has nothing to read sleeps, and how the broker wakes it without a word on the socket.

Each reader has a doorbell of its own: an eventfd, and one word of shared memory that says whether the reader is asleep
(`armed`). The broker makes both and writes the eventfd only where the word is set; so nobody awake costs it a syscall.

```
   reader                              broker
   armed = 1                           publish the page
   fence                               fence
   look at the page once more          if armed: armed = 0, write the eventfd
   still nothing: sleep on the eventfd
```

Both sides write first and look afterwards, with a fence between, so one of them always sees the other: either the
reader finds the new page, or the broker finds the reader asleep. The word's memory is sealed in size, so that a
hostile reader cannot take it away under the broker's hands.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from typing import Final

FLAG_BYTES: Final = 4096

_lock = threading.Lock()


def fence() -> None:
    """No later load of this thread is made before an earlier store is seen by all.

    Python has no word for it. On x86 the atomic instructions behind an uncontended lock do it. On machines where a lock
    orders less a wake can, very rarely, be missed; whoever sleeps must therefore not sleep for ever.
    """
    with _lock:
        pass


class Doorbell:
    """The broker's side, from `__init__` to `close`."""

    def __init__(self) -> None:
        """Raises OSError where the process may open no more files."""
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            self._flag = os.memfd_create("raylog-armed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            try:
                os.ftruncate(self._flag, FLAG_BYTES)
                fcntl.fcntl(self._flag, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
                self._memory = mmap.mmap(self._flag, FLAG_BYTES)
            except OSError:
                os.close(self._flag)
                raise
        except OSError:
            os.close(self._event)
            raise
        self._armed = memoryview(self._memory).cast("q")

    @property
    def descriptors(self) -> tuple[int, int]:
        """Eventfd and flag, to be handed to the reader."""
        return self._event, self._flag

    def ring(self) -> None:
        """After something was published: wakes the reader if it sleeps."""
        fence()
        if self._armed[0]:
            self._armed[0] = 0
            try:
                os.eventfd_write(self._event, 1)
            except BlockingIOError:  # its counter is full, by nobody's hand but the reader's: it will not sleep
                pass

    def close(self) -> None:
        self._armed.release()
        self._memory.close()
        os.close(self._flag)
        os.close(self._event)


class Sleeper:
    """The reader's side, over the descriptors received, which are its own from now on. For one thread."""

    def __init__(self, event: int, flag: int) -> None:
        """Raises OSError or ValueError when they are no doorbell; they are closed then."""
        self._event = event
        try:
            self._memory = mmap.mmap(flag, FLAG_BYTES)
        except (OSError, ValueError):
            os.close(event)
            raise
        finally:
            os.close(flag)
        self._armed = memoryview(self._memory).cast("q")

    def fileno(self) -> int:
        """Readable when the broker has rung."""
        return self._event

    def arm(self) -> None:
        """From now on whatever is published rings. Look once more before going to sleep."""
        self._armed[0] = 1
        fence()

    def disarm(self) -> None:
        """Awake again: the broker need not ring; and what it has rung is forgotten."""
        self._armed[0] = 0
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:  # it has not
            pass

    def close(self) -> None:
        self._armed.release()
        self._memory.close()
        os.close(self._event)
