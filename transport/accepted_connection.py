"""A connection as its node sees it: its listener, its peer, and its requests in progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raylog.security.principal import ANONYMOUS, LOCAL_HOST, Client
from raylog.transport.connection_counts import ConnectionCounts
from raylog.transport.endpoints import UNIX_PEER, Listener
from raylog.transport.server_connection import ServerConnection

if TYPE_CHECKING:
    from raylog.core.clock import Now
    from raylog.security.authenticator import Authenticator


TURN_FRAMES_MAX: Final = 32
"""How many requests of one connection are served before the other connections get their turn."""
TURN_BYTES_MAX: Final = 1 << 20
"""Request bytes after which no further request is started in the same turn."""


class Turn:
    """How much of its turn a connection has used within one event of its node."""

    __slots__ = ("_bytes", "_event", "_frames")

    def __init__(self) -> None:
        self._event = -1
        self._frames = self._bytes = 0

    def used_up(self, event: int) -> bool:
        return event == self._event and (self._frames >= TURN_FRAMES_MAX or self._bytes >= TURN_BYTES_MAX)

    def used(self, event: int, size_bytes: int) -> bool:
        """Count one served request; returns whether it was the last of this turn."""
        if event != self._event:
            self._event, self._frames, self._bytes = event, 0, 0
        self._frames += 1
        self._bytes += size_bytes
        return self._frames >= TURN_FRAMES_MAX or self._bytes >= TURN_BYTES_MAX


class AcceptedConnection(ServerConnection):
    """Lives from `Node.connection_opened` until `Node.connection_closed`."""

    def __init__(
        self,
        listener: Listener,
        peer_host: str,
        *,
        frame_bytes_max: int,
        unauthenticated_bytes_max: int,
        authenticator: Authenticator,
        now: Now,
        counts: ConnectionCounts | None = None,
    ) -> None:
        """`unauthenticated_bytes_max` limits the requests before the peer is authenticated."""
        super().__init__(frame_bytes_max=frame_bytes_max)
        self._frame_bytes_max = frame_bytes_max
        self._unauthenticated_bytes_max = min(unauthenticated_bytes_max, frame_bytes_max)
        if authenticator.identity is None:
            self.limit_frames(max_bytes=self._unauthenticated_bytes_max)
        self.listener = listener
        self.peer_host = peer_host
        self.authenticator = authenticator
        self.counts = counts or ConnectionCounts()
        """Those of its listener and door."""
        self.software = ("", "")
        """Name and version of the client library, if it has sent them (KIP-511)."""
        self.unsent_bytes = 0
        """Output passed to the driver that the peer has not read."""
        self.sasl_tokens_expected = False
        """Whether the next frame is a message of the SASL exchange itself: the client has sent SaslHandshake v0."""
        self.checked_since_ms: int | None = None
        """When the check of its credentials that is under way began (monotonic)."""
        self.turn = Turn()
        self.queue_ms = 0
        """How long the requests of the current turn have waited for it."""
        self.waits_since_ms = 0
        """Since when `waits_for_turn` (monotonic)."""
        self.opened_ms = self.last_active_ms = now.monotonic_ms
        self.last_output_ms = now.monotonic_ms
        """When a response was encoded last, or its peer had read much of what was sent."""
        self._host = LOCAL_HOST if peer_host.startswith(UNIX_PEER) else peer_host

    def expect_sasl_tokens(self) -> None:
        """The next frames are messages of the SASL exchange, of any length, until it is complete."""
        self.sasl_tokens_expected = True
        self.limit_frames(min_bytes=0, max_bytes=self._unauthenticated_bytes_max)

    def authentication_completed(self) -> None:
        """The peer is authenticated: requests of any size follow."""
        self.counts.authenticated += 1
        self.sasl_tokens_expected = False
        self.limit_frames(max_bytes=self._frame_bytes_max)

    @property
    def client(self) -> Client:
        """The client for which requests are authorized from now on."""
        identity = self.authenticator.identity
        if identity is None:
            return Client(ANONYMOUS, self._host)
        return Client(identity.principal, self._host, identity.by_token)

    @property
    def authenticated(self) -> bool:
        return self.authenticator.identity is not None
