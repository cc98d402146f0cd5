"""What a partition remembers of its producers: so that a retry is written once, and which transactions are open.

Pure: no disk, no clock. `check` decides, `update` remembers, `encode_snapshot` and `decode_snapshot` are the content
of Kafka's `.snapshot` files (version 1). Source: KIP-98, KIP-360.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from crc32c import crc32c

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_OFFSET, NO_PRODUCER_EPOCH, NO_SEQUENCE, Offset
from raylog.protocol.records.batch import SEQUENCE_MAX, BatchHeader
from raylog.protocol.records.markers import EndTransactionMarker

BATCHES_REMEMBERED = 5
"""Per producer: as many batches as an idempotent client may have in flight (KIP-98)."""

NO_COORDINATOR_EPOCH = -1

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hI")
_SNAPSHOT_COUNT = struct.Struct(">i")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class BatchMetadata(NamedTuple):
    """One batch that was written: its last sequence and offset, and how many offsets before that it began."""

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
    """A producer's records from `first_offset` to its marker at `last_offset` are not to be shown to read_committed."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """Of the log once the marker is committed: where the oldest of those begins that are still open."""


class ProducerEntry:
    """One producer: its current epoch and its newest batches in that epoch, oldest first, at most five."""

    __slots__ = ("batches", "coordinator_epoch", "last_seen_ms", "producer_epoch")

    def __init__(self, producer_epoch: int, last_seen_ms: int) -> None:
        self.producer_epoch = producer_epoch
        self.batches: list[BatchMetadata] = []
        self.last_seen_ms = last_seen_ms
        """When this process last heard of it or loaded it. Not the records' time, which may be years ago."""
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        """Of the newest marker."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerState:
    """The producers of one log, as of its log end offset.

    Differs from Kafka in two points, on the safe side. A producer expires by when it was last heard of, not by the
    timestamps of its records, so that a client that writes old timestamps keeps its protection. And where the first
    batch of an unknown producer finds no space, those sent behind it do not overtake it: Kafka need not care, since its
    directory is offline then.
    """

    __slots__ = ("_awaited", "_ended", "_open", "_producers")

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self._awaited: dict[int, tuple[int, int, int]] = {}
        """Of producers that are not known: (epoch, sequence) of the batch that must come first, and since when."""
        self._open: dict[int, int] = {}
        """Producer id -> where its open transaction begins, in order of these offsets: a later one begins behind."""
        self._ended: deque[tuple[int, int]] = deque()
        """(first offset, that of the marker) of those whose end may not be committed yet, in order of the markers."""

    def __len__(self) -> int:
        return len(self._producers)

    def producers(self) -> dict[int, ProducerEntry]:
        """Producer id -> entry; the live mapping, for DescribeProducers and tests. Not to be changed."""
        return self._producers

    def open_transaction(self, producer_id: int) -> int:
        """Offset of the first record of the producer's open transaction; -1 when it has none."""
        return self._open.get(producer_id, NO_OFFSET)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the oldest transaction begins whose end is not committed; None when there is none.

        `high_watermark` only grows from call to call: what it has passed is decided for good.
        """
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()
        firsts = [first for first, _ in ended]
        firsts.extend(islice(self._open.values(), 1))
        return min(firsts, default=None)

    def check(self, header: BatchHeader) -> BatchMetadata | None:
        """None when the batch may be appended, or what was written when it is a repetition of a remembered batch.

        Changes nothing. Raises INVALID_PRODUCER_EPOCH for an epoch older than the producer's,
        OUT_OF_ORDER_SEQUENCE_NUMBER when the sequence does not continue the last one (0 for a new epoch), and
        INVALID_TXN_STATE for a batch without a transaction while the producer has one open. What a coordinator writes
        has no sequence, and only its epoch is looked at. A producer of which nothing is known may begin at any
        sequence: its records may have been deleted by retention. After `await_retry` it must begin with the batch that
        could not be written, or with another epoch.
        Source: Kafka, ProducerAppendInfo.checkSequence and ProducerStateEntry.findDuplicateBatch.
        """
        written = self._check_sequence(header)
        if written is None and header.producer_id in self._open and not header.is_transactional:
            what = f"producer {header.producer_id} has a transaction open, and the batch is in none"
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
            epoch, expected, _ = self._awaited.get(header.producer_id, nothing)
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
            expected = (entry.last_sequence + 1) & SEQUENCE_MAX  # 0 after nothing (-1) and after the largest
            if first == expected:
                return None
        elif header.base_sequence == 0 or entry.producer_epoch == NO_PRODUCER_EPOCH:
            return None
        else:
            expected = 0
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} epoch {header.producer_epoch}: sequence {header.base_sequence} "
            f"where {expected} should follow",
        )

    def update(
        self, header: BatchHeader, *, base_offset: int, now_ms: int, marker: EndTransactionMarker | None
    ) -> AbortedTransaction | None:
        """Remembers a batch written at `base_offset`; the transaction that it aborted, when it is such a marker.

        Never refuses: replaying a log must give what was. `marker` is what a control batch says (`read_marker`).
        """
        entry = self._producers.get(header.producer_id)
        if entry is None or entry.producer_epoch != header.producer_epoch:
            coordinator_epoch = entry.coordinator_epoch if entry else NO_COORDINATOR_EPOCH
            entry = self._producers[header.producer_id] = ProducerEntry(header.producer_epoch, now_ms)
            entry.coordinator_epoch = coordinator_epoch
            self._awaited.pop(header.producer_id, None)
        entry.last_seen_ms = now_ms
        if header.is_control:  # an epoch, but no sequence
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
        if first_offset is None:  # a marker may come twice, and for a producer that has written nothing here
            return None
        self._ended.append((first_offset, offset))
        if marker.committed:
            return None
        last_stable_offset = next(iter(self._open.values()), offset + 1)
        return AbortedTransaction(producer_id, first_offset, offset, last_stable_offset)

    def await_retry(self, header: BatchHeader, *, now_ms: int) -> None:
        """A batch that passed `check` found no space: until its producer expires it comes before those behind it."""
        if header.producer_id not in self._producers and header.base_sequence >= 0:
            self._awaited[header.producer_id] = header.producer_epoch, header.base_sequence, now_ms

    def recall(self, header: BatchHeader) -> None:
        """Adds a batch that was written before what is remembered, when it is the one just before it.

        A snapshot holds one batch per producer; the log still holds the others that a client may repeat. To be called
        with batches from the newest to the oldest.
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
        """Forgets producers not heard of for `expiration_ms`, but for those with an open transaction; how many."""
        awaited = [key for key, (*_, since_ms) in self._awaited.items() if now_ms - since_ms >= expiration_ms]
        for producer_id in awaited:
            del self._awaited[producer_id]
        gone = [
            producer_id
            for producer_id, entry in self._producers.items()
            if now_ms - entry.last_seen_ms >= expiration_ms and producer_id not in self._open
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def encode_snapshot(self) -> bytes:
        """Version, CRC-32C of what follows, number of entries, entries: Kafka's file, with the newest batch of each."""
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
        """Raises ValueError when the file is not whole. `now_ms` becomes the time at which all were last heard of."""
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
            raise ValueError(f"{len(entries)} bytes cannot be {count} entries")
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
    what = f"producer {header.producer_id} has epoch {entry.producer_epoch}, the batch {header.producer_epoch}"
    return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, what)
