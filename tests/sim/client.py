"""What every simulated client shares: a connection that is made again when it breaks, and requests over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raylog.core.errors import ErrorCode, ProtocolViolation
from raylog.protocol.schema import Message
from raylog.transport.client_connection import ClientConnection
from tests.sim.broker_host import BrokerHost
from tests.sim.network import Link
from tests.sim.world import World

RECONNECT_MS_MAX = 60
ANSWER_TIMEOUT_MS = 3000

OnAnswer = Callable[[Any], None]


class SimClient:
    """Subclasses say what to do once connected (`connected`); each answer goes to the function given with its request.

    An answer that does not come breaks the connection, as request.timeout.ms does in a real client.
    """

    def __init__(self, world: World, host: BrokerHost, name: str) -> None:
        self.world = world
        self._host = host
        self._name = name
        self._link: Link | None = None
        self._core: ClientConnection
        self._waiting: dict[int, OnAnswer] = {}
        self.generation = 0
        """Counts connections: what was planned for an older one no longer holds."""
        self.finished = False
        world.after(world.rng.randint(0, RECONNECT_MS_MAX), self._connect)

    def connected(self) -> None:
        """The connection is there, and versions are known."""
        raise NotImplementedError

    def send(self, request: Message, on_answer: OnAnswer) -> None:
        correlation_id = self._core.send(request)
        self._waiting[correlation_id] = on_answer
        self._flush()
        generation = self.generation
        self.world.after(ANSWER_TIMEOUT_MS, lambda: self._timed_out(generation, correlation_id))

    def reconnect(self) -> None:
        """Hang up, and begin again: what a client does when an answer makes no sense to it."""
        if self._link is not None:
            self._link.break_()

    def bytes_arrived(self, data: bytes) -> None:
        generation = self.generation
        while data and generation == self.generation:
            room = self._core.receive_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self._core.bytes_received(count)
            self._take_answers(generation)

    def connection_lost(self) -> None:
        self.generation += 1
        self._link = None
        self._waiting.clear()
        if not self.finished:
            self.world.after(self.world.rng.randint(1, RECONNECT_MS_MAX), self._connect)

    def break_link(self) -> None:
        """The network's doing, not the client's."""
        if self._link is not None and not self._link.broken:
            self.world.marks["connection broken"] += 1
            self._link.break_()

    def _connect(self) -> None:
        if self.finished:
            return
        self._link = self._host.connect(self)
        if self._link is None:
            self.world.after(self.world.rng.randint(1, RECONNECT_MS_MAX), self._connect)
            return
        self._core = ClientConnection(client_id=self._name)
        self._core.negotiate(version=self.world.rng.choice((0, 3, 4)))
        self._waiting[0] = lambda answer: self._negotiated(answer.error_code)
        self._flush()

    def _negotiated(self, error_code: ErrorCode) -> None:
        assert error_code == ErrorCode.NONE, error_code
        self.connected()

    def _take_answers(self, generation: int) -> None:
        try:
            while generation == self.generation and (answered := self._core.next_response()) is not None:
                correlation_id, response = answered
                on_answer = self._waiting.pop(correlation_id, None)
                if on_answer is not None:
                    on_answer(response)
        except ProtocolViolation as violation:
            raise AssertionError(f"the broker's bytes make no sense: {violation}") from violation

    def _flush(self) -> None:
        if self._link is not None:
            self._link.to_server.send(b"".join(self._core.take_output()))

    def _timed_out(self, generation: int, correlation_id: int) -> None:
        if generation == self.generation and correlation_id in self._waiting:
            self.world.marks["answer timed out"] += 1
            self.reconnect()
