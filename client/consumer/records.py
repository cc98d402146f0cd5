"""(shell) The records that a consumer returns, with keys and values by the deserializers of the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from raylog.client.consumer.core import Taken
from raylog.client.errors import SerializationError
from raylog.client.serialization import SerializationContext
from raylog.core.ids import TopicPartition
from raylog.protocol.records.reader import Record

Deserializer = Callable[[bytes, SerializationContext], Any]
"""Makes a key or value from its bytes. It is not called for null."""


class ConsumerRecord(NamedTuple):
    """One record. `timestamp_type` is 0 for CreateTime, 1 for LogAppendTime."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Deserializers:
    """Without one, keys and values are bytes or None."""

    key: Deserializer | None
    value: Deserializer | None

    def records(self, taken: Taken, seek: Callable[[TopicPartition, int], None]) -> list[ConsumerRecord]:
        """What was taken. If a record cannot be deserialized, `seek` leads back to it, and to all that follow it.

        Raises SerializationError if it is the first one.
        """
        made: list[ConsumerRecord] = []
        if self.key is None and self.value is None:
            for (topic, partition), records in taken:
                made += [ConsumerRecord(topic, partition, *record) for record in records]
            return made
        failure: SerializationError | None = None
        for tp, records in taken:
            for record in records:
                if failure is None:
                    try:
                        made.append(self._deserialized(tp, record))
                        continue
                    except SerializationError as error:
                        failure = error
                seek(tp, record.offset)
                break
        if failure is not None and not made:
            raise failure
        return made

    def _deserialized(self, tp: TopicPartition, record: Record) -> ConsumerRecord:
        key, value = record.key, record.value
        if self.key is not None and key is not None:
            key = _made("key", tp, record, key, self.key)
        if self.value is not None and value is not None:
            value = _made("value", tp, record, value, self.value)
        offset, timestamp_ms, timestamp_type, _, _, headers = record
        return ConsumerRecord(tp.topic, tp.partition, offset, timestamp_ms, timestamp_type, key, value, headers)


def _made(field: str, tp: TopicPartition, record: Record, data: bytes, deserializer: Deserializer) -> Any:
    """Raises SerializationError."""
    headers: Sequence[tuple[str, bytes | None]] = record.headers
    try:
        return deserializer(data, SerializationContext(tp.topic, field, headers))
    except Exception as error:  # whatever a deserializer of the user raises is its answer for this record
        text = f"the {field} of {tp}, offset {record.offset}, cannot be deserialized: {error!r}"
        raise SerializationError(f"{text}; seek({tp}, {record.offset + 1}) passes over it") from error
