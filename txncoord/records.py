"""Records of __transaction_state in Kafka's own key and value formats, so that Kafka's tools can read them.

The key has version 0: int16 version, string transactional id (strings are int16-prefixed UTF-8). A null value is a
tombstone: the transactional id is forgotten. The value has version 0, or the flexible version 1, whose tagged fields
hold what transactions of version 2 need (KIP-890).

Source: Kafka's TransactionLogKey.json, TransactionLogValue.json.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar

from raylog.core.errors import InvariantViolation, ProtocolViolation
from raylog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId, ProducerIdentity, TopicPartition, by_topic
from raylog.protocol import codec
from raylog.protocol.records.strings import pack_string, unpack_string
from raylog.protocol.schema import Api, array, int8, int16, int32, int64, message, string

_KEY_VERSION = 0
_PLAIN, _FLEXIBLE = 0, 1
"""Versions of the value."""


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
    client_version: int = 0
    """2 if the producer uses transactions of version 2, whose end raises the epoch."""
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """The producer id of the record before, if this one belongs to the end of a transaction of version 2."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """The producer id from the completion on, if the end of the transaction has exhausted the epochs of `producer`."""

    @property
    def given(self) -> ProducerIdentity:
        """The identity that the producer has, or gets when its request is answered."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer
        return ProducerIdentity(self.next_producer_id, 0)


@dataclass(frozen=True, slots=True)
class TransactionForgotten:
    """The transactional id has expired."""

    transactional_id: str


TransactionRecord = TransactionUpdated | TransactionForgotten


# --- the value


@message
class _Partitions:
    topic: str = string()
    partition_ids: tuple[int, ...] = array(int32)


@message
class _Value:
    api: ClassVar[Api] = Api(key=-1, name="TransactionLogValue", lowest=_PLAIN, highest=_FLEXIBLE, flexible_from=1)
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: tuple[_Partitions, ...] | None = array(_Partitions, null_since=0)
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    previous_producer_id: int = int64(NO_PRODUCER_ID, since=_FLEXIBLE, tag=0)
    next_producer_id: int = int64(NO_PRODUCER_ID, since=_FLEXIBLE, tag=1)
    client_transaction_version: int = int16(0, since=_FLEXIBLE, tag=2)


_NO_TAGS = NO_PRODUCER_ID, NO_PRODUCER_ID, 0


def encode(record: TransactionRecord, *, flexible: bool = False) -> tuple[bytes, bytes | None]:
    """Key and value of the record. The value is flexible if `flexible`, or if the record has fields that need it."""
    key = struct.pack(">h", _KEY_VERSION) + pack_string(record.transactional_id)
    if isinstance(record, TransactionForgotten):
        return key, None
    partitions = tuple(_Partitions(topic=name, partition_ids=numbers) for name, numbers in by_topic(record.partitions))
    value = _Value(
        producer_id=record.producer.producer_id,
        producer_epoch=record.producer.producer_epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=record.state,
        transaction_partitions=None if record.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=record.update_timestamp_ms,
        transaction_start_timestamp_ms=record.start_timestamp_ms,
        previous_producer_id=record.previous_producer_id,
        next_producer_id=record.next_producer_id,
        client_transaction_version=record.client_version,
    )
    has_tags = (value.previous_producer_id, value.next_producer_id, value.client_transaction_version) != _NO_TAGS
    version = _FLEXIBLE if flexible or has_tags else _PLAIN
    return key, struct.pack(">h", version) + codec.encode(value, version)


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """The record, or None for another kind. Raises InvariantViolation for bytes that do not decode."""
    try:
        (version,) = struct.unpack_from(">h", key)
        if version != _KEY_VERSION:
            return None
        transactional_id, _ = unpack_string(key, 2)
        if value is None:
            return TransactionForgotten(transactional_id)
        (version,) = struct.unpack_from(">h", value)
        if version not in (_PLAIN, _FLEXIBLE):
            message = f"transactional id {transactional_id!r}: value version {version} is unknown"
            raise InvariantViolation(message)
        return _record(transactional_id, codec.decode(_Value, version, value, 2))
    except (struct.error, UnicodeDecodeError, IndexError, ValueError, ProtocolViolation) as error:
        raise InvariantViolation(f"not a record of __transaction_state: key {key[:40]!r}") from error


def _record(transactional_id: str, value: _Value) -> TransactionUpdated:
    """Raises ValueError for an unknown state."""
    return TransactionUpdated(
        transactional_id,
        ProducerIdentity(ProducerId(value.producer_id), value.producer_epoch),
        value.transaction_timeout_ms,
        TransactionState(value.transaction_status),
        frozenset(
            TopicPartition(each.topic, number)
            for each in value.transaction_partitions or ()
            for number in each.partition_ids
        ),
        value.transaction_last_update_timestamp_ms,
        value.transaction_start_timestamp_ms,
        client_version=value.client_transaction_version,
        previous_producer_id=ProducerId(value.previous_producer_id),
        next_producer_id=ProducerId(value.next_producer_id),
    )
