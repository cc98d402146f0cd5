"""The wire primitives that struct lacks: varints, and lengths that are checked before they are used.

Readers take a buffer, a position and the end, and return the value with the position after it. Malformed bytes raise
one of DAMAGE; the outermost decoder turns these into ProtocolViolation.

Source: Kafka protocol guide, "Protocol Primitive Types"; KIP-482.
"""

from __future__ import annotations

import struct
from typing import Final
from uuid import UUID

from raylog.core.errors import ErrorCode, ProtocolViolation
from raylog.core.ids import ZERO_TOPIC_ID

Buffer = bytes | bytearray | memoryview

DAMAGE: Final = (struct.error, IndexError, UnicodeDecodeError)
"""Raised when reading beyond the end, or text that is not UTF-8."""

UNWRITABLE: Final = (struct.error, AttributeError, TypeError, OverflowError)
"""Raised when writing a value of the wrong type or size."""

ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))
"""The encoded varints of one byte."""

VARINT_BYTES_MAX: Final = 5
UINT32_MAX: Final = 0xFFFFFFFF
ZERO_UUID_BYTES: Final = bytes(16)
ERROR_CODES: Final[dict[int, ErrorCode]] = {int(code): code for code in ErrorCode}


def uuid_from(raw: bytes) -> UUID:
    return ZERO_TOPIC_ID if raw == ZERO_UUID_BYTES else UUID(bytes=raw)


def read_uvarint(buffer: Buffer, at: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes and 32 bits."""
    value = 0
    for index in range(VARINT_BYTES_MAX):
        byte = buffer[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80 and value <= UINT32_MAX:
            return value, at + index + 1
    raise ProtocolViolation("a varint exceeds 32 bits")


def uvarint(value: int) -> bytes:
    """The shortest varint of a number in [0, 2**32)."""
    if not 0 <= value <= UINT32_MAX:
        raise ValueError(f"{value} does not fit into an unsigned varint")
    if value < 0x80:
        return ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(buffer: Buffer, at: int, end: int) -> int:
    """The position after a section of tagged fields, all of which are skipped."""
    return read_tags(buffer, at, end)[1]


ELEMENTS_MAX = 500_000
"""The largest number of array elements and tagged fields in one message. An element can be three bytes on the wire and
hundreds in memory, so the frame size alone is no limit; Kafka's largest requests have some ten thousand partitions."""


class ElementBudget:
    """The number of elements that one header or message may still have. Approximate across threads."""

    def __init__(self) -> None:
        self.left = ELEMENTS_MAX

    def refill(self) -> None:
        """Reset the budget. Called before each header and each message, since a rejected one may have used it up."""
        self.left = ELEMENTS_MAX

    def spend(self, count: int) -> None:
        """Count elements. Raises ProtocolViolation if the message has more than ELEMENTS_MAX."""
        self.left -= count
        if self.left < 0:
            raise ProtocolViolation(f"more than {ELEMENTS_MAX} elements in one message")


BUDGET = ElementBudget()


def read_tags(buffer: Buffer, at: int, end: int) -> tuple[list[tuple[int, int, int]], int]:
    """The tagged fields of a section, as (tag, start, stop) each, and the position after the section."""
    count, at = read_uvarint(buffer, at)
    if count * 2 > end - at:
        raise ProtocolViolation(f"{count} tagged fields do not fit the frame")
    BUDGET.spend(count)
    found = []
    for _ in range(count):
        tag, at = read_uvarint(buffer, at)
        size, at = read_uvarint(buffer, at)
        if size > end - at:
            raise ProtocolViolation(f"tagged field {tag} is longer than the frame")
        found.append((tag, at, at + size))
        at += size
    return found, at
