"""(shell) The thread with the asyncio loop that all blocking clients of a process share."""

from __future__ import annotations

import asyncio
import os
import threading

import uvloop

from raylog.core.errors import ErrorCode, KafkaError


class IoThread:
    """A daemon thread; it lives as long as its process."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._process_id = os.getpid()
        self._thread = threading.Thread(target=self.loop.run_forever, name="raylog-client", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on it, as callbacks do: it must not wait for itself."""
        return threading.current_thread() is self._thread

    def check_process(self) -> None:
        """Raises KafkaError in a child made by fork: the thread is not there, and a caller would wait for ever."""
        if os.getpid() != self._process_id:
            text = "the client was made before this process was forked: each process needs clients of its own"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)


_shared: IoThread | None = None
_lock = threading.Lock()


def shared_io_thread() -> IoThread:
    """The thread of this process. A child made by fork has one of its own."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = IoThread()
        return _shared


def _after_fork() -> None:
    global _shared, _lock
    _shared, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
