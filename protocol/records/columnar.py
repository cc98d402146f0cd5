"""Decodes record sets to columns without creating a Python object per record.

    for columns in decode_columns(record_set, ("value", "offset"), from_offset=position):
        columns.offset                                # numpy int64, one number for each record
        columns.value.start, columns.value.length     # where its bytes lie in `columns.data`; length -1: null

Whichever columns are requested, it rejects the same batches as `reader`, and values that 64 bits cannot hold. The loops
are in `columnar_numba`, compiled on first use if numba (the extra `fast`) is installed, otherwise in `columnar_numpy`
with the same results. Compiled loops have no bounds checks, so every length is checked against the available bytes
before it is used, and no value that determines memory accesses is read twice. Needs numpy (the extra `arrow`) and a
little-endian machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records import columnar_numpy
from raylog.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    OFFSET_END,
    RECORD_BYTES_MIN,
    BatchHeader,
    MalformedBatch,
    OnMalformed,
    parse_header,
    verify_crc,
)
from raylog.protocol.records.compression import Buffer, decompress
from raylog.protocol.records.isolation import Aborted, AbortedBatches
from raylog.protocol.records.reader import DECOMPRESSED_BYTES_MAX

RECORD_COLUMNS = ("key", "value", "offset", "timestamp", "timestampType", "headers")

TARGET_BYTES = 4 << 20
"""The approximate size of the records in one `Columns`: large enough to amortize calls, and small enough to stay in the
cache from one pass to the next."""

_INT32_MAX = (1 << 31) - 1

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Slices:
    """Byte strings in `Columns.data`: each begins at `start` and has `length` bytes; a length of -1 is null."""

    start: Ints
    length: Ints


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of row r are those from `first[r]` to `first[r + 1]` (exclusive), in order. Names are never null."""

    first: Ints
    name: Slices
    value: Slices


@dataclass(frozen=True, slots=True)
class Columns:
    """Some of the records of a record set, by column; a column that was not requested is None.

    `data` is a view of the given buffer, and keeps it alive, if all batches are uncompressed; otherwise it is a new
    buffer with the records of all of them. At most 2 GiB.
    """

    row_count: int
    data: Bytes
    kernel: Kernel
    offset: Longs | None
    timestamp_ms: Longs | None
    """-1 for none."""
    timestamp_type: Ints | None
    """0: CreateTime; 1: LogAppendTime."""
    key: Slices | None
    value: Slices | None
    headers: Headers | None


class Kernel(Protocol):
    """The loops over records, in one of two implementations. They write into arrays that the caller allocates.

    An empty array stands for a column that was not requested.
    """

    def scan(
        self,
        data: Bytes,
        batches: Longs,
        from_offset: int,
        end_offset: int,
        offset: Longs,
        timestamp_ms: Longs,
        timestamp_type: Ints,
        key_start: Ints,
        key_length: Ints,
        value_start: Ints,
        value_length: Ints,
        headers_start: Ints,
        header_count: Ints,
        /,
    ) -> int:
        """The number of records with offsets in [from_offset, end_offset); -1 if a batch is malformed.

        A row of `batches` is: start and end of the records in `data`, base offset, last offset delta, base timestamp,
        max timestamp, timestamp type, record count. All records are checked; those in the bounds are written.
        """

    def fill_headers(
        self,
        data: Bytes,
        headers_start: Ints,
        first: Ints,
        name_start: Ints,
        name_length: Ints,
        value_start: Ints,
        value_length: Ints,
        /,
    ) -> int:
        """The number of headers, which is `first[-1]`; -1 if one is malformed."""

    def fill_views(self, data: Bytes, start: Ints, length: Ints, views: NDArray[np.uint64], /) -> None:
        """Arrow's view (two words) of each slice, where `data` is the first data buffer; zeros for null."""


@cache
def default_kernel() -> Kernel:
    """The compiled loops if numba is installed and works, else those of numpy; determined once per process.

    The first call imports numba and compiles, or loads the cache of an earlier process: a second or two.
    """
    try:
        from raylog.protocol.records.columnar_numba import compiled_kernel

        return compiled_kernel()
    except (ImportError, OSError):  # not installed, or for another numpy, or without its library
        return columnar_numpy


