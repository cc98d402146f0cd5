"""The header of a record batch (format v2): its layout, and the checks that need no record.

```
 0        8       12       16   17    21    23       27        35       43       51   57       61
 | base   | batch | leader | m  | crc | att | last   | base    | max    | prod.  | pr | base   | record
 | offset | len.  | epoch  | ag | 32c | rib | offset | time-   | time-  | id     | ep | se-    | count,
 |        |       |        | ic |     | utes| delta  | stamp   | stamp  |        | oc | quence | records
```

`batch_length` counts from byte 12 on. The checksum covers byte 21 to the end, so base offset and leader epoch can be
set by the broker without touching it. Attributes: bits 0-2 codec, 3 timestamp type (1 = LogAppendTime), 4
transactional, 5 control, 6 base timestamp is a delete horizon.
Source: Kafka documentation, "Record Batch".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from crc32c import crc32c

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.compression import Buffer, Codec

LOG_OVERHEAD = 12
"""The number of bytes that `batch_length` does not count."""
HEADER_SIZE = 61

BASE_OFFSET_AT = 0
BATCH_LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORD_COUNT_AT = 57

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, two lengths and the number of headers of a record take a byte each at least."""
OFFSET_END = (1 << 63) - 1
"""An exclusive end after every offset."""
MAGIC = 2
SEQUENCE_MAX = (1 << 31) - 1
BATCH_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD

_HEADER = struct.Struct(">qiibIhiqqqhii")
_OFFSET = struct.Struct(">q")
_PLACE = struct.Struct(">qii")
"""Base offset, batch length, leader epoch: the fields before the magic."""
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_new_tuple = tuple.__new__


class MalformedBatch(KafkaError):
    """A batch whose records cannot be read. Readers can go on at `next_offset`."""

    def __init__(self, base_offset: int, next_offset: int, what: str) -> None:
        offsets = f"the batch of offsets {base_offset} to {next_offset - 1}"
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"{offsets} is malformed: {what}")
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.tp: TopicPartition | None = None
        """The partition, for readers of several."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.base_offset, self.next_offset, self.message, self.tp)


OnMalformed = Callable[[MalformedBatch], None]
"""Called for each malformed batch that a reader skips."""


class BatchHeader(NamedTuple):
    """The 61 bytes as numbers, in order. They are not validated before `verify_crc`."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch, from its first byte to the end of its last record."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 without a producer id; wraps from 2**31 - 1 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def codec(self) -> Codec:
        """The compression codec. Raises CORRUPT_MESSAGE for an unknown number."""
        number = self.attributes & CODEC_MASK
        try:
            return Codec(number)
        except ValueError:
            raise _corrupt(f"compression type {number} is unknown") from None

    @property
    def timestamp_type(self) -> int:
        """0: CreateTime; 1: LogAppendTime."""
        return (self.attributes & LOG_APPEND_TIME_BIT) >> 3

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; the batch itself need not be complete.

    Raises CORRUPT_MESSAGE for fewer than 61 bytes, an invalid length, or an unknown magic;
    UNSUPPORTED_FOR_MESSAGE_FORMAT for the formats before v2.
    """
    if len(buffer) - position < HEADER_SIZE:
        # A message of format 0 or 1 may be shorter than a v2 header, and has its own error code.
        if len(buffer) - position > MAGIC_AT and buffer[position + MAGIC_AT] < MAGIC:
            raise _old_format(buffer[position + MAGIC_AT])
        raise _corrupt(f"{max(len(buffer) - position, 0)} bytes are too few for a batch header")
    header = _new_tuple(BatchHeader, _HEADER.unpack_from(buffer, position))  # `_make` without its Python frame
    if header[3] != MAGIC:
        raise _old_format(header[3]) if header[3] in (0, 1) else _corrupt(f"magic {header[3]} is unknown")
    if header[1] < BATCH_LENGTH_MIN:
        raise _corrupt(f"a batch length of {header[1]} is less than a header")
    if header[6] < 0 or header[12] < 0:
        raise _corrupt(f"last offset delta {header[6]} or record count {header[12]} is negative")
    return header


def split_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch of a record set, which must consist of whole batches only.

    Raises CORRUPT_MESSAGE at the first batch that is truncated or malformed.
    """
    position, end = 0, len(buffer)
    while position < end:
        header = parse_header(buffer, position)
        size_bytes = header.batch_length + LOG_OVERHEAD
        if size_bytes > end - position:
            raise _corrupt(f"a batch of {size_bytes} bytes is truncated after {end - position}")
        yield position, header
        position += size_bytes


