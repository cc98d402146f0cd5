"""zstd requires Produce v7 and Fetch v10 (KIP-110): older clients cannot read it."""

from __future__ import annotations

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records.batch import ATTRIBUTES_AT, CODEC_MASK, HEADER_SIZE, MAGIC, MAGIC_AT, split_batches
from raylog.protocol.records.compression import Codec
from raylog.protocol.wire import Buffer


def refuse_zstd(records: Buffer) -> None:
    """Raises KafkaError(UNSUPPORTED_COMPRESSION_TYPE) if the first batch is compressed with zstd.

    A malformed header is refused by `check_record_set`, with another code.
    """
    is_known = len(records) >= HEADER_SIZE and records[MAGIC_AT] == MAGIC
    if is_known and records[ATTRIBUTES_AT + 1] & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


def before_zstd(records: bytes | memoryview) -> bytes | memoryview:
    """The whole batches before the first one compressed with zstd.

    Raises KafkaError(UNSUPPORTED_COMPRESSION_TYPE) if that is the first batch, since the reader could not proceed.
    """
    for position, header in split_batches(records):
        if header.attributes & CODEC_MASK == Codec.ZSTD:
            if position == 0:
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            return memoryview(records)[:position]
    return records
