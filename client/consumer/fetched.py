"""Batches of a partition as they were fetched, decoded one by one as their records are asked for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from raylog.core.ids import NO_LEADER_EPOCH, ZERO_TOPIC_ID, TopicPartition
from raylog.protocol.records.batch import MalformedBatch, crc_is_valid, parse_header, split_batches
from raylog.protocol.records.isolation import Aborted, AbortedBatches
from raylog.protocol.records.reader import read_records_as, whole_batches


class ConsumerRecord(NamedTuple):
    """One record. `timestamp_type` is 0 for CreateTime, 1 for LogAppendTime."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]


class FetchedBatches:
    """A piece of a partition's log, which begins with the batch that contains `start`."""

    def __init__(
        self, tp: TopicPartition, records: bytes, start: int, aborted: Sequence[Aborted], *, check_crcs: bool
    ) -> None:
        self.tp = tp
        size_bytes, self.next_offset = whole_batches(records)
        """One past the last offset of its last complete batch; 0 if none is complete."""
        self.records = memoryview(records)[:size_bytes]
        """The complete batches."""
        self.aborted = aborted
        self.topic_id = ZERO_TOPIC_ID
        """Of the topic that they are from; zero if that is not known, as from a broker that has no ids."""
        self.node_id: int | None = None
        """The broker that has sent them; None: they were read from files."""
        self.epoch: int = NO_LEADER_EPOCH
        """The leader epoch of the batch of the last record that was taken."""
        self._start = start
        self._position = start
        self.check_crcs = check_crcs
        self._aborted = AbortedBatches(aborted)
        self._at = 0
        """Where the next batch is."""
        self._decoded: Sequence[ConsumerRecord] = ()
        """The records of the batch before."""
        self._taken = 0
        """How many of them were taken."""

    @property
    def finished(self) -> bool:
        """Whether all of it was taken."""
        return self._at >= len(self.records) and self._taken >= len(self._decoded)

    @property
    def position(self) -> int:
        """The offset behind what was taken."""
        return self._decoded[self._taken].offset if self._taken < len(self._decoded) else self._position

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch."""
        epoch: int = NO_LEADER_EPOCH
        for _, header in split_batches(self.records):
            epoch = header.partition_leader_epoch
        return epoch

    def take(self, count: int) -> list[ConsumerRecord]:
        """At most `count` further records.

        Raises MalformedBatch at a batch that cannot be read, in a call of its own: those before are returned first.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < count and not self.finished:
            if self._taken >= len(self._decoded):
                try:
                    self._decode_next()
                except MalformedBatch:
                    if not taken:
                        raise
                    break
            more = self._decoded[self._taken : self._taken + count - len(taken)]
            self._taken += len(more)
            taken += more
        return taken

    def skip_batch(self) -> None:
        """Pass over the next batch, after `take` has raised MalformedBatch for it."""
        header = parse_header(self.records, self._at)
        self._at += header.size_bytes
        self._position = max(header.next_offset, self._start)

    def _decode_next(self) -> None:
        header = parse_header(self.records, self._at)
        if self.check_crcs and not crc_is_valid(self.records, self._at, header):
            raise MalformedBatch(header.base_offset, header.next_offset, "its checksum is wrong")
        wanted = not self._aborted.include(header) and not header.is_control and header.next_offset > self._start
        decoded: Sequence[ConsumerRecord] = ()
        if wanted:
            decoded = read_records_as(ConsumerRecord, self.tp, self.records, self._at, header, from_offset=self._start)
        self._decoded, self._taken = decoded, 0
        self._at += header.size_bytes
        self._position = max(header.next_offset, self._start)
        self.epoch = header.partition_leader_epoch
