"""How a connection proves who its peer is: one authenticator for each connection, whatever the kind of connection.

A listener chooses the authenticator (TCP, Unix socket, actor handle, internal link); the SASL requests drive it; it
ends in a principal. Until then only ApiVersions and the SASL requests are served.
"""

from __future__ import annotations

from typing import Protocol

from raylog.core.errors import ErrorCode, KafkaError
from raylog.security.principal import ANONYMOUS, Principal


class Authenticator(Protocol):
    """The server's end of one exchange."""

    mechanisms: tuple[str, ...]
    """SASL mechanisms the peer may choose from; empty where the listener uses no SASL."""
    principal: Principal | None
    """The authenticated principal; None before authentication."""

    def choose(self, mechanism: str) -> None:
        """Begin an exchange by this mechanism. Raises KafkaError: UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE."""

    def respond(self, message: bytes) -> bytes:
        """The server's next message. Raises KafkaError(SASL_AUTHENTICATION_FAILED), after which the connection
        closes."""


class NoAuthentication:
    """A listener without authentication: every peer is `principal` from the start."""

    mechanisms: tuple[str, ...] = ()

    def __init__(self, principal: Principal = ANONYMOUS) -> None:
        self.principal: Principal | None = principal

    def choose(self, mechanism: str) -> None:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE)

    def respond(self, message: bytes) -> bytes:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE)
