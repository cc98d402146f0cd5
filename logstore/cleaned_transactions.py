"""The transactions that a cleaning meets: which batches were aborted, and which markers are no longer needed.

A marker is needed as long as the log contains batches of its transaction. A cleaning drops the batches of aborted
transactions, and the next one, which no longer meets them, their marker and their entry in the transaction index.
Source: Kafka documentation, "Log Compaction"; KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterable

from raylog.logstore.producer_state import AbortedTransaction
from raylog.protocol.records.batch import BatchHeader
from raylog.protocol.records.compression import Buffer
from raylog.protocol.records.markers import read_marker


class CleanedTransactions:
    """Pure. `aborted` are the aborted transactions with records in the part of the log that is cleaned.

    Batches are shown in the order of their offsets, control batches and others.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self.indexed: list[AbortedTransaction] = []
        """Transactions whose markers were met and stay, by their end; the caller takes them for the index."""
        self._expected = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        """Those that begin later; the next one is the last."""
        self._aborted: dict[int, AbortedTransaction] = {}
        """The open transaction of each producer, if it will be aborted."""
        self._met: set[int] = set()
        """Producers whose open transaction has batches in the log."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch, which has no marker, belongs to an aborted transaction."""
        self._begin_upto(header.last_offset)
        if not header.is_transactional:
            return False
        self._met.add(header.producer_id)
        return header.producer_id in self._aborted

    def is_unneeded(self, batch: Buffer, header: BatchHeader) -> bool:
        """Whether the control batch ends a transaction without batches, or is empty. Raises CORRUPT_MESSAGE."""
        self._begin_upto(header.last_offset)
        if not header.record_count:
            return True
        marker = read_marker(batch, 0, header)
        if marker is None:
            return False
        was_met = header.producer_id in self._met
        self._met.discard(header.producer_id)
        aborted = None if marker.committed else self._aborted.pop(header.producer_id, None)
        if aborted is not None and was_met:
            self.indexed.append(aborted)
        return not was_met

    def _begin_upto(self, offset: int) -> None:
        while self._expected and self._expected[-1].first_offset <= offset:
            transaction = self._expected.pop()
            self._aborted[transaction.producer_id] = transaction
