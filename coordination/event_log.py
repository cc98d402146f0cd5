"""Executes a command of an event-sourced state machine on a log: appends its records first, then replays them.

If the append raises, the machine is unchanged, so memory never runs ahead of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from raylog.core.errors import InvariantViolation
from raylog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, LeaderEpoch, Offset
from raylog.core.outcome import Outcome
from raylog.logstore.log import Log
from raylog.protocol.records.batch import BatchHeader, split_batches
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.reader import Record, read_records

Event = TypeVar("Event")
Response = TypeVar("Response")
LOAD_BYTES = 64 << 10
"""How much of a log is replayed in one step: a few hundred records, a few milliseconds."""


class EventLog(Generic[Event]):
    """The log of one state machine under one leader epoch. Call `load_some` until loaded, then `commit` outcomes."""

    def __init__(
        self,
        log: Log,
        leader_epoch: LeaderEpoch,
        *,
        encode: Callable[[Event], tuple[bytes | None, bytes | None]],
        decode: Callable[[BatchHeader, Record], Event | None],
        replay: Callable[[Event], None],
    ) -> None:
        """`decode` returns None for records of other machines; it is also called for control batches."""
        self.log = log
        self.leader_epoch = leader_epoch
        self._encode = encode
        self._decode = decode
        self._replay = replay
        self._loaded_upto = Offset(0)

    def load_some(self) -> bool:
        """Replay the next LOAD_BYTES of the log and return whether more remains. Raises KafkaError."""
        log = self.log
        start = max(self._loaded_upto, log.log_start_offset)
        if start >= log.log_end_offset:
            return False
        piece = log.read(Offset(start), max_bytes=LOAD_BYTES, upto=log.log_end_offset)
        for position, header in split_batches(piece.records):
            for record in read_records(piece.records, position, header):
                event = self._decode(header, record) if record.offset >= start else None
                if event is not None:
                    self._replay(event)
        if piece.next_offset <= start:
            raise InvariantViolation(f"{log.topic_partition} cannot be read past offset {start}")
        self._loaded_upto = piece.next_offset
        return self._loaded_upto < log.log_end_offset

    def commit(
        self,
        outcome: Outcome[Response, Event],
        *,
        now_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> Response:
        """Append and replay the outcome's records, in a producer's transaction if one is given; returns the response.

        Raises KafkaError if the log cannot be written.
        """
        if outcome.records:
            self._append(outcome.records, now_ms, producer_id, producer_epoch)
            for event in outcome.records:
                self._replay(event)
        return outcome.response

    def _append(self, events: Sequence[Event], now_ms: int, producer_id: int, producer_epoch: int) -> None:
        expected = self.log.log_end_offset
        batch = build_batch(
            [NewRecord(*self._encode(event), now_ms) for event in events],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer_id != NO_PRODUCER_ID,
        )
        appended = self.log.append_as_leader(
            memoryview(batch), leader_epoch=self.leader_epoch, now_ms=now_ms, from_client=False
        )
        if appended.first_offset != expected:
            raise InvariantViolation(f"appended at {appended.first_offset}, expected {expected}")
