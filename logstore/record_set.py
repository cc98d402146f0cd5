"""The validation of a record set by its leader before it assigns offsets.

What clients produce is checked as Kafka's LogValidator does: one batch, whose records are all scanned, decompressed in
small chunks where they are compressed. What coordinators write is checked by headers and checksums only, and so is
what followers fetch (`Log.append_as_follower`): compaction leaves gaps and empty batches.
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.core.errors import ErrorCode, KafkaError
from raylog.logstore.settings import Compression, LogSettings, MessageTimestampType
from raylog.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    RECORD_BYTES_MIN,
    TRANSACTIONAL_BIT,
    BatchHeader,
    has_valid_crc,
    parse_header,
    patch_max_timestamp,
    split_batches,
    verify_crc,
    with_payload,
)
from raylog.protocol.records.compression import CODECS_KNOWN, Codec, compress, decompressed_chunks
from raylog.protocol.records.reader import DECOMPRESSED_BYTES_MAX
from raylog.protocol.records.record_scan import RecordError, RecordScan, kernel

_CREATE_TIME = MessageTimestampType.CREATE_TIME
RECOMPRESSED_BYTES_MAX = 64 << 20
"""Largest decompressed batch that is recompressed (`compression.type`), which needs it in memory. No limit in Kafka."""


class CheckedRecordSet(NamedTuple):
    """A record set that can be appended: valid, and in the codec of its topic."""

    data: memoryview
    """Writable."""
    batches: list[tuple[int, BatchHeader]]
    """(position, header), at least one."""
    decompressed_bytes: int = 0
    """What its records decompressed to; 0 if they are not compressed."""


class RecordsRefused(KafkaError):
    """Some records of a batch are well-formed but not allowed; the whole batch is refused (KIP-467)."""

    def __init__(self, errors: list[RecordError]) -> None:
        code = max((error.code for error in errors), key=lambda each: each is ErrorCode.INVALID_TIMESTAMP)
        first = f"record {errors[0].record_index}: {errors[0].message}"
        super().__init__(code, f"{len(errors)} records are refused, the first one because of {first}")
        self.errors = errors


class TooMuchWork(Exception):
    """The check takes longer than the caller allows: it is repeated in a job."""


INLINE_BYTES_MAX = 256 * 1024
"""How many bytes the records of one request may decompress to on the event loop."""
_INLINE_MS_MAX = 2
"""For how long records are scanned on the event loop, about."""


def check_record_set(
    record_set: memoryview, settings: LogSettings, *, now_ms: int, from_client: bool, inline_bytes: int | None = None
) -> CheckedRecordSet:
    """The record set as it is to be appended. Raises KafkaError with the codes of `Log.append_as_leader`.

    Patches `record_set` if a client's batch names another max timestamp than that of its records; recompressed records
    are in new memory. Without `from_client` control batches and several batches are allowed, records are not scanned,
    and nothing is recompressed. With `inline_bytes` it raises TooMuchWork for a batch that decompresses to more, or has
    very many records. Uses no other state: it may be called from any thread.
    """
    size_bytes = len(record_set)
    if not size_bytes:
        raise invalid_record("the record set contains no batch")
    try:
        first = parse_header(record_set)
    except KafkaError as error:
        if from_client and has_valid_crc(record_set):
            raise invalid_record(error.message) from error  # CORRUPT_MESSAGE is retriable
        raise
    if first.batch_length + LOG_OVERHEAD == size_bytes:  # as most clients send it
        batches = [(0, first)]
    else:
        batches = list(split_batches(record_set))
        if from_client:
            raise invalid_record(f"{len(batches)} batches: a record set must contain exactly one")
    for position, header in batches:
        _check_batch(record_set, position, header, settings, from_client=from_client)
        if header.producer_id >= 0 and len(batches) > 1:
            raise invalid_record("a record set with a producer id must contain exactly one batch")
    if from_client:
        _check_clients_header(first, settings)
        checked = _check_records(record_set, first, settings, now_ms, inline_bytes)
    else:
        checked = CheckedRecordSet(record_set, batches)
    if len(checked.data) > settings.segment_bytes:
        rule = f"segment.bytes={settings.segment_bytes}"
        raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"a record set of {len(checked.data)} bytes: {rule}")
    return checked


def invalid_record(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, what)


def _check_batch(
    record_set: memoryview, position: int, header: BatchHeader, settings: LogSettings, *, from_client: bool
) -> None:
    """Coordinators' batches may be transactional without a sequence."""
    _, length, _, _, _, attributes, last_delta, _, _, producer_id, epoch, sequence, count = header
    if length + LOG_OVERHEAD > settings.max_message_bytes and not attributes & CONTROL_BIT:
        raise _batch_too_large(length + LOG_OVERHEAD, settings)
    verify_crc(record_set, position, header)
    if count <= 0 or last_delta != count - 1:
        raise invalid_record(f"{count} records contradict the last offset delta {last_delta}")
    if attributes & CODEC_MASK >= CODECS_KNOWN:
        raise invalid_record(f"compression type {attributes & CODEC_MASK} is unknown")
    if producer_id >= 0 and (epoch < 0 or (sequence < 0 and from_client and not attributes & CONTROL_BIT)):
        raise invalid_record(f"producer {producer_id} without an epoch ({epoch}) or a sequence ({sequence})")


