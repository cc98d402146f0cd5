"""One share-partition: the records that a share group has in flight in one partition, at the partition's leader.

    AVAILABLE --acquire--> ACQUIRED --accept--> ACKNOWLEDGED
        ^                     |  |---reject---> ARCHIVED
        +-- release, timeout -+  |---release or timeout at the delivery limit---> ARCHIVED

Records before `start_offset` are done, those after `end_offset` have never been acquired. In between lies a list of
runs: consecutive offsets in the same state. The decision of an acknowledgement takes effect once the share coordinator
has stored it (`settle`); until then no member can acquire the records. An acquisition is not stored: after a change of
leader the records are available again.
Source: KIP-932; for what it leaves open, the behaviour of Apache Kafka 4.2.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.protocol.share import AcknowledgeType, AcquireMode


class RecordState(IntEnum):
    """The delivery state of a record, with the numbers of Kafka's log."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """Offsets in one state, as stored by the share coordinator."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


class Acquired(NamedTuple):
    """Offsets that a member has got, with the number of the delivery."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """What a member says of the offsets, `last_offset` included."""

    first_offset: int
    last_offset: int
    type: AcknowledgeType


class Span(NamedTuple):
    """The offsets of a batch in the log. They are not delivered if it is a marker, or part of an aborted transaction
    that members do not see."""

    first_offset: int
    last_offset: int
    is_delivered: bool = True


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """What the configuration of the broker and of the group says."""

    lock_duration_ms: int
    delivery_count_max: int
    in_flight_max: int

    @property
    def suspect_count(self) -> int:
        """From this delivery count on, a record may be one that breaks its consumers."""
        return max(2, -(-self.delivery_count_max // 2))


@dataclass(frozen=True, slots=True)
class Decided:
    """The states that a decision leads to, to be stored by the share coordinator."""

    ticket: int
    batches: tuple[StateBatch, ...]


@dataclass(slots=True)
class _Run:
    first: int
    last: int
    state: RecordState = RecordState.AVAILABLE
    delivery_count: int = 0
    member_id: str = ""
    deadline_ms: int = 0
    ticket: int | None = None
    """Of the decision that waits to be stored."""
    then: RecordState = RecordState.AVAILABLE
    then_count: int = 0

    @property
    def is_done(self) -> bool:
        return self.state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


_STORED: Final = (RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
_Decide = Callable[[_Run], tuple[RecordState, int]]


class SharePartition:
    """Lifecycle: created from the stored state, then commands and `tick`; each Decided is settled exactly once."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch], *, limits: Callable[[], ShareLimits]) -> None:
        """Raises InvariantViolation for batches that overlap or have a state that is never stored."""
        self.start_offset = start_offset
        self._limits = limits
        self._runs: list[_Run] = []
        self._next_ticket = 1
        for batch in sorted(batches):
            if batch.last_offset < start_offset:
                continue
            first = max(batch.first_offset, start_offset)
            if first <= self.end_offset or batch.last_offset < first or batch.state not in _STORED:
                raise InvariantViolation(f"a share-partition cannot be in the state {batch} at {self.end_offset}")
            if first > self.end_offset + 1:  # acquired there when the state was stored, and not since
                self._runs.append(_Run(self.end_offset + 1, first - 1))
            self._runs.append(_Run(first, batch.last_offset, RecordState(batch.state), batch.delivery_count))
        self._advance()

    # --- queries

    @property
    def end_offset(self) -> int:
        """The last offset in flight; one less than `start_offset` if there is none."""
        return self._runs[-1].last if self._runs else self.start_offset - 1

    @property
    def in_flight(self) -> int:
        """The number of offsets from `start_offset` to `end_offset`."""
        return self.end_offset - self.start_offset + 1

    def to_store(self) -> tuple[int, int]:
        """The start offset, and the number of offsets from there on that are acknowledged or archived (KIP-1226), once
        every pending decision is stored."""
        start_offset, count = self.start_offset, 0
        for run in self._runs:
            if run.is_done or (run.ticket is not None and run.then is not RecordState.AVAILABLE):
                if run.first == start_offset:
                    start_offset = run.last + 1
                else:
                    count += run.last - run.first + 1
        return start_offset, count

    def fetch_offset(self) -> int | None:
        """The first offset that can be acquired; None while too many are in flight."""
        for run in self._runs:
            if run.state is RecordState.AVAILABLE:
                return run.first
        return self.end_offset + 1 if self.in_flight < self._limits().in_flight_max else None

    def acquired_by(self, member_id: str) -> int:
        """The number of records that the member has acquired."""
        return sum(
            run.last - run.first + 1
            for run in self._runs
            if run.state is RecordState.ACQUIRED and run.member_id == member_id
        )

    def states(self) -> Iterator[tuple[int, int, RecordState, int, str]]:
        """(first offset, last offset, state, delivery count, member) of everything in flight, in order."""
        for run in self._runs:
            yield run.first, run.last, run.state, run.delivery_count, run.member_id

    # --- commands

    def acquire(
        self,
        member_id: str,
        spans: Sequence[Span],
        *,
        next_offset: int,
        max_records: int,
        mode: AcquireMode,
        now_ms: int,
    ) -> list[Acquired]:
        """Acquire what is available in `spans`, which were read from `fetch_offset` on, up to `next_offset`.

        Offsets between the spans have no record any more: they are archived, as are those that are not delivered.
        Suspects are delivered by themselves, so that one that breaks its consumers does not take others with it.
        """
        position = self.fetch_offset()
        if position is None or max_records <= 0:
            return []
        limits = self._limits()
        end = min(next_offset, max(self.end_offset + 1, self.start_offset + limits.in_flight_max))
        taken: list[_Run] = []
        count = 0
        is_suspect = False
        for span in spans:
            first, last = max(span.first_offset, position), min(span.last_offset, end - 1)
            if last < first:
                continue
            self._archive_available(position, first - 1)
            position = first
            if not span.is_delivered:
                self._archive_available(first, last)
                position = last + 1
                continue
            for run in self._cut(first, last):
                if run.state is not RecordState.AVAILABLE:
                    position = run.last + 1
                    continue
                most = run.last - run.first + 1 if mode is AcquireMode.BATCH_OPTIMIZED else max_records - count
                is_suspect = run.delivery_count >= limits.suspect_count
                if is_suspect and taken:
                    break
                if is_suspect:
                    most = min(most, _delivered_at_once(run, limits))
                if run.last - run.first + 1 > most:
                    self._split(run.first + most)
                    run = self._at(run.first)
                run.state, run.member_id = RecordState.ACQUIRED, member_id
                run.delivery_count += 1
                run.deadline_ms = now_ms + limits.lock_duration_ms
                taken.append(run)
                count += run.last - run.first + 1
                position = run.last + 1
                if is_suspect or (mode is AcquireMode.RECORD_LIMIT and count >= max_records):
                    break
            if is_suspect or count >= max_records:
                break
        else:
            self._archive_available(position, end - 1)
        acquired = [Acquired(run.first, run.last, run.delivery_count) for run in taken]
        self._trim()
        self._advance()
        return _joined(acquired)

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement], now_ms: int) -> Decided | None:
        """Decide on records that the member has acquired; None if there is nothing to store.

        Raises KafkaError, and changes nothing: INVALID_RECORD_STATE if the member has not acquired one of the records.
        Offsets before `start_offset` are ignored: their records are gone.
        """
        limits = self._limits()
        wanted: list[tuple[int, int, AcknowledgeType]] = []
        for first, last, kind in acknowledgements:
            first = max(first, self.start_offset)
            if last < first:
                continue
            if last > self.end_offset:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, f"Offset {last} was not acquired.")
            for run in self._between(first, last):
                if run.state is not RecordState.ACQUIRED or run.ticket is not None or run.member_id != member_id:
                    raise KafkaError(
                        ErrorCode.INVALID_RECORD_STATE,
                        f"Offsets {max(first, run.first)} to {min(last, run.last)} are not acquired by the member.",
                    )
            wanted.append((first, last, kind))
        decided: list[_Run] = []
        for first, last, kind in wanted:
            for run in self._cut(first, last):
                if kind is AcknowledgeType.RENEW:
                    run.deadline_ms = now_ms + limits.lock_duration_ms
                    continue
                run.then, run.then_count = _decision(kind, run, limits)
                decided.append(run)
        return self._pending(decided)

    def release(self, member_id: str, *, orderly: bool) -> Decided | None:
        """The session of the member has ended: what it has acquired is available again.

        A member that closes its session in an orderly way has not processed what it has not acknowledged: that
        delivery is not counted. A delivery to a member that is lost counts, so that records that break their consumer
        are archived at the limit.
        """
        limits = self._limits()

        def decide(run: _Run) -> tuple[RecordState, int]:
            if orderly:
                return RecordState.AVAILABLE, max(run.delivery_count - 1, 0)
            return _decision(AcknowledgeType.RELEASE, run, limits)

        return self._end_acquisitions(lambda run: run.member_id == member_id, decide)

    def tick(self, now_ms: int) -> Decided | None:
        """Release records whose acquisition lock has timed out, or archive them at the delivery limit."""
        limits = self._limits()
        return self._end_acquisitions(
            lambda run: run.deadline_ms <= now_ms, lambda run: _decision(AcknowledgeType.RELEASE, run, limits)
        )

    def next_deadline_ms(self) -> int | None:
        """When `tick` has work to do (monotonic)."""
        return min(
            (run.deadline_ms for run in self._runs if run.state is RecordState.ACQUIRED and run.ticket is None),
            default=None,
        )

    def settle(self, ticket: int, *, stored: bool) -> None:
        """The share coordinator has stored the decision, or it could not: the member then still has the records."""
        for run in self._runs:
            if run.ticket == ticket:
                run.ticket = None
                if stored:
                    run.state, run.delivery_count, run.member_id = run.then, run.then_count, ""
        self._join()
        self._advance()

    def log_starts_at(self, log_start_offset: int) -> None:
        """Records before this offset were deleted from the log."""
        if log_start_offset <= self.start_offset:
            return
        if log_start_offset <= self.end_offset:
            self._split(log_start_offset)
        self._runs = [run for run in self._runs if run.first >= log_start_offset]
        self.start_offset = log_start_offset
        self._advance()

    # --- decisions

    def _end_acquisitions(self, applies: Callable[[_Run], bool], decide: _Decide) -> Decided | None:
        """These take effect at once: whether they can be stored changes nothing about the member that is gone."""
        batches = []
        for run in self._runs:
            if run.state is RecordState.ACQUIRED and run.ticket is None and applies(run):
                run.state, run.delivery_count = decide(run)
                run.member_id = ""
                batches.append(StateBatch(run.first, run.last, run.state, run.delivery_count))
        if not batches:
            return None
        self._join()
        self._advance()
        return Decided(self._ticket(), tuple(batches))

    def _pending(self, decided: Sequence[_Run]) -> Decided | None:
        if not decided:
            return None
        ticket = self._ticket()
        for run in decided:
            run.ticket = ticket
        return Decided(ticket, tuple(StateBatch(run.first, run.last, run.then, run.then_count) for run in decided))

    def _ticket(self) -> int:
        ticket = self._next_ticket
        self._next_ticket += 1
        return ticket

    # --- runs

    def _index(self, offset: int) -> int:
        return bisect_right(self._runs, offset, key=lambda run: run.first) - 1

    def _at(self, offset: int) -> _Run:
        return self._runs[self._index(offset)]

    def _between(self, first: int, last: int) -> list[_Run]:
        return self._runs[self._index(first) : self._index(last) + 1]

    def _cut(self, first: int, last: int) -> list[_Run]:
        """The runs of exactly these offsets; they are split at both ends, and extended by what is new."""
        if last > self.end_offset:
            self._runs.append(_Run(self.end_offset + 1, last))
        self._split(first)
        self._split(last + 1)
        return self._between(first, last)

    def _split(self, offset: int) -> None:
        """Make a run begin at the offset."""
        index = self._index(offset)
        if index < 0 or offset > self.end_offset:
            return
        run = self._runs[index]
        if run.first < offset:
            self._runs[index : index + 1] = [replace(run, last=offset - 1), replace(run, first=offset)]

    def _archive_available(self, first: int, last: int) -> None:
        if first <= last:
            for run in self._cut(first, last):
                if run.state is RecordState.AVAILABLE:
                    run.state = RecordState.ARCHIVED

    def _trim(self) -> None:
        """Forget what lies at the end and was never acquired."""
        while self._runs and self._runs[-1].state is RecordState.AVAILABLE and not self._runs[-1].delivery_count:
            self._runs.pop()

    def _join(self) -> None:
        """One run for neighbours of the same state, so that many small acknowledgements do not add up."""
        joined: list[_Run] = []
        for run in self._runs:
            if joined and replace(joined[-1], last=run.last) == replace(run, first=joined[-1].first):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self._runs = joined

    def _advance(self) -> None:
        """Move the start over everything that is done."""
        done = 0
        while done < len(self._runs) and self._runs[done].is_done:
            self.start_offset = self._runs[done].last + 1
            done += 1
        del self._runs[:done]


def _decision(kind: AcknowledgeType, run: _Run, limits: ShareLimits) -> tuple[RecordState, int]:
    if kind is AcknowledgeType.ACCEPT:
        return RecordState.ACKNOWLEDGED, run.delivery_count
    if kind is AcknowledgeType.RELEASE and run.delivery_count < limits.delivery_count_max:
        return RecordState.AVAILABLE, run.delivery_count
    return RecordState.ARCHIVED, run.delivery_count


def _delivered_at_once(suspects: _Run, limits: ShareLimits) -> int:
    """How many of them: a half at first, a quarter the next time, and a single one the last time."""
    if suspects.delivery_count >= limits.delivery_count_max - 1:
        return 1
    length = suspects.last - suspects.first + 1
    return max(1, length >> suspects.delivery_count - limits.suspect_count + 1)


def _joined(acquired: Sequence[Acquired]) -> list[Acquired]:
    """Neighbours with the same delivery count as one."""
    joined: list[Acquired] = []
    for each in acquired:
        before = joined[-1] if joined else None
        if before and (before.last_offset + 1, before.delivery_count) == (each.first_offset, each.delivery_count):
            joined[-1] = before._replace(last_offset=each.last_offset)
        else:
            joined.append(each)
    return joined
