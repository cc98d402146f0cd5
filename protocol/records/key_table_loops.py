"""The loops of `key_table`, compiled by numba; the rules of `columnar_numba` apply.

A table is in arrays of int64. A slot has a key and its latest record, whose key and value are together in the arena. A
bucket has the number of a slot and 1, or 0; a key is in the first free bucket from its hash on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raylog.protocol.records.columnar_numba import compiled

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Long = int | np.int64

HASH, START, KEY_LENGTH, VALUE_LENGTH, PARTITION, OFFSET, TIMESTAMP = range(7)
"""The columns of slots. A value length of -1: the key was deleted."""
SLOT_COLUMNS: Final = 7
USED_BYTES, SLOTS, LIVE, LIVE_BYTES, WITHOUT_KEY = range(5)
"""The numbers that `update` keeps: bytes of the arena that are used, slots that are used, slots with a value, bytes of
their keys and values, records without a key."""
COUNTS: Final = 5

_PRIME: Final = 0x100000001B3


class TableLoops(NamedTuple):
    update: Callable[..., None]
    find: Callable[..., int]
    fill_buckets: Callable[..., None]
    gather: Callable[..., None]


@cache
def compiled_loops() -> TableLoops:
    """Compiles the loops, or loads them from the cache. Raises ImportError if numba is missing or disabled."""
    import numba
    from numba.extending import register_jitable

    if numba.config.DISABLE_JIT:
        raise ImportError("NUMBA_DISABLE_JIT is set: the loops would run as slow Python")
    for function in (_hash, _same, _bucket_of):
        register_jitable(forceinline=True, _nrt=False)(function)
    data: Any = numba.types.Array(numba.uint8, 1, "C", readonly=True)
    int64, ints, longs, arena = numba.int64, numba.int32[::1], numba.int64[::1], numba.uint8[::1]
    slots = numba.int64[:, ::1]
    columns = (ints, ints, ints, ints, longs, longs)
    return TableLoops(
        compiled(_update, numba.void(data, *columns, int64, int64, longs, slots, arena, longs)),
        compiled(_find, int64(data, int64, longs, slots, arena)),
        compiled(_fill_buckets, numba.void(longs, slots, int64)),
        compiled(_gather, numba.void(arena, longs, longs, arena)),
    )


def _update(
    data: Bytes,
    key_start: Ints,
    key_length: Ints,
    value_start: Ints,
    value_length: Ints,
    offset: Longs,
    timestamp: Longs,
    partition: Long,
    seed: Long,
    buckets: Longs,
    slots: NDArray[np.int64],
    arena: Bytes,
    counts: Longs,
) -> None:
    """Apply the records in order. The caller has made room: a slot for each, two buckets for each slot, and all the
    bytes of keys and values."""
    for row in range(len(key_start)):
        length = np.int64(key_length[row])
        if length < 0:
            counts[WITHOUT_KEY] += 1
            continue
        at = np.int64(key_start[row])
        hashed = _hash(data, at, length, seed)
        bucket = _bucket_of(hashed, data, at, length, buckets, slots, arena)
        slot = buckets[bucket] - 1
        size = np.int64(value_length[row])
        if slot >= 0 and slots[slot, VALUE_LENGTH] >= 0:
            counts[LIVE] -= 1
            counts[LIVE_BYTES] -= length + slots[slot, VALUE_LENGTH]
            slots[slot, VALUE_LENGTH] = -1
        if size < 0:
            continue
        if slot < 0:
            slot = counts[SLOTS]
            counts[SLOTS] += 1
            buckets[bucket] = slot + 1
            slots[slot, HASH] = hashed
            slots[slot, KEY_LENGTH] = length
        used = counts[USED_BYTES]
        slots[slot, START] = used
        slots[slot, VALUE_LENGTH] = size
        slots[slot, PARTITION] = partition
        slots[slot, OFFSET] = offset[row]
        slots[slot, TIMESTAMP] = timestamp[row]
        for number in range(length):
            arena[used + number] = data[at + number]
        used += length
        at = np.int64(value_start[row])
        for number in range(size):
            arena[used + number] = data[at + number]
        counts[USED_BYTES] = used + size
        counts[LIVE] += 1
        counts[LIVE_BYTES] += length + size


def _find(key: Bytes, seed: Long, buckets: Longs, slots: NDArray[np.int64], arena: Bytes) -> Long:
    """The slot of the key, also if it was deleted; -1 if there is none."""
    hashed = _hash(key, 0, len(key), seed)
    slot: Long = buckets[_bucket_of(hashed, key, 0, len(key), buckets, slots, arena)] - 1
    return slot


def _fill_buckets(buckets: Longs, slots: NDArray[np.int64], count: Long) -> None:
    """Enter the first `count` slots, which have different keys, into empty buckets."""
    mask = len(buckets) - 1
    for slot in range(count):
        bucket = slots[slot, HASH] & mask
        while buckets[bucket] != 0:
            bucket = (bucket + 1) & mask
        buckets[bucket] = slot + 1


def _gather(arena: Bytes, start: Longs, length: Longs, out: Bytes) -> None:
    """Copy pieces of the arena one after another."""
    at = 0
    for row in range(len(start)):
        first = start[row]
        for number in range(length[row]):
            out[at + number] = arena[first + number]
        at += length[row]


def _bucket_of(
    hashed: Long, data: Bytes, at: Long, length: Long, buckets: Longs, slots: NDArray[np.int64], arena: Bytes
) -> Long:
    """The bucket that has the key, or the free one in which it belongs."""
    mask = len(buckets) - 1
    bucket = hashed & mask
    while True:
        slot = buckets[bucket] - 1
        if slot < 0 or (
            slots[slot, HASH] == hashed
            and slots[slot, KEY_LENGTH] == length
            and _same(data, at, arena, slots[slot, START], length)
        ):
            return bucket
        bucket = (bucket + 1) & mask


def _hash(data: Bytes, at: Long, length: Long, seed: Long) -> Long:
    """FNV-1a from a secret seed, with its high bits folded into the low ones."""
    hashed = np.int64(seed)
    for number in range(length):
        hashed = (hashed ^ np.int64(data[at + number])) * _PRIME
    return hashed ^ (hashed >> 29)


def _same(data: Bytes, at: Long, arena: Bytes, start: Long, length: Long) -> bool:
    for number in range(length):  # noqa: SIM110 - numba does not compile all()
        if data[at + number] != arena[start + number]:
            return False
    return True
