"""Envelope (key 58). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, binary, error

API = Api(key=58, name="Envelope", lowest=0, highest=0, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeRequest:
    """A client's request, forwarded by a broker to the controller."""

    api: ClassVar[Api] = API
    request_data: bytes = binary()
    request_principal: bytes | None = binary(None, null_since=0)
    client_host_address: bytes = binary()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeResponse:
    """The controller's answer to it."""

    api: ClassVar[Api] = API
    response_data: bytes | None = binary(None, null_since=0)
    error_code: ErrorCode = error()
