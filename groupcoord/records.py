"""Records of __consumer_offsets in Kafka's own key and value formats, so that Kafka's tools can read them.

Key of a committed offset, version 1:   int16 version, string group, string topic, int32 partition
Value, version 3:                       int16 version, int64 offset, int32 leader epoch, string metadata,
                                        int64 commit timestamp
Value, version 1:                       ... without leader epoch, with an int64 expire timestamp at the end
Key of a group, version 2:              int16 version, string group
Value, version 3:                       int16 version, string protocol type, int32 generation, nullable string protocol,
                                        nullable string leader, int64 timestamp of the state, array of members:
                                        string id, nullable string instance, string client id, string client host,
                                        int32 rebalance timeout, int32 session timeout, bytes subscription, assignment
Other keys belong to groups of the consumer protocol, share groups and streams groups:
`raylog.groupcoord.consumer.records`, `raylog.groupcoord.share.records` and `raylog.groupcoord.streams.records`.
A null value is a tombstone: the commit, or the group, is deleted. Strings are int16-prefixed UTF-8, bytes and
arrays int32-prefixed.

Source: Kafka's OffsetCommitKey.json, OffsetCommitValue.json, GroupMetadataKey.json, GroupMetadataValue.json.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from raylog.core.errors import InvariantViolation
from raylog.core.ids import NO_TIMESTAMP_MS
from raylog.groupcoord.consumer.records import FORMAT as CONSUMER_FORMAT
from raylog.groupcoord.consumer.records import ConsumerRecord
from raylog.groupcoord.share.records import FORMAT as SHARE_FORMAT
from raylog.groupcoord.share.records import ShareGroupRecord
from raylog.groupcoord.streams.records import FORMAT as STREAMS_FORMAT
from raylog.groupcoord.streams.records import StreamsRecord
from raylog.protocol.records.strings import pack_string, unpack_string

_KEY_VERSION = 1
_VALUE_VERSION = 3
_VALUE_VERSION_WITH_EXPIRY = 1
"""The only version that holds it."""
_GROUP_KEY_VERSION = 2
_GROUP_VALUE_VERSION = 3
STRING_BYTES_MAX = 32_767
"""The largest length of a string with an int16 length."""


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    """The committed offset of one group and partition; `leader_epoch` is -1 if the client sent none.

    `expire_timestamp_ms` is when it expires if an old client has said that, without a leader epoch; else -1.
    """

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP_MS


@dataclass(frozen=True, slots=True)
class OffsetPending:
    """An offset that takes effect when the transaction of this producer is committed, and not if it is aborted.

    In the log it has the form of a committed offset, in a batch of that transaction.
    """

    producer_id: int
    committed: OffsetCommitted


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """The producer's transaction has ended. In the log this is a control batch, not a record of this format."""

    producer_id: int
    committed: bool


@dataclass(frozen=True, slots=True)
class OffsetDeleted:
    """The group's offset of this partition was removed, for example with its topic."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class CommittedMember:
    """One member of a generation; `subscription` is its metadata for the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupCommitted:
    """One generation of a group: its protocol, leader and members; without members, an empty group."""

    group: str
    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[CommittedMember, ...]


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """The group was removed."""

    group: str


OffsetRecord = OffsetCommitted | OffsetPending | TransactionEnded | OffsetDeleted
ManagedRecord = ConsumerRecord | ShareGroupRecord | StreamsRecord
"""Of groups whose coordinator assigns."""
GroupRecord = OffsetRecord | GroupCommitted | GroupDeleted | ManagedRecord
KeyedRecord = OffsetCommitted | OffsetDeleted | GroupCommitted | GroupDeleted | ManagedRecord
"""The records with their own key and value format."""


def encode(record: KeyedRecord) -> tuple[bytes, bytes | None]:
    """Key and value of the record."""
    if isinstance(record, GroupCommitted | GroupDeleted):
        key = struct.pack(">h", _GROUP_KEY_VERSION) + pack_string(record.group)
        return key, None if isinstance(record, GroupDeleted) else _encode_group(record)
    if isinstance(record, ShareGroupRecord):
        return SHARE_FORMAT.encode(record)
    if isinstance(record, StreamsRecord):
        return STREAMS_FORMAT.encode(record)
    if not isinstance(record, OffsetCommitted | OffsetDeleted):
        return CONSUMER_FORMAT.encode(record)
    key = b"".join(
        (
            struct.pack(">h", _KEY_VERSION),
            pack_string(record.group),
            pack_string(record.topic),
            struct.pack(">i", record.partition),
        )
    )
    if isinstance(record, OffsetDeleted):
        return key, None
    metadata, times = pack_string(record.metadata), struct.pack(">q", record.commit_timestamp_ms)
    if record.expire_timestamp_ms == NO_TIMESTAMP_MS:
        return key, struct.pack(">hqi", _VALUE_VERSION, record.offset, record.leader_epoch) + metadata + times
    head = struct.pack(">hq", _VALUE_VERSION_WITH_EXPIRY, record.offset)
    return key, head + metadata + times + struct.pack(">q", record.expire_timestamp_ms)


