"""The start offset of each leader epoch of a partition, by which followers truncate (KIP-101, KIP-320)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise

from raylog.core.ids import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from raylog.logstore.checkpoint import decode_pairs, encode_pairs


class LeaderEpochs:
    """Entries (epoch, offset of its first record); both are strictly increasing.

    Pure: `encode` and `decode` convert from and to the content of `leader-epoch-checkpoint`, which the log writes when
    `dirty` is set, and then clears it.
    """

    __slots__ = ("_epochs", "_starts", "dirty")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        """Raises ValueError unless the entries are strictly increasing."""
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in entries:
            self._epochs.append(epoch)
            self._starts.append(start)
        for numbers in (self._epochs, self._starts):
            if any(later <= earlier for earlier, later in pairwise(numbers)) or (numbers and numbers[0] < 0):
                raise ValueError("leader epochs and their offsets must be strictly increasing")
        self.dirty = False
        """Whether the entries may differ from the file."""

    @classmethod
    def decode(cls, data: bytes) -> LeaderEpochs:
        return cls(decode_pairs(data))

    def encode(self) -> bytes:
        return encode_pairs(self.entries)

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> LeaderEpoch:
        """The latest epoch that has appended a record, NO_LEADER_EPOCH if there is none."""
        return LeaderEpoch(self._epochs[-1]) if self._epochs else NO_LEADER_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """`epoch` begins at `start_offset`. Contradicting entries (not older, or not below) are removed."""
        if epoch < 0 or (self._epochs and self._epochs[-1] == epoch and self._starts[-1] <= start_offset):
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.dirty = True

    def epoch_at(self, offset: int) -> LeaderEpoch:
        """The epoch of the record at `offset`, NO_LEADER_EPOCH if unknown."""
        index = bisect_right(self._starts, offset) - 1
        return LeaderEpoch(self._epochs[index]) if index >= 0 else NO_LEADER_EPOCH

    def end_offset_for(self, epoch: int, *, log_end_offset: Offset) -> tuple[LeaderEpoch, Offset]:
        """(largest known epoch not above `epoch`, its end offset): up to there a follower's log may agree.

        (NO_LEADER_EPOCH, NO_OFFSET) if `epoch` is newer than all known epochs; (epoch, start of the oldest) if it is
        older than all of them.
        """
        if not self._epochs or epoch < 0 or epoch > self._epochs[-1]:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self._epochs[-1]:
            return LeaderEpoch(epoch), log_end_offset
        following = bisect_right(self._epochs, epoch)
        floor = self._epochs[following - 1] if following else epoch
        return LeaderEpoch(floor), Offset(self._starts[following])

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that began at or after `end_offset`, the new log end offset."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
            self.dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that ended before `start_offset`; an epoch that spans it now begins there."""
        index = bisect_right(self._starts, start_offset) - 1
        if index < 0 or self._starts[index] == start_offset == self._starts[0]:
            return
        del self._epochs[:index], self._starts[:index]
        self._starts[0] = start_offset
        self.dirty = True

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()
        self.dirty = True
