"""Recompresses batches with the codec of their topic (`compression.type`).

Only codec, length and checksum in the header, and the compression of the records, change. The encoded records stay the
same, byte by byte. Source: Kafka documentation, `compression.type`; KIP-390.
"""

from __future__ import annotations

from raylog.core.errors import ErrorCode, KafkaError
from raylog.logstore.record_set import batch_too_large, record_set_too_large
from raylog.logstore.settings import Compression, LogSettings
from raylog.protocol.records.batch import CODEC_MASK, BatchHeader, with_payload
from raylog.protocol.records.compression import compress
from raylog.protocol.records.reader import read_checked_payload

DECOMPRESSED_BYTES_MAX = 64 << 20
"""Largest decompressed batch that is recompressed, as a protection from decompression bombs. Kafka has no limit."""
PARTS_MAX = 1_000_000
"""Most records and headers in such a batch, since each is examined; librdkafka writes no more per batch."""


def recompress(
    record_set: memoryview, batches: list[tuple[int, BatchHeader]], wanted: Compression, settings: LogSettings
) -> tuple[memoryview, list[tuple[int, BatchHeader]]]:
    """The record set with (position, header) of its batches, each in the codec that is wanted, in fresh memory.

    The very arguments where nothing is to be done: batches that have the codec already stay as they are, whatever their
    level, and control batches always do. `record_set` is not changed. Raises KafkaError: INVALID_RECORD for records
    that cannot be read, MESSAGE_TOO_LARGE and RECORD_LIST_TOO_LARGE where a bound of the topic is passed by now.
    """
    if not all(_stays(header, wanted) for _, header in batches):
        record_set, batches = _recompressed(record_set, batches, wanted, settings)
    if len(record_set) > settings.segment_bytes:
        raise record_set_too_large(len(record_set), settings)
    return record_set, batches


def _recompressed(
    record_set: memoryview, batches: list[tuple[int, BatchHeader]], wanted: Compression, settings: LogSettings
) -> tuple[memoryview, list[tuple[int, BatchHeader]]]:
    result = bytearray()
    placed: list[tuple[int, BatchHeader]] = []
    for position, header in batches:
        if _stays(header, wanted):
            placed.append((len(result), header))
            result += record_set[position : position + header.size_bytes]
        else:
            records = _records_of(record_set, position, header)
            batch, changed = with_payload(
                header,
                attributes=header.attributes & ~CODEC_MASK | wanted.codec,
                payload=compress(wanted.codec, records, level=wanted.level),
            )
            if len(batch) > settings.max_message_bytes:
                raise batch_too_large(len(batch), settings)
            placed.append((len(result), changed))
            result += batch
    return memoryview(result), placed


def _stays(header: BatchHeader, wanted: Compression) -> bool:
    return header.is_control or header.attributes & CODEC_MASK == wanted.codec


def _records_of(record_set: memoryview, position: int, header: BatchHeader) -> bytes:
    try:
        return read_checked_payload(record_set, position, header, max_bytes=DECOMPRESSED_BYTES_MAX, max_parts=PARTS_MAX)
    except KafkaError as error:
        # CORRUPT_MESSAGE would say that bytes got broken on their way, and clients would send the same ones again.
        raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from error
