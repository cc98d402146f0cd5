"""(shell) Fetches the values of records from a store, between what poll() has taken and the deserializers."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import NamedTuple

from raylog.client.chunks.envelope import digest_text, new_digest
from raylog.client.chunks.references import Reference, ValueMissing, ValueStore, headers_of_record, reference_of
from raylog.client.consumer.fetched import ConsumerRecord
from raylog.client.errors import ValueMissingError
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition


class Dereferenced(NamedTuple):
    """What became of the records that were taken."""

    records: list[ConsumerRecord]
    left: list[ConsumerRecord]
    """Those behind them, which are to be taken again."""
    error: KafkaError | None
    """Why the first of them was left, if it is the first of all."""


class Dereferencing:
    """Fetches the values that records refer to. Used by one thread at a time."""

    def __init__(self, store: ValueStore | None, bytes_max: int) -> None:
        """Without a store, a record with a reference is an error. `bytes_max` bounds what one poll() fetches."""
        self._store = store
        self._bytes_max = bytes_max

    def fetched(self, taken: list[ConsumerRecord]) -> Dereferenced:
        """The records with their values, as many as fit into memory. Waits for the store."""
        made: list[ConsumerRecord] = []
        used_bytes = 0
        for at, record in enumerate(taken):
            reference = reference_of(record.headers) if record.headers else None
            if reference is None:
                made.append(record)
                continue
            used_bytes += reference.size
            if made and used_bytes > self._bytes_max:
                return Dereferenced(made, taken[at:], None)
            try:
                value = self._value(record, reference)
            except KafkaError as error:
                return Dereferenced(made, taken[at:], None if made else error)
            made.append(record._replace(value=value, headers=headers_of_record(record.headers)))
        return Dereferenced(made, [], None)

    def _value(self, record: ConsumerRecord, reference: Reference) -> bytes:
        """In one buffer of its size. Raises ValueMissingError."""
        if self._store is None:
            raise _missing(record, reference, "large.message.store.url is not set")
        if reference.size > self._bytes_max:
            limit = f"message.assembler.buffer.capacity ({self._bytes_max})"
            raise _missing(record, reference, f"its {reference.size} bytes are more than {limit}")
        buffer, digest = BytesIO(bytes(reference.size)), new_digest()
        try:
            for piece in self._store.read(reference.name, reference.size):
                if buffer.tell() + len(piece) > reference.size:
                    raise ValueMissing(f"it is larger than the {reference.size} bytes that were written")
                buffer.write(piece)
                digest.update(piece)
        except ValueMissing as error:
            raise _missing(record, reference, str(error)) from error
        if buffer.tell() < reference.size:
            raise _missing(record, reference, f"it has {buffer.tell()} of {reference.size} bytes")
        if digest_text(digest) != reference.digest:
            raise _missing(record, reference, "its digest is another one")
        return buffer.getvalue()


def _missing(record: ConsumerRecord, reference: Reference, why: str) -> ValueMissingError:
    tp = TopicPartition(record.topic, record.partition)
    what = f"{tp}, offset {record.offset}: the value {reference.name} cannot be fetched: {why}"
    return ValueMissingError(f"{what}; seek({tp}, {record.offset + 1}) passes over it")


def lead_back(left: list[ConsumerRecord], seek: Callable[[TopicPartition, int], None]) -> None:
    """Have these records taken again: `seek` to the first one of each partition."""
    firsts: dict[TopicPartition, int] = {}
    for record in left:
        firsts.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    for tp, offset in firsts.items():
        seek(tp, offset)
