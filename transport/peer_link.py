"""A node's own connection to another node, sans-IO: authenticated, and re-established whenever it breaks.

    down --tick--> wanted --connected--> proving --exchange--> ready
      ^                |                    |                    |
      +----------------+------- lost -------+--------------------+

Requests wait while the link is not ready, each until its deadline. Requests in flight fail when the connection is
lost: their outcome is unknown, and the sender decides whether to retry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError, ProtocolViolation
from raylog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from raylog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from raylog.protocol.schema import Message
from raylog.protocol.wire import Buffer
from raylog.security.sasl.mechanism import SaslClient
from raylog.transport.client_connection import ClientConnection

BACKOFF_MS = 20
BACKOFF_MS_MAX = 1000
"""Kafka's reconnect.backoff.max.ms."""
CONNECT_MS_MAX = 5_000
"""Limit for connecting and authenticating; the link then closes the connection and retries."""

OnAnswer = Callable[[Any, Now], None]
OnFailure = Callable[[KafkaError, Now], None]


class LinkState(Enum):
    DOWN = "down"
    WANTED = "wanted"
    AUTHENTICATING = "authenticating"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class _Request:
    message: Message
    on_answer: OnAnswer
    on_failure: OnFailure
    deadline_ms: int


class PeerLink:
    """After each touch the shell checks `wants_connection`, `take_output` and `closing`."""

    def __init__(
        self,
        peer: str,
        *,
        client_id: str,
        new_sasl_client: Callable[[], SaslClient],
        on_touched: Callable[[PeerLink], None],
        on_ready: Callable[[Now], None] | None,
        on_lost: Callable[[Now], None] | None,
        on_gone: Callable[[Now], None] | None = None,
    ) -> None:
        """`on_lost`: a ready connection broke. `on_gone`: the peer disconnected or could not be reached."""
        self.peer = peer
        """The peer of the next connection."""
        self.state = LinkState.DOWN
        self.closing = False
        """Set once further input of this connection is ignored: the shell closes it and reports `lost`."""
        self._client_id = client_id
        self._new_sasl_client = new_sasl_client
        self._on_touched = on_touched
        self._on_ready = on_ready
        self._on_lost = on_lost
        self._on_gone = on_gone
        self._core: ClientConnection
        self._waiting: list[_Request] = []
        self._in_flight: dict[int, _Request] = {}
        self._due_ms = 0
        self._backoff_ms = BACKOFF_MS
        self._redirected = False
        """Whether the current connection, or the one being made, may lead to the peer before `redirect`."""

    @property
    def ready(self) -> bool:
        return self.state is LinkState.READY and not self.closing

    @property
    def wants_connection(self) -> bool:
        return self.state is LinkState.WANTED

    def request(
        self, message: Message, on_answer: OnAnswer, on_failure: OnFailure, *, now: Now, timeout_ms: int
    ) -> None:
        """Send `message` now, or once the link is ready. Exactly one of the two functions is called, later.

        Records in a response are views that are valid until the function returns. Failures: REQUEST_TIMED_OUT if it
        could not be sent in time, NETWORK_EXCEPTION if it was sent and no response came, UNSUPPORTED_VERSION.
        """
        self._waiting.append(_Request(message, on_answer, on_failure, now.monotonic_ms + timeout_ms))
        if self.ready:
            self._send_waiting(now)
        self._on_touched(self)

    def redirect(self, peer: str) -> None:
        """Connect to another peer: the current connection is closed, and requests in flight fail."""
        if peer != self.peer:
            self.peer = peer
            self._redirected = self.state is not LinkState.DOWN
            self.disconnect()

    def disconnect(self) -> None:
        """Close the connection and make a new one."""
        if self.state in (LinkState.AUTHENTICATING, LinkState.READY):
            self._give_up()

    # --- events reported by the shell

    def connected(self, now: Now) -> None:
        self.state = LinkState.AUTHENTICATING
        self.closing = self._redirected
        self._due_ms = now.monotonic_ms + CONNECT_MS_MAX
        self._core = ClientConnection(client_id=self._client_id)
        client = self._new_sasl_client()

        def handshake(response: Any, now: Now) -> None:
            self._ask(SaslHandshakeRequest(mechanism=client.mechanism), begin)

        def begin(response: Any, now: Now) -> None:
            self._ask(SaslAuthenticateRequest(auth_bytes=client.first_message), go_on)

        def go_on(response: Any, now: Now) -> None:
            message = client.respond(bytes(response.auth_bytes))
            if message is None:
                authenticated(now)
            else:
                self._ask(SaslAuthenticateRequest(auth_bytes=message), go_on)

        def authenticated(now: Now) -> None:
            self.state = LinkState.READY
            self._backoff_ms = BACKOFF_MS
            if self._on_ready is not None:
                self._on_ready(now)
            self._send_waiting(now)

        self._core.negotiate()
        self._in_flight = {0: _Request(_NEGOTIATION, handshake, _ignore, self._due_ms)}
        self._on_touched(self)

    def receive_buffer(self) -> memoryview:
        return self._core.receive_buffer()

    def bytes_received(self, count: int, now: Now) -> None:
        self._core.bytes_received(count)
        try:
            while not self.closing and (answered := self._core.next_response()) is not None:
                correlation_id, response = answered
                request = self._in_flight.pop(correlation_id)
                if self.state is LinkState.AUTHENTICATING and response.error_code != ErrorCode.NONE:
                    raise KafkaError(response.error_code, f"{self.peer} rejected the authentication of this node")
                request.on_answer(response, now)
        except (ProtocolViolation, KafkaError):
            self.closing = True
        self._on_touched(self)

    def lost(self, reason: str, now: Now) -> None:
        """The connection was closed, or could not be made."""
        if self.state is LinkState.DOWN:
            return
        was_ready = self.state is LinkState.READY
        self.state = LinkState.DOWN
        self.closing = False
        redirected, self._redirected = self._redirected, False
        self._due_ms = now.monotonic_ms + self._backoff_ms
        self._backoff_ms = min(2 * self._backoff_ms, BACKOFF_MS_MAX)
        failed, self._in_flight = self._in_flight, {}
        error = KafkaError(ErrorCode.NETWORK_EXCEPTION, f"the connection to {self.peer} was lost: {reason}")
        for request in failed.values():
            request.on_failure(error, now)
        if was_ready and self._on_lost is not None:
            self._on_lost(now)
        if self._on_gone is not None and not redirected:
            self._on_gone(now)

    def take_output(self) -> list[Buffer]:
        return self._core.take_output() if self.state in (LinkState.AUTHENTICATING, LinkState.READY) else []

    # --- time

    def tick(self, now: Now) -> None:
        if self.state is LinkState.DOWN and now.monotonic_ms >= self._due_ms:
            self.state = LinkState.WANTED
            self._on_touched(self)
        elif self.state is LinkState.AUTHENTICATING and now.monotonic_ms >= self._due_ms:
            self._give_up()
        if any(now.monotonic_ms >= request.deadline_ms for request in self._in_flight.values()):
            self._give_up()  # a peer that does not respond in time may never do so
        expired = [request for request in self._waiting if now.monotonic_ms >= request.deadline_ms]
        self._waiting = [request for request in self._waiting if now.monotonic_ms < request.deadline_ms]
        for request in expired:
            request.on_failure(
                KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self.peer} could not be reached in time"), now
            )

    def next_tick_ms(self) -> int | None:
        """The earliest time at which `tick` has work to do."""
        if self.closing:
            return None
        due = [request.deadline_ms for request in (*self._waiting, *self._in_flight.values())]
        if self.state in (LinkState.DOWN, LinkState.AUTHENTICATING):
            due.append(self._due_ms)
        return min(due, default=None)

    def _give_up(self) -> None:
        if not self.closing:
            self.closing = True
            self._on_touched(self)

    def _ask(self, message: Message, on_answer: OnAnswer) -> None:
        self._in_flight[self._core.send(message)] = _Request(message, on_answer, _ignore, self._due_ms)

    def _send_waiting(self, now: Now) -> None:
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            try:
                self._in_flight[self._core.send(request.message)] = request
            except KafkaError as error:  # the peer does not support a version of it
                request.on_failure(error, now)


_NEGOTIATION = SaslHandshakeRequest()
"""Represents ApiVersions, which the core sends itself."""


def _ignore(error: KafkaError, now: Now) -> None:
    """The exchange restarts with the next connection."""
