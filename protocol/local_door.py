"""What a reader and the broker of the same node say to each other at the local door: small datagrams, one of each a
turn.

A datagram is a msgpack array `[kind, field, ...]`, the fields in the order of the class. Descriptors travel beside
it. A reader says Hello first and may then ask one thing at a time; every request gets one answer, or a Refused.

```
   Hello            -> Welcome          the reader's eventfd, its armed flag (transport/doorbell.py)
   OpenPartition    -> PartitionOpened  the partition's shared page (logstore/shared_page.py)
   LocateSegment    -> SegmentLocated   the segment's .log file, to read only
   ClosePartition   -> PartitionClosed
```
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final
from uuid import UUID

import msgpack

from raylog.core.errors import ErrorCode, ProtocolViolation
from raylog.protocol.wire import ERROR_CODES

VERSION: Final = 1
"""Of these messages, of the shared page's layout and of the doorbell's, which change together."""
DATAGRAM_BYTES_MAX: Final = 1024
REFUSAL_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Hello:
    """First of all. A broker that speaks another version refuses, and the reader goes over the wire."""

    version: int


@dataclass(frozen=True, slots=True)
class Welcome:
    """Two descriptors: the eventfd, the armed flag."""


@dataclass(frozen=True, slots=True)
class OpenPartition:
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionOpened:
    """One descriptor: the shared page. `handle` names the opened partition from now on, on this connection only."""

    handle: int
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class LocateSegment:
    """Where is the batch that holds `offset`, or the next one behind it?"""

    handle: int
    offset: int


@dataclass(frozen=True, slots=True)
class SegmentLocated:
    """One descriptor: the `.log` file, in which the batch begins at `position`; it may not be written yet."""

    base_offset: int
    position: int
    generation: int


@dataclass(frozen=True, slots=True)
class ClosePartition:
    handle: int


@dataclass(frozen=True, slots=True)
class PartitionClosed:
    pass


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer to a request that cannot be served, in the words of a Kafka error."""

    error_code: ErrorCode
    message: str


Request = Hello | OpenPartition | LocateSegment | ClosePartition
Answer = Welcome | PartitionOpened | SegmentLocated | PartitionClosed | Refused

_KINDS: Final[dict[int, tuple[type[Request | Answer], tuple[type, ...]]]] = {
    1: (Hello, (int,)),
    2: (OpenPartition, (str, int)),
    3: (LocateSegment, (int, int)),
    4: (ClosePartition, (int,)),
    -1: (Welcome, ()),
    -2: (PartitionOpened, (int, UUID)),
    -3: (SegmentLocated, (int, int, int)),
    -4: (PartitionClosed, ()),
    -5: (Refused, (ErrorCode, str)),
}
"""By number, what each field is. Requests have positive numbers, answers negative ones."""
_PACKED_AS: Final[dict[type, type]] = {UUID: bytes, ErrorCode: int}
_NUMBERS: Final = {kind: number for number, (kind, _) in _KINDS.items()}
_REQUESTS: Final = (Hello, OpenPartition, LocateSegment, ClosePartition)


def encode(message: Request | Answer) -> bytes:
    values = (getattr(message, field.name) for field in fields(message))
    packed: bytes = msgpack.packb(
        [_NUMBERS[type(message)], *(value.bytes if isinstance(value, UUID) else value for value in values)]
    )
    return packed


def decode_request(datagram: bytes) -> Request:
    """Raises ProtocolViolation for anything that is not, to the byte, a request."""
    message = _decode(datagram)
    if not isinstance(message, _REQUESTS):
        raise ProtocolViolation("an answer where a request should be")
    return message


def decode_answer(datagram: bytes) -> Answer:
    """Raises ProtocolViolation for anything that is not, to the byte, an answer."""
    message = _decode(datagram)
    if isinstance(message, _REQUESTS):
        raise ProtocolViolation("a request where an answer should be")
    return message


def _decode(datagram: bytes) -> Request | Answer:
    if len(datagram) > DATAGRAM_BYTES_MAX:
        raise ProtocolViolation(f"a datagram of more than {DATAGRAM_BYTES_MAX} bytes")
    try:
        number, *values = msgpack.unpackb(datagram, use_list=False)
        kind, types = _KINDS[number]
        made = kind(*(_field(value, wanted) for value, wanted in zip(values, types, strict=True)))
    except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
        raise ProtocolViolation(f"not a datagram of the local door: {datagram[:40]!r}") from error
    return made


def _field(value: Any, wanted: type) -> Any:
    """The value as the message has it. Raises ValueError, KeyError or TypeError."""
    if type(value) is not _PACKED_AS.get(wanted, wanted):
        raise TypeError(f"{value!r} is no {wanted.__name__}")
    if isinstance(value, bytes):
        return UUID(bytes=value)
    return ERROR_CODES[value] if wanted is ErrorCode and isinstance(value, int) else value