def decode_columns(
    buffer: Buffer,
    columns: Collection[str],
    *,
    from_offset: int = 0,
    end_offset: int = OFFSET_END,
    check_crcs: bool = True,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    target_bytes: int = TARGET_BYTES,
    kernel: Kernel | None = None,
    on_malformed: OnMalformed | None = None,
    aborted: Sequence[Aborted] = (),
) -> Iterator[Columns]:
    """The records with offsets in [from_offset, end_offset), with the requested columns of RECORD_COLUMNS.

    `buffer` holds whole batches; a truncated last one is dropped. Each `Columns` has at least one row and holds whole
    batches: as many as fit `target_bytes`, but at least one. Control batches, those of `aborted` transactions (see
    `AbortedBatches`) and those outside the bounds are not decoded, and their checksum is not verified.

    Raises CORRUPT_MESSAGE for a batch that fails its checksum (unless `check_crcs` is False), and for formats before v2
    UNSUPPORTED_FOR_MESSAGE_FORMAT. Raises MalformedBatch for a batch that is malformed, holds more than `max_bytes`
    decompressed, or has an offset or timestamp that 64 bits cannot hold; with `on_malformed` it is skipped. Columns
    yielded before remain valid. Raises ValueError for an unknown column name.
    """
    unknown = set(columns) - set(RECORD_COLUMNS)
    if unknown:
        raise ValueError(f"unknown columns {sorted(unknown)}: must be among {', '.join(RECORD_COLUMNS)}")
    if max(max_bytes, target_bytes) > _INT32_MAX:
        raise ValueError(f"max_bytes={max_bytes}, target_bytes={target_bytes}: must be below 2 GiB")
    view = memoryview(buffer)
    wanted = frozenset(columns)
    groups = _groups(
        view,
        from_offset,
        end_offset,
        check_crcs=check_crcs,
        max_bytes=max_bytes,
        target_bytes=target_bytes,
        on_malformed=on_malformed,
        aborted=aborted,
    )
    for group in groups:
        kernel = kernel or default_kernel()
        left: _Group | None = group
        while left is not None:
            group, left = left, None
            try:
                decoded = _decode(group, wanted, from_offset, end_offset, kernel)
            except _MalformedRow as error:
                if on_malformed is None:
                    raise error.malformed from None
                on_malformed(error.malformed)
                sound, left = group.without(error.row)
                decoded = _decode(sound, wanted, from_offset, end_offset, kernel)
            if decoded.row_count:
                yield decoded


class _Group(NamedTuple):
    """Batches that one call decodes: the position of their records, and the row of `Kernel.scan` for each."""

    data: Bytes
    batches: Longs

    def without(self, row: int) -> tuple[_Group, _Group | None]:
        """The batches before this one, and those behind it if there are any."""
        behind = self.batches[row + 1 :]
        return self._replace(batches=self.batches[:row]), self._replace(batches=behind) if len(behind) else None


class _MalformedRow(Exception):
    """A batch of a group is malformed."""

    def __init__(self, row: int, malformed: MalformedBatch) -> None:
        super().__init__(row, malformed)
        self.row = row
        self.malformed = malformed


def _groups(
    view: memoryview,
    from_offset: int,
    end_offset: int,
    *,
    check_crcs: bool,
    max_bytes: int,
    target_bytes: int,
    on_malformed: OnMalformed | None,
    aborted: Sequence[Aborted],
) -> Iterator[_Group]:
    """The batches to decode; adjacent ones are grouped while their content and their span in `view` are small enough.

    A producer may send many small batches, so the work per batch must be small.
    """
    rows: list[tuple[int, ...]] = []
    decompressed: dict[int, bytes] = {}  # by the batch's place in `rows`
    size_bytes = 0
    aborted_batches = AbortedBatches(aborted) if aborted else None
    position, view_end = 0, len(view)
    while view_end - position >= HEADER_SIZE:
        header = parse_header(view, position)
        base_offset, batch_length, _, _, _, attributes, last_offset_delta = header[:7]
        end = position + LOG_OVERHEAD + batch_length
        if end > view_end:
            break
        next_offset = base_offset + last_offset_delta + 1
        is_aborted = aborted_batches is not None and aborted_batches.include(header)
        if not (attributes & CONTROL_BIT or is_aborted) and next_offset > from_offset and base_offset < end_offset:
            if check_crcs:
                verify_crc(view, position, header)
            start, payload = position + HEADER_SIZE, None
            size = end - start
            try:
                if next_offset > OFFSET_END:
                    raise MalformedBatch(base_offset, next_offset, "its offsets exceed 64 bits")
                if attributes & CODEC_MASK:
                    payload = _decompressed(header, view[start:end], max_bytes)
                    size = len(payload)
                if header.record_count * RECORD_BYTES_MIN > size:
                    what = f"{size} bytes cannot hold {header.record_count} records"
                    raise MalformedBatch(base_offset, next_offset, what)
            except MalformedBatch as error:
                if on_malformed is None:
                    raise
                on_malformed(error)
                position = end
                continue
            if rows and (size_bytes + size > target_bytes or end - rows[0][0] > target_bytes):
                yield _lay_out(view, rows, decompressed)
                rows, decompressed, size_bytes = [], {}, 0
            if payload is not None:
                decompressed[len(rows)] = payload
            timestamps = header.base_timestamp, header.max_timestamp, 1 if attributes & LOG_APPEND_TIME_BIT else 0
            rows.append((start, end, base_offset, last_offset_delta, *timestamps, header.record_count))
            size_bytes += size
        position = end
    if rows:
        yield _lay_out(view, rows, decompressed)


