"""(shell) The records that a consumer returns, with keys and values by the deserializers of the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from raylog.client.chunks.dereferencing import lead_back
from raylog.client.consumer.fetched import ConsumerRecord, FetchedBatches
from raylog.client.errors import SerializationError
from raylog.client.given_values import checked_function
from raylog.client.serialization import SerializationContext
from raylog.client.share.acquired import ShareRecord
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.batch import OFFSET_END, MalformedBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from raylog.protocol.records.arrow import UnfitTimestamp

Record = TypeVar("Record", ConsumerRecord, ShareRecord)
_PASS_OVER: Final = "seek({tp}, {next_offset}) passes over it"
_UNFIT: Final = "poll() returns it, also poll_arrow() without the column timestamp, and " + _PASS_OVER
Deserializer = Callable[[bytes, Any], Any]
"""Makes a key or value from its bytes and a SerializationContext. It is not called for null."""


def arrow_batches(
    fetched: FetchedBatches, columns: Sequence[str], seek: Callable[[TopicPartition, int], None]
) -> list[pa.RecordBatch]:
    """The records that were not taken yet, or those before the first that cannot be returned: `seek` leads back to it.

    Raises KafkaError if there is nothing before it: MalformedBatch, or INVALID_TIMESTAMP for a timestamp that
    microseconds cannot represent. Before any exception `seek` leads back to the first record that was not taken.
    """
    from raylog.protocol.records.arrow import UnfitTimestamp, read_arrow

    def decode(end_offset: int) -> list[pa.RecordBatch]:
        return list(
            read_arrow(
                fetched.records,
                topic=fetched.tp.topic,
                partition=fetched.tp.partition,
                columns=columns,
                views=True,
                from_offset=fetched.position,
                end_offset=end_offset,
                check_crcs=fetched.check_crcs,
                aborted=fetched.aborted,
            )
        )

    end_offset = OFFSET_END
    failure: KafkaError | None = None
    batches: list[pa.RecordBatch] = []
    try:
        while end_offset > fetched.position:
            try:
                batches = decode(end_offset)
                break
            except MalformedBatch as error:
                error.tp = fetched.tp
                end_offset, failure = error.base_offset, error
            except UnfitTimestamp as error:
                end_offset, failure = error.offset, _unfit(fetched.tp, error)
        if failure is not None and not batches:
            raise failure
    except BaseException:
        seek(fetched.tp, fetched.position)
        raise
    if failure is not None:
        seek(fetched.tp, end_offset)
    return batches


def _unfit(tp: TopicPartition, error: UnfitTimestamp) -> KafkaError:
    remedy = _UNFIT.format(tp=tp, next_offset=error.offset + 1)
    return KafkaError(error.code, f"{tp}, {error.message}; {remedy}")


@dataclass(frozen=True, slots=True)
class Deserializers:
    """Without one, keys and values are bytes or None."""

    key: Deserializer | None
    value: Deserializer | None

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        checked_function("key_deserializer", self.key)
        checked_function("value_deserializer", self.value)

    def records(self, taken: list[ConsumerRecord], seek: Callable[[TopicPartition, int], None]) -> list[ConsumerRecord]:
        """What was taken. If a record cannot be deserialized, `seek` leads back to it, and to all that follow it.

        Raises SerializationError if it is the first one.
        """
        if self.key is None and self.value is None:
            return taken
        made: list[ConsumerRecord] = []
        try:
            made.extend(self.record(record, _PASS_OVER) for record in taken)
        except SerializationError:
            lead_back(taken[len(made) :], seek)
            if not made:
                raise
        return made

    def record(self, record: Record, remedy: str) -> Record:
        """Raises SerializationError, with the remedy for this place, if the record cannot be deserialized."""
        key, value = record.key, record.value
        if self.key is not None and key is not None:
            key = _made("key", record, key, self.key, remedy)
        if self.value is not None and value is not None:
            value = _made("value", record, value, self.value, remedy)
        return record._replace(key=key, value=value)


def _made(field: str, record: Any, data: bytes, deserializer: Deserializer, remedy: str) -> Any:
    """Raises SerializationError."""
    try:
        return deserializer(data, SerializationContext(record.topic, field, record.headers))
    except Exception as error:  # whatever a deserializer of the user raises is its answer for this record
        tp = TopicPartition(record.topic, record.partition)
        text = f"the {field} of {tp}, offset {record.offset}, cannot be deserialized: {error!r}"
        remedy = remedy.format(tp=tp, offset=record.offset, next_offset=record.offset + 1)
        raise SerializationError(f"{text}; {remedy}") from error
