"""The decisions of one worker: what to work on, when to commit, and what becomes of a record that fails. Pure.

Each assigned partition is a lane. Records enter it as they are polled, are worked on in order, and leave it as results
are reported; the lane's offset is then to be committed. A lane whose first record fails waits for its retry while the
others go on. Results for a lane that was given up, or rewound, are ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from raylog.client.backoff import backoff_ms
from raylog.client.consumer.fetched import ConsumerRecord
from raylog.client.processing.records import Failure, OutputRecord, dead_letter
from raylog.client.processing.settings import ProcessSettings
from raylog.core.ids import TopicPartition

IDLE_POLL_MS: Final = 200
"""Longest wait in poll(): a worker that is asked to stop notices within this time."""
COMMIT_BACKOFF_MS: Final = 100
REWINDS_MAX: Final = 10
"""A worker whose work was undone this often without one commit gives up."""


@dataclass(slots=True, eq=False)
class Lane:
    """A partition."""

    tp: TopicPartition
    pending: deque[ConsumerRecord] = field(default_factory=deque)
    """Polled, and not done."""
    uncommitted_from: int | None = None
    """The offset of the first record that was polled and is not committed."""
    next_offset: int | None = None
    """What is to be committed; None without a result since the last commit."""
    done: int = 0
    """Results since the last commit: records, outputs and dead letters."""
    outputs: int = 0
    dead_letters: int = 0
    attempts: int = 0
    """Failed attempts at the first pending record."""
    retry_ms: int = 0
    """Not worked on before (monotonic)."""
    one_by_one_until: int = 0
    """Records before this offset are worked on one by one, as a batch of them has failed. Used by the work thread."""


class Batch(NamedTuple):
    """Records of one partition to work on, in order, up to the first that fails."""

    lane: Lane
    records: Sequence[ConsumerRecord]
    refused: Mapping[int, Failure]
    """By offset: records that were worked on before, whose outputs a broker has refused for good."""


class Result(NamedTuple):
    """The end of the work on a record."""

    lane: Lane
    record: ConsumerRecord
    outputs: Sequence[OutputRecord] = ()
    failure: Failure | None = None


class Send(NamedTuple):
    """An output, and the record of which it was made."""

    record: ConsumerRecord
    output: OutputRecord
    failure: Failure | None = None
    """Why the record has failed; the output is its dead letter."""


class FailedRecord(NamedTuple):
    """The record at which the pool stops."""

    tp: TopicPartition
    offset: int
    failure: Failure
    attempts: int


@dataclass(slots=True)
class Counts:
    """Since the worker was started; what was not committed does not count."""

    records: int = 0
    outputs: int = 0
    dead_letters: int = 0
    failures: int = 0
    """Failed attempts, whether or not a retry succeeded."""
    commits: int = 0


class WorkerState:
    """Times are monotonic milliseconds."""

    def __init__(
        self, settings: ProcessSettings, *, worker: int, work: str, records_max: int, jitter: Callable[[], float]
    ) -> None:
        """`records_max`: how many records may be polled and not done; `work` is its name, for dead letters."""
        self.counts = Counts()
        self.failed: FailedRecord | None = None
        self.must_rewind = False
        """Whether what is not committed must be undone."""
        self._settings = settings
        self._worker = worker
        self._work = work
        self._records_max = records_max
        self._jitter = jitter
        self._lanes: dict[TopicPartition, Lane] = {}
        self._refused: dict[tuple[TopicPartition, int], Failure] = {}
        self._done_since_ms: int | None = None
        self._commit_after_ms = 0
        self._commit_first = False
        """Whether the records behind a dead letter wait for its commit."""
        self._turn = 0
        self._rewinds = 0
        self._rewind_counts = True
        self._unavailable_ms: int | None = None
        """When an output or a commit has failed because of an error that may pass."""
        self._pauses = 0
        """After such errors, in a row."""

    # --- partitions

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._lanes[tp] = Lane(tp)

    def given_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Others may have the partitions from now on; what was done and is not committed is theirs to do again."""
        for tp in partitions:
            lane = self._lanes.pop(tp, None)
            if lane is not None and lane.next_offset is not None and self._settings.exactly_once:
                self.must_rewind = True  # its outputs are in the open transaction
        if not self.offsets():
            self._done_since_ms = None

    # --- records

    @property
    def pending(self) -> int:
        return sum(len(lane.pending) for lane in self._lanes.values())

    @property
    def room(self) -> int:
        """How many records may be polled."""
        return max(0, self._records_max - self.pending)

    def paused(self, now_ms: int) -> set[TopicPartition]:
        """The partitions of which nothing is to be polled: all without room, or those that wait for a retry."""
        return {tp for tp, lane in self._lanes.items() if not self.room or lane.retry_ms > now_ms}

    def polled(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            lane = self._lanes.setdefault(tp, Lane(tp))
            if lane.uncommitted_from is None:
                lane.uncommitted_from = record.offset
            lane.pending.append(record)

    def pending_of(self, tp: TopicPartition) -> int:
        lane = self._lanes.get(tp)
        return 0 if lane is None else len(lane.pending)

    def poll_ms(self, now_ms: int) -> int:
        """How long poll() may wait for records."""
        due = [lane.retry_ms for lane in self._lanes.values() if lane.pending]
        if self._done_since_ms is not None:
            due.append(max(self._commit_after_ms, self._done_since_ms + self._settings.commit_interval_ms))
        return max(0, min([IDLE_POLL_MS, *(each - now_ms for each in due)]))

    # --- work

    def take_work(self, now_ms: int) -> list[Batch]:
        """What can be worked on now, in another order of partitions each time; it stays pending until its result."""
        ready = [lane for lane in self._lanes.values() if lane.pending and lane.retry_ms <= now_ms]
        self._turn += 1
        turn = self._turn % len(ready) if ready else 0
        return [
            Batch(lane, tuple(lane.pending), {at: why for (tp, at), why in self._refused.items() if tp == lane.tp})
            for lane in ready[turn:] + ready[:turn]
        ]

    def worked(self, results: Iterable[Result], now_ms: int) -> list[Send]:
        """What is to be sent now."""
        sends: list[Send] = []
        for result in results:
            lane, record = result.lane, result.record
            if self._lanes.get(lane.tp) is not lane or not lane.pending or lane.pending[0] is not record:
                continue
            if result.failure is None:
                lane.outputs += len(result.outputs)
                sends += [Send(record, output) for output in result.outputs]
            else:
                letter = self._failed(lane, record, result.failure, now_ms)
                if letter is None:
                    continue
                lane.dead_letters += 1
                sends.append(Send(record, letter, result.failure))
            self._done(lane, record, now_ms)
        return sends

    def refused(self, send: Send, failure: Failure) -> None:
        """A broker will never accept the output. The work is undone, and done again up to its record, which fails.

        A dead letter is made once more, without message and trace, as it may be too large.
        """
        tp, offset = TopicPartition(send.record.topic, send.record.partition), send.record.offset
        self.must_rewind, self._rewind_counts = True, False
        if send.failure is None:
            self._refused[tp, offset] = failure
        elif send.failure.message or send.failure.trace:
            self._refused[tp, offset] = send.failure._replace(message="", trace="", retriable=False)
        else:
            self.failed = self.failed or FailedRecord(tp, offset, failure, 1)

    def undo(self, now_ms: int, *, retriable: bool) -> None:
        """What is not committed must be undone; if the error may pass, its work is done again after a pause."""
        self.must_rewind = True
        if retriable:
            self._rewind_counts = False
            self._unavailable_ms = now_ms

    def _failed(self, lane: Lane, record: ConsumerRecord, failure: Failure, now_ms: int) -> OutputRecord | None:
        """The dead letter, if the record is to be passed over."""
        settings = self._settings
        self.counts.failures += 1
        lane.attempts += 1
        if failure.retriable and lane.attempts <= settings.retries:
            pause_ms = backoff_ms(lane.attempts, settings.retry_backoff_ms, settings.retry_backoff_max_ms, self._jitter)
            lane.retry_ms = now_ms + pause_ms
            return None
        if settings.dead_letter_topic is None:
            self.failed = self.failed or FailedRecord(lane.tp, record.offset, failure, lane.attempts)
            return None
        return dead_letter(
            record,
            failure,
            topic=settings.dead_letter_topic,
            pool=settings.group_id,
            worker=self._worker,
            work=self._work,
        )

    def _done(self, lane: Lane, record: ConsumerRecord, now_ms: int) -> None:
        lane.pending.popleft()
        lane.next_offset = record.offset + 1
        lane.done += 1
        lane.attempts, lane.retry_ms = 0, 0
        if (lane.tp, record.offset) in self._refused:
            following = lane.pending[0].offset if lane.pending else None
            # what is behind the dead letter may be refused too, and must not undo it again
            self._commit_first |= (lane.tp, following) not in self._refused
        if self._done_since_ms is None:
            self._done_since_ms = now_ms

    # --- offsets

    def commit_due(self, now_ms: int, *, ending: bool = False) -> bool:
        """Whether to commit before any other work."""
        if self._done_since_ms is None or self.must_rewind:
            return self.must_rewind
        if now_ms < self._commit_after_ms:
            return False
        idle = not any(lane.pending and lane.retry_ms <= now_ms for lane in self._lanes.values())
        late = now_ms - self._done_since_ms >= self._settings.commit_interval_ms
        return ending or idle or late or self._commit_first

    def offsets(self) -> dict[TopicPartition, int]:
        """What is to be committed."""
        return {tp: lane.next_offset for tp, lane in self._lanes.items() if lane.next_offset is not None}

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._done_since_ms = None
        self._commit_first = False
        self._rewinds = self._pauses = 0
        self.counts.commits += 1
        for tp, offset in offsets.items():
            lane = self._lanes.get(tp)
            if lane is None or lane.next_offset != offset:
                continue
            self.counts.records += lane.done
            self.counts.outputs += lane.outputs
            self.counts.dead_letters += lane.dead_letters
            lane.done = lane.outputs = lane.dead_letters = 0
            lane.next_offset = None
            lane.uncommitted_from = lane.pending[0].offset if lane.pending else None
        self._refused = {(tp, at): why for (tp, at), why in self._refused.items() if at >= offsets.get(tp, 0)}

    def not_committed(self, now_ms: int) -> None:
        """The commit has failed; it is due again after a pause."""
        self._commit_after_ms = now_ms + COMMIT_BACKOFF_MS

    def rewind(self) -> dict[TopicPartition, int]:
        """Undo what is not committed: where to go on. Raises OverflowError after REWINDS_MAX in a row.

        Those after which a refused record will become a dead letter, and those after errors that may pass, do not
        count.
        """
        self._rewinds += self._rewind_counts
        if self._rewinds > REWINDS_MAX:
            raise OverflowError(self._rewinds)
        self.must_rewind, self._rewind_counts = False, True
        self._done_since_ms = None
        self._commit_first = False
        offsets = {tp: lane.uncommitted_from for tp, lane in self._lanes.items() if lane.uncommitted_from is not None}
        retry_ms = 0
        if self._unavailable_ms is not None:
            self._pauses += 1
            settings = self._settings
            pause_ms = backoff_ms(self._pauses, settings.retry_backoff_ms, settings.retry_backoff_max_ms, self._jitter)
            retry_ms, self._unavailable_ms = self._unavailable_ms + pause_ms, None
        for tp in offsets:
            self._lanes[tp] = Lane(tp, retry_ms=retry_ms)
        return offsets
