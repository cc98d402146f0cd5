"""The records of MirrorMaker 2's internal topics, byte for byte, so that its tools and ours read each other's.

All three topics have one partition and are compacted. Numbers are big-endian; a text is its length as two bytes, then
UTF-8. Values of heartbeats and checkpoints begin with a version, which is 0; those of offset syncs have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple, Self

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition

PARTITIONS: Final = 1
TOPIC_CONFIGS: Final[Mapping[str, str]] = {"cleanup.policy": "compact"}
VERSION: Final = 0
TEXT_BYTES_MAX: Final = (1 << 15) - 1
BEFORE_FIRST: Final = -1
"""The upstream offset of a sync that says: the source topic was created again, and its first record is copied next."""
_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")


class MirrorRecord(NamedTuple):
    """Key and value of a record of an internal topic."""

    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Written to `heartbeats` of the target: the flow was alive at this time. The topic is copied as any other."""

    source: str
    target: str
    timestamp_ms: int

    def encode(self) -> MirrorRecord:
        """Raises KafkaError."""
        return MirrorRecord(
            _text(self.source) + _text(self.target), _SHORT.pack(VERSION) + _LONG.pack(self.timestamp_ms)
        )

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Self:
        """Raises KafkaError."""
        keys, values = _Reader("heartbeat", key), _Reader("heartbeat", value)
        source, target = keys.text(), keys.text()
        values.version()
        return cls(source, target, values.int64())


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Written to `<source>.checkpoints.internal` of the target: a group's offset there, and the one in the source."""

    group: str
    tp: TopicPartition
    """In the target."""
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""

    def encode(self) -> MirrorRecord:
        """Raises KafkaError."""
        key = _text(self.group) + _text(self.tp.topic) + _INT.pack(self.tp.partition)
        offsets = _LONG.pack(self.upstream_offset) + _LONG.pack(self.downstream_offset)
        return MirrorRecord(key, _SHORT.pack(VERSION) + offsets + _text(self.metadata))

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Self:
        """Raises KafkaError."""
        keys, values = _Reader("checkpoint", key), _Reader("checkpoint", value)
        group, tp = keys.text(), TopicPartition(keys.text(), keys.int32())
        values.version()
        return cls(group, tp, values.int64(), values.int64(), values.text())


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """Written to `mm2-offset-syncs.<other>.internal`: where one committed record of the source is in the target."""

    tp: TopicPartition
    """In the source."""
    upstream_offset: int
    downstream_offset: int

    def encode(self) -> MirrorRecord:
        """Raises KafkaError."""
        key = _text(self.tp.topic) + _INT.pack(self.tp.partition)
        return MirrorRecord(key, _LONG.pack(self.upstream_offset) + _LONG.pack(self.downstream_offset))

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Self:
        """Raises KafkaError."""
        keys, values = _Reader("offset sync", key), _Reader("offset sync", value)
        return cls(TopicPartition(keys.text(), keys.int32()), values.int64(), values.int64())


def _text(text: str) -> bytes:
    """Raises KafkaError."""
    encoded = text.encode(errors="surrogatepass")
    if len(encoded) > TEXT_BYTES_MAX:
        rule = f"has {len(encoded)} bytes: a record of a mirror can name at most {TEXT_BYTES_MAX}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text[:50]!r}... {rule}")
    return _SHORT.pack(len(encoded)) + encoded


class _Reader:
    """Reads a key or a value. Bytes behind the last field are ignored, as in MirrorMaker."""

    def __init__(self, what: str, data: bytes | None) -> None:
        self._what = what
        if data is None:
            raise self._refused("key or value is null")
        self._data = data
        self._at = 0

    def version(self) -> None:
        version = self._number(_SHORT)
        if version != VERSION:
            raise self._refused(f"version {version} is unknown: must be {VERSION}")

    def int32(self) -> int:
        return self._number(_INT)

    def int64(self) -> int:
        return self._number(_LONG)

    def text(self) -> str:
        length = self._number(_SHORT)
        if not 0 <= length <= len(self._data) - self._at:
            raise self._refused(f"a text of {length} bytes at {self._at} is not within its {len(self._data)} bytes")
        self._at += length
        try:
            return bytes(self._data[self._at - length : self._at]).decode()
        except UnicodeDecodeError:
            raise self._refused(f"the text before byte {self._at} is not UTF-8") from None

    def _number(self, form: Struct) -> int:
        if len(self._data) - self._at < form.size:
            raise self._refused(f"ends after {len(self._data)} bytes")
        (number,) = form.unpack_from(self._data, self._at)
        self._at += form.size
        return int(number)

    def _refused(self, reason: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_RECORD, f"malformed {self._what}: {reason}")
