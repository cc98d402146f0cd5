"""Records of __transaction_state in Kafka's own key and value formats, so that Kafka's tools can read them.

Key, version 0:     int16 version, string transactional id
Value, version 0:   int16 version, int64 producer id, int16 producer epoch, int32 timeout, int8 state,
                    nullable array of topics: string name, array of int32 partitions;
                    int64 time of this record, int64 time at which the transaction began
A null value is a tombstone: the transactional id is forgotten. Strings are int16-prefixed UTF-8, arrays int32-prefixed.

Source: Kafka's TransactionLogKey.json, TransactionLogValue.json.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from raylog.core.errors import InvariantViolation
from raylog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId, ProducerIdentity, TopicPartition, by_topic
from raylog.protocol.records.strings import pack_string, unpack_string

_VERSION = 0
_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_NULL_ARRAY = -1


class TransactionState(IntEnum):
    """The state of a transaction, with the numbers of Kafka's log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def shown(self) -> str:
        """The name in responses, as Kafka's: `PrepareCommit`."""
        return self.name.title().replace("_", "")

    @property
    def is_open(self) -> bool:
        """Whether the transaction is not complete."""
        return self is TransactionState.ONGOING or self.is_decided

    @property
    def is_decided(self) -> bool:
        """Whether the outcome is decided, and markers may be missing."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True)
class TransactionUpdated:
    """The new state of a transactional id and its newest transaction."""

    transactional_id: str
    producer: ProducerIdentity
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    update_timestamp_ms: int
    start_timestamp_ms: int
    """-1 if none has begun."""
    replaced: ProducerIdentity = field(default=NO_IDENTITY, compare=False)
    """The previous identity if the producer requested the new epoch itself; it may repeat that request. Not in the log,
    as in Kafka: another coordinator fences a producer that repeats it."""


@dataclass(frozen=True, slots=True)
class TransactionForgotten:
    """The transactional id has expired."""

    transactional_id: str


TransactionRecord = TransactionUpdated | TransactionForgotten


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Key and value of the record."""
    key = struct.pack(">h", _VERSION) + pack_string(record.transactional_id)
    if isinstance(record, TransactionForgotten):
        return key, None
    head = _HEAD.pack(_VERSION, *record.producer, record.timeout_ms, record.state)
    times = _TIMES.pack(record.update_timestamp_ms, record.start_timestamp_ms)
    return key, head + _encode_partitions(record) + times


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """The record, or None for another kind. Raises InvariantViolation for bytes that do not decode."""
    try:
        (version,) = struct.unpack_from(">h", key)
        if version != _VERSION:
            return None
        transactional_id, _ = unpack_string(key, 2)
        if value is None:
            return TransactionForgotten(transactional_id)
        version, producer_id, producer_epoch, timeout_ms, state = _HEAD.unpack_from(value)
        if version != _VERSION:
            message = f"transactional id {transactional_id!r}: value version {version} is unknown"
            raise InvariantViolation(message)
        partitions, at = _read_partitions(value, _HEAD.size)
        update_timestamp_ms, start_timestamp_ms = _TIMES.unpack_from(value, at)
        return TransactionUpdated(
            transactional_id,
            ProducerIdentity(ProducerId(producer_id), producer_epoch),
            timeout_ms,
            TransactionState(state),
            frozenset(partitions),
            update_timestamp_ms,
            start_timestamp_ms,
        )
    except (struct.error, UnicodeDecodeError, IndexError, ValueError) as error:
        raise InvariantViolation(f"not a record of __transaction_state: key {key[:40]!r}") from error


def _encode_partitions(record: TransactionUpdated) -> bytes:
    if record.state is TransactionState.EMPTY:
        return struct.pack(">i", _NULL_ARRAY)
    topics = by_topic(record.partitions)
    parts = [struct.pack(">i", len(topics))]
    for name, numbers in topics:
        parts += [pack_string(name), struct.pack(f">{1 + len(numbers)}i", len(numbers), *numbers)]
    return b"".join(parts)


def _read_partitions(data: bytes, at: int) -> tuple[Iterable[TopicPartition], int]:
    (topics,) = struct.unpack_from(">i", data, at)
    at += 4
    partitions: list[TopicPartition] = []
    for _ in range(topics):
        name, at = unpack_string(data, at)
        (count,) = struct.unpack_from(">i", data, at)
        partitions += [TopicPartition(name, number) for number in struct.unpack_from(f">{count}i", data, at + 4)]
        at += 4 + 4 * count
    return partitions, at
