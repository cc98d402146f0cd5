"""Unique names: of several who claim one, the first in the log has it, and keeps it until it releases it.

Each claim has a key of its own, the name and the owner, so that compaction never replaces one claim by another. The
owner of a name follows from the order of the claims in the log alone.
"""

from __future__ import annotations

from typing import Self

import raylog
from examples.recipes import topics

TOPIC = "names"


class Names:
    """The names as one owner sees them. An owner keeps its id when it starts again, and with it its names."""

    def __init__(self, servers: str, owner: str) -> None:
        topics.create(servers, TOPIC)
        self._owner = owner
        self._producer = raylog.Producer(bootstrap_servers=servers, acks="all")
        self._claims = raylog.read_table(TOPIC, bootstrap_servers=servers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()
        self._claims.close()

    def claim(self, name: str, address: str) -> bool:
        """Whether the name is now, or was already, that of this owner."""
        if self._key(name) not in self._refreshed():
            self._producer.send(TOPIC, address, self._key(name)).result()
            self._refreshed()
        if self.owner(name) == self._owner:
            return True
        self.release(name)
        return False

    def release(self, name: str) -> None:
        self._producer.send(TOPIC, None, self._key(name)).result()

    def owner(self, name: str) -> str | None:
        """Whose claim is the first."""
        prefix = topics.prefix(name).encode()
        claims = self._refreshed().to_arrow(["key", "offset"]).to_pylist()
        mine = [(claim["offset"], claim["key"]) for claim in claims if claim["key"].startswith(prefix)]
        return min(mine)[1].removeprefix(prefix).decode() if mine else None

    def address(self, name: str) -> str | None:
        owner = self.owner(name)
        return None if owner is None else self._claims[f"{topics.prefix(name)}{owner}".encode()].decode()

    def _key(self, name: str) -> bytes:
        return f"{topics.prefix(name)}{self._owner}".encode()

    def _refreshed(self) -> raylog.TopicTable:
        self._claims.refresh()
        return self._claims
