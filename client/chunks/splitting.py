"""Makes the chunk records of a large value, and counts their acknowledgements. Pure.

In a compacted topic (`indexes_max` is set) chunk 0 has the key of the message, so that it replaces a former value of
any size and is replaced by one; the others have the key and their index. After each record of a key follow tombstones
for all indexes that it does not use, up to the limit: a producer does not know what others have written before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from raylog.client.chunks.envelope import SURPLUS, Chunk, chunk_headers, digest_text, new_digest
from raylog.client.producer.delivery import OnDelivery, ProducerRecord, RecordMetadata
from raylog.config.large_messages import LargeSendSettings
from raylog.core.errors import ErrorCode, KafkaError

KEY_MARK: Final = b"\0raylog.chunk\0"
COUNT_MAX: Final = (1 << 31) - 1


class Pieces(Protocol):
    """A value that is read in pieces."""

    size: int

    def pieces(self, piece_bytes: int) -> Iterator[bytes]: ...


def key_of_chunk(key: bytes, index: int) -> bytes:
    """In a compacted topic."""
    return key + KEY_MARK + index.to_bytes(4) if index else key


def chunk_count(size: int, segment_bytes: int, indexes_max: int | None) -> int:
    """Raises KafkaError if a value of this size has too many chunks."""
    count = -(-size // segment_bytes)
    limit = COUNT_MAX if indexes_max is None else indexes_max
    if count > limit:
        what = f"the value of {size} bytes has {count} chunks of max.message.segment.bytes ({segment_bytes})"
        text = f"{what}, more than large.message.compacted.segments ({limit})"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
    return count


def chunk_records(
    record: ProducerRecord, source: Pieces, message_id: bytes, *, segment_bytes: int, indexes_max: int | None
) -> Iterator[ProducerRecord]:
    """The chunks of `record`, which has no value itself, in order. Raises KafkaError, and what `source` raises."""
    count = chunk_count(source.size, segment_bytes, indexes_max)
    digest = new_digest()
    for index, piece in enumerate(source.pieces(segment_bytes)):
        digest.update(piece)
        is_last = index == count - 1
        chunk = Chunk(message_id, index, count, source.size, digest_text(digest) if is_last else None)
        headers = [*chunk_headers(chunk), *(record.headers if is_last else ())]
        key = record.key
        if key is not None and indexes_max is not None:
            key = key_of_chunk(key, index)
        yield record._replace(key=key, value=piece, headers=headers)


def surplus_tombstones(record: ProducerRecord, count: int, indexes_max: int) -> Iterator[ProducerRecord]:
    """For the indexes that the record with this key does not use; it uses `count` of them."""
    if record.key is not None:
        for index in range(max(count, 1), indexes_max):
            yield record._replace(key=key_of_chunk(record.key, index), value=None, headers=[(SURPLUS, b"")])


class MessageOutcome:
    """What becomes of a message that consists of several records: ended when all of them are."""

    def __init__(self, count: int, on_delivery: OnDelivery | None, on_end: Callable[[], None] = lambda: None) -> None:
        """`on_end` is called before `on_delivery`."""
        self.done = False
        self.error: KafkaError | None = None
        """The first one of a record."""
        self.metadata: RecordMetadata | None = None
        """That of the last record."""
        self._left = count
        self._on_delivery = on_delivery
        self._on_end = on_end

    def ended(self, error: KafkaError | None, metadata: RecordMetadata | None) -> None:
        """Of a record that is not the one with the message's offset."""
        self.error = self.error or error
        self._left -= 1
        if not self._left:
            self.done = True
            if self.error is not None:
                self.metadata = None
            self._on_end()
            if self._on_delivery is not None:
                self._on_delivery(self.error, self.metadata)

    def last_ended(self, error: KafkaError | None, metadata: RecordMetadata | None) -> None:
        """Of the last chunk, or the only record."""
        self.metadata = metadata
        self.ended(error, metadata)

    def result(self) -> RecordMetadata:
        """Raises KafkaError."""
        if self.error is not None:
            raise self.error
        assert self.metadata is not None
        return self.metadata


class OutgoingMessage:
    """The records of one message, which are to be appended in their order."""

    def __init__(
        self,
        record: ProducerRecord,
        source: Pieces | None,
        settings: LargeSendSettings,
        message_id: bytes,
        on_end: Callable[[], None],
    ) -> None:
        """Without a `source` the record has its value, and is not split. Raises KafkaError."""
        indexes_max = settings.indexes_max
        self._count = 1 if source is None else chunk_count(source.size, settings.segment_bytes, indexes_max)
        self._record = record
        self._tombstones: list[ProducerRecord] = []
        if indexes_max is not None:
            self._tombstones = list(surplus_tombstones(record, self._count, indexes_max))
        self._chunks = iter((record,))
        if source is not None:
            self._chunks = chunk_records(
                record, source, message_id, segment_bytes=settings.segment_bytes, indexes_max=indexes_max
            )
        self.outcome = MessageOutcome(self._count + len(self._tombstones), record.on_delivery, on_end)
        is_compacted = indexes_max is not None and record.key is not None
        self.place = (record.topic, record.key) if is_compacted else None
        """Topic and key, if the records of another message for them must not be between those of this one: of both
        messages, compaction would keep a part."""
        self.partition = record.partition
        """To be set once the first record is appended: the others follow it there."""

    def records(self) -> Iterator[ProducerRecord]:
        """Raises KafkaError."""
        for index, chunk in enumerate(self._chunks):
            told = self.outcome.last_ended if index == self._count - 1 else self.outcome.ended
            yield chunk._replace(partition=self.partition, on_delivery=told)
        for tombstone in self._tombstones:
            yield tombstone._replace(partition=self.partition, on_delivery=self.outcome.ended)
