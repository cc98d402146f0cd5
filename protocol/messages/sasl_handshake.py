"""SaslHandshake (key 17). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, error, string

API = Api(key=17, name="SaslHandshake", lowest=0, highest=1, flexible_from=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeRequest:
    """Names the SASL mechanism the client wants."""

    api: ClassVar[Api] = API
    mechanism: str = string()


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeResponse:
    """The mechanisms the broker offers."""

    api: ClassVar[Api] = API
    error_code: ErrorCode = error()
    mechanisms: tuple[str, ...] = array(string)
