"""The base of all simulated clients: connections to brokers, opened on demand, and requests over them.

A client is a script that restarts from the beginning after every failure. Responses to requests of an earlier round are
ignored. Subclasses keep the state that must survive a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from raylog.core.errors import ErrorCode, ProtocolViolation
from raylog.core.ids import BrokerId
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.schema import Message
from raylog.transport.client_connection import ClientConnection
from tests.sim.broker_host import BrokerHost
from tests.sim.network import Side
from tests.sim.world import World

RETRY_MS_MAX = 60
ANSWER_TIMEOUT_MS = 3000

OnAnswer = Callable[[Any], None]
OnFailure = Callable[[], None]


class SimClient:
    """Subclasses implement `begin`; each response goes to the callback given with its request."""

    late_bytes = True
    """Whether requests may still arrive after the client has closed the connection and retried elsewhere."""

    versions_max: Mapping[type, int] = {}
    """By request: the newest version that this client knows; none: that of the broker."""

    def __init__(self, world: World, hosts: list[BrokerHost], name: str) -> None:
        self.world = world
        self.name = name
        self.finished = False
        self.hosts = hosts
        self._channels: dict[BrokerId, _Channel] = {}
        self._round = 0
        self.later(RETRY_MS_MAX, self.begin)

    def begin(self) -> None:
        raise NotImplementedError

    def restart(self, *, within_ms: int = RETRY_MS_MAX) -> None:
        """Abandon the current round and begin again, possibly over new connections."""
        self._round += 1
        for channel in list(self._channels.values()):
            if self.world.rng.random() < 0.5:
                channel.hang_up()
        self.later(within_ms, self.begin)

    def later(self, delay_ms_max: int, step: Callable[[], None]) -> None:
        self.at(self.world.rng.randint(1, max(delay_ms_max, 1)), step)

    def at(self, delay_ms: int, step: Callable[[], None]) -> None:
        self.world.after(delay_ms, partial(self._step, self._round, step))

    def any_broker(self) -> BrokerId:
        return self.world.rng.choice(self.hosts).broker_id

    def host(self, broker_id: BrokerId) -> BrokerHost:
        return next(host for host in self.hosts if host.broker_id == broker_id)

    def ask(
        self, broker_id: BrokerId, request: Message, on_answer: OnAnswer, on_failure: OnFailure | None = None
    ) -> None:
        """`on_failure` (else `restart`) is called if no response arrives; the outcome of the request is unknown."""
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = _Channel(self, self.host(broker_id))
        in_round = self._round
        channel.send(
            request,
            lambda answer: on_answer(answer) if in_round == self._round else None,
            lambda: (on_failure or self.restart)() if in_round == self._round else None,
        )

    def describe(
        self, topic: str, on_topic: OnAnswer, *, broker_id: BrokerId | None = None, create: bool = False
    ) -> None:
        """Request the topic's metadata from a broker."""

        def described(answer: Any) -> None:
            for shown in answer.brokers:
                assert shown.host == self.host(shown.node_id).name, "a broker is shown where another one is"
            (found,) = answer.topics
            for partition in getattr(found, "partitions", ()):
                if partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE:
                    self.world.marks["partition without a leader shown"] += 1
            on_topic(found)

        request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=create)
        self.ask(self.any_broker() if broker_id is None else broker_id, request, described)

    def break_connection(self) -> None:
        """The network breaks the connection."""
        for channel in list(self._channels.values()):
            channel.break_()

    def forget(self, channel: _Channel) -> None:
        if self._channels.get(channel.broker_id) is channel:
            del self._channels[channel.broker_id]

    def _step(self, in_round: int, step: Callable[[], None]) -> None:
        if in_round == self._round:
            step()


class _Channel:
    """A client's connection to one broker, from the first request to its end. Requests wait until it is there."""

    def __init__(self, client: SimClient, host: BrokerHost) -> None:
        self.broker_id = host.broker_id
        self._client = client
        self._world = client.world
        self._core = ClientConnection(client_id=client.name)
        self._unsent: list[tuple[Message, OnAnswer, OnFailure]] = []
        self._waiting: dict[int, tuple[OnAnswer, OnFailure]] = {}
        self._ready = False
        self._ended = False
        self._connection = host.accept(self, client_host="client")
        if self._connection is None:
            self._world.after(1, self.connection_lost)
        else:
            self._core.negotiate(version=self._world.rng.choice((0, 3, 4)))
            self._waiting[0] = (self._negotiated, lambda: None)
            self._flush()
            self._world.after(ANSWER_TIMEOUT_MS, partial(self._timed_out, 0))

    def send(self, request: Message, on_answer: OnAnswer, on_failure: OnFailure) -> None:
        if not self._ready:
            self._unsent.append((request, on_answer, on_failure))
            return
        correlation_id = self._core.send(request, version_max=self._client.versions_max.get(type(request)))
        self._waiting[correlation_id] = (on_answer, on_failure)
        self._flush()
        self._world.after(ANSWER_TIMEOUT_MS, partial(self._timed_out, correlation_id))

    def hang_up(self) -> None:
        self._client.forget(self)
        if self._connection is not None:
            late = self._client.late_bytes and self._world.rng.random() < 0.5
            self._connection.break_(by=Side.CLIENT, late=late)

    def break_(self) -> None:
        if self._connection is not None and not self._connection.broken:
            self._world.marks["connection broken"] += 1
            self._connection.break_(by=None, late=self._world.rng.random() < 0.5)

    def bytes_arrived(self, data: bytes) -> None:
        while data and not self._ended:
            room = self._core.receive_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self._core.bytes_received(count)
            self._take_answers()

    def connection_lost(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._client.forget(self)
        failed = [on_failure for _, on_failure in self._waiting.values()]
        failed += [on_failure for _, _, on_failure in self._unsent]
        for on_failure in failed:
            on_failure()

    def _negotiated(self, answer: Any) -> None:
        assert answer.error_code == ErrorCode.NONE, answer.error_code
        self._ready = True
        unsent, self._unsent = self._unsent, []
        for request, on_answer, on_failure in unsent:
            self.send(request, on_answer, on_failure)

    def _take_answers(self) -> None:
        try:
            while not self._ended and (answered := self._core.next_response()) is not None:
                correlation_id, response = answered
                on_answer, _ = self._waiting.pop(correlation_id)
                on_answer(response)
        except ProtocolViolation as violation:
            raise AssertionError(f"the broker's bytes make no sense: {violation}") from violation

    def _flush(self) -> None:
        if self._connection is not None:
            self._connection.to(Side.SERVER).send(b"".join(self._core.take_output()))

    def _timed_out(self, correlation_id: int) -> None:
        if correlation_id in self._waiting and not self._ended:
            self._world.marks["answer timed out"] += 1
            self.hang_up()
