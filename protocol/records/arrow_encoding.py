"""The columns of an Arrow table as buffers for `record_encoding`, without a Python object for each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow.compute import CastOptions

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records.builder import encode_headers
from raylog.protocol.records.compression import Buffer
from raylog.protocol.records.record_encoding import Column, partitions_of

COLUMNS = ("key", "value", "partition", "timestamp", "headers")
_NO_PARTITION = -(1 << 63)
"""In a column of partitions: null."""
_WRONG_HEADERS = "the column headers must contain lists of a string and binary"


class Rows(NamedTuple):
    """A part of a table whose columns are each in one piece."""

    row_count: int
    keys: Column | None
    values: Column | None
    headers: Column | None
    """Encoded headers."""
    timestamps: Buffer | None
    """Milliseconds, int64."""
    partitions: Buffer | None
    """int64, _NO_PARTITION for null."""


def rows_of(table: pa.Table | pa.RecordBatch) -> Iterator[Rows]:
    """Raises KafkaError(INVALID_RECORD) for columns of other names and types than those of `send_arrow`."""
    unknown = set(table.schema.names) - set(COLUMNS)
    if unknown or len(set(table.schema.names)) < len(table.schema.names):
        found = ", ".join(table.schema.names)
        raise _refused(f"the columns must be some of {', '.join(COLUMNS)}, each once, not {found}")
    batches = table.to_batches() if isinstance(table, pa.Table) else [table]
    for batch in batches:
        if batch.num_rows:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            yield Rows(
                batch.num_rows,
                _bytes(columns, "key"),
                _bytes(columns, "value"),
                _headers(columns.get("headers")),
                _numbers(columns, "timestamp"),
                _numbers(columns, "partition", null=_NO_PARTITION),
            )


def by_topic(table: pa.Table | pa.RecordBatch) -> list[tuple[str, pa.Table]]:
    """The rows of each topic that the column `topic` names, in the order of the table, without that column.

    Raises KafkaError(INVALID_RECORD) if the column is missing, not of strings, or has nulls.
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if table.schema.names.count("topic") != 1:
        raise _refused("a column topic is required where no topic is given")
    topics = _without_views(table.column("topic"))
    if not (pa.types.is_string(topics.type) or pa.types.is_large_string(topics.type)):
        raise _refused(f"the column topic must be string, not {topics.type}")
    if topics.null_count:
        raise _refused("the column topic must not contain nulls")
    rest = table.drop_columns(["topic"])
    rest = pa.table([_without_views(column) for column in rest.columns], rest.schema.names) if rest.columns else rest
    encoded = topics.combine_chunks().dictionary_encode()
    names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    if len(names) < 2:
        return [(name, rest) for name in names]
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    ordered = rest.take(pa.array(order))
    return [
        (name, ordered.slice(start, end - start))
        for name, start, end in zip(names, [0, *ends[:-1].tolist()], ends.tolist(), strict=True)
    ]


def column_of(array: pa.Array) -> Column | None:
    """The buffers of an array of binary, string, their large forms, or fixed-size binary; None if all rows are null."""
    kind = array.type
    if array.null_count == len(array):
        return None
    if pa.types.is_fixed_size_binary(kind):
        validity, data = array.buffers()
        return Column(validity if array.null_count else None, None, data, array.offset, -kind.byte_width)
    width = 8 if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) else 4
    validity, offsets, data = array.buffers()
    return Column(validity if array.null_count else None, offsets, data or b"", array.offset, width)


def int64_of(array: pa.Array) -> Buffer:
    """The numbers of an array of int64 without nulls."""
    return np.ascontiguousarray(array.to_numpy(zero_copy_only=False), np.int64).data