def crc_is_valid(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the checksum of the batch, which must be complete in `buffer`, is correct. Copies nothing."""
    covered = memoryview(buffer)[position + ATTRIBUTES_AT : position + header[1] + LOG_OVERHEAD]
    return bool(crc32c(covered) == header[4])


def has_valid_crc(batch: Buffer) -> bool:
    """Whether `batch` is one whole batch of format 2 with a correct checksum, whatever its header contains."""
    if len(batch) < HEADER_SIZE or batch[MAGIC_AT] != MAGIC:
        return False
    header = BatchHeader(*_HEADER.unpack_from(batch))
    return header.batch_length + LOG_OVERHEAD == len(batch) and crc_is_valid(batch, 0, header)


def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raises CORRUPT_MESSAGE when the checksum fails or the batch is not complete in `buffer`."""
    end = position + header[1] + LOG_OVERHEAD
    if end > len(buffer) or crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : end]) != header[4]:
        raise _corrupt(f"the batch at offset {header.base_offset} fails its checksum")


def patch_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, base_offset: int, leader_epoch: int
) -> None:
    """Sets the two fields that lie outside the checksum."""
    _PLACE.pack_into(buffer, position, base_offset, header[1], leader_epoch)


def patch_log_append_time(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, log_append_time_ms: int
) -> None:
    """Changes the batch to LogAppendTime: sets attributes, max timestamp, and the checksum, which covers them."""
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_BIT)
    _OFFSET.pack_into(buffer, position + MAX_TIMESTAMP_AT, log_append_time_ms)
    write_crc(buffer, position, header.size_bytes)


def patch_max_timestamp(buffer: bytearray | memoryview, header: BatchHeader, max_timestamp: int) -> BatchHeader:
    """Sets the max timestamp of the batch that `buffer` contains, and its checksum; returns the new header."""
    _OFFSET.pack_into(buffer, MAX_TIMESTAMP_AT, max_timestamp)
    write_crc(buffer, 0, header.size_bytes)
    return parse_header(buffer)


def with_payload(header: BatchHeader, *, attributes: int, payload: Buffer) -> tuple[bytearray, BatchHeader]:
    """(batch, header) of the same records in another encoding: only length, attributes and checksum differ."""
    batch = rebuilt(header._replace(attributes=attributes), payload)
    return batch, parse_header(batch)


def rebuilt(header: BatchHeader, payload: Buffer) -> bytearray:
    """A batch with the fields of `header`, except that length and checksum are those of `payload`."""
    batch = bytearray(_HEADER.pack(*header._replace(batch_length=BATCH_LENGTH_MIN + len(payload))))
    batch += payload
    write_crc(batch, 0, len(batch))
    return batch


def write_crc(buffer: bytearray | memoryview, position: int, size_bytes: int) -> None:
    """Sets the checksum to that of the bytes after it."""
    with memoryview(buffer) as view, view[position + ATTRIBUTES_AT : position + size_bytes] as covered:
        checksum = crc32c(covered)
    _CRC.pack_into(buffer, position + CRC_AT, checksum)


def _unpickled(base_offset: int, next_offset: int, message: str, tp: TopicPartition | None) -> MalformedBatch:
    error = MalformedBatch(base_offset, next_offset, "")
    error.message, error.tp = message, tp
    return error


def _corrupt(what: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, what)


def _old_format(magic: int) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        f"message format {magic} (before Kafka 0.11) is not supported: use a client that writes format 2",
    )
