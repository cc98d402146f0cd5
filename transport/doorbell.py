"""(shell) How a reader without new data sleeps, and how the broker wakes it without using the socket.

Each reader has its own doorbell: an eventfd, and one word of shared memory that says whether the reader is asleep
(`armed`). The broker creates both and writes to the eventfd only if the word is set, so readers that are awake cost it
no syscall.

```
   reader                              broker
   armed = 1                           publish the page
   fence                               fence
   read the page once more             if armed: armed = 0, write the eventfd
   still nothing: sleep on the eventfd
```

Both sides write first and read afterwards, with a fence between, so at least one sees the other's write: either the
reader finds the new page, or the broker finds the reader asleep. The size of the shared memory is sealed, so that a
malicious reader cannot shrink it while the broker uses it.
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
    """No later load of this thread happens before an earlier store is visible to all.

    Python has no memory fence. On x86 the atomic instructions behind an uncontended lock have this effect. On machines
    where a lock gives weaker ordering a wake-up can, very rarely, be missed; a sleeping reader must therefore use a
    timeout.
    """
    with _lock:
        pass


class Doorbell:
    """The broker's side, from `__init__` to `close`."""

    def __init__(self) -> None:
        """Raises OSError if the process cannot open more files."""
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
        """Eventfd and flag, to be sent to the reader."""
        return self._event, self._flag

    def ring(self) -> None:
        """Called after publishing: wakes the reader if it sleeps."""
        fence()
        if self._armed[0]:
            self._armed[0] = 0
            try:
                os.eventfd_write(self._event, 1)
            except BlockingIOError:  # its counter is full; only the reader can have filled it, so it will not sleep
                pass

    def close(self) -> None:
        self._armed.release()
        self._memory.close()
        os.close(self._flag)
        os.close(self._event)


class Sleeper:
    """The reader's side, over the received descriptors, which it owns. For one thread."""

    def __init__(self, event: int, flag: int) -> None:
        """Raises OSError or ValueError if they are not a doorbell; it then closes them."""
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
        """From now on every publish rings. Read the page once more before sleeping."""
        self._armed[0] = 1
        fence()

    def disarm(self) -> None:
        """The reader is awake: the broker need not ring, and a pending ring is discarded."""
        self._armed[0] = 0
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:  # it has not rung
            pass

    def close(self) -> None:
        self._armed.release()
        self._memory.close()
        os.close(self._event)