def decode(key: bytes, value: bytes | None) -> KeyedRecord | None:
    """The record, or None for another kind. Raises InvariantViolation for bytes that do not decode."""
    try:
        (version,) = struct.unpack_from(">h", key)
        if version == _GROUP_KEY_VERSION:
            group, _ = unpack_string(key, 2)
            return GroupDeleted(group) if value is None else _decode_group(group, value)
        if version in CONSUMER_FORMAT.values:
            return CONSUMER_FORMAT.decode(version, key, value)
        if version in SHARE_FORMAT.values:
            return SHARE_FORMAT.decode(version, key, value)
        if version in STREAMS_FORMAT.values:
            return STREAMS_FORMAT.decode(version, key, value)
        if version not in (0, 1):
            return None
        group, position = unpack_string(key, 2)
        topic, position = unpack_string(key, position)
        (partition,) = struct.unpack_from(">i", key, position)
        if value is None:
            return OffsetDeleted(group, topic, partition)
        version, offset = struct.unpack_from(">hq", value)
        if not 0 <= version <= _VALUE_VERSION:
            raise InvariantViolation(f"committed offset of group {group!r}: value version {version} is unknown")
        position = 10
        leader_epoch = -1
        if version >= 3:
            (leader_epoch,) = struct.unpack_from(">i", value, position)
            position += 4
        metadata, position = unpack_string(value, position)
        (commit_timestamp_ms,) = struct.unpack_from(">q", value, position)
        expire_timestamp_ms = NO_TIMESTAMP_MS
        if version == _VALUE_VERSION_WITH_EXPIRY:
            (expire_timestamp_ms,) = struct.unpack_from(">q", value, position + 8)
        return OffsetCommitted(
            group, topic, partition, offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms
        )
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise InvariantViolation(f"not a record of __consumer_offsets: key {key[:40]!r}") from error


def _encode_group(record: GroupCommitted) -> bytes:
    parts = [
        struct.pack(">h", _GROUP_VALUE_VERSION),
        pack_string(record.protocol_type),
        struct.pack(">i", record.generation_id),
        _nullable_string(record.protocol_name),
        _nullable_string(record.leader),
        struct.pack(">qi", record.state_timestamp_ms, len(record.members)),
    ]
    for member in record.members:
        parts += [
            pack_string(member.member_id),
            _nullable_string(member.group_instance_id),
            pack_string(member.client_id),
            pack_string(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        ]
    return b"".join(parts)


def _decode_group(group: str, value: bytes) -> GroupCommitted:
    """Versions 0 to 3, each of which added a field. Version 4 is flexible; raylog does not write it."""
    (version,) = struct.unpack_from(">h", value)
    if not 0 <= version <= _GROUP_VALUE_VERSION:
        raise InvariantViolation(f"metadata of group {group!r}: value version {version} is unknown")
    protocol_type, at = unpack_string(value, 2)
    (generation_id,) = struct.unpack_from(">i", value, at)
    protocol_name, at = _read_nullable_string(value, at + 4)
    leader, at = _read_nullable_string(value, at)
    state_timestamp_ms = -1
    if version >= 2:
        (state_timestamp_ms,) = struct.unpack_from(">q", value, at)
        at += 8
    (count,) = struct.unpack_from(">i", value, at)
    at += 4
    members = []
    for _ in range(count):
        member_id, at = unpack_string(value, at)
        instance_id = None
        if version >= 3:
            instance_id, at = _read_nullable_string(value, at)
        client_id, at = unpack_string(value, at)
        client_host, at = unpack_string(value, at)
        rebalance_timeout_ms = None
        if version >= 1:
            (rebalance_timeout_ms,) = struct.unpack_from(">i", value, at)
            at += 4
        (session_timeout_ms,) = struct.unpack_from(">i", value, at)
        subscription, at = _read_bytes(value, at + 4)
        assignment, at = _read_bytes(value, at)
        members.append(
            CommittedMember(
                member_id,
                instance_id,
                client_id,
                client_host,
                session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
                session_timeout_ms,
                subscription,
                assignment,
            )
        )
    return GroupCommitted(
        group, protocol_type, generation_id, protocol_name, leader, state_timestamp_ms, tuple(members)
    )


def _nullable_string(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else pack_string(text)


def _read_nullable_string(data: bytes, position: int) -> tuple[str | None, int]:
    if data[position : position + 2] == b"\xff\xff":
        return None, position + 2
    return unpack_string(data, position)


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">i", data, position)
    end = position + 4 + length
    if length < 0 or end > len(data):
        raise IndexError("the byte array extends past the end of the record")
    return data[position + 4 : end], end
