"""A barrier: each of a number of parties goes on when all have arrived, and again when all have left.

A party is a key of a compacted topic, so that one that dies and starts again arrives once.
"""

from __future__ import annotations

import time
from typing import Self

import raylog
from examples.recipes import topics

TOPIC = "barriers"


class Barrier:
    """One party's view."""

    def __init__(self, servers: str, barrier: str, party: str, parties: int) -> None:
        self._prefix = topics.prefix(barrier).encode()
        self._key = self._prefix + party.encode()
        topics.create(servers, TOPIC)
        self._parties = parties
        self._producer = raylog.Producer(bootstrap_servers=servers, acks="all")
        self._table = raylog.read_table(TOPIC, bootstrap_servers=servers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()
        self._table.close()

    def enter(self, timeout: float = 60.0) -> None:
        """Arrive, and wait for the others. Raises TimeoutError."""
        self._producer.send(TOPIC, b"arrived", self._key).result()
        self._wait(self._parties, timeout)

    def leave(self, timeout: float = 60.0) -> None:
        """Say that the work is done, and wait until the others have done theirs. Raises TimeoutError.

        A party may read only now that all had arrived: the first ones wait until the last one leaves.
        """
        self._producer.send(TOPIC, b"done", self._key).result()
        self._wait(self._parties, timeout, done=True)

    def _wait(self, count: int, timeout: float, *, done: bool = False) -> None:
        deadline = time.monotonic() + timeout
        while True:
            self._table.refresh(max_wait_ms=100)
            states = [value for key, value in self._table.items() if key.startswith(self._prefix)]
            if sum(value == b"done" or not done for value in states) >= count:
                return
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{len(states)} of {count} parties are there after {timeout} s")
