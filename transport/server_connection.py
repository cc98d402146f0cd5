"""The broker's end of one connection, sans-IO: bytes in, requests out one at a time, answers out in order.

As in Kafka, a connection has at most one request in work. While it is parked (a long poll) or while the peer does not
read its answers, no further request is taken; bytes then gather in the receive buffer up to `unread_bytes_max` and,
after that, in the peer's own socket. So order needs no bookkeeping and memory per connection has a bound:
one request, one answer, and `unread_bytes_max`.

The shell: `receive_buffer()` / `bytes_received(n)`; then, while `next_request()` gives a frame, hand it on; each
frame is followed by exactly one `answer`. Write what `take_output()` gives, and ask for requests again where
`held_back` said that the output was too much; report back-pressure with `set_writable`; stop reading while
`wants_bytes` is False; close once `closing` is True and the output is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from raylog.core.errors import ProtocolViolation
from raylog.protocol.framing import REQUEST_BYTES_MIN
from raylog.protocol.wire import Buffer
from raylog.transport.receive_buffer import ReceiveBuffer

OUTPUT_BYTES_MAX = 1 << 20
"""With so much output to be taken, the next request waits: what was asked in one breath is not answered in one."""


class ServerConnection:
    """States: idle -> in work (a frame was taken) -> idle (answered); closed from any of them, for good."""

    def __init__(self, *, frame_bytes_max: int, unread_bytes_max: int = 1 << 20) -> None:
        self._received = ReceiveBuffer(frame_bytes_min=REQUEST_BYTES_MIN, frame_bytes_max=frame_bytes_max)
        self._unread_bytes_max = unread_bytes_max
        self._output: list[Buffer] = []
        self._output_bytes = 0
        self._in_work = False
        self._writable = True
        self._closed = False
        self.close_reason: str | None = None
        self._close_after_answer: str | None = None

    @property
    def closing(self) -> bool:
        return self._closed

    @property
    def in_work(self) -> bool:
        return self._in_work

    @property
    def buffered_bytes(self) -> int:
        """Bytes of requests that have not been taken."""
        return self._received.buffered_bytes

    @property
    def muted(self) -> bool:
        """No request is taken: one is in work, or the peer does not read what it was sent."""
        return self._in_work or not self._writable or self._closed or self.held_back

    @property
    def held_back(self) -> bool:
        """No request is taken until the output is."""
        return self._output_bytes >= OUTPUT_BYTES_MAX

    @property
    def wants_bytes(self) -> bool:
        """False while muted with enough unread bytes at hand: the shell stops reading, so TCP holds the peer back."""
        return not self._closed and not (self.muted and self._received.buffered_bytes >= self._unread_bytes_max)

    def receive_buffer(self) -> memoryview:
        return self._received.free()

    def bytes_received(self, count: int) -> None:
        self._received.filled(count)

    def next_request(self) -> memoryview | None:
        """The next whole frame to serve, or None. Writable, and valid until the next call on this connection.

        A frame that cannot be one closes the connection: nothing after it can be trusted.
        """
        if self.muted:
            return None
        try:
            frame = self._received.next_frame()
        except ProtocolViolation as violation:
            self.close(str(violation))
            return None
        self._in_work = frame is not None
        return frame

    def answer(self, buffers: Sequence[Buffer]) -> None:
        """Finish the request in work; no buffers means that the protocol wants no answer (acks=0)."""
        if self._closed:
            return
        assert self._in_work, "an answer without a request"
        self._in_work = False
        self._output.extend(buffers)
        self._output_bytes += sum(map(len, buffers))
        if self._close_after_answer is not None:
            self.close(self._close_after_answer)

    def set_writable(self, *, writable: bool) -> None:
        self._writable = writable

    def take_output(self) -> list[Buffer]:
        output, self._output, self._output_bytes = self._output, [], 0
        return output

    def shrink(self) -> None:
        """Hold no more memory than a quiet connection needs."""
        self._received.shrink()

    def close(self, reason: str) -> None:
        """Take nothing more in. What was answered before stays in the output and may still be written."""
        if not self._closed:
            self._closed = True
            self.close_reason = reason

    def close_after_answer(self, reason: str) -> None:
        """Give the request in work its answer, and take nothing more."""
        self._close_after_answer = reason
