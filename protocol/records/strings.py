"""Strings in the keys and values of Kafka's internal topics: UTF-8 with an int16 length prefix."""

from __future__ import annotations

import struct


def pack_string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def unpack_string(data: bytes, position: int) -> tuple[str, int]:
    """The string at `position`, and the position after it. Raises struct.error, IndexError or UnicodeDecodeError."""
    (length,) = struct.unpack_from(">h", data, position)
    end = position + 2 + length
    if length < 0 or end > len(data):
        raise IndexError("the string extends past the end of the record")
    return data[position + 2 : end].decode(), end
