"""Isolation levels of readers: under read_committed the batches of aborted transactions are skipped (KIP-98).

The broker names the aborted transactions among the batches that a reader gets, and gives it nothing from the first open
transaction on. Markers and other control batches are shown at no level.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from raylog.protocol.records.batch import BatchHeader

IsolationLevel = Literal["read_committed", "read_uncommitted"]
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
"""The numbers of the levels in requests."""


class Aborted(NamedTuple):
    """A producer's transaction, from its first record to the producer's next marker, that was aborted."""

    producer_id: int
    first_offset: int


class AbortedBatches:
    """Says of batches, shown in the order of their offsets, whether their transaction was aborted.

    `aborted` are the aborted transactions with records from the first batch on that the reader wants.
    """

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._later = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        """Those that have not begun yet; the next one is the last."""
        self._producers: set[int] = set()
        """The producers whose current transaction was aborted."""

    def include(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction. To be called for every batch, control batches too."""
        later = self._later
        while later and later[-1].first_offset <= header.last_offset:
            self._producers.add(later.pop().producer_id)
        if header.producer_id not in self._producers:
            return False
        if header.is_control:  # whatever it says, also if compaction has emptied it
            self._producers.remove(header.producer_id)
            return False
        return header.is_transactional
