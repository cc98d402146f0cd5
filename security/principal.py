"""Who asks: the principal that a connection has proven to be, and the host it comes from."""

from __future__ import annotations

import struct
from ipaddress import ip_address
from typing import Final, NamedTuple

from raylog.core.errors import ErrorCode, KafkaError, ProtocolViolation
from raylog.protocol.wire import read_uvarint, uvarint

_VERSION: Final = struct.pack(">h", 0)
_NO_TOKEN: Final = b"\0\0"
"""Not authenticated by a delegation token; no tagged fields."""

_ADDRESS_BYTES: Final = (4, 16)
"""Of IPv4 and IPv6. No word for a host is as long as one of them."""


class Principal(NamedTuple):
    """As Kafka writes it: `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""Who has proven nothing."""
THE_CLUSTER: Final = Principal("Cluster", "raylog")
"""A node of the cluster, which has proven the cluster's secret. No client can become it."""


class Client(NamedTuple):
    """A principal at a host. The host is an address as text, or a word for who has none."""

    principal: Principal
    host: str


LOCAL_HOST: Final = "127.0.0.1"
"""The host of processes that come in by a Unix socket."""


def parse_principal(text: str) -> Principal:
    """The principal of `Type:name`. Raises KafkaError(INVALID_REQUEST)."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{text!r} is no principal: it must be Type:name, as in User:alice."
        )
    return Principal(kind, name)


def encode_principal(principal: Principal) -> bytes:
    """As an Envelope carries it. Source: Kafka's DefaultPrincipalData, version 0."""
    return b"".join((_VERSION, _compact(principal.type), _compact(principal.name), _NO_TOKEN))


def decode_principal(data: bytes | memoryview) -> Principal:
    """Raises KafkaError(PRINCIPAL_DESERIALIZATION_FAILURE)."""
    try:
        if data[: len(_VERSION)] != _VERSION:
            raise ValueError("another version")
        kind, position = _read_compact(data, len(_VERSION))
        name, position = _read_compact(data, position)
        if len(data) < position + len(_NO_TOKEN):
            raise ValueError("cut short")
    except (ValueError, IndexError, ProtocolViolation) as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, f"not a principal: {error}") from error
    return Principal(kind, name)


def encode_host(host: str) -> bytes:
    """As an Envelope carries it: the 4 or 16 bytes of an address; a word as it is."""
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
        raise ValueError("cut short")
    return bytes(data[start:end]).decode(), end
