"""A table of the latest values agrees with a dictionary, and its memory is bounded by the keys that have a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records import key_table, key_table_loops
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.columnar import Columns, decode_columns
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.key_table import (
    RECORD_COLUMNS,
    TABLE_COLUMNS,
    CompiledTable,
    KeyTable,
    PlainTable,
    new_key_table,
)
from raylog.protocol.records.key_table_loops import HASH, KEY_LENGTH, START, compiled_loops
from tests.support.forms import by_form

TABLES: dict[str, Callable[[], KeyTable]] = {
    "compiled": lambda: CompiledTable(compiled_loops(), 77),
    "plain": PlainTable,
}
every_table = pytest.mark.parametrize("new_table", TABLES.values(), ids=TABLES)


class Row(NamedTuple):
    value: bytes
    partition: int
    offset: int
    timestamp_ms: int


def columns(records: list[NewRecord], base_offset: int = 0, codec: Codec = Codec.NONE) -> Columns:
    batch = build_batch(records, base_offset=base_offset, codec=codec)
    (decoded,) = decode_columns(bytes(batch), RECORD_COLUMNS)
    return decoded


def rows(table: KeyTable) -> dict[bytes, Row]:
    found = table.to_arrow(TABLE_COLUMNS)
    assert found.column_names == list(TABLE_COLUMNS)
    listed = {
        row["key"]: Row(
            row["value"],
            row["partition"],
            row["offset"],
            -1 if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000),
        )
        for row in found.to_pylist()
    }
    assert len(listed) == found.num_rows == len(table)
    assert sorted(table.keys()) == sorted(listed)
    return listed


keys = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"\0", b"\0\0", b"k" * 100]), st.binary(max_size=2))
records = st.builds(
    NewRecord,
    keys,
    st.one_of(st.none(), st.binary(max_size=20)),
    st.sampled_from([-1, 0, 1_700_000_000_000]),
    st.just(()),
)
updates = st.lists(
    st.tuples(st.lists(records, min_size=1, max_size=12), st.integers(0, 2), st.sampled_from([Codec.NONE, Codec.LZ4])),
    max_size=6,
)


@every_table
@settings(max_examples=by_form(60, quick=20, long=2000), deadline=None)
@given(changes=updates)
def test_the_table_is_that_of_a_dictionary(
    new_table: Callable[[], KeyTable], changes: list[tuple[list[NewRecord], int, Codec]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_table, "GARBAGE_BYTES_MIN", 50)
        patch.setattr(key_table, "DEAD_SLOTS_MIN", 3)
        patch.setattr(key_table, "BATCH_BYTES_MAX", 40)
        table = new_table()
        model: dict[bytes, Row] = {}
        seen: set[bytes] = {b"never"}
        without_key = offset = 0
        for batch, partition, codec in changes:
            table.update(columns(batch, offset, codec), partition)
            for record in batch:
                if record.key is None:
                    without_key += 1
                elif record.value is None:
                    model.pop(record.key, None)
                else:
                    model[record.key] = Row(record.value, partition, offset, record.timestamp_ms)
                seen.add(record.key or b"")
                offset += 1
            assert len(table) == len(model)
        assert rows(table) == model
        assert table.without_key == without_key
        for key in seen:
            assert table.get(key) == (model[key].value if key in model else None)


@pytest.mark.parametrize("value", [b"", b"v" * 1000])
@every_table
def test_memory_is_bounded_by_the_keys_that_have_a_value(
    new_table: Callable[[], KeyTable], monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    monkeypatch.setattr(key_table, "GARBAGE_BYTES_MIN", 100_000)
    monkeypatch.setattr(key_table, "DEAD_SLOTS_MIN", 200)
    table = new_table()
    same = columns([NewRecord(b"%d" % key, value, 0) for key in range(50)])
    for number in range(100):  # keys that come and go
        table.update(same, 0)
        new = [b"%d-%d" % (number, key) for key in range(100)]
        table.update(columns([NewRecord(key, value, 0) for key in new]), 0)
        table.update(columns([NewRecord(key, None, 0) for key in new]), 0)
        assert table.size_bytes < 500 * (len(value) + 200)
    assert len(table) == 50


def test_keys_with_the_same_hash_are_different_keys() -> None:
    arena = np.frombuffer(b"ab", np.uint8)
    slots = np.zeros((2, key_table_loops.SLOT_COLUMNS), np.int64)
    slots[:, HASH], slots[:, START], slots[:, KEY_LENGTH] = 5, (0, 1), 1
    buckets = np.array([0, 1, 2, 0], np.int64)  # of hash 5 and of the next ones
    for key, bucket in ((b"a", 1), (b"b", 2), (b"c", 3), (b"ab", 3)):
        data = np.frombuffer(key, np.uint8)
        assert key_table_loops._bucket_of(5, data, buckets, slots, arena) == bucket


@every_table
def test_a_timestamp_that_arrow_cannot_hold(new_table: Callable[[], KeyTable]) -> None:
    table = new_table()
    table.update(columns([NewRecord(b"k", b"v", 1 << 60)]), 0)
    with pytest.raises(KafkaError) as refused:
        table.to_arrow(TABLE_COLUMNS)
    assert refused.value.code == ErrorCode.INVALID_TIMESTAMP
    assert table.to_arrow(["key"]).to_pylist() == [{"key": b"k"}]


def test_without_numba_a_table_is_a_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(new_key_table(1), CompiledTable)

    def missing() -> None:
        raise ImportError("numba")

    monkeypatch.setattr(key_table, "compiled_loops", missing)
    assert isinstance(new_key_table(1), PlainTable)


def test_columns_are_not_changed() -> None:
    table = CompiledTable(compiled_loops(), 1)
    found = columns([NewRecord(b"k", b"v", 0)])
    before = found.data.copy()
    table.update(found, 0)
    assert np.array_equal(found.data, before)
