"""The client of a request: the authenticated principal of its connection, and its host."""

from __future__ import annotations

import struct
from ipaddress import ip_address
from typing import Final, NamedTuple

from raylog.core.errors import ErrorCode, KafkaError, ProtocolViolation
from raylog.protocol.wire import read_uvarint, uvarint

_VERSION: Final = struct.pack(">h", 0)
_NO_TAGGED_FIELDS: Final = b"\0"
_ADDRESS_BYTES: Final = (4, 16)
"""Lengths of IPv4 and IPv6 addresses. The names in place of a host have other lengths."""


class Principal(NamedTuple):
    """Written as in Kafka: `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""The principal of a client that is not authenticated."""
CLUSTER_PRINCIPAL: Final = Principal("Cluster", "raylog")
"""The principal of a node that has authenticated with the cluster's secret. Clients cannot have it."""


class Client(NamedTuple):
    """A principal and its host: an IP address as text, or a name for clients that have none."""

    principal: Principal
    host: str
    token_authenticated: bool = False
    """Whether it has logged in by a delegation token (KIP-48)."""


LOCAL_HOST: Final = "127.0.0.1"
"""The host of clients that connect by a Unix socket."""


def parse_principal(text: str) -> Principal:
    """The principal of `Type:name`. Raises KafkaError(INVALID_REQUEST)."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{text!r} is not a principal: must be Type:name, such as User:alice."
        )
    return Principal(kind, name)


def encode_principal(principal: Principal, *, token_authenticated: bool = False) -> bytes:
    """The encoding in an Envelope request. Source: Kafka's DefaultPrincipalData, version 0."""
    by_token = bytes((token_authenticated,))
    return b"".join((_VERSION, _compact(principal.type), _compact(principal.name), by_token, _NO_TAGGED_FIELDS))


def decode_principal(data: bytes | memoryview) -> tuple[Principal, bool]:
    """The principal, and whether it is token-authenticated. Raises KafkaError(PRINCIPAL_DESERIALIZATION_FAILURE)."""
    try:
        if data[: len(_VERSION)] != _VERSION:
            raise ValueError("unknown version")
        kind, position = _read_compact(data, len(_VERSION))
        name, position = _read_compact(data, position)
        token_authenticated = data[position] != 0
        if len(data) < position + 1 + len(_NO_TAGGED_FIELDS):
            raise ValueError("truncated")
    except (ValueError, IndexError, ProtocolViolation) as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, f"not a principal: {error}") from error
    return Principal(kind, name), token_authenticated


def encode_host(host: str) -> bytes:
    """The encoding in an Envelope request: the 4 or 16 bytes of an IP address, or the name as text."""
    try:
        return ip_address(host).packed
    except ValueError:
        return host.encode()


def decode_host(data: bytes) -> str:
    """Raises KafkaError(PRINCIPAL_DESERIALIZATION_FAILURE)."""
    try:
        return str(ip_address(data)) if len(data) in _ADDRESS_BYTES else data.decode()
    except ValueError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, f"not a host: {error}") from error


def _compact(text: str) -> bytes:
    data = text.encode()
    return uvarint(len(data) + 1) + data


def _read_compact(data: bytes | memoryview, position: int) -> tuple[str, int]:
    length, start = read_uvarint(data, position)
    end = start + length - 1
    if not start <= end <= len(data):
        raise ValueError("truncated")
    return bytes(data[start:end]).decode(), end
