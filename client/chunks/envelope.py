"""The headers by which records are recognized as chunks of one large value. Pure; see docs/large-messages.md.

They are the first headers of a chunk, in the order below, as text. Only the last chunk has the digest, because that of
a value which is read from a file is known at its end; the headers of the program follow it there.

The digest is SHA-256: the checksum of a batch protects the bytes of one chunk, the digest protects the whole value
against chunks that are missing, foreign or in the wrong order, by a function that every language and `sha256sum` have.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Headers = Sequence[tuple[str, bytes | None]]

ID: Final = "raylog.chunk.id"
INDEX: Final = "raylog.chunk.index"
COUNT: Final = "raylog.chunk.count"
SIZE: Final = "raylog.chunk.size"
DIGEST: Final = "raylog.chunk.digest"
SURPLUS: Final = "raylog.chunk.surplus"
"""Marks a tombstone for a chunk that a former, larger value of the key may have had."""
NAMES: Final = (ID, INDEX, COUNT, SIZE)
PREFIX: Final = b"sha256:"
_ID: Final = re.compile(rb"[0-9a-f]{32}")
_NUMBER: Final = re.compile(rb"0|[1-9][0-9]{0,17}")
_DIGEST: Final = re.compile(rb"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Chunk:
    """What the headers of a chunk say."""

    message_id: bytes
    """32 hexadecimal digits, different for each message."""
    index: int
    count: int
    """How many chunks the message has."""
    size: int
    """Of the whole value, in bytes."""
    digest: bytes | None
    """Of the whole value, with the name of the function; None before the last chunk."""

    @property
    def is_last(self) -> bool:
        return self.index == self.count - 1


def new_digest() -> hashlib._Hash:
    return hashlib.sha256()


def digest_text(digest: hashlib._Hash) -> bytes:
    return PREFIX + digest.hexdigest().encode()


def chunk_headers(chunk: Chunk) -> list[tuple[str, bytes | None]]:
    numbers = (chunk.index, chunk.count, chunk.size)
    values = (chunk.message_id, *(b"%d" % number for number in numbers))
    headers: list[tuple[str, bytes | None]] = list(zip(NAMES, values, strict=True))
    if chunk.digest is not None:
        headers.append((DIGEST, chunk.digest))
    return headers


def chunk_of(headers: Headers) -> Chunk | None:
    """None for all but a complete and consistent envelope: such a record is an ordinary one."""
    if not headers or headers[0][0] != ID or tuple(name for name, _ in headers[:4]) != NAMES:
        return None
    message_id, *numbers = (value or b"" for _, value in headers[:4])
    if not _ID.fullmatch(message_id) or not all(map(_NUMBER.fullmatch, numbers)):
        return None
    index, count, size = map(int, numbers)
    if not index < count <= size:
        return None
    if index < count - 1:
        return Chunk(message_id, index, count, size, None)
    name, digest = headers[4] if len(headers) > 4 else ("", None)
    if name != DIGEST or digest is None or not _DIGEST.fullmatch(digest):
        return None
    return Chunk(message_id, index, count, size, digest)


def headers_of_message(headers: tuple[tuple[str, bytes | None], ...]) -> tuple[tuple[str, bytes | None], ...]:
    """Those of the program, from the headers of the last chunk."""
    return headers[len(NAMES) + 1 :]


def is_surplus(headers: Headers) -> bool:
    return bool(headers) and headers[0][0] == SURPLUS
