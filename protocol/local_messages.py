"""The local endpoint protocol between a reader and the broker on the same node: small datagrams, request and response.

A datagram is a msgpack array `[kind, field, ...]`, the fields in the order of the class. File descriptors are sent
along with it. A reader sends Hello first, then one request at a time; every request gets one response, or a Refused.

```
   Hello            -> Welcome          the reader's eventfd, its armed flag (transport/doorbell.py)
   OpenPartition    -> PartitionOpened  the partition's shared page (logstore/shared_page.py)
   LocateSegment    -> SegmentLocated   the segment's .log file, read-only
   ListAborted      -> AbortedListed    a file with the list, in memory
   ClosePartition   -> PartitionClosed
```
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgpack

from raylog.core.errors import ErrorCode, ProtocolViolation
from raylog.protocol.wire import ERROR_CODES

VERSION: Final = 3
"""The common version of these messages and of the layouts of shared page and doorbell."""
DATAGRAM_BYTES_MAX: Final = 1024
REFUSAL_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Hello:
    """The first request. A broker with another version refuses it, and the reader uses the network."""

    version: int


@dataclass(frozen=True, slots=True)
class Welcome:
    """Two descriptors: the eventfd, the armed flag. `principal` is whom the reader stands for: User:alice."""

    principal: str


@dataclass(frozen=True, slots=True)
class OpenPartition:
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionOpened:
    """One descriptor: the shared page. `handle` identifies the opened partition on this connection only."""

    handle: int
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class LocateSegment:
    """Request the segment and position of the batch that contains `offset`, or of the next batch after it."""

    handle: int
    offset: int


@dataclass(frozen=True, slots=True)
class SegmentLocated:
    """One descriptor: the `.log` file. The batch begins at `position`; it may not be written yet."""

    base_offset: int
    position: int
    generation: int


@dataclass(frozen=True, slots=True)
class ListAborted:
    """Request the aborted transactions with records in [offset, wanted) of the segment with this base offset.

    `device` and `inode` identify the file in which the reader has found them. The request is refused with
    RESOURCE_NOT_FOUND if that is no longer the segment's file; the reader then locates its offset again.
    """

    handle: int
    base_offset: int
    device: int
    inode: int
    offset: int
    wanted: int


@dataclass(frozen=True, slots=True)
class AbortedListed:
    """One descriptor: a file with the list (`pack_aborted`), which is complete up to this offset, at least `wanted`."""

    upto: int


@dataclass(frozen=True, slots=True)
class ClosePartition:
    handle: int


@dataclass(frozen=True, slots=True)
class PartitionClosed:
    pass


@dataclass(frozen=True, slots=True)
class Refused:
    """The response to a request that cannot be served, with a Kafka error."""

    error_code: ErrorCode
    message: str


Request = Hello | OpenPartition | LocateSegment | ListAborted | ClosePartition
Answer = Welcome | PartitionOpened | SegmentLocated | AbortedListed | PartitionClosed | Refused

_KINDS: Final[dict[int, tuple[type[Request | Answer], tuple[type, ...]]]] = {
    1: (Hello, (int,)),
    2: (OpenPartition, (str, int)),
    3: (LocateSegment, (int, int)),
    4: (ClosePartition, (int,)),
    5: (ListAborted, (int, int, int, int, int, int)),
    -1: (Welcome, (str,)),
    -2: (PartitionOpened, (int, UUID)),
    -3: (SegmentLocated, (int, int, int)),
    -4: (PartitionClosed, ()),
    -5: (Refused, (ErrorCode, str)),
    -6: (AbortedListed, (int,)),
}
"""The field types of each kind. Requests have positive numbers, responses negative ones."""
_PACKED_AS: Final[dict[type, type]] = {UUID: bytes, ErrorCode: int}
_NUMBERS: Final = {kind: number for number, (kind, _) in _KINDS.items()}
_REQUESTS: Final = (Hello, OpenPartition, LocateSegment, ListAborted, ClosePartition)
_ABORTED: Final = struct.Struct("=qqq")


class AbortedInFile(NamedTuple):
    """An aborted transaction, from its first record to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


def pack_aborted(transactions: Iterable[AbortedInFile]) -> bytes:
    return b"".join(_ABORTED.pack(*each) for each in transactions)


def unpack_aborted(packed: bytes) -> list[AbortedInFile]:
    """Raises ProtocolViolation for a list that is cut."""
    try:
        return [AbortedInFile._make(each) for each in _ABORTED.iter_unpack(packed)]
    except struct.error:
        raise ProtocolViolation(f"a list of aborted transactions of {len(packed)} bytes") from None


def encode(message: Request | Answer) -> bytes:
    values = (getattr(message, field.name) for field in fields(message))
    packed: bytes = msgpack.packb(
        [_NUMBERS[type(message)], *(value.bytes if isinstance(value, UUID) else value for value in values)]
    )
    return packed


def decode_request(datagram: bytes) -> Request:
    """The request. Raises ProtocolViolation for anything but exactly one valid request."""
    message = _decode(datagram)
    if not isinstance(message, _REQUESTS):
        raise ProtocolViolation("expected a request, received a response")
    return message


def decode_answer(datagram: bytes) -> Answer:
    """The response. Raises ProtocolViolation for anything but exactly one valid response."""
    message = _decode(datagram)
    if isinstance(message, _REQUESTS):
        raise ProtocolViolation("expected a response, received a request")
    return message


def _decode(datagram: bytes) -> Request | Answer:
    if len(datagram) > DATAGRAM_BYTES_MAX:
        raise ProtocolViolation(f"a datagram of more than {DATAGRAM_BYTES_MAX} bytes")
    try:
        number, *values = msgpack.unpackb(datagram, use_list=False)
        kind, types = _KINDS[number]
        made = kind(*(_field(value, wanted) for value, wanted in zip(values, types, strict=True)))
    except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
        raise ProtocolViolation(f"not a datagram of the local endpoint: {datagram[:40]!r}") from error
    return made


def _field(value: Any, wanted: type) -> Any:
    """The value converted to the field's type. Raises ValueError, KeyError or TypeError."""
    if type(value) is not _PACKED_AS.get(wanted, wanted):
        raise TypeError(f"{value!r} is not of type {wanted.__name__}")
    if isinstance(value, bytes):
        return UUID(bytes=value)
    return ERROR_CODES[value] if wanted is ErrorCode and isinstance(value, int) else value
