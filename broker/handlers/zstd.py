"""zstd came with Produce v7 and Fetch v10 (KIP-110): a client that speaks less could not read it."""

from __future__ import annotations

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records.batch import HEADER_SIZE, parse_header
from raylog.protocol.records.compression import Codec
from raylog.protocol.wire import Buffer


def refuse_zstd(records: Buffer) -> None:
    """Raises KafkaError(UNSUPPORTED_COMPRESSION_TYPE) where the first batch is compressed with zstd."""
    if len(records) >= HEADER_SIZE and parse_header(records, 0).attributes & 0x07 == Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
