"""The connection of a node, or of a client, to a broker or controller, sans-IO: authenticated, and made again.

    down --tick--> wanted --connected--> authenticating --exchange--> ready
      ^                |                       |                        |
      +----------------+--------- lost --------+------------------------+

Requests wait while the link is not ready, each until its deadline. Requests in flight fail when the connection is
lost: their outcome is unknown, and the sender decides whether to retry. The link of a node is made again whenever it
breaks; that of a client only for requests that wait (`LinkPolicy.on_demand`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError, ProtocolViolation
from raylog.protocol.framing import FRAME_BYTES_MAX
from raylog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from raylog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from raylog.protocol.schema import Message
from raylog.protocol.wire import Buffer
from raylog.security.sasl.mechanism import SaslClient
from raylog.transport.client_connection import ClientConnection

REAUTHENTICATE_AFTER: Final = 0.85
"""A session with an end is renewed after this part of its lifetime. Kafka's clients choose between 0.85 and 0.95."""

OnAnswer = Callable[[Any, Now], None]
OnFailure = Callable[[KafkaError, Now], None]
VersionFor = Callable[[int], int]
"""The version of an API, by its key, that both ends support. Raises KafkaError(UNSUPPORTED_VERSION)."""
RequestFor = Callable[[VersionFor], Message]
"""Makes a request once the versions of the broker are known."""


@dataclass(frozen=True, slots=True)
class LinkPolicy:
    """When a link connects, and how long it waits; the defaults are those of the links between nodes."""

    backoff_ms: int = 20
    backoff_ms_max: int = 1000
    """Kafka's reconnect.backoff.max.ms."""
    connect_ms_max: int = 5_000
    """Limit for authenticating; the link then closes the connection and retries."""
    in_flight_max: int | None = None
    """Further requests wait until a response arrives. None: no limit."""
    on_demand: bool = False
    """Connect only while requests wait, and fail them if the connection cannot be made: another broker may serve."""
    idle_ms_max: int | None = None
    """Close the connection after this time without a request."""
    jitter: Callable[[], float] = lambda: 1.0
    """A random factor of each backoff, so that clients do not return all at once."""
    response_bytes_max: int = FRAME_BYTES_MAX


BETWEEN_NODES: Final = LinkPolicy()


class LinkState(Enum):
    DOWN = "down"
    WANTED = "wanted"
    AUTHENTICATING = "authenticating"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class _Request:
    message: Message | RequestFor
    on_answer: OnAnswer
    on_failure: OnFailure
    deadline_ms: int
    answered: bool = True
    version_max: int | None = None


