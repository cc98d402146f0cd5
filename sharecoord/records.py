"""Records of __share_group_state in Kafka's own key and value formats, so that Kafka's tools can read them.

Key:                int16 kind (0: snapshot, 1: update), string group, uuid topic id, int32 partition
Snapshot, version 0:  int32 snapshot epoch, int32 state epoch, int32 leader epoch, int64 start offset,
                      int64 time of creation, int64 time of this write, array of batches
Update, version 0:    int32 snapshot epoch, int32 leader epoch, int64 start offset, array of batches
Batch:                int64 first offset, int64 last offset, int8 state, int16 delivery count
Both have the number of completed deliveries as tagged field 0. A value is an int16 with its version and a flexible
structure (KIP-482). The tombstone of a snapshot deletes the state of the share-partition.

Source: Kafka's ShareSnapshotKey.json, ShareSnapshotValue.json, ShareUpdateKey.json, ShareUpdateValue.json (4.2).
"""

from __future__ import annotations

import base64
import re
import struct
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple
from uuid import UUID

from raylog.core.errors import InvariantViolation, ProtocolViolation
from raylog.protocol import codec
from raylog.protocol.records.strings import pack_string, unpack_string
from raylog.protocol.schema import Api, array, int8, int16, int32, int64, message

_SNAPSHOT: Final = 0
_UPDATE: Final = 1
_VALUE_VERSION: Final = 0
_NUMBER = re.compile(r"[0-9]{1,10}")
_KEY_REST = struct.Struct(">16si")
UNKNOWN_COUNT: Final = -1


class SharePartitionKey(NamedTuple):
    """One partition as one share group consumes it."""

    group: str
    topic_id: UUID
    partition: int

    @property
    def text(self) -> str:
        """The key in FindCoordinator, which decides on the partition of __share_group_state."""
        topic_id = base64.urlsafe_b64encode(self.topic_id.bytes).decode().rstrip("=")
        return f"{self.group}:{topic_id}:{self.partition}"


def parse_key(text: str) -> SharePartitionKey | None:
    """The key of this text, `group:topic id in base64:partition`; None if it is not one. The group may contain ':'."""
    group, *rest = text.rsplit(":", 2)
    if len(rest) != 2 or not group or len(rest[0]) != 22 or not _NUMBER.fullmatch(rest[1]):
        return None
    try:
        topic_id = UUID(bytes=base64.b64decode(rest[0] + "==", b"-_", validate=True))
    except ValueError:
        return None
    return SharePartitionKey(group, topic_id, int(rest[1]))


class StateBatch(NamedTuple):
    """Offsets in one state; `last_offset` is included."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class SnapshotWritten:
    """The whole state of a share-partition."""

    key: SharePartitionKey
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp_ms: int
    write_timestamp_ms: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class UpdateWritten:
    """What has changed since the last record; -1 for a start offset or leader epoch that has not."""

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class StateDeleted:
    """The share-partition has no state any more."""

    key: SharePartitionKey


ShareRecord = SnapshotWritten | UpdateWritten | StateDeleted


# --- the values


def _value(name: str) -> Api:
    return Api(key=-1, name=name, lowest=0, highest=0, flexible_from=0)


@message
class _Batch:
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@message
class _Snapshot:
    api: ClassVar[Api] = _value("ShareSnapshotValue")
    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: tuple[_Batch, ...] = array(_Batch)
    delivery_complete_count: int = int32(-1, tag=0)


@message
class _Update:
    api: ClassVar[Api] = _value("ShareUpdateValue")
    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    state_batches: tuple[_Batch, ...] = array(_Batch)
    delivery_complete_count: int = int32(-1, tag=0)


def encode(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Key and value of the record."""
    kind = _UPDATE if isinstance(record, UpdateWritten) else _SNAPSHOT
    group, topic_id, partition = record.key
    key = struct.pack(">h", kind) + pack_string(group) + _KEY_REST.pack(topic_id.bytes, partition)
    if isinstance(record, StateDeleted):
        return key, None
    batches = tuple(
        _Batch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in record.batches
    )
    value: Any
    if isinstance(record, SnapshotWritten):
        value = _Snapshot(
            snapshot_epoch=record.snapshot_epoch,
            state_epoch=record.state_epoch,
            leader_epoch=record.leader_epoch,
            start_offset=record.start_offset,
            create_timestamp=record.create_timestamp_ms,
            write_timestamp=record.write_timestamp_ms,
            state_batches=batches,
            delivery_complete_count=record.delivery_complete_count,
        )
    else:
        value = _Update(
            snapshot_epoch=record.snapshot_epoch,
            leader_epoch=record.leader_epoch,
            start_offset=record.start_offset,
            state_batches=batches,
            delivery_complete_count=record.delivery_complete_count,
        )
    return key, struct.pack(">h", _VALUE_VERSION) + codec.encode(value, _VALUE_VERSION)


def decode(key: bytes, value: bytes | None) -> ShareRecord | None:
    """The record, or None for another kind. Raises InvariantViolation for bytes that do not decode."""
    try:
        (kind,) = struct.unpack_from(">h", key)
        if kind not in (_SNAPSHOT, _UPDATE):
            return None
        group, at = unpack_string(key, 2)
        topic_id, partition = _KEY_REST.unpack_from(key, at)
        share_partition = SharePartitionKey(group, UUID(bytes=topic_id), partition)
        if value is None:
            return StateDeleted(share_partition) if kind == _SNAPSHOT else None
        (version,) = struct.unpack_from(">h", value)
        if version != _VALUE_VERSION:
            raise InvariantViolation(f"{share_partition.text}: value version {version} is unknown")
        decoded: Any = codec.decode(_SNAPSHOT_OR_UPDATE[kind], version, value, 2)
    except (struct.error, IndexError, ValueError, ProtocolViolation) as error:
        raise InvariantViolation(f"not a record of __share_group_state: key {key[:40]!r}") from error
    batches = tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in decoded.state_batches
    )
    if kind == _UPDATE:
        return UpdateWritten(
            share_partition,
            decoded.snapshot_epoch,
            decoded.leader_epoch,
            decoded.start_offset,
            decoded.delivery_complete_count,
            batches,
        )
    return SnapshotWritten(
        share_partition,
        decoded.snapshot_epoch,
        decoded.state_epoch,
        decoded.leader_epoch,
        decoded.start_offset,
        decoded.delivery_complete_count,
        decoded.create_timestamp,
        decoded.write_timestamp,
        batches,
    )


_SNAPSHOT_OR_UPDATE: Final[dict[int, type[Any]]] = {_SNAPSHOT: _Snapshot, _UPDATE: _Update}
