"""Records of __consumer_offsets in Kafka's own key and value formats, so that Kafka's tools can read them.

Key of a committed offset, version 1:   int16 version, string group, string topic, int32 partition
Value, version 3:                       int16 version, int64 offset, int32 leader epoch, string metadata,
                                        int64 commit timestamp
Value, version 1 (read only):           ... without leader epoch, with an int64 expire timestamp at the end
A null value is a tombstone: the commit no longer counts. Strings are int16-prefixed UTF-8.

Source: Kafka's OffsetCommitKey.json and OffsetCommitValue.json.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from raylog.core.errors import InvariantViolation

_KEY_VERSION = 1
_VALUE_VERSION = 3


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    """One partition's position of one group; `leader_epoch` is -1 where the client gave none."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class OffsetDeleted:
    """The group's position in this partition is gone, for example with its topic."""

    group: str
    topic: str
    partition: int


OffsetRecord = OffsetCommitted | OffsetDeleted


def encode(record: OffsetRecord) -> tuple[bytes, bytes | None]:
    """Key and value of the record."""
    key = b"".join(
        (
            struct.pack(">h", _KEY_VERSION),
            _string(record.group),
            _string(record.topic),
            struct.pack(">i", record.partition),
        )
    )
    if isinstance(record, OffsetDeleted):
        return key, None
    value = b"".join(
        (
            struct.pack(">hqi", _VALUE_VERSION, record.offset, record.leader_epoch),
            _string(record.metadata),
            struct.pack(">q", record.commit_timestamp_ms),
        )
    )
    return key, value


def decode(key: bytes, value: bytes | None) -> OffsetRecord | None:
    """The record, or None for a kind that is not an offset (group metadata). Raises InvariantViolation for garbage."""
    try:
        (version,) = struct.unpack_from(">h", key)
        if version not in (0, 1):
            return None
        group, position = _read_string(key, 2)
        topic, position = _read_string(key, position)
        (partition,) = struct.unpack_from(">i", key, position)
        if value is None:
            return OffsetDeleted(group, topic, partition)
        version, offset = struct.unpack_from(">hq", value)
        position = 10
        leader_epoch = -1
        if version >= 3:
            (leader_epoch,) = struct.unpack_from(">i", value, position)
            position += 4
        metadata, position = _read_string(value, position)
        (commit_timestamp_ms,) = struct.unpack_from(">q", value, position)
        return OffsetCommitted(group, topic, partition, offset, leader_epoch, metadata, commit_timestamp_ms)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise InvariantViolation(f"not a record of __consumer_offsets: key {key[:40]!r}") from error


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, position)
    end = position + 2 + length
    if length < 0 or end > len(data):
        raise IndexError("string runs past the end")
    return data[position + 2 : end].decode(), end
