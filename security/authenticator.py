"""How a connection proves who its peer is: one authenticator for each connection, whatever the kind of connection.

A listener chooses the authenticator (TCP, TLS, Unix socket, actor handle, internal link); the SASL requests drive it;
it ends in an identity. Until then only ApiVersions and the SASL requests are served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from raylog.core.errors import ErrorCode, KafkaError
from raylog.security.principal import ANONYMOUS, Principal
from raylog.security.sasl.mechanism import Identity

if TYPE_CHECKING:
    from raylog.core.clock import Now
    from raylog.security.sasl.mechanism import Check


class Authenticator(Protocol):
    """The server's end of the authentication of one connection."""

    mechanisms: tuple[str, ...]
    """SASL mechanisms the peer may choose from; empty where the listener uses no SASL."""
    certificate: bytes | None
    """The peer's certificate in DER format, set after the TLS handshake; None without one."""
    session_lifetime_ms: int
    """How long the session lasts, as SaslAuthenticate returns it; 0: without end."""

    @property
    def identity(self) -> Identity | None:
        """Who has authenticated; None before that."""

    @property
    def in_exchange(self) -> bool:
        """Whether an exchange has begun and is not complete: the first one, or one by which the peer does so again."""

    def choose(self, mechanism: str, now: Now) -> None:
        """Begin an exchange by this mechanism. Raises KafkaError: UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE."""

    def respond(self, message: bytes, now: Now) -> bytes | Check | None:
        """The server's next message, or the check that leads to it; None if the exchange ends without one.

        Raises KafkaError: ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED, after which the connection closes.
        """

    def session_expired(self, now: Now) -> bool:
        """Whether the peer must authenticate again before any other request."""


class NoSasl:
    """A connection without SASL: the peer is known from the start, by its certificate, its user id, or not at all."""

    mechanisms: tuple[str, ...] = ()
    certificate: bytes | None = None
    session_lifetime_ms = 0
    in_exchange = False

    def __init__(self, principal: Principal | None = ANONYMOUS) -> None:
        """None: it is known after the TLS handshake, or once a principal builder has returned it."""
        self.identity: Identity | None = None if principal is None else Identity(principal)

    def choose(self, mechanism: str, now: Now) -> None:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE)

    def respond(self, message: bytes, now: Now) -> bytes:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE)

    def session_expired(self, now: Now) -> bool:
        return False
