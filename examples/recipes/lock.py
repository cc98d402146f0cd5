"""A lock with a fencing token.

The holder is the leader of an election. What a lock protects must refuse a former holder: topics do, if the holder
writes by `write`; anything else compares the token with the greatest one that it has seen, as `FencedStore` does.
"""

from __future__ import annotations

import time
from typing import Any, Self

from examples.recipes.election import Candidate, Leadership


class Lock:
    """Held from `acquire` to `release`, or within a `with` block."""

    def __init__(self, servers: str, name: str, owner: str, **settings: Any) -> None:
        """`settings` are those of a consumer. The holder has max.poll.interval.ms for its work, by default 5 min."""
        self._arguments = servers, f"lock-{name}", owner
        self._settings = settings
        self._candidate: Candidate | None = None

    def __enter__(self) -> Leadership:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self, timeout: float = 60.0) -> Leadership:
        """Wait for the lock. Raises TimeoutError."""
        deadline = time.monotonic() + timeout
        self._candidate = Candidate(*self._arguments, **self._settings)
        try:
            while (held := self._candidate.campaign(0.1)) is None:
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"{self._arguments[1]} was not free within {timeout} s")
        except BaseException:  # also an interrupt: the candidate may have got the lock
            self.release()
            raise
        return held

    def release(self) -> None:
        if self._candidate is not None:
            self._candidate.close()
            self._candidate = None


class FencedStore:
    """Something outside of the log: takes no value from a holder that another one has followed."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._token = -1

    def put(self, token: int, key: str, value: str) -> Self:
        if token < self._token:
            raise PermissionError(f"token {token} is older than {self._token}")
        self._token = token
        self.values[key] = value
        return self
