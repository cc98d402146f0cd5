"""What a handler gets beside the request itself, and the ways in which it may answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from raylog.core.clock import Now
from raylog.protocol.wire import Buffer
from raylog.security.cluster_secret import SecretVerifier
from raylog.security.principal import ANONYMOUS, LOCAL_HOST, THE_CLUSTER, Client
from raylog.transport.delayed import DelayedOperation
from raylog.transport.endpoints import UNIX_PEER, Listener
from raylog.transport.server_connection import ServerConnection


class AcceptedConnection(ServerConnection):
    """A connection as its node sees it: where it came in, who it is, and what it waits for."""

    def __init__(
        self, listener: Listener, peer_host: str, *, frame_bytes_max: int, verifier: SecretVerifier | None, now: Now
    ) -> None:
        super().__init__(frame_bytes_max=frame_bytes_max)
        self.listener = listener
        self.peer_host = peer_host
        self.verifier = verifier
        """On the internal listener: the exchange that must succeed before anything else is served."""
        self.client = Client(
            THE_CLUSTER if listener.internal else ANONYMOUS,
            LOCAL_HOST if peer_host.startswith(UNIX_PEER) else peer_host,
        )
        """For whom requests are authorized. Whatever authenticates the peer sets it."""
        self.parked_ticket: int | None = None
        self.last_active_ms = now.monotonic_ms

    @property
    def authenticated(self) -> bool:
        return self.verifier is None or self.verifier.succeeded


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who asks, in which version, when; and how to answer later.

    `reply` is for a handler that parks; `reply_encoded` is the same for an answer that another node has encoded,
    response header and all. `frame` is the request as it came, gone when the handler returns.
    """

    connection: AcceptedConnection
    api_version: int
    client_id: str | None
    now: Now
    frame: memoryview
    reply: Callable[[Any], None]
    reply_encoded: Callable[[Buffer], None]
    forwarded_for: Client | None = None
    """Whose request it is, where the peer only hands it on."""

    @property
    def client(self) -> Client:
        """For whom the request is authorized."""
        return self.forwarded_for or self.connection.client

    def of_forwarded(self, api_version: int, client_id: str | None, client: Client) -> RequestContext:
        """The context of a request that lay inside this one, and was `client`'s."""
        return replace(self, api_version=api_version, client_id=client_id, forwarded_for=client)


@dataclass(frozen=True, slots=True)
class Parked:
    """The answer comes later, through `RequestContext.reply`, when `operation` completes or its deadline comes."""

    operation: DelayedOperation
    keys: Sequence[Hashable]


class NoResponse:
    """The protocol wants no answer (Produce with acks=0)."""


NO_RESPONSE: Final = NoResponse()


class AnsweredLater:
    """`RequestContext.reply` or `reply_encoded` is called later, once: another node or a group's others speak first."""


ANSWERED_LATER: Final = AnsweredLater()


class CloseConnection(Exception):
    """The request can be answered only by hanging up; the message says why."""
