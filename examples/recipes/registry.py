"""A registry of services: which instances are alive, and where.

An instance writes its address again and again, and a tombstone when it ends. A reader takes an instance to be alive as
long as it sees something new of it at least every `ttl` seconds of its own clock, so that no clocks need to agree.
"""

from __future__ import annotations

import threading
import time
from typing import Self

import raylog
from examples.recipes import topics

TOPIC = "services"


class Instance:
    """Registered from `__init__` to `close`. If its process dies, readers notice after their `ttl`."""

    def __init__(self, servers: str, service: str, instance: str, address: str, *, seconds: float = 1.0) -> None:
        topics.create(servers, TOPIC)
        self._key = f"{topics.prefix(service)}{instance}"
        self._address = address
        self._seconds = seconds
        self._producer = raylog.Producer(bootstrap_servers=servers)
        self._producer.send(TOPIC, address, self._key).result()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.die()
        self._producer.send(TOPIC, None, self._key)
        self._producer.close()

    def die(self) -> None:
        """End without a word."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(self._seconds):
            self._producer.send(TOPIC, self._address, self._key)


class Registry:
    """A reader."""

    def __init__(self, servers: str, *, ttl: float = 5.0) -> None:
        topics.create(servers, TOPIC)
        self._ttl = ttl
        self._table = raylog.read_table(TOPIC, bootstrap_servers=servers)
        self._seen: dict[bytes, tuple[int, float]] = {}
        """By key, the offset of its last record, and when it was first seen."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._table.close()

    def addresses(self, service: str) -> dict[str, str]:
        """Of the instances that are alive, by their names."""
        self._table.refresh()
        now = time.monotonic()
        rows = self._table.to_arrow(["key", "value", "offset"]).to_pylist()
        before = self._seen
        self._seen = {}
        alive: dict[str, str] = {}
        for row in rows:
            offset, since = before.get(row["key"], (-1, now))
            if offset != row["offset"]:
                since = now
            self._seen[row["key"]] = row["offset"], since
            name, _, instance = row["key"].decode().partition("/")
            if name == service and now - since < self._ttl:
                alive[instance] = row["value"].decode()
        return alive
