"""(shell) Threads for work that may never end: to stop a node, or the process, does not wait for them."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread


class DaemonThreads:
    """Up to `most` threads, which begin what was submitted in this order."""

    def __init__(self, most: int, *, name: str) -> None:
        self._most = most
        self._name = name
        self._threads = 0
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, run: Callable[[], None]) -> None:
        """`run` must not raise."""
        self._waiting.put(run)
        if self._threads < self._most:
            self._threads += 1
            Thread(target=self._work, name=self._name, daemon=True).start()

    def shutdown(self) -> None:
        """Begin nothing more. What is under way goes on, and is not waited for."""
        while not self._waiting.empty():
            self._waiting.get()
        for _ in range(self._threads):
            self._waiting.put(None)

    def _work(self) -> None:
        while (run := self._waiting.get()) is not None:
            run()
