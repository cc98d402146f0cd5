"""Bytes in, whole frames out, without a copy and without trusting the length prefix of bytes that have not arrived.

One bytearray per connection takes what the socket delivers; a complete frame is a writable memoryview into it, valid
until the next call. The buffer starts small and doubles as bytes arrive, so a peer that announces 100 MiB and sends
ten bytes costs a small buffer.

    |  consumed  |  frames not yet taken  |  free  |
    0        _start                     _end     size
"""

from __future__ import annotations

from raylog.protocol.framing import LENGTH_BYTES, frame_length

SMALL_BYTES = 16 << 10
"""Buffer size of a new or idle connection."""
KEPT_BYTES_MAX = 4 << 20
"""What a busy connection keeps at most between frames: room for a few large ones means fewer moves to the front."""
FREE_BYTES_MIN = 256 << 10
"""In a large buffer, a partial frame is moved to the front if less than this is free."""


class ReceiveBuffer:
    """Fill with `free()` and `filled(n)`, then take frames with `next_frame()` until it returns None."""

    def __init__(self, *, frame_bytes_min: int, frame_bytes_max: int) -> None:
        self._frame_bytes_min = frame_bytes_min
        self._frame_bytes_max = frame_bytes_max
        self._view = memoryview(bytearray(SMALL_BYTES))
        self._start = 0
        self._end = 0
        self._taken = 0
        """The start of the last frame taken."""

    @property
    def buffered_bytes(self) -> int:
        return self._end - self._start

    @property
    def missing_bytes(self) -> int:
        """What has not arrived of the frame that `next_frame` waits for; 0 before its length has."""
        body = self._start + LENGTH_BYTES
        if self._end < body:
            return 0
        return max(int.from_bytes(self._view[self._start : body], "big") - (self._end - body), 0)

    @property
    def capacity_bytes(self) -> int:
        return len(self._view)

    def limit_frames(self, *, min_bytes: int, max_bytes: int) -> None:
        """The lengths that the following frames may have."""
        self._frame_bytes_min, self._frame_bytes_max = min_bytes, max_bytes

    def free(self) -> memoryview:
        """Room to receive into; never empty. Frames returned before must no longer be in use."""
        size = len(self._view)
        if self._start == self._end:
            self._start = self._end = 0
            if size > KEPT_BYTES_MAX:
                self._replace(KEPT_BYTES_MAX)
        elif size - self._end < min(FREE_BYTES_MIN, size // 4) or self._end == size:
            self._make_room()
        return self._view[self._end :]

    def begins_with(self, prefix: bytes) -> bool:
        """Whether these are the first bytes that no frame has been made of."""
        return self._view[self._start : min(self._start + len(prefix), self._end)] == prefix

    def filled(self, count: int) -> None:
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The body of the next whole frame, or None. Raises ProtocolViolation for an invalid length."""
        body = self._start + LENGTH_BYTES
        if self._end < body:
            return None
        length = frame_length(self._view, self._start, max_bytes=self._frame_bytes_max, min_bytes=self._frame_bytes_min)
        if self._end < body + length:
            return None
        self._taken = self._start
        self._start = body + length
        return self._view[body : body + length]

    def put_back(self) -> None:
        """Return the last frame again from the next `next_frame`. Must be called before any other method."""
        self._start = self._taken

    def shrink(self) -> None:
        """For an idle connection: hold no more memory than the unread bytes need."""
        pending = self._end - self._start
        if len(self._view) > SMALL_BYTES and pending <= SMALL_BYTES // 2:
            self._replace(SMALL_BYTES)

    def _make_room(self) -> None:
        pending = self._end - self._start
        size = len(self._view)
        if pending > size // 4 and (size < KEPT_BYTES_MAX or pending > size // 2):
            self._replace(size * 2)
        else:
            self._view[:pending] = self._view[self._start : self._end]
            self._start, self._end = 0, pending

    def _replace(self, size: int) -> None:
        pending = self._end - self._start
        fresh = memoryview(bytearray(size))
        fresh[:pending] = self._view[self._start : self._end]
        self._view, self._start, self._end = fresh, 0, pending
