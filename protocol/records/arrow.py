"""Record sets as Arrow record batches, under the names and types of Spark's own Kafka source.

    key, value      binary (or binary_view), null where the record has none
    topic           string
    partition       int32
    offset          int64
    timestamp       timestamp in UTC, to the microsecond; null where the record has none
    timestampType   int32: 0 CreateTime, 1 LogAppendTime
    headers         list of (key string, value binary); null where the record has none, as in Spark

    for batch in read_arrow(record_set, topic="flights", partition=3, columns=("value", "offset"), views=True):
        ...                                           # a pyarrow.RecordBatch of some 4 MiB of records

Only requested columns are built. With `views`, keys and values are `binary_view`: values longer than 12 bytes stay in
the given buffer, which the arrays keep alive and which must not change while they live. In a record set with compressed
batches they are in one buffer that holds the decompressed records. Without `views`, they are copied once into plain
`binary`, for consumers without support for views: Spark 3.5, pandas, Ray Data; nothing then refers to the given buffer.
Needs pyarrow and numpy (the extra `arrow`); numba (the extra `fast`) makes it several times as fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import NO_TIMESTAMP_MS
from raylog.protocol.records.batch import OFFSET_END, OnMalformed
from raylog.protocol.records.columnar import (
    RECORD_COLUMNS,
    TARGET_BYTES,
    Columns,
    Headers,
    Kernel,
    Longs,
    Slices,
    decode_columns,
)
from raylog.protocol.records.compression import Buffer
from raylog.protocol.records.isolation import Aborted
from raylog.protocol.records.reader import DECOMPRESSED_BYTES_MAX

Column = TypeVar("Column")

_US_PER_MS = 1000
_MS_MAX = ((1 << 63) - 1) // _US_PER_MS
_UNFIT = f"a timestamp more than {_MS_MAX} ms from 1970, which microseconds cannot represent"

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

COLUMNS: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(_HEADER),
}
"""Every column and its type without views."""


class UnfitTimestamp(KafkaError):
    """INVALID_TIMESTAMP for the first record, at `offset`, whose timestamp microseconds cannot represent."""

    def __init__(self, offset: int) -> None:
        super().__init__(ErrorCode.INVALID_TIMESTAMP, f"offset {offset} has {_UNFIT}")
        self.offset = offset

    def __reduce__(self) -> tuple[type[UnfitTimestamp], tuple[int]]:
        return UnfitTimestamp, (self.offset,)


def choose_columns(asked: Sequence[str] | None) -> tuple[str, ...]:
    """The columns in the requested order; all of them for None.

    Raises ConfigError for an unknown name, a duplicate, and an empty list.
    """
    if asked is None:
        return tuple(COLUMNS)
    names: tuple[Any, ...]
    try:
        names = () if isinstance(asked, str) else tuple(asked)
    except TypeError:
        names = ()
    if not names:
        raise ConfigError(f"columns={repr(asked)[:100]}: must be a list of at least one of {', '.join(COLUMNS)}")
    for name in names:
        if not isinstance(name, str) or name not in COLUMNS:
            raise ConfigError(f"columns: {repr(name)[:100]} must be one of {', '.join(COLUMNS)}")
    if len(set(names)) < len(names):
        raise ConfigError(f"columns={list(names)!r}: must not contain a column twice")
    return names


def arrow_schema(columns: Sequence[str], *, views: bool = False) -> pa.Schema:
    """The given columns; with `views`, key and value are `binary_view`."""
    return pa.schema([pa.field(name, _arrow_type(name, views=views)) for name in columns])


def read_arrow(
    buffer: Buffer,
    *,
    topic: str,
    partition: int,
    columns: Sequence[str],
    views: bool = False,
    from_offset: int = 0,
    end_offset: int = OFFSET_END,
    check_crcs: bool = True,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    target_bytes: int = TARGET_BYTES,
    kernel: Kernel | None = None,
    on_malformed: OnMalformed | None = None,
    aborted: Sequence[Aborted] = (),
) -> Iterator[pa.RecordBatch]:
    """The records of a record set with offsets in [from_offset, end_offset), one row each, in order.

    `columns` are names of COLUMNS; `buffer`, the other options and the errors are those of `decode_columns`. No batch
    is empty, and each is built on demand. Raises UnfitTimestamp, if timestamps are requested, for
    one that microseconds cannot represent.
    """
    decoded = {name for name in columns if name in RECORD_COLUMNS}
    if "timestamp" in decoded:
        decoded.add("offset")  # for the error
    for each in decode_columns(
        buffer,
        decoded,
        from_offset=from_offset,
        end_offset=end_offset,
        check_crcs=check_crcs,
        max_bytes=max_bytes,
        target_bytes=target_bytes,
        kernel=kernel,
        on_malformed=on_malformed,
        aborted=aborted,
    ):
        yield to_arrow(each, topic=topic, partition=partition, columns=columns, views=views)


def to_arrow(
    decoded: Columns, *, topic: str, partition: int, columns: Sequence[str], views: bool = False
) -> pa.RecordBatch:
    """The rows of `decoded` with these columns, which it must contain. Raises INVALID_TIMESTAMP as `timestamps`."""
    arrays = [_array(name, decoded, topic, partition, views=views) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns, views=views))


def _arrow_type(name: str, *, views: bool) -> pa.DataType:
    return pa.binary_view() if views and name in ("key", "value") else COLUMNS[name]


def _array(name: str, decoded: Columns, topic: str, partition: int, *, views: bool) -> pa.Array:
    match name:
        case "topic":
            return pa.repeat(topic, decoded.row_count)
        case "partition":
            return pa.array(np.full(decoded.row_count, partition, np.int32))
        case "offset":
            return pa.array(_made(decoded.offset))
        case "timestamp":
            return timestamps(_made(decoded.timestamp_ms), decoded.offset)
        case "timestampType":
            return pa.array(_made(decoded.timestamp_type))
        case "headers":
            return _headers(decoded, _made(decoded.headers))
        case _:
            array = _views(decoded, _made(decoded.key if name == "key" else decoded.value))
            return array if views else array.cast(pa.binary())


def _made(column: Column | None) -> Column:
    if column is None:
        raise ValueError("a requested column was not decoded")
    return column


def _views(decoded: Columns, slices: Slices) -> pa.Array:
    rows = len(slices.length)
    views = np.empty((rows, 2), np.uint64)
    decoded.kernel.fill_views(decoded.data, slices.start, slices.length, views)
    buffers = [_validity(slices.length >= 0), pa.py_buffer(views), pa.py_buffer(decoded.data)]
    return pa.Array.from_buffers(pa.binary_view(), rows, buffers)


def timestamps(timestamp_ms: Longs, offset: Longs | None = None) -> pa.Array:
    """The column `timestamp`; `offset` are those of the rows, if they are known.

    Raises INVALID_TIMESTAMP for one that microseconds cannot represent: UnfitTimestamp if `offset` is given.
    """
    if timestamp_ms.max(initial=0) > _MS_MAX or timestamp_ms.min(initial=0) < -_MS_MAX:
        if offset is None:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"a record has {_UNFIT}")
        raise UnfitTimestamp(int(offset[np.argmax((timestamp_ms > _MS_MAX) | (timestamp_ms < -_MS_MAX))]))
    buffers = [_validity(timestamp_ms != NO_TIMESTAMP_MS), pa.py_buffer(timestamp_ms * _US_PER_MS)]
    return pa.Array.from_buffers(COLUMNS["timestamp"], len(timestamp_ms), buffers)


def _headers(decoded: Columns, headers: Headers) -> pa.Array:
    names, values = _strings(_views(decoded, headers.name)), _views(decoded, headers.value).cast(pa.binary())
    structs = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
    buffers = [_validity(np.diff(headers.first) > 0), pa.py_buffer(headers.first)]
    return pa.Array.from_buffers(COLUMNS["headers"], len(headers.first) - 1, buffers, children=[structs])


def _strings(names: pa.Array) -> pa.Array:
    """The names as text. Bytes that are not UTF-8 become U+FFFD, as in `reader`."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())


def _validity(valid: NDArray[np.bool_]) -> pa.Buffer | None:
    """Arrow's bitmap of the rows that are not null; None if no row is null."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