def by_partition(
    rows: Rows, partition_count: int, choose: Callable[[], int]
) -> list[tuple[int | None, int, Buffer | None]]:
    """For each partition how many rows go there, and their numbers in the order of the table.

    The partition is that of the column, else that of the key's hash; all rows with null as key go to the one of
    `choose`. Without both columns it is None, and so are the numbers: any row can go anywhere. Raises KafkaError for a
    partition that does not exist.
    """
    if rows.partitions is not None:
        chosen = np.frombuffer(rows.partitions, np.int64)
        unset = chosen == _NO_PARTITION
        if unset.any():
            chosen = np.where(unset, _hashed(rows, partition_count, choose), chosen)
        lowest, highest = int(chosen.min()), int(chosen.max())
        if lowest < 0 or highest >= partition_count:
            wrong = lowest if lowest < 0 else highest
            text = f"the topic has partitions 0 to {partition_count - 1}, not {wrong}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    elif rows.keys is None:
        return [(None, rows.row_count, None)]
    else:
        chosen = _hashed(rows, partition_count, choose)
    order = np.argsort(chosen, kind="stable").astype(np.int64)
    ordered = chosen[order]
    starts = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), rows.row_count]
    found: list[tuple[int | None, int, Buffer | None]] = []
    for start, end in pairwise(starts):
        found.append((int(ordered[start]), end - start, order[start:end].data))
    return found


def _hashed(rows: Rows, partition_count: int, choose: Callable[[], int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The partition of each row by its key."""
    chosen = np.full(rows.row_count, -1, np.int64)
    if rows.keys is not None:
        partitions_of(rows.keys, rows.row_count, partition_count, chosen.data)
    if (chosen < 0).any():
        chosen[chosen < 0] = choose()
    return chosen


def _bytes(columns: dict[str, pa.Array], name: str) -> Column | None:
    array = columns.get(name)
    if array is None or pa.types.is_null(array.type):
        return None
    array = _without_views(array)
    kind = array.type
    if not (
        pa.types.is_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
        or (pa.types.is_fixed_size_binary(kind) and kind.byte_width > 0)
    ):
        raise _refused(f"the column {name} must be binary or string, not {kind}")
    return column_of(array)


def _without_views(array: Any) -> Any:
    """An array of string views or binary views with its bytes in one buffer; others as they are."""
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if pa.types.is_binary_view(array.type) else array


def _numbers(columns: dict[str, pa.Array], name: str, *, null: int | None = None) -> Buffer | None:
    """`null` stands for a null, which is refused without it."""
    array = columns.get(name)
    if array is None:
        return None
    if null is not None and array.null_count == len(array):
        return None
    if array.null_count and null is None:
        raise _refused(f"the column {name} must not contain nulls")
    try:
        if pa.types.is_timestamp(array.type):
            array = array.cast(options=CastOptions(pa.timestamp("ms"), allow_time_truncate=True)).cast(pa.int64())
        if not pa.types.is_integer(array.type):
            raise _refused(f"the column {name} must contain integers, not {array.type}")
        array = array.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise _refused(f"the column {name} has numbers that exceed 64 bits: {error}") from None
    return int64_of(array.fill_null(null) if array.null_count else array)


def _headers(array: pa.Array | None) -> Column | None:
    """A list of (name, value) for each row: maps, or lists of structures with two fields. One Python object each."""
    if array is None:
        return None
    try:
        rows = array.to_pylist()
    except ValueError as error:
        raise _refused(f"the column headers cannot be read: {error}") from None
    encoded = [None if row is None or row == [] else encode_headers(_pairs(row)) for row in rows]
    return column_of(pa.array(encoded, pa.binary()))


def _pairs(row: object) -> list[tuple[str, bytes | None]]:
    if not isinstance(row, list):
        raise _refused(_WRONG_HEADERS)
    pairs = []
    for item in row:
        match tuple(item.values()) if isinstance(item, dict) else item:
            case (str(name), bytes() | str() | None as value):
                pairs.append((name, value.encode() if isinstance(value, str) else value))
            case _:
                raise _refused(_WRONG_HEADERS)
    return pairs


def _refused(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, text)
