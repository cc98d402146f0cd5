"""Request and response headers: API key, version, client id, and the correlation id that matches responses to requests.

A request header has a client id (v1) and, in flexible versions, tagged fields (v2). A response header is the
correlation id (v0), with tagged fields in flexible versions (v1). The ApiVersions response header is always v0, since
clients must be able to read it before they know the broker's versions (KIP-511).

Source: Kafka protocol guide, "Request Header"; KIP-482.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from raylog.core.errors import ProtocolViolation
from raylog.protocol import codec
from raylog.protocol.registry import API_VERSIONS, ApiSpec, api_for
from raylog.protocol.schema import Message
from raylog.protocol.wire import BUDGET, DAMAGE, Buffer, skip_tags

REQUEST_START = struct.Struct(">hhi")
CLIENT_ID_LENGTH = struct.Struct(">h")
CORRELATION_ID = struct.Struct(">i")
_new_tuple = tuple.__new__


class RequestStart(NamedTuple):
    """The first fields of every request, the same in all versions."""

    api_key: int
    api_version: int
    correlation_id: int


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The header of one request; `client_id` is None if the client did not send one."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def decode_request_start(buffer: Buffer, position: int = 0) -> RequestStart:
    """Key, version and correlation id. Read first, since the rest of the header depends on them.

    An unknown key or version is no error here: an ApiVersions request in a newer version still gets a response.
    Raises ProtocolViolation for fewer than 8 bytes.
    """
    try:
        return _new_tuple(RequestStart, REQUEST_START.unpack_from(buffer, position))  # `_make` without its Python frame
    except struct.error as damage:
        raise ProtocolViolation(f"a request of {len(buffer) - position} bytes is too short for a header") from damage


def decode_request_header(buffer: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """The header at `position`, and the position of the body.

    Raises ProtocolViolation for a malformed header, and for a key or version that is not served.
    """
    start = decode_request_start(buffer, position)
    spec = api_for(start.api_key)
    if spec is None or not spec.serves(start.api_version):
        raise ProtocolViolation(f"API key {start.api_key} version {start.api_version} is not supported")
    client_id, at = decode_client_id(spec, start.api_version, buffer, position)
    return RequestHeader(*start, client_id), at


def decode_client_id(spec: ApiSpec, version: int, buffer: Buffer, position: int = 0) -> tuple[str | None, int]:
    """The client id in the request header at `position`, and the position of the body. Raises ProtocolViolation."""
    try:
        client_id, at = read_client_id(buffer, position + REQUEST_START.size)
        if spec.is_flexible(version):
            if buffer[at] == 0:  # no tagged fields
                return client_id, at + 1
            BUDGET.refill()
            at = skip_tags(buffer, at, len(buffer))
    except DAMAGE as damage:
        raise ProtocolViolation(f"malformed header of {spec.name} v{version}: {damage}") from damage
    return client_id, at


def read_client_id(buffer: Buffer, at: int) -> tuple[str | None, int]:
    """The client id, which has an int16 length even in the flexible header."""
    length: int = CLIENT_ID_LENGTH.unpack_from(buffer, at)[0]
    at += CLIENT_ID_LENGTH.size
    if length == -1:
        return None, at
    if not 0 <= length <= len(buffer) - at:
        raise ProtocolViolation(f"a client id of {length} bytes does not fit the request")
    return str(buffer[at : at + length], "utf-8"), at + length


def encode_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header as a client writes it. Raises ValueError for a key that is not in the registry."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    start = REQUEST_START.pack(api_key, api_version, correlation_id) + CLIENT_ID_LENGTH.pack(length) + name
    return start + b"\0" if flexible(api_key, api_version) else start


def encode_request(
    message: Message, *, api_version: int, correlation_id: int, client_id: str | None = None
) -> list[Buffer]:
    """Header and body of a request, as buffers to be framed and sent in order."""
    header = encode_request_header(message.api.key, api_version, correlation_id, client_id)
    return [header, *codec.encode_buffers(message, api_version)]


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """The header of the response to that request. Raises ValueError for a key that is not in the registry."""
    start = CORRELATION_ID.pack(correlation_id)
    return start + b"\0" if api_key != API_VERSIONS and flexible(api_key, api_version) else start


def decode_response_header(api_key: int, api_version: int, buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """The correlation id of the response, and the position of its body. Raises ProtocolViolation."""
    try:
        correlation_id: int = CORRELATION_ID.unpack_from(buffer, position)[0]
        at = position + CORRELATION_ID.size
        if api_key != API_VERSIONS and flexible(api_key, api_version):
            BUDGET.refill()
            at = skip_tags(buffer, at, len(buffer))
    except DAMAGE as damage:
        raise ProtocolViolation(f"malformed response header: {damage}") from damage
    return correlation_id, at


def flexible(api_key: int, api_version: int) -> bool:
    spec = api_for(api_key)
    if spec is None:
        raise ValueError(f"API key {api_key} is not in the registry")
    return spec.is_flexible(api_version)