class PeerLink:
    """After each touch the shell checks `wants_connection`, `wants_login`, `take_output` and `closing`."""

    def __init__(
        self,
        peer: str,
        *,
        client_id: str,
        on_touched: Callable[[PeerLink], None],
        on_ready: Callable[[Now], None] | None = None,
        on_lost: Callable[[Now], None] | None = None,
        on_gone: Callable[[Now], None] | None = None,
        policy: LinkPolicy = BETWEEN_NODES,
    ) -> None:
        """`on_lost`: a ready connection broke. `on_gone`: the peer disconnected or could not be reached."""
        self.peer = peer
        """The peer of the next connection."""
        self.state = LinkState.DOWN
        self.closing = False
        """Set once further input of this connection is ignored: the shell closes it and reports `lost`."""
        self.has_served = False
        """Whether the peer has answered a request on this connection; before that, it may be the wrong listener."""
        self.retired = False
        """Whether no other connection is to be made."""
        self.wants_login = False
        """The session ends soon: the shell begins another exchange, and reports `renew`."""
        self.finalized_features: tuple[int, dict[str, int]] = (-1, {})
        """The levels of the cluster's features as the peer has told them last, behind their epoch; -1: never."""
        self._client_id = client_id
        self._on_touched = on_touched
        self._on_ready = on_ready
        self._on_lost = on_lost
        self._on_gone = on_gone
        self._policy = policy
        self._core: ClientConnection
        self._waiting: deque[_Request] = deque()
        self._in_flight: dict[int, _Request] = {}
        self._due_ms = 0
        """DOWN: when to connect again; AUTHENTICATING: when to give up."""
        self._backoff_ms = policy.backoff_ms
        self._redirected = False
        """Whether the current connection, or the one being made, may lead to the peer before `redirect`."""
        self._refused: KafkaError | None = None
        """Why the peer did not accept this end, or this end the peer."""
        self._closed_for = ""
        """Why this end has closed the connection."""
        self._logs_in = False
        """Whether the client authenticates on this connection."""
        self._renew_ms: int | None = None
        """When the session has to be renewed."""
        self._renewing = False
        self._failed = False
        self._last_used_ms = 0

    @property
    def ready(self) -> bool:
        return self.state is LinkState.READY and not self.closing

    @property
    def wants_connection(self) -> bool:
        return self.state is LinkState.WANTED

    @property
    def load(self) -> int:
        """The number of requests that are not answered yet."""
        return len(self._waiting) + len(self._in_flight)

    @property
    def has_room(self) -> bool:
        """Whether one more request would be sent at once, or with the next connection."""
        return self._policy.in_flight_max is None or self.load < self._policy.in_flight_max

    @property
    def fails(self) -> bool:
        """Whether the last attempt to connect failed."""
        return self._failed and self.state is not LinkState.READY

    def in_backoff(self, now: Now) -> bool:
        """Whether the last connection failed, and the next one is not due yet."""
        return self.state is LinkState.DOWN and now.monotonic_ms < self._due_ms

    def request(
        self,
        message: Message | RequestFor,
        on_answer: OnAnswer,
        on_failure: OnFailure,
        *,
        now: Now,
        timeout_ms: int,
        answered: bool = True,
        version_max: int | None = None,
    ) -> None:
        """Send `message` now, or once the link is ready. Exactly one of the two functions is called, later.

        Records in a response are views that are valid until the function returns. Failures: REQUEST_TIMED_OUT if it
        could not be sent in time, NETWORK_EXCEPTION if it was sent and no response came, UNSUPPORTED_VERSION.
        For a request that is not `answered` by the peer, `on_answer` is called with None once it is sent. It goes out
        in the highest version that both ends support, and at most in `version_max`.
        """
        deadline_ms = now.monotonic_ms + timeout_ms
        self._waiting.append(_Request(message, on_answer, on_failure, deadline_ms, answered, version_max))
        if self.ready:
            self._send_waiting(now)
        elif self._policy.on_demand and self.state is LinkState.DOWN and not self.in_backoff(now):
            self.state = LinkState.WANTED
        self._on_touched(self)

    def redirect(self, peer: str) -> None:
        """Connect to another peer: the current connection is closed, and requests in flight fail."""
        if peer != self.peer:
            self.peer = peer
            self._redirected = self.state is not LinkState.DOWN
            self.disconnect()

    def disconnect(self) -> None:
        """Close the connection. A link between nodes makes a new one."""
        if self.state in (LinkState.AUTHENTICATING, LinkState.READY):
            self._give_up(_BY_THIS_END)

    def retire(self) -> None:
        """Close the connection, and make no other one."""
        self.retired = True
        self.disconnect()

    # --- events reported by the shell

    def connected(self, login: SaslClient | None, now: Now) -> None:
        """The connection is made; `login` is the exchange to authenticate by, None for none."""
        self.state = LinkState.AUTHENTICATING
        self.closing = self._redirected or self.retired
        self._closed_for = _BY_THIS_END if self.closing else ""
        self._logs_in = login is not None
        self.has_served = False
        self._due_ms = now.monotonic_ms + self._policy.connect_ms_max
        self._refused = None
        self._last_used_ms = now.monotonic_ms
        self._core = ClientConnection(client_id=self._client_id, response_bytes_max=self._policy.response_bytes_max)

        def negotiated(response: Any, now: Now) -> None:
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION and not self._core.negotiated:
                self._in_flight[self._core.last_correlation_id] = _Request(
                    _NEGOTIATION, negotiated, _ignore, self._due_ms
                )
            elif response.error_code != ErrorCode.NONE:
                raise KafkaError(response.error_code, f"{self.peer} rejected the request ApiVersions")
            else:
                levels = {each.name: each.max_version_level for each in response.finalized_features}
                self.finalized_features = response.finalized_features_epoch, levels
                if login is None:
                    self._authenticated(0, now)
                else:
                    self._authenticate(login)

        self._core.negotiate()
        self._in_flight = {0: _Request(_NEGOTIATION, negotiated, _ignore, self._due_ms)}
        self._on_touched(self)

    def renew(self, login: SaslClient, now: Now) -> None:
        """Authenticate again on the same connection (KIP-368); requests wait meanwhile."""
        self.wants_login = False
        if self.ready:
            self._renewing = True
            self._due_ms = now.monotonic_ms + self._policy.connect_ms_max
            self._authenticate(login)
            self._on_touched(self)

    def refuse(self, error: KafkaError) -> None:
        """This end cannot authenticate: the connection is closed, and what waits fails with this error.

        Without a connection the next one tells.
        """
        if self.state is LinkState.DOWN:
            return
        self._refused = error
        self._give_up(error.message)

    def receive_buffer(self) -> memoryview:
        return self._core.receive_buffer()

    def bytes_received(self, count: int, now: Now) -> None:
        self._core.bytes_received(count)
        try:
            while not self.closing and (answered := self._core.next_response()) is not None:
                correlation_id, response = answered
                request = self._in_flight.pop(correlation_id)
                self.has_served = self.has_served or request.message is not _NEGOTIATION
                request.on_answer(response, now)
        except ProtocolViolation as error:
            self._closed_for = str(error)
            self.closing = True
        except KafkaError as error:
            if self._times_out:
                self._refused = error
            self.closing = True
        if self.ready and self._waiting:
            self._send_waiting(now)
        self._on_touched(self)

    def lost(self, reason: str, now: Now) -> None:
        """The connection was closed, or could not be made."""
        if self.state is LinkState.DOWN:
            return
        was_ready, was_made = self.state is LinkState.READY, self.state is not LinkState.WANTED
        self.state = LinkState.DOWN
        self._failed = not was_ready
        self.closing = self.wants_login = self._renewing = False
        self._renew_ms = None
        redirected, self._redirected = self._redirected, False
        self._due_ms = now.monotonic_ms + int(self._backoff_ms * self._policy.jitter())
        self._backoff_ms = min(2 * self._backoff_ms, self._policy.backoff_ms_max)
        failed = list(self._in_flight.values())
        self._in_flight = {}
        if self.retired or (self._policy.on_demand and not was_ready):
            failed += self._waiting
            self._waiting.clear()
        what = f"the connection to {self.peer} was lost" if was_made else f"cannot connect to {self.peer}"
        if self._closed_for:
            reason = self._closed_for
        elif was_ready and not self._logs_in and not self.has_served:
            reason += _HINT_OF_LOGIN
        error = self._refused or KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{what}: {reason}")
        self._refused = None
        self._closed_for = ""
        for request in failed:
            request.on_failure(error, now)
        if was_ready and self._on_lost is not None:
            self._on_lost(now)
        if self._on_gone is not None and not redirected:
            self._on_gone(now)

    def take_output(self) -> list[Buffer]:
        return self._core.take_output() if self.state in (LinkState.AUTHENTICATING, LinkState.READY) else []

    # --- time

    def tick(self, now: Now) -> None:
        now_ms = now.monotonic_ms
        if self._connects and now_ms >= self._due_ms:
            self.state = LinkState.WANTED
            self._on_touched(self)
        elif self._times_out and now_ms >= self._due_ms:
            self._give_up(f"no response while authenticating within {self._policy.connect_ms_max} ms")
        elif self.ready and self._renew_ms is not None and now_ms >= self._renew_ms:
            self._renew_ms = None
            self.wants_login = True
            self._on_touched(self)
        if any(now_ms >= request.deadline_ms for request in self._in_flight.values()):
            self._give_up("no response in time")  # a peer that does not respond in time may never do so
        idle_ms = self._policy.idle_ms_max
        if self.ready and idle_ms is not None and not self.load and now_ms >= self._last_used_ms + idle_ms:
            self._give_up("idle")
        expired = [request for request in self._waiting if now_ms >= request.deadline_ms]
        if expired:
            self._waiting = deque(request for request in self._waiting if now_ms < request.deadline_ms)
        for request in expired:
            request.on_failure(
                KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self.peer} could not be reached in time"), now
            )

    def next_tick_ms(self) -> int | None:
        """The earliest time at which `tick` has work to do."""
        if self.closing:
            return None
        due = [request.deadline_ms for request in (*self._waiting, *self._in_flight.values())]
        if self._times_out or self._connects:
            due.append(self._due_ms)
        elif self.state is LinkState.READY:
            if self._renew_ms is not None:
                due.append(self._renew_ms)
            if self._policy.idle_ms_max is not None and not self.load:
                due.append(self._last_used_ms + self._policy.idle_ms_max)
        return min(due, default=None)

    @property
    def _connects(self) -> bool:
        """Whether a connection is to be made once it is due."""
        wanted = self._waiting or not self._policy.on_demand
        return self.state is LinkState.DOWN and not self.retired and bool(wanted)

    @property
    def _times_out(self) -> bool:
        """Whether an exchange of authentication is in progress."""
        return self.state is LinkState.AUTHENTICATING or self._renewing

    def _give_up(self, reason: str) -> None:
        if not self.closing:
            self._closed_for = reason
            self.closing = True
            self._on_touched(self)

    def _authenticate(self, login: SaslClient) -> None:
        """Begin the exchange of requests that `login` needs."""

        def begin(response: Any, now: Now) -> None:
            if response.error_code != ErrorCode.NONE:
                offered = ", ".join(response.mechanisms) or _NO_MECHANISM
                raise KafkaError(response.error_code, f"{self.peer} offers {offered}")
            self._ask(SaslAuthenticateRequest(auth_bytes=login.first_message), go_on)

        def go_on(response: Any, now: Now) -> None:
            if response.error_code != ErrorCode.NONE:
                raise KafkaError(response.error_code, response.error_message)
            message = login.respond(bytes(response.auth_bytes))
            if message is None:
                self._authenticated(response.session_lifetime_ms, now)
            else:
                self._ask(SaslAuthenticateRequest(auth_bytes=message), go_on)

        self._ask(SaslHandshakeRequest(mechanism=login.mechanism), begin)

    def _authenticated(self, lifetime_ms: int, now: Now) -> None:
        if lifetime_ms > 0:
            self._renew_ms = now.monotonic_ms + int(REAUTHENTICATE_AFTER * lifetime_ms)
        if self._renewing:
            self._renewing = False
        else:
            self.state = LinkState.READY
            self._backoff_ms = self._policy.backoff_ms
            if self._on_ready is not None:
                self._on_ready(now)
        self._send_waiting(now)

    def _ask(self, message: Message, on_answer: OnAnswer) -> None:
        self._in_flight[self._core.send(message)] = _Request(message, on_answer, _ignore, self._due_ms)

    def _send_waiting(self, now: Now) -> None:
        limit = self._policy.in_flight_max
        while self._waiting and not self._renewing and (limit is None or len(self._in_flight) < limit):
            request = self._waiting.popleft()
            self._last_used_ms = now.monotonic_ms
            try:
                message = request.message(self._core.version_for) if callable(request.message) else request.message
                correlation_id = self._core.send(message, answered=request.answered, version_max=request.version_max)
            except KafkaError as error:  # the peer does not support a version of it
                request.on_failure(error, now)
            except (ValueError, ProtocolViolation) as error:  # a value that cannot be encoded
                request.on_failure(KafkaError(ErrorCode.INVALID_REQUEST, str(error)), now)
            else:
                if request.answered:
                    self._in_flight[correlation_id] = request
                else:
                    request.on_answer(None, now)


_NEGOTIATION = SaslHandshakeRequest()
"""Represents ApiVersions, which the core sends itself."""


_BY_THIS_END: Final = "closed by this end"
_NO_MECHANISM: Final = "no SASL mechanism; its listener may have no logins (security.protocol)"
_HINT_OF_LOGIN: Final = (
    " before its first response; its listener may require a login (security.protocol=SASL_PLAINTEXT or SASL_SSL)"
)


def _ignore(error: KafkaError, now: Now) -> None:
    """The exchange restarts with the next connection."""
