"""Custom principals: a Python function maps what a client has authenticated with to its principal.

Kafka's principal.builder.class. The function may block: it runs in a thread, when a connection without SASL is opened
or secured, and at the end of every exchange of SASL. What it raises refuses the client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from raylog.core.errors import ErrorCode, KafkaError
from raylog.security.distinguished_name import distinguished_name
from raylog.security.operator_function import FunctionFailed, call
from raylog.security.principal import CLUSTER_PRINCIPAL, Principal, parse_principal
from raylog.security.sasl.mechanism import authentication_failed

log = logging.getLogger("raylog.security")


@dataclass(frozen=True, slots=True)
class AuthenticationContext:
    """What is known of a client when its principal is built."""

    listener: str
    """The name of the listener, in upper case."""
    security_protocol: str
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    client_address: str
    """An IP address; another name for a client that has connected on the broker's machine without one."""
    certificate: bytes | None = None
    """The client's certificate, in DER format; None without one."""
    sasl_mechanism: str | None = None
    authorization_id: str | None = None
    """The user that the SASL mechanism has authenticated; both are None without SASL."""

    @property
    def certificate_subject(self) -> str | None:
        """The distinguished name in the certificate, such as `CN=alice,OU=Users`. Raises ValueError."""
        return None if self.certificate is None else distinguished_name(self.certificate)


PrincipalBuilder = Callable[[AuthenticationContext], str]
"""Returns a principal, as `Type:name`."""


def build_principal(builder: PrincipalBuilder, context: AuthenticationContext) -> Principal:
    """Raises KafkaError(SASL_AUTHENTICATION_FAILED) if the builder raises anything or returns no principal."""
    try:
        return _checked(call(builder, context))
    except (FunctionFailed, KafkaError) as error:
        log.error(
            "principal builder failed",
            extra={"listener": context.listener, "peer": context.client_address, "error": error},
            exc_info=error if log.isEnabledFor(logging.DEBUG) else None,
        )
        raise authentication_failed("Authentication failed: the principal cannot be determined") from None


def _checked(built: object) -> Principal:
    """Raises KafkaError(INVALID_REQUEST)."""
    if not isinstance(built, str):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"it returned {built!r} in place of a text")
    principal = parse_principal(built)
    if principal.type == CLUSTER_PRINCIPAL.type:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{principal} is reserved for the nodes of the cluster")
    return principal
