"""The latest value of each key, from the columns of decoded records. Pure.

Memory is bounded by the keys that have a value, not by the records that were applied: what was overwritten or deleted
is dropped as soon as it is more than half of the table. With numba (the extra `fast`) keys and values are in one buffer
and no Python object is made for a record; without it they are in a dictionary, with the same results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raylog.protocol.records.arrow import arrow_schema, timestamps
from raylog.protocol.records.columnar import Columns
from raylog.protocol.records.key_table_loops import (
    COUNTS,
    KEY_LENGTH,
    LIVE,
    LIVE_BYTES,
    OFFSET,
    PARTITION,
    SLOT_COLUMNS,
    SLOTS,
    START,
    TIMESTAMP,
    USED_BYTES,
    VALUE_LENGTH,
    WITHOUT_KEY,
    TableLoops,
    compiled_loops,
)

RECORD_COLUMNS: Final = ("key", "value", "offset", "timestamp")
"""The columns that `KeyTable.update` needs."""
TABLE_COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp")
GARBAGE_BYTES_MIN: Final = 16 << 20
DEAD_SLOTS_MIN: Final = 1 << 17
"""Less than this is not worth a new table."""
BATCH_BYTES_MAX: Final = 1 << 30
"""The values of one Arrow batch have 32-bit offsets."""


class KeyTable(Protocol):
    """Keys are never null; a null value deletes a key. Of several partitions, what is applied last counts."""

    @property
    def without_key(self) -> int:
        """The number of records that were left out since they have no key."""

    @property
    def size_bytes(self) -> int:
        """Approximate memory for keys and values."""

    def __len__(self) -> int: ...

    def update(self, records: Columns, partition: int) -> None:
        """Apply records of one partition, with RECORD_COLUMNS."""

    def get(self, key: bytes) -> bytes | None: ...

    def keys(self) -> Iterator[bytes]:
        """The keys that have a value, in no particular order. The table must not be updated meanwhile."""

    def to_arrow(self, columns: Sequence[str]) -> pa.Table:
        """A copy with these of TABLE_COLUMNS, one row for each key. Raises INVALID_TIMESTAMP as `read_arrow` does."""


def new_key_table(seed: int) -> KeyTable:
    """An empty table. `seed` is a random number below 2**63, so that nobody can choose keys with the same hash."""
    try:
        return CompiledTable(compiled_loops(), seed)
    except (ImportError, OSError):  # not installed, or for another numpy, or without its library
        return PlainTable()


class CompiledTable:
    """See `key_table_loops` for its arrays, which grow by doubling."""

    def __init__(self, loops: TableLoops, seed: int) -> None:
        self._loops = loops
        self._seed = seed
        self._counts = np.zeros(COUNTS, np.int64)
        self._buckets = np.zeros(1 << 8, np.int64)
        self._slots = np.zeros((1 << 7, SLOT_COLUMNS), np.int64)
        self._arena = np.empty(1 << 12, np.uint8)

    def __len__(self) -> int:
        return int(self._counts[LIVE])

    @property
    def without_key(self) -> int:
        return int(self._counts[WITHOUT_KEY])

    @property
    def size_bytes(self) -> int:
        return self._buckets.nbytes + self._slots.nbytes + self._arena.nbytes

    def update(self, records: Columns, partition: int) -> None:
        key, value, offset, timestamp_ms = records.key, records.value, records.offset, records.timestamp_ms
        assert key is not None
        assert value is not None
        size_bytes = sum(np.maximum(lengths, 0).sum(dtype=np.int64) for lengths in (key.length, value.length))
        self._make_room(records.row_count, int(size_bytes))
        data = records.data.view()
        data.flags.writeable = False
        self._loops.update(
            *(data, key.start, key.length, value.start, value.length, offset, timestamp_ms, partition, self._seed),
            *(self._buckets, self._slots, self._arena, self._counts),
        )
        used, slots, live, live_bytes, _ = self._counts.tolist()
        if used - live_bytes > max(live_bytes, GARBAGE_BYTES_MIN) or slots - live > max(live, DEAD_SLOTS_MIN):
            self._drop_garbage()

    def get(self, key: bytes) -> bytes | None:
        slot = self._loops.find(np.frombuffer(key, np.uint8), self._seed, self._buckets, self._slots, self._arena)
        if slot < 0 or self._slots[slot, VALUE_LENGTH] < 0:
            return None
        start = int(self._slots[slot, START] + self._slots[slot, KEY_LENGTH])
        return self._arena[start : start + int(self._slots[slot, VALUE_LENGTH])].tobytes()

    def keys(self) -> Iterator[bytes]:
        for slot in self._live():
            start = int(self._slots[slot, START])
            yield self._arena[start : start + int(self._slots[slot, KEY_LENGTH])].tobytes()

    def to_arrow(self, columns: Sequence[str]) -> pa.Table:
        live = self._slots[self._live()]
        ends = np.cumsum(np.maximum(live[:, KEY_LENGTH], live[:, VALUE_LENGTH]))
        batches = []
        first = 0
        while first < len(live):
            before = int(ends[first - 1]) if first else 0
            end = max(first + 1, int(np.searchsorted(ends, before + BATCH_BYTES_MAX, "right")))
            arrays = [self._array(name, live[first:end]) for name in columns]
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns)))
            first = end
        return pa.Table.from_batches(batches, schema=arrow_schema(columns))

    def _array(self, name: str, live: NDArray[np.int64]) -> pa.Array:
        match name:
            case "key":
                return self._binary(live[:, START], live[:, KEY_LENGTH])
            case "value":
                return self._binary(live[:, START] + live[:, KEY_LENGTH], live[:, VALUE_LENGTH])
            case "partition":
                return pa.array(live[:, PARTITION].astype(np.int32))
            case "offset":
                return pa.array(live[:, OFFSET])
            case _:
                return timestamps(live[:, TIMESTAMP])

    def _binary(self, start: NDArray[np.int64], length: NDArray[np.int64]) -> pa.Array:
        start, length = np.ascontiguousarray(start), np.ascontiguousarray(length)
        ends = np.zeros(len(length) + 1, np.int32)
        np.cumsum(length, out=ends[1:])
        data = np.empty(int(ends[-1]), np.uint8)
        self._loops.gather(self._arena, start, length, data)
        return pa.Array.from_buffers(pa.binary(), len(length), [None, pa.py_buffer(ends), pa.py_buffer(data)])

    def _live(self) -> NDArray[np.intp]:
        return np.flatnonzero(self._slots[: int(self._counts[SLOTS]), VALUE_LENGTH] >= 0)

    def _make_room(self, rows: int, size_bytes: int) -> None:
        """For as many new keys, and as many bytes."""
        used, slots = int(self._counts[USED_BYTES]), int(self._counts[SLOTS])
        if used + size_bytes > len(self._arena):
            # In place where the system can; nothing refers to these arrays between two calls.
            self._arena.resize(max(used + size_bytes, 2 * len(self._arena)), refcheck=False)
        if slots + rows > len(self._slots):
            self._slots.resize((max(slots + rows, 2 * len(self._slots)), SLOT_COLUMNS), refcheck=False)
        if 2 * len(self._slots) > len(self._buckets):
            self._new_buckets()

    def _new_buckets(self) -> None:
        self._buckets = np.zeros(1 << (2 * len(self._slots) - 1).bit_length(), np.int64)
        self._loops.fill_buckets(self._buckets, self._slots, int(self._counts[SLOTS]))

    def _drop_garbage(self) -> None:
        live = self._slots[self._live()]
        sizes = live[:, KEY_LENGTH] + live[:, VALUE_LENGTH]
        arena = np.empty(max(int(self._counts[LIVE_BYTES]), 1), np.uint8)
        self._loops.gather(self._arena, np.ascontiguousarray(live[:, START]), sizes, arena)
        live[:, START] = np.cumsum(sizes) - sizes
        self._arena, self._slots = arena, live
        self._counts[USED_BYTES], self._counts[SLOTS] = self._counts[LIVE_BYTES], len(live)
        self._make_room(1, 1)
        self._new_buckets()


class _Latest(NamedTuple):
    value: bytes
    partition: int
    offset: int
    timestamp_ms: int


class PlainTable:
    """A dictionary, where numba is not installed."""

    def __init__(self) -> None:
        self._latest: dict[bytes, _Latest] = {}
        self.without_key = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._latest)

    def update(self, records: Columns, partition: int) -> None:
        assert records.key is not None
        assert records.value is not None
        assert records.offset is not None
        assert records.timestamp_ms is not None
        data = records.data.data
        slices = (records.key.start, records.key.length, records.value.start, records.value.length)
        rows = zip(*(column.tolist() for column in (*slices, records.offset, records.timestamp_ms)), strict=True)
        for key_start, key_length, value_start, value_length, offset, timestamp_ms in rows:
            if key_length < 0:
                self.without_key += 1
                continue
            key = bytes(data[key_start : key_start + key_length])
            before = self._latest.get(key)
            if before is not None:
                self.size_bytes -= key_length + len(before.value)
            if value_length < 0:
                self._latest.pop(key, None)
                continue
            value = bytes(data[value_start : value_start + value_length])
            self._latest[key] = _Latest(value, partition, offset, timestamp_ms)
            self.size_bytes += key_length + value_length

    def get(self, key: bytes) -> bytes | None:
        found = self._latest.get(key)
        return None if found is None else found.value

    def keys(self) -> Iterator[bytes]:
        return iter(self._latest)

    def to_arrow(self, columns: Sequence[str]) -> pa.Table:
        latest = list(self._latest.values())
        arrays = {
            "key": lambda: pa.array(list(self._latest), pa.binary()),
            "value": lambda: pa.array([each.value for each in latest], pa.binary()),
            "partition": lambda: pa.array([each.partition for each in latest], pa.int32()),
            "offset": lambda: pa.array([each.offset for each in latest], pa.int64()),
            "timestamp": lambda: timestamps(np.array([each.timestamp_ms for each in latest], np.int64)),
        }
        return pa.Table.from_arrays([arrays[name]() for name in columns], schema=arrow_schema(columns))
