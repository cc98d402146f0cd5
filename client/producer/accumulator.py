"""Records that wait to be sent, in one queue of batches for each partition. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Final

from raylog.client.producer.delivery import OnDelivery, ProducerRecord, RecordMetadata
from raylog.core.errors import KafkaError
from raylog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from raylog.protocol.records.batch import HEADER_SIZE, parse_header
from raylog.protocol.records.builder import BatchBuilder
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.reader import read_records
from raylog.protocol.records.record_encoding import shorten

SEQUENCE_LIMIT: Final = 1 << 31
"""Sequence numbers begin again with 0."""
BODIES_MAX: Final = 8
"""How many bodies of acknowledged batches are kept for the next ones, each of up to twice batch.size."""


class ProducerBatch:
    """Records for one partition, from the first `append` to the acknowledgement or failure of all of them."""

    __slots__ = (
        "append_time_ms",
        "attempts",
        "base_offset",
        "base_sequence",
        "builder",
        "callbacks",
        "closed",
        "codec",
        "created_ms",
        "delivered",
        "done",
        "encoded",
        "error",
        "number",
        "parent",
        "parts",
        "producer_epoch",
        "producer_id",
        "record_errors",
        "refusal",
        "size_bytes",
        "tp",
        "unknown",
    )

    def __init__(self, tp: TopicPartition, number: tuple[int, ...], created_ms: int, builder: BatchBuilder) -> None:
        self.tp = tp
        self.number = number
        """Batches of a partition are sent in the order of their numbers; halves have one more place than the whole."""
        self.builder = builder
        self.codec: Codec | None = None
        """None: that of the producer."""
        self.created_ms = created_ms
        self.callbacks: list[tuple[int, int, OnDelivery]] = []
        """Who wants to be told: the number of the record in the batch, its timestamp, and the function."""
        self.size_bytes = HEADER_SIZE
        """Upper bound of the encoded batch without compression."""
        self.closed = False
        """No more records are taken."""
        self.encoded: bytearray | None = None
        self.attempts = 0
        """How often it was sent."""
        self.producer_id: int = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.unknown = False
        """An attempt has ended so that the batch may have been appended."""
        self.done = False
        self.delivered = False
        """The callbacks have been called."""
        self.refusal: KafkaError | None = None
        """Of the last attempt, if it is tried again."""
        self.error: KafkaError | None = None
        self.record_errors: Mapping[int, KafkaError] = {}
        """What is wrong with single records, by their numbers; the others have `error`."""
        self.base_offset = -1
        self.append_time_ms = -1
        self.parent: ProducerBatch | None = None
        """The batch that was split into this one and others."""
        self.parts: list[tuple[int, ProducerBatch]] = []
        """What it was split into, each with the number of its first record here; it is done when all of them are."""

    def encode(self, codec: Codec, *, transactional: bool = False) -> bytearray:
        """The batch as it is sent, under its present producer id and sequence."""
        if self.encoded is None:
            self.encoded = self.builder.build(
                codec=codec if self.codec is None else self.codec,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
                transactional=transactional,
            )
        return self.encoded

    def metadata(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Where the record with this number was appended. Raises the KafkaError if it was not."""
        for first, part in reversed(self.parts):
            if index >= first:
                return part.metadata(index - first, timestamp_ms)
        if self.error is not None:
            raise self.record_errors.get(index, self.error)
        offset = self.base_offset if self.base_offset < 0 else self.base_offset + index
        appended_ms = self.append_time_ms if self.append_time_ms >= 0 else timestamp_ms
        return RecordMetadata(self.tp.topic, self.tp.partition, offset, appended_ms)

    def release(self) -> bytearray:
        """Give away the memory of the records, so that a program which keeps its deliveries does not keep them."""
        self.encoded = None
        return self.builder.release()

    def finish(self) -> None:
        """Done, and with it the batch of which it was the last part."""
        self.done = True
        parent = self.parent
        if parent is not None and all(part.done for _, part in parent.parts):
            parent.finish()

    def mark_delivered(self) -> None:
        """The callbacks have been called."""
        self.delivered = True
        parent = self.parent
        if parent is not None and all(part.delivered for _, part in parent.parts):
            parent.mark_delivered()

    def set_sequence(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self.encoded = None


def all_delivered(batches: deque[ProducerBatch]) -> bool:
    """Whether the callbacks of all have been called. Asked again and again: those at the front are taken away."""
    while batches and batches[0].delivered:
        batches.popleft()
    return not batches


class PartitionQueue:
    """The batches of one partition: those that wait, and those that are sent and not answered, each in order."""

    __slots__ = (
        "acknowledged",
        "backoff_until_ms",
        "begins_anew",
        "epoch",
        "in_flight",
        "next_sequence",
        "producer_id",
        "tp",
        "waiting",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: deque[ProducerBatch] = deque()
        self.backoff_until_ms = 0
        self.producer_id: int = NO_PRODUCER_ID
        self.epoch = NO_PRODUCER_EPOCH
        self.begins_anew = False
        """The batches in flight will be refused: nothing is sent before all of them are back in the queue."""
        self.acknowledged = False
        """Whether a batch was appended under the present producer epoch. Before that only one is in flight: a leader
        that has just begun could refuse the first one, and take the second as the beginning."""
        self.next_sequence = 0
        """Sequence number of the next record."""

    def is_first(self, batch: ProducerBatch) -> bool:
        """Whether no earlier batch is unfinished."""
        return all(other.number >= batch.number for others in (self.in_flight, self.waiting) for other in others)

    def put_back(self, batch: ProducerBatch, *parts: ProducerBatch) -> None:
        """A batch in flight has to be sent again, in its order; in its parts, if there are any."""
        self.in_flight.remove(batch)
        before = sum(1 for _ in takewhile(lambda other: other.number < batch.number, self.waiting))
        for part in reversed(parts or (batch,)):
            self.waiting.insert(before, part)


class RecordAccumulator:
    """The queues of all partitions, and the memory that their records use."""

    __slots__ = ("_bodies", "_count", "active", "batch_bytes", "buffer_bytes", "queues", "used_bytes")

    def __init__(self, *, batch_bytes: int, buffer_bytes: int) -> None:
        self.used_bytes = 0
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.active: dict[TopicPartition, PartitionQueue] = {}
        """Those with batches."""
        self.batch_bytes = batch_bytes
        self.buffer_bytes = buffer_bytes
        self._count = 0
        self._bodies: list[bytearray] = []
        """Of acknowledged batches, for the next ones: memory that is fresh costs more than what is written into it."""

    def has_room(self, record_bytes: int) -> bool:
        return self.used_bytes + record_bytes <= self.buffer_bytes

    def fits(self, tp: TopicPartition, record_bytes: int) -> bool:
        """Whether the last batch of the partition takes the record."""
        queue = self.queues.get(tp)
        return queue is not None and bool(queue.waiting) and self._takes(queue.waiting[-1], record_bytes)

    def _takes(self, batch: ProducerBatch, record_bytes: int) -> bool:
        return not batch.closed and batch.size_bytes + record_bytes <= self.batch_bytes

    def append(self, tp: TopicPartition, record: ProducerRecord, now_ms: int) -> tuple[ProducerBatch, bool]:
        """The batch that the record is in, and whether the sender has something new to do."""
        size = record.bytes_max
        queue = self._queue(tp)
        batch = queue.waiting[-1] if queue.waiting else None
        fresh = batch is None or not self._takes(batch, size)
        builder = self.new_builder() if batch is None or fresh else batch.builder
        builder.append(record.key, record.value, record.timestamp_ms, record.headers)
        if batch is None or fresh:
            if batch is not None:
                batch.closed = True
            batch = self._new_batch(queue, builder, now_ms)
        if record.on_delivery is not None:
            batch.callbacks.append((batch.builder.count - 1, record.timestamp_ms, record.on_delivery))
        batch.size_bytes += size
        self.used_bytes += size
        if batch.size_bytes >= self.batch_bytes:
            batch.closed = fresh = True
        return batch, fresh

    def append_batch(
        self, tp: TopicPartition, builder: BatchBuilder, now_ms: int, *, codec: Codec | None = None
    ) -> ProducerBatch:
        """A batch of its own that takes no more records. Without `codec` it gets that of the producer."""
        queue = self._queue(tp)
        if queue.waiting:
            queue.waiting[-1].closed = True
        batch = self._new_batch(queue, builder, now_ms)
        batch.codec, batch.closed = codec, True
        batch.size_bytes += builder.size_bytes
        self.used_bytes += builder.size_bytes
        return batch

    def removed(self, batch: ProducerBatch) -> None:
        """The batch is acknowledged or has failed: its memory is free."""
        queue = self.queues[batch.tp]
        (queue.in_flight if batch in queue.in_flight else queue.waiting).remove(batch)
        if not (queue.in_flight or queue.waiting):
            self.active.pop(batch.tp, None)
        self.released(batch)

    def new_builder(self) -> BatchBuilder:
        """One with the memory of a former batch, if there is any. Threads may call it at the same time."""
        with suppress(IndexError):
            return BatchBuilder(self._bodies.pop())
        return BatchBuilder()

    def recycle(self, batch: ProducerBatch) -> None:
        """The batch is acknowledged: its memory is for the next one, unless a connection has not written it yet."""
        body = batch.release()
        if len(self._bodies) < BODIES_MAX and HEADER_SIZE < len(body) <= self.batch_bytes:
            with suppress(BufferError):
                shorten(body, HEADER_SIZE)
                self._bodies.append(body)

    def _queue(self, tp: TopicPartition) -> PartitionQueue:
        queue = self.queues.get(tp)
        if queue is None:
            queue = self.queues[tp] = PartitionQueue(tp)
        return queue

    def _new_batch(self, queue: PartitionQueue, builder: BatchBuilder, now_ms: int) -> ProducerBatch:
        self._count += 1
        batch = ProducerBatch(queue.tp, (self._count,), now_ms, builder)
        queue.waiting.append(batch)
        self.active[queue.tp] = queue
        return batch

    def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Two batches that take the place of this one in the queue, with half of its records each.

        They keep its time and its sequence numbers. Callbacks move to the halves.
        """
        encoded = batch.builder.build()
        records = read_records(encoded, 0, parse_header(encoded, 0))
        middle = len(records) // 2
        halves = []
        for first, part in ((0, records[:middle]), (middle, records[middle:])):
            half = ProducerBatch(batch.tp, (*batch.number, first), batch.created_ms, BatchBuilder())
            half.parent, half.codec, half.closed = batch, batch.codec, True
            for record in part:
                half.builder.append(record.key, record.value, record.timestamp_ms, record.headers)
                own = ProducerRecord("", record.key, record.value, record.headers, None, 0)
                half.size_bytes += own.bytes_max
            if batch.base_sequence != NO_SEQUENCE:
                sequence = (batch.base_sequence + first) % SEQUENCE_LIMIT
                half.set_sequence(batch.producer_id, batch.producer_epoch, sequence)
            end = first + len(part)
            half.callbacks = [
                (index - first, timestamp_ms, told)
                for index, timestamp_ms, told in batch.callbacks
                if first <= index < end
            ]
            batch.parts.append((first, half))
            halves.append(half)
        batch.callbacks = []
        batch.release()
        self.released(batch)
        self.used_bytes += sum(half.size_bytes - HEADER_SIZE for half in halves)
        self.queues[batch.tp].put_back(batch, *halves)
        return halves

    def released(self, batch: ProducerBatch) -> None:
        self.used_bytes -= batch.size_bytes - HEADER_SIZE
