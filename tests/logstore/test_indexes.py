"""Both indexes are Kafka's files byte for byte, find the last entry below a target, and refuse decreasing entries."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.logstore.offset_index import OffsetIndex
from raylog.logstore.time_index import TimeIndex, decode_entry

U32 = st.integers(0, (1 << 32) - 1)


@given(st.lists(st.tuples(U32, U32), max_size=20), U32, st.integers(0, 20))
def test_offset_index(pairs: list[tuple[int, int]], target: int, first: int) -> None:
    index, kept = OffsetIndex(), list[tuple[int, int]]()
    for offset, position in pairs:
        index.add(offset, position)
        if not kept or (offset > kept[-1][0] and position > kept[-1][1]):
            kept.append((offset, position))
    first = min(first, len(kept))
    assert index.encode_from(first) == b"".join(struct.pack(">II", *pair) for pair in kept[first:])
    again = OffsetIndex.decode(index.encode_from(0), log_size=1 << 33)
    for one in (index, again):
        assert one.entry_before(target) == max([pair for pair in kept if pair[0] <= target], default=(0, 0))
        assert one.position_floor(target) == max([pair[1] for pair in kept if pair[1] <= target], default=0)


@given(st.lists(st.tuples(st.integers(0, 1 << 62), U32), max_size=20), st.integers(0, 1 << 62))
def test_time_index(pairs: list[tuple[int, int]], target: int) -> None:
    offsets = sorted(offset for _, offset in pairs)
    pairs = list(zip(sorted(timestamp for timestamp, _ in pairs), offsets, strict=True))
    index, kept = TimeIndex(), list[tuple[int, int]]()
    for timestamp, offset in pairs:
        index.add(timestamp, offset)
        if not kept or timestamp > kept[-1][0]:
            kept.append((timestamp, offset))
    data = index.encode_from(0)
    assert data == b"".join(struct.pack(">qI", *pair) for pair in kept)
    for one in (index, TimeIndex.decode(data)):
        assert one.last == (kept[-1] if kept else None)
        below = [offset for timestamp, offset in kept if timestamp < target]
        assert one.offset_before(target) == (below[-1] if below else 0)
        upto = [pair for pair in kept if pair[1] <= target]
        assert one.largest_upto(target) == (upto[-1] if upto else (-1, 0))
    if kept:
        assert decode_entry(data[-12:]) == kept[-1]


def test_unordered_and_truncated_indexes_are_refused() -> None:
    for bad in (b"\0" * 7, bytes(16), struct.pack(">IIII", 1, 5, 2, 5), struct.pack(">II", 1, 100)):
        with pytest.raises(ValueError, match=r"."):
            OffsetIndex.decode(bad, log_size=100)
    for bad in (b"\0" * 13, bytes(24), struct.pack(">qIqI", 1, 5, 2, 4)):
        with pytest.raises(ValueError, match=r"."):
            TimeIndex.decode(bad)
