"""A connection takes one request at a time, holds a bounded number of bytes, and answers in the order it was asked."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from raylog.transport.receive_buffer import KEPT_BYTES_MAX, SMALL_BYTES, ReceiveBuffer
from raylog.transport.server_connection import OUTPUT_BYTES_MAX, ServerConnection

FRAME_MAX = 1 << 20


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def feed(connection: ServerConnection | ReceiveBuffer, data: bytes, *, piece: int = 1 << 30) -> None:
    """Hand in `data` as a socket would, in pieces."""
    while data:
        room = connection.free() if isinstance(connection, ReceiveBuffer) else connection.receive_buffer()
        count = min(len(room), len(data), piece)
        room[:count] = data[:count]
        data = data[count:]
        if isinstance(connection, ReceiveBuffer):
            connection.filled(count)
        else:
            connection.bytes_received(count)


class TestReceiveBuffer:
    @given(st.lists(st.binary(min_size=8, max_size=40_000), max_size=20), st.integers(1, 70_000))
    def test_frames_come_out_as_they_went_in(self, bodies: list[bytes], piece: int) -> None:
        buffer = ReceiveBuffer(frame_bytes_min=8, frame_bytes_max=FRAME_MAX)
        stream, out = b"".join(map(framed, bodies)), []
        for start in range(0, len(stream), piece):
            feed(buffer, stream[start : start + piece])
            while (frame := buffer.next_frame()) is not None:
                out.append(bytes(frame))
        assert out == bodies
        assert buffer.buffered_bytes == 0

    def test_an_announced_length_costs_nothing_until_bytes_come(self) -> None:
        buffer = ReceiveBuffer(frame_bytes_min=8, frame_bytes_max=1 << 30)
        feed(buffer, struct.pack(">i", 1 << 29) + b"x" * 100)
        assert buffer.next_frame() is None
        assert len(buffer.free()) + buffer.buffered_bytes == SMALL_BYTES

    def test_capacity_follows_what_was_received(self) -> None:
        buffer = ReceiveBuffer(frame_bytes_min=8, frame_bytes_max=1 << 30)
        feed(buffer, struct.pack(">i", 12 << 20) + b"x" * (10 << 20))
        assert buffer.capacity_bytes <= 32 << 20
        feed(buffer, b"x" * (2 << 20))
        assert buffer.next_frame() is not None
        buffer.free()
        assert buffer.capacity_bytes == KEPT_BYTES_MAX
        buffer.shrink()
        assert buffer.capacity_bytes == SMALL_BYTES

    def test_frames_are_writable_views(self) -> None:
        buffer = ReceiveBuffer(frame_bytes_min=8, frame_bytes_max=FRAME_MAX)
        feed(buffer, framed(b"12345678"))
        frame = buffer.next_frame()
        assert frame is not None
        frame[0] = 0


class TestServerConnection:
    def test_the_next_request_waits_for_the_answer_to_the_one_before(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX)
        feed(connection, framed(b"first...") + framed(b"second.."))
        assert bytes(connection.next_request() or b"") == b"first..."
        assert connection.next_request() is None
        connection.answer([b"1"])
        assert bytes(connection.next_request() or b"") == b"second.."
        connection.answer([b"2"])
        assert connection.take_output() == [b"1", b"2"]

    def test_a_peer_that_does_not_read_is_not_served(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX)
        connection.set_writable(writable=False)
        feed(connection, framed(b"question"))
        assert connection.next_request() is None
        connection.set_writable(writable=True)
        assert connection.next_request() is not None

    def test_large_answers_are_not_piled_up(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX)
        feed(connection, framed(b"question") * 3)
        assert connection.next_request() is not None
        connection.answer([bytes(OUTPUT_BYTES_MAX)])
        assert connection.held_back
        assert connection.next_request() is None
        connection.take_output()
        assert connection.next_request() is not None

    def test_unread_bytes_are_bounded_while_muted(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX, unread_bytes_max=1000)
        feed(connection, framed(b"question"))
        assert connection.next_request() is not None
        for _ in range(30):
            if connection.wants_bytes:
                feed(connection, framed(b"y" * 96))
        assert not connection.wants_bytes
        connection.answer([])
        while connection.next_request() is not None:
            connection.answer([])
        assert connection.wants_bytes

    def test_a_length_that_cannot_be_closes_it(self) -> None:
        for length in (-1, 0, 7, FRAME_MAX + 1):
            connection = ServerConnection(frame_bytes_max=FRAME_MAX)
            feed(connection, struct.pack(">i", length))
            assert connection.next_request() is None
            assert connection.closing
            assert not connection.wants_bytes

    def test_an_answer_after_the_close_goes_nowhere(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX)
        feed(connection, framed(b"question"))
        connection.next_request()
        connection.close("gone")
        connection.answer([b"late"])
        assert connection.take_output() == []

    def test_close_after_answer_gives_the_answer(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX)
        feed(connection, framed(b"question") + framed(b"ignored."))
        connection.next_request()
        connection.close_after_answer("said no")
        connection.answer([b"no"])
        assert connection.take_output() == [b"no"]
        assert connection.closing
        assert connection.next_request() is None
