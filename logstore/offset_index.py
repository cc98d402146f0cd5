"""`.index`: about every 4 KiB of a segment, the last offset of a batch and the position of that batch.

An entry is 8 bytes, big-endian: offset relative to the segment's base (u32), position in the `.log` (u32); both are
strictly increasing. Entries are kept in memory as two arrays and written after the data, in groups. Entries lost in a
crash are rebuilt, since recovery scans all segments that were not flushed.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from itertools import islice
from operator import lt

ENTRY_SIZE = 8
LITTLE_ENDIAN = sys.byteorder == "little"


class OffsetIndex:
    """The entries of one segment. Pure: the segment reads and writes the file."""

    __slots__ = ("_offsets", "_positions", "written")

    def __init__(self) -> None:
        self._offsets = array("I")
        self._positions = array("I")
        self.written = 0
        """Number of entries in the file."""

    @classmethod
    def decode(cls, data: bytes, *, log_size: int) -> OffsetIndex:
        """Raises ValueError unless the entries are increasing and point into a log of `log_size` bytes."""
        words = split_words(data, entry_size=ENTRY_SIZE)
        index = cls()
        index._offsets, index._positions = words[0::2], words[1::2]
        index.written = len(index)
        for numbers in (index._offsets, index._positions):
            if not all(map(lt, numbers, islice(numbers, 1, None))):
                raise ValueError("entries are not increasing")
        if index._positions and index._positions[-1] >= log_size:
            raise ValueError("an entry points beyond the end of the log")
        return index

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, relative_offset: int, position: int) -> None:
        """Append an entry; one that is not increasing is ignored."""
        offsets = self._offsets
        if offsets and (relative_offset <= offsets[-1] or position <= self._positions[-1]):
            return
        offsets.append(relative_offset)
        self._positions.append(position)

    def entry_before(self, relative_offset: int) -> tuple[int, int]:
        """(relative offset, position) of the last entry not above `relative_offset`; (0, 0) if there is none."""
        found = bisect_right(self._offsets, relative_offset) - 1
        return (self._offsets[found], self._positions[found]) if found >= 0 else (0, 0)

    def position_floor(self, position: int) -> int:
        """The start of a batch, at or below `position`."""
        found = bisect_right(self._positions, position) - 1
        return self._positions[found] if found >= 0 else 0

    @property
    def last_position(self) -> int:
        return self._positions[-1] if self._positions else 0

    def encode_from(self, first: int) -> bytes:
        """The bytes of the entries from number `first` on."""
        words = array("I", bytes(ENTRY_SIZE * (len(self) - first)))
        words[0::2], words[1::2] = self._offsets[first:], self._positions[first:]
        if LITTLE_ENDIAN:
            words.byteswap()
        return words.tobytes()


def split_words(data: bytes, *, entry_size: int) -> array[int]:
    """The file's 32-bit words. Raises ValueError for a partial entry."""
    if len(data) % entry_size:
        raise ValueError(f"{len(data)} bytes are not a multiple of the entry size")
    words = array("I")
    words.frombytes(data)
    if LITTLE_ENDIAN:
        words.byteswap()
    return words
