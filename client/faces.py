"""(shell) How the calls of a blocking and of an asyncio client wait for what its core does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic

from raylog.client.errors import WakeupError
from raylog.client.io_thread import shared_io_thread
from raylog.client.network_loop import NetworkLoop
from raylog.core.errors import ErrorCode, KafkaError


class BlockingFace:
    """Its core runs on the thread that all clients share; the program's thread waits here."""

    _loop: NetworkLoop

    def __init__(self, client: str) -> None:
        """`client` is what error messages call it."""
        self._client = client
        self._thread = shared_io_thread()
        self._changed = threading.Condition()
        self._lock: AbstractContextManager[object] = self._changed
        """Held while the core is used; notified after each event while somebody waits."""
        self._user = threading.RLock()
        """Held by the thread that uses the client."""
        self._waiting = False
        self._woken = False

    def wakeup(self) -> None:
        """Have the current or the next call of poll() raise WakeupError. Any thread may call it."""
        with self._changed:
            self._woken = True
            self._notify()

    @contextmanager
    def _used(self) -> Iterator[None]:
        self._thread.check_process()
        if self._thread.is_current:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a callback of a producer cannot wait for a {self._client}")
        if not self._user.acquire(blocking=False):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"another thread is using this {self._client}")
        try:
            yield
        finally:
            self._user.release()

    def _poke(self) -> None:
        self._loop.poke_threadsafe()

    def _wait_for_event(self, deadline: float) -> bool:
        """Whether something has happened before the deadline."""
        self._waiting = True
        try:
            return self._changed.wait(max(0.0, deadline - monotonic()))
        finally:
            self._waiting = False

    def _wait_until(self, done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Whether it has become true in time; without a timeout, for something that has a deadline of its own."""
        self._poke()
        self._waiting = True
        try:
            return self._changed.wait_for(done, timeout)
        finally:
            self._waiting = False

    def _unlocked(self, call: Callable[[], None]) -> None:
        self._changed.release()
        try:
            call()
        finally:
            self._changed.acquire()

    def _after_event(self) -> None:
        if self._waiting:
            with self._changed:
                self._notify()

    def _notify(self) -> None:
        self._changed.notify_all()

    def _raise_wakeup(self) -> None:
        if self._woken:
            self._woken = False
            raise WakeupError

    def _close_connections(self) -> None:
        """The last thing. Without the lock."""
        ended = threading.Event()
        self._thread.loop.call_soon_threadsafe(self._end, ended)
        ended.wait()

    def _end(self, ended: threading.Event) -> None:
        self._loop.close()
        ended.set()


class AsyncioFace:
    """Its core runs on the loop in which it was made."""

    _loop: NetworkLoop

    def __init__(self) -> None:
        """Raises RuntimeError outside of a running loop."""
        self._asyncio_loop = asyncio.get_running_loop()
        self._lock: AbstractContextManager[object] = nullcontext()
        self._waiters: list[asyncio.Future[None]] = []

    def _poke(self) -> None:
        self._loop.poke_soon()

    async def _event(self) -> None:
        waiter = self._asyncio_loop.create_future()
        self._waiters.append(waiter)
        await waiter

    async def _until(self, done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Whether it has become true in time; without a timeout, for something that has a deadline of its own."""
        self._poke()
        try:
            async with asyncio.timeout(timeout):
                while not done():
                    await self._event()
        except TimeoutError:
            return False
        return True

    def _after_event(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
