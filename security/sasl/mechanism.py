"""What every SASL mechanism has in common: one object per exchange, for each of its two ends. Source: RFC 4422."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from raylog.core.errors import ErrorCode, KafkaError
from raylog.security.principal import Principal

MESSAGE_BYTES_MAX: Final = 512 << 10
"""Kafka's sasl.server.max.receive.size."""


class Identity(NamedTuple):
    """Who has authenticated."""

    principal: Principal
    expires_ms: int | None = None
    """When the credential itself ends (wall clock); None: never."""
    by_token: bool = False
    """Whether it was a delegation token (KIP-48)."""


@dataclass(frozen=True, slots=True)
class Check:
    """A part of an exchange that may block or takes long: the shell runs it off the loop."""

    run: Callable[[], Any]
    """Uses nothing of the exchange that is used on the loop. Raises KafkaError for invalid credentials."""
    then: Callable[[Any], bytes | Check | None]
    """Continues on the loop with what `run` returned, and returns the next message, as `SaslServer.respond`."""


class SaslServer(Protocol):
    """The server's end of one exchange."""

    identity: Identity | None
    """Set once the client is authenticated: the message returned last completes the exchange."""

    def respond(self, message: bytes) -> bytes | Check | None:
        """The server's next message, or the check that leads to it. Raises KafkaError(SASL_AUTHENTICATION_FAILED).

        None: the exchange is complete, and the client's message was its last.
        """


class SaslClient(Protocol):
    """The client's end of one exchange."""

    mechanism: str
    first_message: bytes

    def respond(self, message: bytes) -> bytes | None:
        """The client's next message; None once the exchange is complete.

        Raises KafkaError(SASL_AUTHENTICATION_FAILED) if the server does not prove who it is.
        """


def authentication_failed(reason: str) -> KafkaError:
    """The error of an exchange that ends. The client sees the reason, which must not help an attacker."""
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, reason)
