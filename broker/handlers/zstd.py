"""zstd requires Produce v7 (KIP-110).

As in Kafka 4, Fetch returns it in every version: there are clients that read zstd, but fetch with old versions.
"""

from __future__ import annotations

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records.batch import ATTRIBUTES_AT, CODEC_MASK, HEADER_SIZE, MAGIC, MAGIC_AT
from raylog.protocol.records.compression import Codec
from raylog.protocol.wire import Buffer


def refuse_zstd(records: Buffer) -> None:
    """Raises KafkaError(UNSUPPORTED_COMPRESSION_TYPE) if the first batch is compressed with zstd.

    A malformed header is refused by `check_record_set`, with another code.
    """
    is_known = len(records) >= HEADER_SIZE and records[MAGIC_AT] == MAGIC
    if is_known and records[ATTRIBUTES_AT + 1] & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
