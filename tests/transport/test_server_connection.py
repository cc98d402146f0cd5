"""A connection has a bounded number of requests and bytes in progress, and sends responses in request order."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.protocol.wire import Buffer
from raylog.transport.receive_buffer import KEPT_BYTES_MAX, SMALL_BYTES, ReceiveBuffer
from raylog.transport.server_connection import OUTPUT_BYTES_MAX, REQUEST_BYTES_MAX, REQUESTS_MAX, ServerConnection

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
    def test_how_much_of_a_frame_is_missing(self) -> None:
        buffer, stream = ReceiveBuffer(frame_bytes_min=8, frame_bytes_max=FRAME_MAX), framed(bytes(100)) * 2
        missing = []
        for position in range(0, 208, 26):
            feed(buffer, stream[position : position + 26])
            while buffer.next_frame() is not None:
                pass
            missing.append(buffer.missing_bytes)
        assert missing == [78, 52, 26, 0, 78, 52, 26, 0]
        feed(buffer, stream[:3])
        assert buffer.missing_bytes == 0

    @given(st.lists(st.binary(min_size=8, max_size=40_000), max_size=20), st.integers(1, 70_000))
    def test_frames_are_returned_as_received(self, bodies: list[bytes], piece: int) -> None:
        buffer = ReceiveBuffer(frame_bytes_min=8, frame_bytes_max=FRAME_MAX)
        stream, out = b"".join(map(framed, bodies)), []
        for start in range(0, len(stream), piece):
            feed(buffer, stream[start : start + piece])
            while (frame := buffer.next_frame()) is not None:
                out.append(bytes(frame))
        assert out == bodies
        assert buffer.buffered_bytes == 0

    def test_an_announced_length_allocates_nothing_until_bytes_arrive(self) -> None:
        buffer = ReceiveBuffer(frame_bytes_min=8, frame_bytes_max=1 << 30)
        feed(buffer, struct.pack(">i", 1 << 29) + b"x" * 100)
        assert buffer.next_frame() is None
        assert len(buffer.free()) + buffer.buffered_bytes == SMALL_BYTES

    def test_capacity_follows_the_received_bytes(self) -> None:
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


class Pending:
    """The place of a request in the order of answers."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.output: Sequence[Buffer] | None = None
        self.output_bytes = 0
        self.close_reason: str | None = None


def take(connection: ServerConnection, expected: bytes | None = None) -> Pending:
    """The next request, which must be there, in work."""
    frame = connection.next_request()
    assert frame is not None
    assert expected is None or bytes(frame) == expected
    pending = Pending(len(frame))
    connection.begin(pending)
    return pending


class TestServerConnection:
    def test_responses_leave_in_the_order_of_the_requests(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX)
        feed(connection, framed(b"first...") + framed(b"second..") + framed(b"third..."))
        first, second, third = take(connection, b"first..."), take(connection, b"second.."), take(connection)
        connection.complete(second, [b"2"])
        assert connection.take_output() == []
        connection.complete(first, [b"1"])
        assert connection.take_output() == [b"1", b"2"]
        connection.complete(third, [])
        assert connection.take_output() == []
        assert not connection.in_work

    def test_an_undecided_request_holds_back_the_next(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX)
        feed(connection, framed(b"first...") + framed(b"second.."))
        first = take(connection)
        connection.hold_back(first)
        assert connection.next_request() is None
        connection.release(first)
        take(connection, b"second..")

    def test_a_response_releases_the_requests_it_held_back(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX)
        feed(connection, framed(b"first...") + framed(b"second.."))
        first = take(connection)
        connection.hold_back(first)
        connection.complete(first, [b"1"])
        take(connection, b"second..")

    def test_a_frame_that_was_put_back_returns_when_nothing_is_in_progress(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX)
        feed(connection, framed(b"first...") + framed(b"barrier.") + framed(b"third..."))
        first = take(connection)
        assert bytes(connection.next_request() or b"") == b"barrier."
        connection.put_back()
        assert connection.next_request() is None
        connection.complete(first, [b"1"])
        take(connection, b"barrier.")
        take(connection, b"third...")

    def test_the_number_of_requests_in_progress_is_limited(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX)
        feed(connection, framed(b"question") * (REQUESTS_MAX + 1))
        pending = [take(connection) for _ in range(REQUESTS_MAX)]
        assert connection.next_request() is None
        connection.complete(pending[1], [b"x"])
        assert connection.next_request() is None, "its place is taken until its answer leaves"
        connection.complete(pending[0], [b"x"])
        take(connection)

    def test_the_bytes_of_requests_in_progress_are_limited(self) -> None:
        connection = ServerConnection(frame_bytes_max=REQUEST_BYTES_MAX)
        large = framed(bytes(REQUEST_BYTES_MAX // 2))
        feed(connection, large)
        first = take(connection)
        feed(connection, large)
        second = take(connection)
        feed(connection, framed(b"question"))
        assert connection.next_request() is None
        connection.complete(first, [])
        take(connection, b"question")
        connection.complete(second, [])

    def test_a_throttled_client_is_not_served(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX)
        feed(connection, framed(b"question"))
        connection.throttled = True
        assert connection.next_request() is None
        connection.throttled = False
        take(connection)

    def test_a_client_that_does_not_read_is_not_served(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX)
        connection.set_writable(writable=False)
        feed(connection, framed(b"question"))
        assert connection.next_request() is None
        connection.set_writable(writable=True)
        take(connection)

    @pytest.mark.parametrize("in_order", [True, False])
    def test_large_responses_are_not_accumulated(self, in_order: bool) -> None:
        """Also where they wait behind another one."""
        connection = ServerConnection(frame_bytes_max=FRAME_MAX)
        feed(connection, framed(b"question") * 4)
        first, second = take(connection), take(connection)
        if in_order:
            connection.complete(first, [b"1"])
        connection.complete(second, [bytes(OUTPUT_BYTES_MAX)])
        assert connection.next_request() is None
        if not in_order:
            connection.complete(first, [b"1"])
        connection.take_output()
        take(connection)

    def test_unread_bytes_are_bounded_while_muted(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX, unread_bytes_max=1000)
        feed(connection, framed(b"question"))
        first = take(connection)
        connection.hold_back(first)
        for _ in range(30):
            if connection.wants_bytes:
                feed(connection, framed(b"y" * 96))
        assert not connection.wants_bytes
        connection.complete(first, [])
        while connection.next_request() is not None:
            pass
        assert connection.wants_bytes

    def test_an_invalid_length_closes_it(self) -> None:
        for length in (-1, 0, 7, FRAME_MAX + 1):
            connection = ServerConnection(frame_bytes_max=FRAME_MAX)
            feed(connection, struct.pack(">i", length))
            assert connection.next_request() is None
            assert connection.closing
            assert not connection.wants_bytes

    def test_a_response_after_the_close_is_dropped(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX)
        feed(connection, framed(b"question"))
        pending = take(connection)
        connection.close("closed by the peer")
        connection.complete(pending, [b"late"])
        assert connection.take_output() == []

    def test_a_close_after_a_response_sends_the_responses_up_to_it(self) -> None:
        connection = ServerConnection(frame_bytes_max=FRAME_MAX)
        feed(connection, framed(b"question") * 2 + framed(b"ignored."))
        first, last = take(connection), take(connection)
        last.close_reason = "refused"
        connection.stop_reading()
        assert connection.next_request() is None
        connection.complete(last, [b"no"])
        assert not connection.closing
        connection.complete(first, [b"yes"])
        assert connection.take_output() == [b"yes", b"no"]
        assert connection.closing
        assert connection.next_request() is None
