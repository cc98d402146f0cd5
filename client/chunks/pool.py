"""Reassembles large values from their chunks, between what was fetched and what poll() returns. Pure.

The chunks of a message are in one partition in the order of their indexes, by an idempotent producer; those of several
messages, and ordinary records, may be mixed. So a chunk that does not follow the one before is a duplicate, or others
were lost, and a message whose first chunk was not read is never complete.

The pool is bounded: unfinished messages are dropped, the oldest first, when the values that are announced exceed
`bytes_max`, a partition has more than `tracked_max` of them, the position is more than `offset_gap_max` behind the
first chunk, or `age_ms_max` have passed.

Each partition has, beside the position in the log, a *safe offset*: that of the first chunk of the oldest unfinished
message. Who begins there reads all chunks again. It also sees complete messages again that have ended behind
it; the `deliver_from` that goes with it says which of them were delivered.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from enum import Enum
from io import BytesIO
from typing import Final

from raylog.client.chunks.envelope import Chunk, chunk_of, digest_text, headers_of_message, is_surplus, new_digest
from raylog.client.consumer.fetched import ConsumerRecord
from raylog.core.ids import TopicPartition
from raylog.protocol.records.batch import OFFSET_END

_DELIVER_FROM: Final = re.compile(r"raylog\.deliver-from=([0-9]{1,18})")


class DropReason(Enum):
    TOO_LARGE = "the value is larger than message.assembler.buffer.capacity"
    CAPACITY = "message.assembler.buffer.capacity was needed for younger messages"
    TRACKED = "the partition has more unfinished messages than max.tracked.messages.per.partition"
    OFFSET_GAP = "it was not complete within message.assembler.expiration.offset.gap"
    AGE = "it was not complete within message.assembler.expiration.ms"
    LOST = "a chunk is missing"
    CONTRADICTION = "its chunks contradict each other"
    DIGEST = "the digest of the value is another one"


@dataclass(frozen=True, slots=True)
class DroppedMessage:
    """A message of which chunks were read, and which is not delivered."""

    tp: TopicPartition
    message_id: bytes
    first_offset: int
    reason: DropReason

    def __str__(self) -> str:
        where = f"{self.tp}: the large message {self.message_id.decode()} from offset {self.first_offset} on"
        return f"{where} was dropped: {self.reason.value}"


class _Unfinished:
    """The value is written into one buffer of its size, whose pages are used as the chunks come."""

    __slots__ = ("buffer", "chunk", "digest", "first_ms", "first_offset", "key", "next_index")

    def __init__(self, chunk: Chunk, record: ConsumerRecord, now_ms: int) -> None:
        self.chunk = chunk
        self.key = record.key
        self.first_offset = record.offset
        self.first_ms = now_ms
        self.next_index = 0
        self.buffer = BytesIO(bytes(chunk.size))  # which it takes over, as its only owner, without a copy
        self.digest = new_digest()

    def add(self, chunk: Chunk, value: bytes) -> DropReason | None:
        """The next chunk. Returns why the message can not be completed."""
        first = self.chunk
        if (chunk.count, chunk.size) != (first.count, first.size) or self.buffer.tell() + len(value) > first.size:
            return DropReason.CONTRADICTION
        self.next_index += 1
        self.buffer.write(value)
        self.digest.update(value)
        if chunk.is_last and self.buffer.tell() != first.size:
            return DropReason.CONTRADICTION
        if chunk.is_last and digest_text(self.digest) != chunk.digest:
            return DropReason.DIGEST
        return None


@dataclass(slots=True)
class _Partition:
    next_offset: int
    """Of the record to take next. If the position is another one, it was moved, and nothing here holds any more."""
    deliver_from: int = 0
    """What ends at a lower offset is read but not delivered."""
    unfinished: dict[bytes, _Unfinished] = field(default_factory=dict)
    """By message id, in the order of their first offsets."""
    completed: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """The first and the last offset of the latest messages; OFFSET_END of those that were given up before their end,
    because the position was moved."""


@dataclass(slots=True)
class PoolStatistics:
    completed: int = 0
    dropped: Counter[DropReason] = field(default_factory=Counter)
    duplicates: int = 0
    """Chunks that were read before."""
    orphans: int = 0
    """Chunks of messages whose first chunk was not read, or that were dropped."""


class ReassemblyPool:
    """The unfinished messages of a consumer."""

    def __init__(self, *, bytes_max: int, offset_gap_max: int, age_ms_max: int, tracked_max: int) -> None:
        self.used_bytes = 0
        """Announced by unfinished messages."""
        self.now_ms = 0
        """Set by the owner."""
        self.dropped: deque[DroppedMessage] = deque(maxlen=1_000)
        """Since the owner took them."""
        self.statistics = PoolStatistics()
        self._bytes_max = bytes_max
        self._offset_gap_max = offset_gap_max
        self._age_ms_max = age_ms_max
        self._tracked_max = tracked_max
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._all: dict[tuple[TopicPartition, bytes], _Unfinished] = {}
        """Of all partitions, the oldest first."""

    def metrics(self) -> dict[str, float]:
        counts = self.statistics
        return {
            "large-messages-completed-total": counts.completed,
            "large-messages-dropped-total": counts.dropped.total(),
            "large-messages-unfinished": len(self._all),
            "large-messages-unfinished-bytes": self.used_bytes,
            "chunks-duplicate-total": counts.duplicates,
            "chunks-orphaned-total": counts.orphans,
        }

    # --- records

    def take(self, tp: TopicPartition, records: Iterable[ConsumerRecord], start: int, end: int) -> list[ConsumerRecord]:
        """What is to be delivered of these records, which are those from offset `start` on, before `end`."""
        partition = self._partitions.get(tp)
        if partition is None:
            partition = self._partitions[tp] = _Partition(start)
        elif partition.next_offset != start:
            self._restart(tp, partition, start)
        found = []
        for record in records:
            delivered = self._taken(tp, partition, record)
            if delivered is not None and delivered.offset >= partition.deliver_from:
                found.append(delivered)
        partition.next_offset = end
        self._drop_far_behind(tp, partition)
        return found

    def forget_oldest(self) -> None:
        """Remember the latest complete messages only. Before each poll(): `seek` leads back to all that the last one
        has taken, if it could not return them."""
        for partition in self._partitions.values():
            while len(partition.completed) > self._tracked_max:
                del partition.completed[next(iter(partition.completed))]

    def expire(self) -> None:
        """Drop what is too old."""
        while self._all:
            (tp, _), oldest = next(iter(self._all.items()))
            if self.now_ms < oldest.first_ms + self._age_ms_max:
                return
            self._drop(tp, oldest, DropReason.AGE)

    # --- offsets

    def safe_offset(self, tp: TopicPartition, position: int) -> int:
        """Where all unfinished messages begin again, if one begins there; the position, if none is unfinished."""
        partition = self._partitions.get(tp)
        if partition is None or partition.next_offset != position:
            return position
        for oldest in partition.unfinished.values():
            return oldest.first_offset
        return position

    def committed_metadata(self, tp: TopicPartition, position: int) -> str:
        """What is committed with the safe offset, for `begin_at_committed`."""
        partition = self._partitions.get(tp)
        if partition is None or partition.next_offset != position:
            return ""
        delivered = max(position, partition.deliver_from)
        return f"raylog.deliver-from={delivered}" if delivered > self.safe_offset(tp, position) else ""

    def seek(self, tp: TopicPartition, offset: int) -> int:
        """Where to read from, to deliver all messages that end at `offset` or later, as far as their first chunks are
        known: those that were read and are unfinished, or among the latest that were completed."""
        partition = self._partitions.setdefault(tp, _Partition(offset))
        before = [first for first, last in partition.completed.values() if offset <= last < OFFSET_END]
        open_ends = [first for first, last in partition.completed.values() if last == OFFSET_END]
        open_ends += [each.first_offset for each in partition.unfinished.values()]
        before += [first for first in open_ends if offset - first <= self._offset_gap_max]  # others would be dropped
        start = min((first for first in before if first < offset), default=offset)
        self._restart(tp, partition, start)
        partition.deliver_from = offset
        return start

    def begin_at_committed(self, tp: TopicPartition, offset: int, metadata: str) -> None:
        """The partition is read from a committed offset on, of which the metadata may tell what was delivered."""
        partition = self._partitions.setdefault(tp, _Partition(offset))
        self._restart(tp, partition, offset)
        match = _DELIVER_FROM.fullmatch(metadata)
        partition.deliver_from = int(match[1]) if match else 0

    def forget(self, tp: TopicPartition) -> None:
        """The position is moved; what was completed is still known."""
        partition = self._partitions.get(tp)
        if partition is not None:
            self._restart(tp, partition, -1)

    def keep_only(self, partitions: Container[TopicPartition]) -> None:
        """Drop the state of all others, without a report: their next owner reads the chunks again."""
        for tp in [tp for tp in self._partitions if tp not in partitions]:
            self.forget(tp)
            del self._partitions[tp]

    # --- internals

    def _taken(self, tp: TopicPartition, partition: _Partition, record: ConsumerRecord) -> ConsumerRecord | None:
        if not record.headers:
            return record
        chunk = chunk_of(record.headers)
        if chunk is None or record.value is None:
            return None if record.value is None and is_surplus(record.headers) else record
        message = partition.unfinished.get(chunk.message_id)
        if message is None:
            message = self._begun(tp, partition, chunk, record)
            if message is None:
                return None
        if chunk.index < message.next_index:
            self.statistics.duplicates += 1
            return None
        reason = DropReason.LOST if chunk.index > message.next_index else message.add(chunk, record.value)
        if reason is not None:
            self._drop(tp, message, reason)
            return None
        if not chunk.is_last:
            return None
        self._remove(tp, message)
        self.statistics.completed += 1
        before = partition.completed.pop(chunk.message_id, (message.first_offset, record.offset))
        partition.completed[chunk.message_id] = (min(before[0], message.first_offset), record.offset)
        headers = headers_of_message(record.headers)
        return record._replace(key=message.key, value=message.buffer.getvalue(), headers=headers)

    def _begun(
        self, tp: TopicPartition, partition: _Partition, chunk: Chunk, record: ConsumerRecord
    ) -> _Unfinished | None:
        """The message whose first chunk this is; None if it is another chunk, or there is no room."""
        known = partition.completed.get(chunk.message_id)
        if known is not None and record.offset > known[1]:
            self.statistics.duplicates += 1
            return None
        if chunk.index:
            self.statistics.orphans += 1
            return None
        if chunk.size > self._bytes_max:
            self._report(DroppedMessage(tp, chunk.message_id, record.offset, DropReason.TOO_LARGE))
            return None
        while self.used_bytes + chunk.size > self._bytes_max:
            (oldest_tp, _), oldest = next(iter(self._all.items()))
            self._drop(oldest_tp, oldest, DropReason.CAPACITY)
        if len(partition.unfinished) >= self._tracked_max:
            self._drop(tp, next(iter(partition.unfinished.values())), DropReason.TRACKED)
        message = _Unfinished(chunk, record, self.now_ms)
        partition.unfinished[chunk.message_id] = self._all[tp, chunk.message_id] = message
        self.used_bytes += chunk.size
        return message

    def _drop_far_behind(self, tp: TopicPartition, partition: _Partition) -> None:
        while partition.unfinished:
            oldest = next(iter(partition.unfinished.values()))
            if partition.next_offset - oldest.first_offset <= self._offset_gap_max:
                return
            self._drop(tp, oldest, DropReason.OFFSET_GAP)

    def _restart(self, tp: TopicPartition, partition: _Partition, start: int) -> None:
        for message_id, message in list(partition.unfinished.items()):
            self._remove(tp, message)
            partition.completed[message_id] = (message.first_offset, OFFSET_END)
        partition.next_offset, partition.deliver_from = start, 0

    def _drop(self, tp: TopicPartition, message: _Unfinished, reason: DropReason) -> None:
        self._remove(tp, message)
        self._partitions[tp].completed.pop(message.chunk.message_id, None)
        self._report(DroppedMessage(tp, message.chunk.message_id, message.first_offset, reason))

    def _report(self, dropped: DroppedMessage) -> None:
        self.dropped.append(dropped)
        self.statistics.dropped[dropped.reason] += 1

    def _remove(self, tp: TopicPartition, message: _Unfinished) -> None:
        message_id = message.chunk.message_id
        del self._partitions[tp].unfinished[message_id], self._all[tp, message_id]
        self.used_bytes -= message.chunk.size
