"""Numbers of variable length, as records have them. Sources: Kafka's message format, Protocol Buffers' zigzag."""

from __future__ import annotations

from typing import Final

NULL_LENGTH: Final = b"\x01"
"""-1: the length of a null key, value or header value."""


def varint(number: int) -> bytes:
    """`number` as a zigzag varint: small magnitudes in few bytes, seven bits in each, low ones first."""
    if 0 <= number < _SMALL:
        return _SMALL_VARINTS[number]
    return _encode_varint(number)


def _encode_varint(number: int) -> bytes:
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


_SMALL: Final = 1 << 11
_SMALL_VARINTS: Final = tuple(_encode_varint(number) for number in range(_SMALL))
