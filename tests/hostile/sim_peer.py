"""Carries out the steps of a hostile peer in the simulator."""

from __future__ import annotations

from tests.hostile.requests import Ending, Requests, Step
from tests.hostile.responses import Learned, Responses
from tests.sim.broker_host import BrokerHost
from tests.sim.network import Connection, Side
from tests.sim.world import World

STEP_MS = 200
"""How long the responses to one step are awaited."""


class SimPeer:
    """Takes one step after another, each on a connection of its own to one of the brokers, until `finished`."""

    def __init__(self, world: World, hosts: list[BrokerHost]) -> None:
        self.finished = False
        self.number = -1
        """Of the current step."""
        self.learned = Learned()
        self._world = world
        self._hosts = hosts
        self._requests = Requests(world.seed, self.learned, lambda: world.now().wall_ms)
        self._next()

    def _next(self) -> None:
        if not self.finished:
            self.number += 1
            _Conversation(self, self._world, self._hosts, self._requests.step(self.number))
            self._world.after(STEP_MS, self._next)


class _Conversation:
    """One step: an `End` of its connection."""

    def __init__(self, peer: SimPeer, world: World, hosts: list[BrokerHost], step: Step) -> None:
        self._step = step
        self._world = world
        self._responses = Responses(peer.learned)
        self._connection: Connection | None = world.rng.choice(hosts).accept(self, client_host="hostile")
        self._write()
        if step.ending is not Ending.SILENCE:
            world.after(0 if step.ending is Ending.CLOSE else STEP_MS, self._close)

    def bytes_arrived(self, data: bytes) -> None:
        self._world.marks["hostile peer answered"] += 1
        self._responses.received(data)
        if not self._responses.awaited:
            self._write()

    def connection_lost(self) -> None:
        self._connection = None

    def _write(self) -> None:
        for data in self._step.writes:
            if self._connection is None:
                return
            self._responses.sent(data)
            self._connection.to(Side.SERVER).send(data)
            if self._step.in_turn:
                return

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.break_(by=Side.CLIENT)
