"""The broker's end of one connection, sans-IO: bytes in, requests out, responses sent in the order of the requests.

Requests are taken one after another. A request that waits (for a commit, say) does not block the next one, up to
REQUESTS_MAX of them, unless its own decision is pending (`hold_back`). Responses leave in order: a complete one waits
for those of earlier requests.

No request is taken while OUTPUT_BYTES_MAX of responses wait for the peer to read them. Received bytes then gather in
the receive buffer up to `unread_bytes_max` and, after that, in the peer's own socket. So memory per connection is
bounded: the requests in progress, OUTPUT_BYTES_MAX and one more response, and `unread_bytes_max`.

The shell: `receive_buffer()` / `bytes_received(n)`; then, while `next_request()` returns a frame, `begin` its pending
answer and serve it; `complete` sets the response. Write the result of `take_output()`, and report back-pressure with
`set_writable`; stop reading while `wants_bytes` is False; close once `closing` is True and the output is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from raylog.core.errors import ProtocolViolation
from raylog.protocol.framing import REQUEST_BYTES_MIN
from raylog.protocol.wire import Buffer
from raylog.transport.receive_buffer import ReceiveBuffer

OUTPUT_BYTES_MAX: Final = 1 << 20
"""With this much output pending, the next request waits."""
REQUEST_BYTES_MAX: Final = 8 << 20
"""With so many bytes of requests in work, the next one waits: each may hold on to the buffer that it came in."""
REQUESTS_MAX: Final = 128
"""With this many requests in progress, the next one waits."""


class PendingAnswer(Protocol):
    """The place of one request in the order of responses."""

    size_bytes: int
    """Of the request."""
    output: Sequence[Buffer] | None
    """The response, once it is complete; empty if the protocol defines none."""
    output_bytes: int
    """Its size, set by `complete`."""
    close_reason: str | None
    """Why the connection closes after this response, if it does."""


class ServerConnection:
    """An accepted connection without its socket. Open until `close`."""

    def __init__(self, *, frame_bytes_max: int, unread_bytes_max: int = 1 << 20) -> None:
        self.closing = False
        self.close_reason: str | None = None
        self.in_work: deque[PendingAnswer] = deque()
        """The requests whose responses have not left, in order."""
        self.throttled = False
        """Whether the client has exceeded a quota, and no further request is taken for a while (KIP-219)."""
        self.refused = False
        """Whether it serves no request and is closed later: its client has opened too many connections."""
        self.identifying = False
        """Whether the principal of its peer is being determined: no request is taken before that."""
        self.waits_for_turn = False
        """Whether its next request is taken only after the other connections have had their turn."""
        self._received = ReceiveBuffer(frame_bytes_min=REQUEST_BYTES_MIN, frame_bytes_max=frame_bytes_max)
        self._unread_bytes_max = unread_bytes_max
        self._output: list[Buffer] = []
        self._output_bytes = 0
        """Bytes of complete responses, including those that wait for earlier ones."""
        self._waiting_bytes = 0
        """Bytes of complete responses that wait for earlier ones."""
        self._pending_bytes = 0
        self._held_back_by: PendingAnswer | None = None
        self._draining = False
        """Whether the next request waits until no request is in progress."""
        self._ending = False
        self._writable = True

    def limit_frames(self, *, min_bytes: int = REQUEST_BYTES_MIN, max_bytes: int) -> None:
        """The lengths that the following requests may have."""
        self._received.limit_frames(min_bytes=min_bytes, max_bytes=max_bytes)

    @property
    def unfinished(self) -> Iterator[PendingAnswer]:
        """The requests without a complete response, in order."""
        return (each for each in self.in_work if each.output is None)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of requests that have not been taken."""
        return self._received.buffered_bytes

    @property
    def missing_bytes(self) -> int:
        """Bytes that must arrive before the next request can be taken; 0 if that is not known."""
        return self._received.missing_bytes

    @property
    def output_is_full(self) -> bool:
        """Whether no request is taken until `take_output`."""
        return self._output_bytes >= OUTPUT_BYTES_MAX

    @property
    def muted(self) -> bool:
        """Whether requests are not taken at the moment."""
        return (
            self.closing
            or self._ending
            or not self._writable
            or self.throttled
            or self.refused
            or self.identifying
            or self._held_back_by is not None
            or self._output_bytes >= OUTPUT_BYTES_MAX
            or len(self.in_work) >= REQUESTS_MAX
            or self._pending_bytes >= REQUEST_BYTES_MAX
            or (self._draining and bool(self.in_work))
        )

    @property
    def wants_bytes(self) -> bool:
        """False while requests wait and enough bytes are buffered: reading stops, so that TCP slows down the peer."""
        if self.closing or self.refused:
            return False
        return self._received.buffered_bytes < self._unread_bytes_max or not (self.waits_for_turn or self.muted)

    def receive_buffer(self) -> memoryview:
        return self._received.free()

    def bytes_received(self, count: int) -> None:
        self._received.filled(count)

    def next_request(self) -> memoryview | None:
        """The next whole frame to serve, or None. Writable, and valid until the next call on this connection.

        An invalid frame length closes the connection, since the following bytes cannot be trusted.
        """
        if not self._received.buffered_bytes or self.muted:
            return None
        self._draining = False
        try:
            return self._received.next_frame()
        except ProtocolViolation as violation:
            self.close(str(violation))
            return None

    def put_back(self) -> None:
        """Return the last frame again once every earlier request is answered."""
        self._received.put_back()
        self._draining = True

    def begin(self, pending: PendingAnswer) -> None:
        """The request of the last frame is in progress."""
        self.in_work.append(pending)
        self._pending_bytes += pending.size_bytes

    def hold_back(self, pending: PendingAnswer) -> None:
        """Take no further request until this one is released."""
        self._held_back_by = pending

    def stop_reading(self) -> None:
        """Take no further request: the connection is to be closed after a response."""
        self._ending = True

    def release(self, pending: PendingAnswer) -> None:
        """The outcome of this request is decided."""
        if self._held_back_by is pending:
            self._held_back_by = None

    def complete(self, pending: PendingAnswer, output: Sequence[Buffer]) -> None:
        """Set the response of one request; it leaves after those of all earlier requests."""
        pending.output = output
        pending.output_bytes = sum(map(len, output))
        if self._held_back_by is pending:
            self._held_back_by = None
        if self.closing:
            return
        self._output_bytes += pending.output_bytes
        self._waiting_bytes += pending.output_bytes
        while self.in_work and (first := self.in_work[0]).output is not None:
            self.in_work.popleft()
            self._pending_bytes -= first.size_bytes
            self._waiting_bytes -= first.output_bytes
            self._output.extend(first.output)
            if first.close_reason is not None:
                self.close(first.close_reason)
                return

    def set_writable(self, *, writable: bool) -> None:
        """Whether the peer reads: False while more than the shell's limit is unsent."""
        self._writable = writable

    def take_output(self) -> list[Buffer]:
        output, self._output = self._output, []
        self._output_bytes = self._waiting_bytes
        return output

    def shrink(self) -> None:
        """Hold no more memory than an idle connection needs."""
        self._received.shrink()

    def close(self, reason: str) -> None:
        """Take no more input. Responses that were next in order stay in the output and may still be written."""
        if not self.closing:
            self.closing = True
            self.close_reason = reason
