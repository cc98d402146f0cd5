"""What a handler is given beside the request, and what it may answer other than a response."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from raylog.broker.listeners import Listener
from raylog.core.clock import Now
from raylog.replication.delayed import DelayedOperation
from raylog.security.cluster_secret import SecretVerifier
from raylog.transport.server_connection import ServerConnection


class ClientConnection(ServerConnection):
    """A connection as the broker sees it: where it came in, who it is, and what it waits for."""

    def __init__(
        self, listener: Listener, peer_host: str, *, frame_bytes_max: int, verifier: SecretVerifier | None, now: Now
    ) -> None:
        super().__init__(frame_bytes_max=frame_bytes_max)
        self.listener = listener
        self.peer_host = peer_host
        self.verifier = verifier
        """On the internal listener: the exchange that must succeed before anything else is served."""
        self.parked_ticket: int | None = None
        self.last_active_ms = now.monotonic_ms

    @property
    def authenticated(self) -> bool:
        return self.verifier is None or self.verifier.succeeded


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who asks, in which version, when; and `reply` for a handler that parks and answers later."""

    connection: ClientConnection
    api_version: int
    client_id: str | None
    now: Now
    reply: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Parked:
    """The answer comes later, through `RequestContext.reply`, when `operation` completes or its deadline comes."""

    operation: DelayedOperation
    keys: Sequence[Hashable]


class NoResponse:
    """The protocol wants no answer (Produce with acks=0)."""


NO_RESPONSE: Final = NoResponse()


class CloseConnection(Exception):
    """The request can be answered only by hanging up; the message says why."""
