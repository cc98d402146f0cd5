"""`.timeindex`: the largest timestamp so far in a segment, and the last offset of its batch.

An entry is 12 bytes, big-endian: timestamp in ms (i64), offset relative to the segment's base (u32). Timestamps are
strictly increasing, offsets non-decreasing. The last entry of a closed segment is its largest timestamp, the only one
that retention reads.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from operator import le, lt

from raylog.core.ids import NO_TIMESTAMP_MS
from raylog.logstore.offset_index import LITTLE_ENDIAN, split_words

ENTRY_SIZE = 12
_ENTRY = struct.Struct(">qI")


class TimeIndex:
    """The entries of one segment. Pure: the segment reads and writes the file."""

    __slots__ = ("_offsets", "_timestamps", "written")

    def __init__(self) -> None:
        self._timestamps = array("q")
        self._offsets = array("I")
        self.written = 0
        """Number of entries in the file."""

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex:
        """Raises ValueError unless the entries are increasing."""
        words = split_words(data, entry_size=ENTRY_SIZE)
        index = cls()
        halves = array("I", bytes(8 * (len(words) // 3)))
        high, low = (1, 0) if LITTLE_ENDIAN else (0, 1)
        halves[high::2], halves[low::2] = words[0::3], words[1::3]
        index._timestamps.frombytes(halves.tobytes())
        index._offsets = words[2::3]
        index.written = len(index)
        if not all(map(lt, index._timestamps, islice(index._timestamps, 1, None))):
            raise ValueError("timestamps are not increasing")
        if not all(map(le, index._offsets, islice(index._offsets, 1, None))):
            raise ValueError("offsets are decreasing")
        return index

    def __len__(self) -> int:
        return len(self._timestamps)

    def add(self, timestamp_ms: int, relative_offset: int) -> None:
        """Append an entry; one whose timestamp is not larger is ignored."""
        if self._timestamps and timestamp_ms <= self._timestamps[-1]:
            return
        self._timestamps.append(timestamp_ms)
        self._offsets.append(relative_offset)

    def offset_before(self, timestamp_ms: int) -> int:
        """Relative offset up to which all records are older than `timestamp_ms`; 0 if unknown."""
        found = bisect_left(self._timestamps, timestamp_ms) - 1
        return self._offsets[found] if found >= 0 else 0

    def largest_upto(self, relative_offset: int) -> tuple[int, int]:
        """(largest timestamp, relative offset) of the batches up to an indexed one; (-1, 0) if they have none."""
        found = bisect_right(self._offsets, relative_offset) - 1
        return (self._timestamps[found], self._offsets[found]) if found >= 0 else (NO_TIMESTAMP_MS, 0)

    @property
    def last(self) -> tuple[int, int] | None:
        """(largest timestamp, relative offset) of the last entry."""
        return (self._timestamps[-1], self._offsets[-1]) if self._timestamps else None

    def encode_from(self, first: int) -> bytes:
        """The bytes of the entries from number `first` on."""
        halves = array("I")
        halves.frombytes(self._timestamps[first:].tobytes())
        high, low = (1, 0) if LITTLE_ENDIAN else (0, 1)
        words = array("I", bytes(ENTRY_SIZE * (len(self) - first)))
        words[0::3], words[1::3], words[2::3] = halves[high::2], halves[low::2], self._offsets[first:]
        if LITTLE_ENDIAN:
            words.byteswap()
        return words.tobytes()


def decode_entry(data: bytes) -> tuple[int, int]:
    """(timestamp, relative offset) of one entry."""
    timestamp, offset = _ENTRY.unpack(data)
    return timestamp, offset
