"""The columns of a sink: those of Spark's Kafka sink, with its checks and messages. Pure.

Source: Spark's "Structured Streaming + Kafka Integration Guide", writing data to Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgpack
import pyarrow as pa

from raylog.core.errors import ConfigError, ErrorCode, KafkaError

TOPIC: Final = "topic"
_TEXT: Final = ("string", "binary")
SPARK_TYPES: Final[Mapping[str, Sequence[str]]] = {
    "key": _TEXT,
    "value": _TEXT,
    TOPIC: ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""Each column, and its types as Spark writes them."""
TABLE_BYTES: Final = 4 << 20
"""Rows are collected to tables of this size, so that each partition gets large batches."""
_DIGEST_BYTES: Final = 16


def sink_columns(types: Sequence[tuple[str, str]], topic: str | None) -> list[str]:
    """Those of the columns, given with their types, that are written; others are ignored, as Spark does.

    Raises ConfigError, in Spark's words.
    """
    found = dict(types)
    if topic is None and TOPIC not in found:
        raise ConfigError(
            f"topic option required when no '{TOPIC}' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in found:
        raise ConfigError("Required attribute 'value' not found.")
    for name, permitted in SPARK_TYPES.items():
        if name in found and found[name] not in permitted:
            wanted = " or ".join(permitted)
            raise ConfigError(f"{name} attribute unsupported type {found[name]}. {name} must be a(n) {wanted}")
        if sum(name == each for each, _ in types) > 1:
            raise ConfigError(f"{name}: there are several columns of this name")
    return [name for name in SPARK_TYPES if name in found and not (name == TOPIC and topic is not None)]


def check_topics(batch: pa.RecordBatch) -> None:
    """Raises KafkaError for a row without a topic, where topics come from the rows."""
    if TOPIC in batch.schema.names and batch.column(TOPIC).null_count:
        text = "null topic present in the data. Use the topic option for setting a topic."
        raise KafkaError(ErrorCode.INVALID_RECORD, text)


def collected(batches: Iterator[pa.RecordBatch], size_bytes: int = TABLE_BYTES) -> Iterator[pa.Table]:
    """The rows in tables of at least this size but the last, each column of which is in one piece."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if held and not batch.schema.equals(held[0].schema):
            yield pa.Table.from_batches(held).combine_chunks()
            held, held_bytes = [], 0
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= size_bytes:
            yield pa.Table.from_batches(held).combine_chunks()
            held, held_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


class RowDigest:
    """The digest of a task's rows, independent of their order: the sum of the hashes of all rows.

    A shuffle delivers the rows of a retried task in another order.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def update(self, batch: pa.RecordBatch) -> None:
        """Raises KafkaError for a type that no record can have."""
        columns = [_values(name, batch.column(name)) for name in sorted(batch.schema.names)]
        names = tuple(sorted(batch.schema.names))
        pack, total = msgpack.Packer(use_bin_type=True).pack, 0
        try:
            for row in zip(*columns, strict=True):
                hashed = blake2b(pack((names, row)), digest_size=_DIGEST_BYTES).digest()
                total += int.from_bytes(hashed)
        except (TypeError, OverflowError) as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"a row cannot become a record: {error}") from None
        self.rows += batch.num_rows
        self._sum = (self._sum + total) % (1 << 8 * _DIGEST_BYTES)

    def hexdigest(self) -> str:
        return f"{self._sum:0{2 * _DIGEST_BYTES}x}"


def _values(name: str, column: pa.Array) -> list[object]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: list[object] = column.to_pylist()
    return values
