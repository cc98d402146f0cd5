"""OAUTHBEARER: the client presents a token, which names its identity. Only TLS keeps the token from others.

    client -> server   n,,^Aauth=Bearer <token>^A<extension>=<value>^A^A      (^A is the byte 1)
    server -> client   empty; or {"status":"invalid_token"}, which the client answers with ^A before the exchange fails

Source: RFC 7628, KIP-255. As in Kafka, extensions are accepted and have no meaning.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from raylog.core.errors import KafkaError
from raylog.core.password import Password
from raylog.security.sasl.mechanism import Check, Identity, authentication_failed

log = logging.getLogger("raylog.security.sasl")
OAUTHBEARER: Final = "OAUTHBEARER"
TOKEN_BYTES_MAX: Final = 64 << 10
_SEPARATOR: Final = "\x01"
_ACKNOWLEDGEMENT: Final = b"\x01"
_HEADER: Final = re.compile(r"n,(?:a=((?:[^=,\0]|=2C|=3D)+))?,")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_CREDENTIALS: Final = re.compile(r"(\w+) +([-_.A-Za-z0-9]+)", re.ASCII)


class TokenRefusal(NamedTuple):
    """Why a token is invalid."""

    reason: str
    """Logged. The client sees only `invalid_token` or `insufficient_scope`."""
    required_scope: str | None = None
    """Set if the token is valid and lacks this scope."""
    unknown_key: bool = False
    """Whether the token may have been signed with a key that the validator does not have yet."""


class TokenRefused(Exception):
    def __init__(self, reason: str, *, required_scope: str | None = None, unknown_key: bool = False) -> None:
        super().__init__(reason)
        self.refusal = TokenRefusal(reason, required_scope, unknown_key)


class TokenValidator(Protocol):
    """Decides which tokens are valid. Both methods are called on the loop."""

    def begin(self, token: str) -> Callable[[], Identity]:
        """A function that validates this token, to be called off the loop. It raises TokenRefused."""

    def refused(self, refusal: TokenRefusal) -> None:
        """A token was refused."""


class OAuthBearerServer:
    """One exchange."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._error: str | None = None
        """Sent to the client, which has to acknowledge it."""
        self.identity: Identity | None = None

    def respond(self, message: bytes) -> bytes | Check:
        if self._error is not None:
            raise authentication_failed(self._error)
        first = _parse(message)
        if len(first.token) > TOKEN_BYTES_MAX:
            return self._refuse(TokenRefusal(f"the token has more than {TOKEN_BYTES_MAX} bytes"))
        validate = self._validator.begin(first.token)
        return Check(lambda: _outcome(validate), lambda outcome: self._complete(outcome, first.authorization_id))

    def _complete(self, outcome: Identity | TokenRefusal, authorization_id: str) -> bytes:
        if isinstance(outcome, TokenRefusal):
            return self._refuse(outcome)
        if authorization_id not in ("", outcome.principal.name):
            raise authentication_failed(
                "Authentication failed: Client requested an authorization id that is different from the token's"
                " principal name"
            )
        self.identity = outcome
        return b""

    def _refuse(self, refusal: TokenRefusal) -> bytes:
        log.info("token refused", extra={"reason": refusal.reason})
        self._validator.refused(refusal)
        error = {"status": "invalid_token"}
        if refusal.required_scope is not None:
            error = {"status": "insufficient_scope", "scope": refusal.required_scope}
        self._error = json.dumps(error, separators=(",", ":"))
        return self._error.encode()


class OAuthBearerClient:
    """One exchange."""

    mechanism = OAUTHBEARER

    def __init__(self, token: Password, *, extensions: Mapping[str, str] | None = None) -> None:
        """Raises ValueError for an extension that the protocol cannot express."""
        pairs = {"auth": f"Bearer {token.reveal()}", **(extensions or {})}
        if len(pairs) != 1 + len(extensions or {}):
            raise ValueError("an extension must not have the name auth")
        for name, value in pairs.items():
            if not _EXTENSION_NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise ValueError(f"the token, or the extension {name!r}, contains invalid characters")
        written = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs.items())
        self.first_message = f"n,,{_SEPARATOR}{written}{_SEPARATOR}".encode()
        self._refused = False

    def respond(self, message: bytes) -> bytes | None:
        """None after the server's empty message. An error is acknowledged, and the server then ends the exchange."""
        if self._refused:
            raise authentication_failed("the server refused the token, and continued the exchange")
        if not message:
            return None
        self._refused = True
        return _ACKNOWLEDGEMENT


class _FirstMessage(NamedTuple):
    token: str
    authorization_id: str


def _outcome(validate: Callable[[], Identity]) -> Identity | TokenRefusal:
    try:
        return validate()
    except TokenRefused as refused:
        return refused.refusal


def _parse(message: bytes) -> _FirstMessage:
    """Raises KafkaError."""
    try:
        header, _, rest = message.decode().partition(_SEPARATOR)
    except UnicodeDecodeError:
        raise _malformed("it is not UTF-8") from None
    match = _HEADER.fullmatch(header)
    if match is None:
        raise _malformed("expected n,,")
    pairs: dict[str, str] = {}
    if not rest.endswith(_SEPARATOR * 2):
        raise _malformed("it has no end")
    for pair in rest[:-2].split(_SEPARATOR):
        name, _, value = pair.partition("=")
        if not _EXTENSION_NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name in pairs:
            raise _malformed("expected name=value, each name once")
        pairs[name] = value
    credentials = _CREDENTIALS.fullmatch(pairs.get("auth", ""))
    if credentials is None or credentials[1].lower() != "bearer":
        raise _malformed("expected auth=Bearer <token>")
    authorization_id = (match[1] or "").replace("=2C", ",").replace("=3D", "=")
    return _FirstMessage(credentials[2], authorization_id)


def _malformed(reason: str) -> KafkaError:
    return authentication_failed(f"Authentication failed: Invalid OAUTHBEARER client first message: {reason}")
