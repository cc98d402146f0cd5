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
    for function in (_hash, _same, _copy, _bucket_of):
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
        key = data[key_start[row] : key_start[row] + length]
        hashed = _hash(key, seed)
        bucket = _bucket_of(hashed, key, buckets, slots, arena)
        slot = buckets[bucket] - 1
        size = np.int64(value_length[row])
        before = slots[slot, VALUE_LENGTH] if slot >= 0 else np.int64(-1)
        if before >= 0:
            counts[LIVE] -= 1
            counts[LIVE_BYTES] -= length + before
            slots[slot, VALUE_LENGTH] = -1
        if size < 0:
            continue
        if slot < 0:
            slot = counts[SLOTS]
            counts[SLOTS] += 1
            buckets[bucket] = slot + 1
            slots[slot, HASH] = hashed
            slots[slot, KEY_LENGTH] = length
        if size > before:  # otherwise there is room for it where the last value is
            used = counts[USED_BYTES]
            slots[slot, START] = used
            _copy(key, arena[used : used + length])
            counts[USED_BYTES] = used + length + size
        start = slots[slot, START] + length
        _copy(data[value_start[row] : value_start[row] + size], arena[start : start + size])
        slots[slot, VALUE_LENGTH] = size
        slots[slot, PARTITION] = partition
        slots[slot, OFFSET] = offset[row]
        slots[slot, TIMESTAMP] = timestamp[row]
        counts[LIVE] += 1
        counts[LIVE_BYTES] += length + size


def _find(key: Bytes, seed: Long, buckets: Longs, slots: NDArray[np.int64], arena: Bytes) -> Long:
    """The slot of the key, also if it was deleted; -1 if there is none."""
    slot: Long = buckets[_bucket_of(_hash(key, seed), key, buckets, slots, arena)] - 1
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
        _copy(arena[start[row] : start[row] + length[row]], out[at : at + length[row]])
        at += length[row]


def _bucket_of(hashed: Long, key: Bytes, buckets: Longs, slots: NDArray[np.int64], arena: Bytes) -> Long:
    """The bucket that has the key, or the free one in which it belongs."""
    mask = len(buckets) - 1
    bucket = hashed & mask
    while True:
        slot = buckets[bucket] - 1
        if slot < 0:
            return bucket
        start = slots[slot, START]
        if (
            slots[slot, HASH] == hashed
            and slots[slot, KEY_LENGTH] == len(key)
            and _same(key, arena[start : start + len(key)])
        ):
            return bucket
        bucket = (bucket + 1) & mask


# These take slices: an index that cannot be negative costs no check, and the loops become vector instructions.


def _hash(key: Bytes, seed: Long) -> Long:
    """FNV-1a from a secret seed, with its high bits folded into the low ones."""
    hashed = np.int64(seed)
    for number in range(len(key)):
        hashed = (hashed ^ np.int64(key[number])) * _PRIME
    return hashed ^ (hashed >> 29)


def _same(one: Bytes, other: Bytes) -> bool:
    for number in range(len(one)):  # noqa: SIM110 - numba does not compile all()
        if one[number] != other[number]:
            return False
    return True


def _copy(piece: Bytes, out: Bytes) -> None:
    for number in range(len(piece)):
        out[number] = piece[number]
