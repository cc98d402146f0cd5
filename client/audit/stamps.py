"""The stamp of a record: its producer, its sequence number within the topic, and its time bucket. Pure.

The header `raylog.audit` has 33 bytes, in network byte order: the version 1 in one byte; 16 bytes that identify the
producer's instance, drawn anew when it starts; the sequence number within the topic, from 0, in 8 bytes; and the start
of the time bucket in milliseconds since 1970, in 8 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

AUDIT_HEADER: Final = "raylog.audit"
VERSION: Final = 1
CLIENT_BYTES: Final = 16
_LAYOUT: Final = Struct(">B16sqq")
STAMP_BYTES: Final = _LAYOUT.size


class Stamp(NamedTuple):
    """`client` identifies the instance of the producer; `bucket_ms` is the start of the bucket."""

    client: bytes
    sequence: int
    bucket_ms: int


def read_stamp(headers: Iterable[tuple[str, Any]]) -> Stamp | None:
    """The last stamp among the headers; None if there is none, or one that is malformed."""
    found = None
    for name, value in headers:
        if name == AUDIT_HEADER:
            found = value
    if not isinstance(found, bytes) or len(found) != STAMP_BYTES:
        return None
    version, client, sequence, bucket_ms = _LAYOUT.unpack(found)
    if version != VERSION or sequence < 0 or bucket_ms < 0:
        return None
    return Stamp(client, sequence, bucket_ms)


def bucket_of(timestamp_ms: int, bucket_ms: int) -> int:
    """The start of the bucket of this moment; that of 1970 for moments before."""
    return max(0, timestamp_ms - timestamp_ms % bucket_ms)


class Stamper:
    """Stamps the records of one producer.

    The bucket is that of the producer's clock at the time of sending. If the clock jumps, records go to the bucket of
    the wrong time; sequence numbers go on, so that nothing seems lost.
    """

    def __init__(self, client: bytes, bucket_ms: int) -> None:
        self._client = client
        self._bucket_ms = bucket_ms
        self._next: dict[str, int] = {}
        """By topic, the next sequence number."""

    def stamped(
        self, topic: str, headers: Iterable[tuple[str, Any]] | Mapping[str, Any], now_ms: int
    ) -> list[tuple[str, Any]]:
        """The headers with a stamp, in place of one that was copied from another record."""
        sequence = self._next.get(topic, 0)
        self._next[topic] = sequence + 1
        value = _LAYOUT.pack(VERSION, self._client, sequence, bucket_of(now_ms, self._bucket_ms))
        if not headers:
            return [(AUDIT_HEADER, value)]
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        kept = [pair for pair in pairs if pair[0] != AUDIT_HEADER]
        kept.append((AUDIT_HEADER, value))
        return kept
