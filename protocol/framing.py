"""Frames: a length of four bytes, big-endian, and that many bytes.

Source: Kafka protocol guide, "Common Request and Response Structure".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from raylog.core.errors import ProtocolViolation
from raylog.protocol.wire import Buffer

LENGTH_BYTES: Final = 4
REQUEST_BYTES_MIN: Final = 8
"""API key, version and correlation id: the smallest request."""
RESPONSE_BYTES_MIN: Final = 4
"""A correlation id: the smallest response."""
REQUEST_BYTES_MAX: Final = 104_857_600
"""Kafka's default of socket.request.max.bytes."""
FRAME_BYTES_MAX: Final = 2**31 - 1

LENGTH = struct.Struct(">i")


class FrameError(ProtocolViolation):
    """An invalid frame length: the position of the next frame is unknown."""


def frame_length(buffer: Buffer, position: int = 0, *, max_bytes: int, min_bytes: int = REQUEST_BYTES_MIN) -> int:
    """The frame length at `position`, where LENGTH_BYTES bytes must be. It does not include the prefix itself.

    Raises FrameError below `min_bytes` or above `max_bytes`.
    """
    length: int = LENGTH.unpack_from(buffer, position)[0]
    if not min_bytes <= length <= max_bytes:
        raise FrameError(f"a frame of {length} bytes is outside [{min_bytes}, {max_bytes}]")
    return length


def frame(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The buffers with a length prefix, to be sent in order. Raises ValueError beyond FRAME_BYTES_MAX."""
    return [length_prefix(sum(map(len, buffers))), *buffers]


def length_prefix(length: int) -> bytes:
    """The prefix of a frame of this length. Raises ValueError beyond FRAME_BYTES_MAX."""
    if length > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {length} bytes cannot be written: at most {FRAME_BYTES_MAX}")
    return LENGTH.pack(length)
