"""The producer state of a partition, for detecting duplicates and out-of-order batches, and its open transactions.

Pure: no disk, no clock. `check` validates a batch, `update` applies it; `encode_snapshot` and `decode_snapshot` convert
to and from Kafka's `.snapshot` files (version 1). Source: KIP-98, KIP-360.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from crc32c import crc32c

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_OFFSET, NO_PRODUCER_EPOCH, NO_SEQUENCE, Offset, ProducerIdentity
from raylog.protocol.records.batch import SEQUENCE_MAX, BatchHeader
from raylog.protocol.records.markers import EndTransactionMarker

BATCHES_REMEMBERED = 5
"""Batches kept per producer: the number that an idempotent client may have in flight (KIP-98)."""

NO_COORDINATOR_EPOCH = -1

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hI")
_SNAPSHOT_COUNT = struct.Struct(">i")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class BatchMetadata(NamedTuple):
    """An appended batch: its last sequence and offset, and the difference to its first offset."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def first_offset(self) -> Offset:
        return Offset(self.last_offset - self.offset_delta)


class AbortedTransaction(NamedTuple):
    """A producer's records from `first_offset` to its marker at `last_offset`, which read_committed must skip."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """The last stable offset when the marker is committed: the start of the oldest transaction still open."""


class ProducerEntry:
    """One producer: its current epoch and its last batches in that epoch, oldest first, at most five."""

    __slots__ = ("batches", "coordinator_epoch", "last_seen_ms", "producer_epoch")

    def __init__(self, producer_epoch: int, last_seen_ms: int) -> None:
        self.producer_epoch = producer_epoch
        self.batches: list[BatchMetadata] = []
        self.last_seen_ms = last_seen_ms
        """When it last appended, or was loaded, by this process's clock; not the timestamp of its records."""
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        """The coordinator epoch of the last marker."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerState:
    """The producers of one log, as of its log end offset.

    Differs from Kafka in two points, on the safe side. A producer expires by the time of its last append, not by the
    timestamps of its records, so that clients that write old timestamps keep their protection. And if the first batch
    of an unknown producer fails for lack of space, later ones are rejected until it is retried; in Kafka the directory
    is offline in this case.
    """

    __slots__ = ("_ended", "_expected_retries", "_open", "_producers")

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self._expected_retries: dict[int, tuple[int, int, int]] = {}
        """For unknown producers: (epoch, sequence) of the batch that must come first, and since when."""
        self._open: dict[int, int] = {}
        """Producer id -> first offset of its open transaction, ordered by offset."""
        self._ended: deque[tuple[int, int]] = deque()
        """(first offset, marker offset) of completed transactions whose marker may be uncommitted, by marker offset."""

    def __len__(self) -> int:
        return len(self._producers)

    def producers(self) -> dict[int, ProducerEntry]:
        """Producer id -> entry, for DescribeProducers and tests. Read-only."""
        return self._producers

    def open_transaction(self, producer_id: int) -> int:
        """Offset of the first record of the producer's open transaction; -1 if it has none."""
        return self._open.get(producer_id, NO_OFFSET)

    def has_open_transaction(self, producer: ProducerIdentity) -> bool:
        """Whether the producer has an open transaction with this epoch."""
        producer_id, producer_epoch = producer
        entry = self._producers.get(producer_id)
        return entry is not None and entry.producer_epoch == producer_epoch and producer_id in self._open

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The start of the oldest transaction whose end is not committed; None if there is none.

        `high_watermark` must not decrease from call to call.
        """
        if not self._ended and not self._open:
            return None
        self.committed(high_watermark)
        firsts = [first for first, _ in self._ended]
        firsts.extend(islice(self._open.values(), 1))
        return min(firsts, default=None)

    def committed(self, high_watermark: int) -> None:
        """Forget the transactions whose end is committed. `high_watermark` must not decrease from call to call."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()

    def check(self, header: BatchHeader) -> BatchMetadata | None:
        """None if the batch can be appended, or the earlier append if it is a duplicate.

        Changes nothing. Raises INVALID_PRODUCER_EPOCH for an epoch older than the producer's,
        OUT_OF_ORDER_SEQUENCE_NUMBER if the sequence does not follow the last one (0 for a new epoch), and
        INVALID_TXN_STATE for a non-transactional batch while the producer has an open transaction. Batches of
        coordinators have no sequence; only their epoch is checked. An unknown producer can begin at any sequence, since
        retention may have deleted its records. After `expect_retry` it must begin with the batch that failed, or with
        another epoch.
        Source: Kafka, ProducerAppendInfo.checkSequence and ProducerStateEntry.findDuplicateBatch.
        """
        written = self._check_sequence(header)
        if written is None and header.producer_id in self._open and not header.is_transactional:
            what = f"producer {header.producer_id} has an open transaction, but the batch is not transactional"
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, what)
        return written

    def check_marker(self, header: BatchHeader, marker: EndTransactionMarker) -> None:
        """Raises INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED for a marker of an older epoch."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.producer_epoch:
            raise _older_epoch(header, entry)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"producer {header.producer_id}: a marker of coordinator epoch {marker.coordinator_epoch} "
                f"after {entry.coordinator_epoch}",
            )

    def _check_sequence(self, header: BatchHeader) -> BatchMetadata | None:
        entry = self._producers.get(header.producer_id)
        if entry is None:
            nothing = header.producer_epoch, header.base_sequence, 0
            epoch, expected, _ = self._expected_retries.get(header.producer_id, nothing)
            if epoch != header.producer_epoch or expected == header.base_sequence:
                return None
        elif header.producer_epoch < entry.producer_epoch:
            raise _older_epoch(header, entry)
        elif header.base_sequence < 0:
            return None
        elif header.producer_epoch == entry.producer_epoch:
            first, last = header.base_sequence, header.last_sequence
            for batch in entry.batches:
                if batch.last_sequence == last and batch.first_sequence == first:
                    return batch
            expected = (entry.last_sequence + 1) & SEQUENCE_MAX  # 0 after none (-1) and after the largest
            if first == expected:
                return None
        elif header.base_sequence == 0 or entry.producer_epoch == NO_PRODUCER_EPOCH:
            return None
        else:
            expected = 0
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} epoch {header.producer_epoch}: sequence {header.base_sequence} "
            f", expected {expected}",
        )

    def update(
        self, header: BatchHeader, *, base_offset: int, now_ms: int, marker: EndTransactionMarker | None
    ) -> AbortedTransaction | None:
        """Apply a batch appended at `base_offset`. Returns the aborted transaction if it is an abort marker.

        It never fails, since replaying a log must succeed. `marker` is the content of a control batch (`read_marker`).
        """
        entry = self._producers.get(header.producer_id)
        if entry is None or entry.producer_epoch != header.producer_epoch:
            coordinator_epoch = entry.coordinator_epoch if entry else NO_COORDINATOR_EPOCH
            entry = self._producers[header.producer_id] = ProducerEntry(header.producer_epoch, now_ms)
            entry.coordinator_epoch = coordinator_epoch
            self._expected_retries.pop(header.producer_id, None)
        entry.last_seen_ms = now_ms
        if header.is_control:  # control batches have an epoch, but no sequence
            return None if marker is None else self._end(header.producer_id, base_offset, marker, entry)
        if header.is_transactional:
            self._open.setdefault(header.producer_id, base_offset)
        if header.base_sequence < 0:
            return None
        batches = entry.batches
        if len(batches) == BATCHES_REMEMBERED:
            del batches[0]
        delta = header.last_offset_delta
        batches.append(BatchMetadata(header.last_sequence, base_offset + delta, delta, header.max_timestamp))
        return None

    def _end(
        self, producer_id: int, offset: int, marker: EndTransactionMarker, entry: ProducerEntry
    ) -> AbortedTransaction | None:
        entry.coordinator_epoch = marker.coordinator_epoch
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:  # markers can be duplicated, or belong to a producer without records here
            return None
        self._ended.append((first_offset, offset))
        if marker.committed:
            return None
        last_stable_offset = next(iter(self._open.values()), offset + 1)
        return AbortedTransaction(producer_id, first_offset, offset, last_stable_offset)

    def expect_retry(self, header: BatchHeader, *, now_ms: int) -> None:
        """A batch that passed `check` failed for lack of space: later ones are rejected until it is retried."""
        if header.producer_id not in self._producers and header.base_sequence >= 0:
            self._expected_retries[header.producer_id] = header.producer_epoch, header.base_sequence, now_ms

    def recall(self, header: BatchHeader) -> None:
        """Add the batch that directly precedes the known ones of its producer.

        A snapshot has one batch per producer; a client may retry earlier ones, which the log still has. Call it with
        batches from the newest to the oldest.
        """
        entry = self._producers.get(header.producer_id)
        if entry is None or header.is_control or entry.producer_epoch != header.producer_epoch or not entry.batches:
            return
        oldest = entry.batches[0]
        follows = (header.last_sequence + 1) & SEQUENCE_MAX == oldest.first_sequence
        if follows and header.last_offset < oldest.first_offset and len(entry.batches) < BATCHES_REMEMBERED:
            delta = header.last_offset_delta
            batch = BatchMetadata(header.last_sequence, header.last_offset, delta, header.max_timestamp)
            entry.batches.insert(0, batch)

    def expire(self, *, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that were idle for `expiration_ms` and have no open transaction. Returns their number."""
        expected_retry = [
            key for key, (*_, since_ms) in self._expected_retries.items() if now_ms - since_ms >= expiration_ms
        ]
        for producer_id in expected_retry:
            del self._expected_retries[producer_id]
        gone = [
            producer_id
            for producer_id, entry in self._producers.items()
            if now_ms - entry.last_seen_ms >= expiration_ms and producer_id not in self._open
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def encode_snapshot(self) -> bytes:
        """Kafka's file: version, CRC-32C of the rest, number of entries, entries with each producer's last batch."""
        parts = [_SNAPSHOT_COUNT.pack(len(self._producers))]
        for producer_id, entry in self._producers.items():
            batch = entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, -1, 0, -1)
            parts.append(
                _SNAPSHOT_ENTRY.pack(
                    producer_id,
                    entry.producer_epoch,
                    batch.last_sequence,
                    batch.last_offset,
                    batch.offset_delta,
                    batch.timestamp_ms,
                    entry.coordinator_epoch,
                    self.open_transaction(producer_id),
                )
            )
        body = b"".join(parts)
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def decode_snapshot(cls, data: bytes, *, now_ms: int) -> ProducerState:
        """Raises ValueError for a malformed file. `now_ms` becomes the last-seen time of all producers."""
        try:
            version, checksum = _SNAPSHOT_HEAD.unpack_from(data)
            (count,) = _SNAPSHOT_COUNT.unpack_from(data, _SNAPSHOT_HEAD.size)
        except struct.error:
            raise ValueError("truncated") from None
        body = memoryview(data)[_SNAPSHOT_HEAD.size :]
        if version != _SNAPSHOT_VERSION or crc32c(body) != checksum:
            raise ValueError("unknown version or wrong checksum")
        entries = body[_SNAPSHOT_COUNT.size :]
        if count < 0 or len(entries) != count * _SNAPSHOT_ENTRY.size:
            raise ValueError(f"{len(entries)} bytes do not contain {count} entries")
        state = cls()
        opened: list[tuple[int, int]] = []
        rows: Iterable[tuple[int, ...]] = _SNAPSHOT_ENTRY.iter_unpack(entries)
        for producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset in rows:
            entry = state._producers[producer_id] = ProducerEntry(epoch, now_ms)
            entry.coordinator_epoch = coordinator_epoch
            if first_offset >= 0:
                opened.append((first_offset, producer_id))
            if last_offset >= 0:
                entry.batches.append(BatchMetadata(last_sequence, last_offset, delta, timestamp))
        state._open.update((producer_id, first_offset) for first_offset, producer_id in sorted(opened))
        return state


def _older_epoch(header: BatchHeader, entry: ProducerEntry) -> KafkaError:
    what = f"producer {header.producer_id} has epoch {entry.producer_epoch}, the batch has {header.producer_epoch}"
    return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, what)
