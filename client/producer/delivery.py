"""One record of a producer, and what it tells about it: that it was appended and where, or why it was not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from raylog.core.errors import KafkaError


class RecordMetadata(NamedTuple):
    """An appended record."""

    topic: str
    partition: int
    offset: int
    """-1 if the broker did not tell: with acks=0, and where a retry found the record appended already."""
    timestamp_ms: int
    """That of the record, or of its append if the topic has LogAppendTime."""


OnDelivery = Callable[[KafkaError | None, RecordMetadata | None], None]
"""Called once for a record: with the error, or with where it was appended."""


RECORD_OVERHEAD_BYTES: Final = 21
"""Most bytes of a record besides key, value and headers: its length, attributes, timestamp, offset, and two lengths."""


class ProducerRecord(NamedTuple):
    """A record to be sent."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    partition: int | None
    """None: the partitioner chooses."""
    timestamp_ms: int
    on_delivery: OnDelivery | None = None

    @property
    def bytes_max(self) -> int:
        """Upper bound of its size in a batch."""
        size = RECORD_OVERHEAD_BYTES
        if self.key is not None:
            size += len(self.key)
        if self.value is not None:
            size += len(self.value)
        if self.headers:
            size += header_bytes_max(self.headers)
        return size


def header_bytes_max(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Upper bound of the size of the headers in a batch."""
    return sum(10 + 4 * len(name) + (0 if value is None else len(value)) for name, value in headers)
