"""SaslAuthenticate (key 36). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, binary, error, int64, string

API = Api(key=36, name="SaslAuthenticate", lowest=0, highest=2, flexible_from=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateRequest:
    """Carries one step of a SASL exchange."""

    api: ClassVar[Api] = API
    auth_bytes: bytes = binary()


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateResponse:
    """The broker's step of the SASL exchange."""

    api: ClassVar[Api] = API
    error_code: ErrorCode = error()
    error_message: str | None = string(None, null_since=0)
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64(since=1)
