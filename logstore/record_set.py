"""The validation of a record set by its leader before it assigns offsets, by headers and checksums only."""

from __future__ import annotations

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_TIMESTAMP_MS
from raylog.logstore.settings import LogSettings, MessageTimestampType
from raylog.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
    split_batches,
    verify_crc,
)
from raylog.protocol.records.compression import CODECS_KNOWN

_CREATE_TIME = MessageTimestampType.CREATE_TIME


def check_record_set(
    record_set: memoryview, settings: LogSettings, *, now_ms: int, from_client: bool
) -> list[tuple[int, BatchHeader]]:
    """(position, header) of each batch, at least one. Raises KafkaError with the codes of `Log.append_as_leader`.

    Changes nothing. Without `from_client` control batches are allowed, and timestamps are not checked. If the topic has
    its own compression, the total size is not checked, since it is about to change.
    """
    size_bytes = len(record_set)
    if not size_bytes:
        raise invalid_record("the record set contains no batch")
    first = parse_header(record_set)
    if first.batch_length + LOG_OVERHEAD == size_bytes:  # as most clients send it
        batches = [(0, first)]
    else:
        batches = list(split_batches(record_set))
    for position, header in batches:
        _check_batch(record_set, position, header, settings, from_client=from_client)
        if header.producer_id >= 0 and len(batches) > 1:
            raise invalid_record("a record set with a producer id must contain exactly one batch")
        if from_client:
            _check_clients_batch(header, settings, now_ms)
    if size_bytes > settings.segment_bytes and settings.compression is None:
        raise record_set_too_large(size_bytes, settings)
    return batches


def record_set_too_large(size_bytes: int, settings: LogSettings) -> KafkaError:
    rule = f"segment.bytes={settings.segment_bytes}"
    return KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"a record set of {size_bytes} bytes: {rule}")


def batch_too_large(size_bytes: int, settings: LogSettings) -> KafkaError:
    rule = f"max.message.bytes={settings.max_message_bytes}"
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size_bytes} bytes: {rule}")


def invalid_record(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, what)


def _check_batch(
    record_set: memoryview, position: int, header: BatchHeader, settings: LogSettings, *, from_client: bool
) -> None:
    """Coordinators' batches may be transactional without a sequence."""
    _, length, _, _, _, attributes, last_delta, _, _, producer_id, epoch, sequence, count = header
    if length + LOG_OVERHEAD > settings.max_message_bytes and not attributes & CONTROL_BIT:
        raise batch_too_large(length + LOG_OVERHEAD, settings)
    verify_crc(record_set, position, header)
    if count <= 0 or last_delta != count - 1:
        raise invalid_record(f"{count} records contradict the last offset delta {last_delta}")
    if attributes & CODEC_MASK >= CODECS_KNOWN:
        raise invalid_record(f"compression type {attributes & CODEC_MASK} is unknown")
    if producer_id >= 0 and (epoch < 0 or (sequence < 0 and from_client and not attributes & CONTROL_BIT)):
        raise invalid_record(f"producer {producer_id} without an epoch ({epoch}) or a sequence ({sequence})")


def _check_clients_batch(header: BatchHeader, settings: LogSettings, now_ms: int) -> None:
    attributes = header.attributes
    if attributes & CONTROL_BIT:
        raise invalid_record("clients cannot write control batches")
    if attributes & TRANSACTIONAL_BIT and header.producer_id < 0:
        raise invalid_record("a transactional batch without a producer id")
    if settings.message_timestamp_type is _CREATE_TIME:
        if attributes & LOG_APPEND_TIME_BIT:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only brokers can set LogAppendTime")
        _check_times(settings, now_ms, header.base_timestamp, header.max_timestamp)


def _check_times(settings: LogSettings, now_ms: int, base_timestamp: int, max_timestamp: int) -> None:
    """Check CreateTime against its limits, by the header only; batches without timestamps (-1) are allowed."""
    if max_timestamp == NO_TIMESTAMP_MS:
        return
    if max_timestamp - now_ms > settings.message_timestamp_after_max_ms:
        rule = f"message.timestamp.after.max.ms={settings.message_timestamp_after_max_ms}"
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {max_timestamp} is too far in the future: {rule}")
    if base_timestamp >= 0 and now_ms - base_timestamp > settings.message_timestamp_before_max_ms:
        rule = f"message.timestamp.before.max.ms={settings.message_timestamp_before_max_ms}"
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {base_timestamp} is too far in the past: {rule}")
