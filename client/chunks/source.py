"""(shell) The bytes of a large value, from memory or from a file, in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from io import TextIOBase
from typing import Any

from raylog.client.errors import SerializationError
from raylog.client.given_values import shown


class ValueSource:
    """Read once, from the beginning of the bytes or the present position of the file."""

    def __init__(self, value: Any) -> None:
        """Raises SerializationError for what is neither bytes nor a seekable binary file."""
        self._file: Any = None
        self._view = memoryview(b"")
        if isinstance(value, (bytes, bytearray, memoryview)):
            self._view = memoryview(value)
            if not self._view.contiguous:
                raise SerializationError("the value is a memoryview that is not contiguous")
            self._view = self._view.cast("B")
            self.size = len(self._view)
        else:
            self._file, self.size = value, _size_of(value)

    @staticmethod
    def can_read(value: Any) -> bool:
        return isinstance(value, (bytes, bytearray, memoryview)) or hasattr(value, "read")

    def pieces(self, piece_bytes: int) -> Iterator[bytes]:
        """Of this size, but for the last one. Raises SerializationError if the file ends early or cannot be read."""
        for start in range(0, self.size, piece_bytes):
            wanted = min(piece_bytes, self.size - start)
            yield bytes(self._view[start : start + wanted]) if self._file is None else self._read(wanted)

    def whole(self) -> bytes:
        return b"".join(self.pieces(max(1, self.size)))

    def _read(self, wanted: int) -> bytes:
        parts: list[bytes] = []
        while wanted:
            try:
                part = self._file.read(wanted)
            except Exception as error:  # of a file of the program
                raise SerializationError(f"the value cannot be read from its file: {shown(error)}") from error
            if not isinstance(part, bytes) or not part or len(part) > wanted:
                what = f"{len(part)} bytes" if isinstance(part, bytes) else type(part).__name__
                raise SerializationError(f"the value cannot be read from its file: {wanted} bytes are left, got {what}")
            parts.append(part)
            wanted -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _size_of(file: Any) -> int:
    """How much is left in it. Raises SerializationError."""
    if isinstance(file, TextIOBase):
        raise SerializationError(f"the value is a file of text ({type(file).__name__}): open it in binary mode")
    try:
        start = file.tell()
        end = file.seek(0, 2)
        file.seek(start)
        size = end - start
    except Exception as error:  # whatever a file of the program raises
        text = f"the value must be bytes, str or a binary file that can seek, not {type(file).__name__}: {shown(error)}"
        raise SerializationError(text) from error
    if not isinstance(size, int) or size < 0:
        raise SerializationError(f"the file of the value is {shown(size)} bytes long")
    return size