def _check_clients_header(header: BatchHeader, settings: LogSettings) -> None:
    attributes = header.attributes
    if header.base_offset:
        raise invalid_record(f"a base offset of {header.base_offset}: a client's must be 0")
    if attributes & CONTROL_BIT:
        raise invalid_record("clients cannot write control batches")
    if attributes & TRANSACTIONAL_BIT and header.producer_id < 0:
        raise invalid_record("a transactional batch without a producer id")
    if attributes & LOG_APPEND_TIME_BIT and settings.message_timestamp_type is _CREATE_TIME:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only brokers can set LogAppendTime")
    if not attributes & CODEC_MASK and header.record_count * RECORD_BYTES_MIN > header.size_bytes - HEADER_SIZE:
        raise invalid_record(f"{header.size_bytes} bytes cannot hold {header.record_count} records")


def _check_records(
    batch: memoryview, header: BatchHeader, settings: LogSettings, now_ms: int, inline_bytes: int | None
) -> CheckedRecordSet:
    """Scan all records; the result has their max timestamp in its header, and the codec of the topic."""
    if inline_bytes is not None and header.record_count > _INLINE_MS_MAX * kernel().records_per_ms:
        raise TooMuchWork
    create_time = settings.message_timestamp_type is _CREATE_TIME
    if create_time:
        lowest_ms = now_ms - settings.message_timestamp_before_max_ms
        highest_ms = now_ms + settings.message_timestamp_after_max_ms
        scan = RecordScan(header, lowest_ms, highest_ms, needs_keys=settings.is_compacted)
    else:
        scan = RecordScan(header, needs_keys=settings.is_compacted)
    wanted = settings.compression
    decompressed_bytes, recompressible = 0, None
    if header.attributes & CODEC_MASK or (wanted is not None and wanted.codec is not Codec.NONE):
        decompressed_bytes, recompressible = _scan_decompressed(batch, header, scan, wanted, inline_bytes)
    else:
        scan.feed(batch[HEADER_SIZE:])
    if scan.errors:
        raise RecordsRefused(scan.errors)
    max_timestamp = scan.finish()
    if max_timestamp != header.max_timestamp and create_time:
        header = patch_max_timestamp(batch, header, max_timestamp)
    if recompressible is not None:
        assert wanted is not None
        batch, header = _recompressed(recompressible, header, wanted, settings)
    return CheckedRecordSet(batch, [(0, header)], decompressed_bytes)


def _scan_decompressed(
    batch: memoryview, header: BatchHeader, scan: RecordScan, wanted: Compression | None, inline_bytes: int | None
) -> tuple[int, bytearray | None]:
    """(size of the decompressed records, the records themselves if the topic has another codec)."""
    codec = header.codec
    kept = None if wanted is None or codec is wanted.codec else bytearray()
    if inline_bytes is not None and 4 * len(batch) > inline_bytes:
        raise TooMuchWork
    size_bytes = 0
    try:
        for chunk in decompressed_chunks(codec, batch[HEADER_SIZE:]):
            size_bytes += len(chunk)
            if inline_bytes is not None and size_bytes > inline_bytes:
                raise TooMuchWork
            scan.feed(chunk)
            if scan.is_full or size_bytes > DECOMPRESSED_BYTES_MAX:
                break
            if kept is not None:
                if size_bytes > RECOMPRESSED_BYTES_MAX:
                    raise invalid_record(f"records of more than {RECOMPRESSED_BYTES_MAX} bytes are not recompressed")
                kept += chunk
    except KafkaError as error:
        # CORRUPT_MESSAGE would say that bytes changed on their way, and clients would send the same ones again.
        raise invalid_record(error.message) from error
    if size_bytes > DECOMPRESSED_BYTES_MAX and not scan.errors:
        # Consumers and the log cleaner would not read it. With this code, producers split the batch.
        text = f"a batch that decompresses to more than {DECOMPRESSED_BYTES_MAX} bytes"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
    return size_bytes, kept


def _recompressed(
    records: bytearray, header: BatchHeader, wanted: Compression, settings: LogSettings
) -> tuple[memoryview, BatchHeader]:
    """The batch in the codec of its topic: only codec, length, checksum and the compression of the records change."""
    payload = compress(wanted.codec, records, level=wanted.level)
    attributes = header.attributes & ~CODEC_MASK | wanted.codec
    batch, header = with_payload(header, attributes=attributes, payload=payload)
    if len(batch) > settings.max_message_bytes:
        raise _batch_too_large(len(batch), settings)
    return memoryview(batch), header


def _batch_too_large(size_bytes: int, settings: LogSettings) -> KafkaError:
    rule = f"max.message.bytes={settings.max_message_bytes}"
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size_bytes} bytes: {rule}")