def _decompressed(header: BatchHeader, payload: memoryview, max_bytes: int) -> bytes:
    try:
        return decompress(header.codec, payload, max_bytes=max_bytes)
    except KafkaError as error:
        raise MalformedBatch(header.base_offset, header.next_offset, error.message) from None


def _lay_out(view: memoryview, rows: Sequence[tuple[int, ...]], decompressed: Mapping[int, bytes]) -> _Group:
    """The rows give the positions of batches in `view`; if any is compressed, all are copied into one new buffer.

    The copy costs a few percent of the decompression; calls and Arrow buffers for every small batch would cost more.
    """
    batches = np.array(rows, np.int64)
    if decompressed:
        parts = [decompressed.get(place, view[row[0] : row[1]]) for place, row in enumerate(rows)]
        data = np.frombuffer(b"".join(parts), np.uint8)
        batches[:, 1] = np.cumsum([len(part) for part in parts])
        batches[:, 0] = np.concatenate(([0], batches[:-1, 1]))
    else:
        first, end = rows[0][0], rows[-1][1]
        data = np.frombuffer(view[first:end], np.uint8)
        data.flags.writeable = False
        batches[:, :2] -= first
    return _Group(data, batches)


def _decode(group: _Group, wanted: Collection[str], from_offset: int, end_offset: int, kernel: Kernel) -> Columns:
    data, batches = group
    count = int(batches[:, -1].sum())

    def longs(column: str) -> Longs:
        return np.empty(count if column in wanted else 0, np.int64)

    def ints(column: str) -> Ints:
        return np.empty(count if column in wanted else 0, np.int32)

    offset, timestamp_ms, timestamp_type = longs("offset"), longs("timestamp"), ints("timestampType")
    key, value = Slices(ints("key"), ints("key")), Slices(ints("value"), ints("value"))
    headers_start, header_count = ints("headers"), ints("headers")
    outputs = (
        *(offset, timestamp_ms, timestamp_type, key.start, key.length, value.start, value.length),
        *(headers_start, header_count),
    )
    rows = kernel.scan(data, batches, from_offset, end_offset, *outputs)
    if rows < 0:
        for row, batch in enumerate(batches):
            if kernel.scan(data, batch.reshape(1, -1), from_offset, end_offset, *outputs) < 0:
                what = "a length, an offset or a timestamp in its records is not valid"
                raise _MalformedRow(row, MalformedBatch(int(batch[2]), int(batch[2] + batch[3]) + 1, what))
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a batch changed while it was read")
    return Columns(
        row_count=rows,
        data=data,
        kernel=kernel,
        offset=offset[:rows] if "offset" in wanted else None,
        timestamp_ms=timestamp_ms[:rows] if "timestamp" in wanted else None,
        timestamp_type=timestamp_type[:rows] if "timestampType" in wanted else None,
        key=Slices(key.start[:rows], key.length[:rows]) if "key" in wanted else None,
        value=Slices(value.start[:rows], value.length[:rows]) if "value" in wanted else None,
        headers=_headers(data, headers_start[:rows], header_count[:rows], kernel) if "headers" in wanted else None,
    )


def _headers(data: Bytes, headers_start: Ints, header_count: Ints, kernel: Kernel) -> Headers:
    first = np.zeros(len(header_count) + 1, np.int32)
    np.cumsum(header_count, out=first[1:])
    total = int(first[-1])
    name, value = (Slices(np.empty(total, np.int32), np.empty(total, np.int32)) for _ in range(2))
    if kernel.fill_headers(data, headers_start, first, name.start, name.length, value.start, value.length) != total:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the headers of a batch changed while they were read")
    return Headers(first, name, value)
