"""zstd requires Produce v7 and Fetch v10 (KIP-110): older clients cannot read it."""

from __future__ import annotations

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records.batch import CODEC_MASK, HEADER_SIZE, parse_header, split_batches
from raylog.protocol.records.compression import Codec
from raylog.protocol.wire import Buffer


def refuse_zstd(records: Buffer) -> None:
    """Raises KafkaError(UNSUPPORTED_COMPRESSION_TYPE) if the first batch is compressed with zstd."""
    if len(records) >= HEADER_SIZE and parse_header(records, 0).attributes & CODEC_MASK == Codec.ZSTD:
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
