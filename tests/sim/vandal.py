"""A hostile peer: it sends noise, truncated frames, invalid lengths, and valid headers with invalid bodies."""

from __future__ import annotations

import struct
from typing import Any

from raylog.protocol.registry import KAFKA_APIS
from tests.sim.network import Connection, Side
from tests.sim.node_host import NodeHost
from tests.sim.world import World


class Vandal:
    """Connects to any listener, sends invalid data, disconnects and reconnects. It must not affect other clients.

    It draws from the random source of the run and is part of what a seed means. `tests/hostile/sim_peer.py` sends
    requests drawn from the schemas, in runs of its own.
    """

    def __init__(self, world: World, hosts: list[NodeHost[Any]]) -> None:
        self.finished = False
        self._world = world
        self._hosts = hosts
        self._connection: Connection | None = None
        world.after(world.rng.randint(0, 1000), self._act)

    def bytes_arrived(self, data: bytes) -> None:
        self._world.marks["vandal answered"] += 1

    def connection_lost(self) -> None:
        self._connection = None

    def _act(self) -> None:
        if self.finished:
            return
        rng = self._world.rng
        if self._connection is None:
            internal = rng.random() < 0.5
            self._connection = rng.choice(self._hosts).accept(self, client_host="vandal", internal=internal)
        if self._connection is not None:
            self._connection.to(Side.SERVER).send(self._rubbish())
            if rng.random() < 0.2:
                self._connection.break_(by=Side.CLIENT, late=rng.random() < 0.5)
        self._world.after(rng.randint(50, 600), self._act)

    def _rubbish(self) -> bytes:
        rng = self._world.rng
        kind = rng.randrange(4)
        if kind == 0:
            return rng.randbytes(rng.randint(1, 200))
        if kind == 1:
            return struct.pack(">i", rng.choice((-1, 0, 7, 1 << 30, (1 << 31) - 1))) + rng.randbytes(20)
        body = rng.randbytes(rng.randint(0, 100)) if kind == 2 else b"\xff\xff\xff\x7f" * rng.randint(1, 20)
        start = struct.pack(">hhih", rng.choice(sorted(KAFKA_APIS)), rng.randint(-1, 14), rng.getrandbits(31), -1)
        frame = start + body
        return struct.pack(">i", len(frame)) + frame
