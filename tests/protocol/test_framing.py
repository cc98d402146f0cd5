"""A frame is a length and its bytes, and an invalid length is refused before any byte is received for it."""

from __future__ import annotations

import pytest

from raylog.core.errors import ProtocolViolation
from raylog.protocol.framing import REQUEST_BYTES_MAX, RESPONSE_BYTES_MIN, frame, frame_length


def test_a_frame_is_its_length_and_its_buffers_uncopied() -> None:
    body = memoryview(b"body")
    prefix, first, second = frame([b"head", body])
    assert prefix == b"\0\0\0\x08"
    assert first == b"head"
    assert second is body
    assert frame_length(prefix, max_bytes=REQUEST_BYTES_MAX) == 8


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 7, 101, 2**31 - 1])
def test_a_length_out_of_bounds_is_refused(length: int) -> None:
    with pytest.raises(ProtocolViolation, match=rf"{length} bytes is outside \[8, 100\]"):
        frame_length(length.to_bytes(4, "big", signed=True), max_bytes=100)


def test_the_bounds_are_inclusive_and_a_response_may_be_shorter() -> None:
    assert frame_length(b"\0\0\0\x08", max_bytes=100) == 8
    assert frame_length(b"..\0\0\0\x64", 2, max_bytes=100) == 100
    assert frame_length(b"\0\0\0\x04", max_bytes=100, min_bytes=RESPONSE_BYTES_MIN) == 4


def test_a_frame_beyond_31_bits_is_not_written() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 2**31

    with pytest.raises(ValueError, match="cannot be written"):
        frame([Huge()])
