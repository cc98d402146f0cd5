"""A simulated TCP connection: bytes arrive in order, late, in pieces of any size, until it breaks in mid-frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tests.sim.world import World

DELAY_MS_MAX = 5


class End(Protocol):
    """Who sits at one end."""

    def bytes_arrived(self, data: bytes) -> None: ...

    def connection_lost(self) -> None: ...


class Pipe:
    """One direction. What was sent before the break may or may not have arrived; nothing sent after it does."""

    def __init__(self, world: World, deliver: Callable[[bytes], None]) -> None:
        self._world = world
        self._deliver = deliver
        self._unread = bytearray()
        self._planned = False
        self.broken = False
        self.on_drained: Callable[[], None] | None = None

    @property
    def unread_bytes(self) -> int:
        return len(self._unread)

    def send(self, data: bytes) -> None:
        if not self.broken and data:
            self._unread += data
            self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._world.after(self._world.rng.randint(0, DELAY_MS_MAX), self._arrive)

    def _arrive(self) -> None:
        self._planned = False
        if self.broken or not self._unread:
            return
        count = len(self._unread)
        if self._world.rng.random() < 0.3:
            count = self._world.rng.randint(1, count)
        piece = bytes(self._unread[:count])
        del self._unread[:count]
        if self._unread:
            self._plan()
        self._deliver(piece)
        if not self._unread and self.on_drained is not None:
            self.on_drained()


class Link:
    """Two ends and a pipe each way."""

    def __init__(self, world: World, client: End) -> None:
        self._world = world
        self._client = client
        self._server: End | None = None
        self.to_server = Pipe(world, lambda data: self._server.bytes_arrived(data) if self._server else None)
        self.to_client = Pipe(world, client.bytes_arrived)
        self.broken = False

    def attach(self, server: End) -> None:
        self._server = server

    def break_(self) -> None:
        """Both ends learn of it, each in its own time; bytes on the way are lost."""
        if self.broken:
            return
        self.broken = self.to_server.broken = self.to_client.broken = True
        self._world.after(self._world.rng.randint(0, DELAY_MS_MAX), self._client.connection_lost)
        if self._server is not None:
            self._world.after(self._world.rng.randint(0, DELAY_MS_MAX), self._server.connection_lost)
