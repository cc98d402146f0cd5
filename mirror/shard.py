"""What one shard of a flow does: which partitions it reads, what counts as copied, and when it commits. Pure.

Records go to the producer in the order of the source. A commit waits until all of them have ended, and makes the
progress durable: with exactly-once in the transaction of the records, otherwise behind them. A partition that fails
pauses, and goes on where it has last committed, or with at-least-once behind its last acknowledged record. The others
go on meanwhile. A position that auto.offset.reset led to is committed before anything is sent from it on: the next
owner of the shard would be led to another one.
Nothing is left out: what cannot be copied is tried again until it can.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

from raylog.client.backoff import backoff_ms
from raylog.client.errors import TransactionAbortedError
from raylog.core.clock import Now
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from raylog.mirror.batches import OutgoingBatch
from raylog.mirror.copied import Copied
from raylog.mirror.formats import BEFORE_FIRST
from raylog.mirror.progress import Progress
from raylog.mirror.spread import Spread, SpreadWindow

NO_TOPIC_IDS: Final[Mapping[str, UUID]] = {}
RATE_WINDOW_MS: Final = 30_000
LOOK_MS: Final = 20
"""How often to look whether the consumer has found where a partition begins."""


@dataclass(frozen=True, slots=True)
class ShardSettings:
    exactly_once: bool = True
    commit_interval_ms: int = 1_000
    commit_bytes: int = 32 << 20
    """How much is sent without a commit. It is in memory, and with it what the consumer has fetched meanwhile."""
    backoff_ms: int = 200
    backoff_ms_max: int = 30_000


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch that the producer has."""

    first_offset: int
    next_offset: int
    record_count: int
    size_bytes: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """How far a partition is."""

    topic: str
    partition: int
    target_topic: str
    shard: int
    state: str
    """running; failing: tried again after a pause; blocked: the target has no place for it."""
    next_offset: int | None
    """The source is copied up to this offset, exclusive; None if nothing is committed yet."""
    lag: int | None
    """Offsets of the source that are not copied; None while the end is not known."""
    records: int
    """Copied since this shard was opened."""
    size_bytes: int
    records_per_sec: float
    bytes_per_sec: float
    """The mean of the last 30 seconds."""
    last_record_age_ms: int | None
    """Of the last record that was copied: the time since its timestamp."""
    record_ages: Spread | None
    """Of the last 30 seconds, in milliseconds: how old the newest record of each batch was when it was read."""
    replication_latencies: Spread | None
    """The same until its commit in the target."""
    lost: int
    """Offsets that the source had deleted before they were copied."""
    error: str | None
    """The last one; None once the partition goes on."""
    attempts: int


@dataclass(slots=True, eq=False)
class PartitionCopy:
    """One source partition."""

    tp: TopicPartition
    target: TopicPartition
    topic_id: UUID | None = None
    """Of the topic that the offsets below belong to, as far as it is known."""
    new_topic_id: UUID | None = None
    """Of the topic that has come in its place: begun once nothing of the former one waits for a commit."""
    may_be_new: bool = False
    """The metadata have another topic id, which may be newer or older: the consumer reads from the first offset, where
    a new topic has its records, and the topic id of what it fetches decides."""
    committed: int | None = None
    """The progress that is durable."""
    acknowledged: int | None = None
    """With at-least-once: behind the last record that is in the target."""
    sent: int | None = None
    """Behind the last record that the producer has."""
    last_copied: tuple[int, int] | None = None
    """Of the acknowledged records, as `Progress` has it."""
    waiting: deque[Sent] = field(default_factory=deque)
    """Not committed."""
    source_end: int | None = None
    held: bool = False
    """The consumer was led to `sent` by auto.offset.reset, and that is not committed: nothing is sent yet."""
    stopped: bool = False
    """Records from `sent` on were not taken: the consumer must go back to it."""
    blocked: str | None = None
    """Why the target cannot take its records, as far as the metadata tell."""
    error: KafkaError | None = None
    attempts: int = 0
    due_ms: int = 0
    lost: int = 0
    notice: str | None = None
    """What has happened to the source, and stays shown."""
    records: int = 0
    size_bytes: int = 0
    last_timestamp_ms: int | None = None
    ages: SpreadWindow = field(default_factory=partial(SpreadWindow, RATE_WINDOW_MS))
    latencies: SpreadWindow = field(default_factory=partial(SpreadWindow, RATE_WINDOW_MS))
    source_error: KafkaError | None = None
    recent: deque[tuple[int, int, int]] = field(default_factory=deque)
    """(time, records, bytes) of the last commits."""


class Shard:
    """Not thread-safe."""

    def __init__(self, number: int, settings: ShardSettings, jitter: Callable[[], float]) -> None:
        self.number = number
        self.partitions: dict[TopicPartition, PartitionCopy] = {}
        self._settings = settings
        self._jitter = jitter
        self._progress: dict[TopicPartition, Progress] = {}
        """What is durable."""
        self._found: list[Copied] = []
        """Where partitions begin that were assigned, or whose topic was created again; not taken yet."""
        self._bytes = 0
        """Sent since the last commit."""
        self._commit_due_ms: int | None = None
        self._attempts = 0
        """Commits that failed in a row."""

    # --- partitions

    def progress_read(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """What the progress topic says, before any partition is assigned."""
        assert not self.partitions
        self._progress = dict(progress)

    def assign(
        self,
        targets: Mapping[TopicPartition, TopicPartition],
        blocked: Mapping[TopicPartition, str],
        topic_ids: Mapping[str, UUID] = NO_TOPIC_IDS,
    ) -> bool:
        """Copy these partitions, in place of the former ones; `blocked`: what the target has no place for, and why.

        `topic_ids` of the source must be older than the positions that the consumer finds from now on. Returns whether
        there are others than before. Between commits only: what is sent of a partition that leaves must be committed.
        """
        left = [tp for tp, copy in self.partitions.items() if targets.get(tp) != copy.target]
        for tp in left:
            copy = self.partitions.pop(tp)
            assert not copy.waiting
        new = [tp for tp in targets if tp not in self.partitions]
        for tp in new:
            copy = self.partitions[tp] = PartitionCopy(tp, targets[tp], topic_ids.get(tp.topic))
            if (known := self._progress.get(tp)) is not None:
                copy.committed = copy.acknowledged = copy.sent = known.next_offset
                copy.topic_id, copy.last_copied, copy.stopped = known.topic_id, known.last_copied, True
                if known.last_copied is not None and topic_ids.get(tp.topic, known.topic_id) == known.topic_id:
                    self._found.append(Copied(tp, *known.last_copied, count=1))
        for tp, copy in self.partitions.items():
            copy.blocked = blocked.get(tp)
            before, copy.may_be_new = copy.may_be_new, _may_be_new(copy, topic_ids.get(tp.topic))
            copy.stopped = copy.stopped or before or copy.may_be_new
        return bool(left or new)

    def take_found(self) -> list[Copied]:
        """The last record that former owners have copied, of each partition that was assigned.

        Also BEFORE_FIRST for each partition that begins at its first record again, after what was copied before it.
        """
        found, self._found = self._found, []
        return found

    def paused(self, now: Now) -> set[TopicPartition]:
        """The partitions that are not to be read now."""
        return {
            tp
            for tp, copy in self.partitions.items()
            if copy.blocked is not None or copy.sent is None or copy.held or now.monotonic_ms < copy.due_ms
        }

    def take_seeks(self, now: Now) -> dict[TopicPartition, int]:
        """Where the consumer must go before it reads on."""
        paused = self.paused(now)
        seeks = {}
        for tp, copy in self.partitions.items():
            tries_one = copy.attempts > 0 and copy.waiting
            if copy.stopped and tp not in paused and not tries_one and copy.new_topic_id is None:
                copy.stopped = False
                if copy.sent is not None:
                    seeks[tp] = 0 if copy.may_be_new else copy.sent
        return seeks

    def positioned(self, tp: TopicPartition, offset: int) -> None:
        """The consumer will read on from this offset. Where nothing was read up to it, it was led there."""
        copy = self.partitions[tp]
        if copy.stopped or copy.new_topic_id is not None or copy.may_be_new or offset == copy.sent:
            return
        if not copy.waiting:
            _note_move(copy, offset)
            if copy.sent is not None and offset == 0:
                self._found.append(_before_first(copy))
                copy.topic_id = None  # the topic may have been created again: the next fetch tells
            copy.sent = copy.acknowledged = copy.committed = offset
            copy.last_copied = None
            copy.held = True
        self._commit_due_ms = 0  # at once

    # --- records

    def fetched(self, tp: TopicPartition, start: int, topic_id: UUID | None = None) -> bool:
        """Batches from this offset on have come, of the topic with this id. Returns whether they are to be sent."""
        copy = self.partitions.get(tp)
        if copy is None or copy.stopped or copy.held or copy.blocked is not None:
            if copy is not None:
                copy.stopped = True
            return False
        copy.source_error = None
        may_be_new, copy.may_be_new = copy.may_be_new, False
        if topic_id is not None and copy.sent is not None and copy.topic_id not in (None, topic_id):
            copy.new_topic_id, copy.stopped = topic_id, True
            if not copy.waiting:
                self._begin_anew(copy)
            return False
        if may_be_new:
            copy.stopped = True
            if copy.last_copied is not None:
                self._found.append(Copied(tp, *copy.last_copied, count=1))
            return False
        if start != copy.sent:
            self.positioned(tp, start)
            copy.stopped = True
            return False
        copy.topic_id = topic_id or copy.topic_id
        return True

    def sent(self, tp: TopicPartition, batch: OutgoingBatch, now: Now) -> bool:
        """The producer has taken the batch. Returns whether to send the next one.

        After a failure one batch is tried alone: those behind it would be appended, and then sent again.
        """
        copy = self.partitions[tp]
        copy.waiting.append(
            Sent(batch.first_offset, batch.next_offset, batch.record_count, batch.size_bytes, batch.max_timestamp_ms)
        )
        if batch.max_timestamp_ms >= 0:
            copy.ages.add(max(0, now.wall_ms - batch.max_timestamp_ms), batch.record_count, now.monotonic_ms)
        copy.sent = batch.next_offset
        self._bytes += batch.size_bytes
        self._wants_commit(now)
        copy.stopped = copy.attempts > 0
        return not copy.stopped

    def passed(self, tp: TopicPartition, next_offset: int, now: Now) -> None:
        """Everything before this offset was sent, or is not to be copied."""
        self.partitions[tp].sent = next_offset
        self._wants_commit(now)

    def source_ends(self, tp: TopicPartition, end: int) -> None:
        """The end of the partition, by the last response of the source, also of one without records."""
        self.partitions[tp].source_end = end

    def stopped_at(self, tp: TopicPartition, error: KafkaError, now: Now) -> None:
        """The records from the last one that was sent on could not be taken. They are tried again after a pause."""
        copy = self.partitions[tp]
        copy.stopped = True
        self._pause(copy, error, now)

    def source_failed(self, error: KafkaError) -> None:
        """The source could not be read: the partition that the error names, or all of them."""
        named = [copy for copy in self.partitions.values() if error.message.startswith(f"{copy.tp}:")]
        for copy in named or self.partitions.values():
            copy.source_error = error

    # --- commits

    def commit_due(self, now: Now, *, ending: bool = False) -> bool:
        if self._commit_due_ms is None:
            return False
        return ending or self._bytes >= self._settings.commit_bytes or now.monotonic_ms >= self._commit_due_ms

    @property
    def is_dirty(self) -> bool:
        """Whether anything is sent, or passed, and not committed."""
        return self._commit_due_ms is not None

    def wait_ms(self, now: Now, longest_ms: int) -> int:
        """How long to wait for records."""
        due = [copy.due_ms for copy in self.partitions.values() if copy.due_ms > now.monotonic_ms]
        if self._commit_due_ms is not None:
            due.append(self._commit_due_ms)
        if any(copy.sent is None for copy in self.partitions.values()):
            longest_ms = min(longest_ms, LOOK_MS)
        return max(0, min([longest_ms, *(ms - now.monotonic_ms for ms in due)]))

    def ended(self, errors: Mapping[TopicPartition, Iterable[KafkaError | None]], now: Now) -> bool:
        """All that was sent has ended, in order, each batch with or without an error.

        Returns whether to go on with the commit; otherwise the transaction is to be aborted, and `undone` called.
        """
        failed = False
        for tp, outcomes in errors.items():
            copy = self.partitions[tp]
            for sent, error in zip(list(copy.waiting), outcomes, strict=True):
                if error is not None:
                    failed = True
                    if not isinstance(error, TransactionAbortedError):
                        self._pause(copy, error, now)
                    break
                copy.acknowledged = sent.next_offset
            else:
                copy.acknowledged = copy.sent
        for copy in self.partitions.values():
            if copy.tp not in errors:
                copy.acknowledged = copy.sent
        if failed and self._settings.exactly_once:
            return False
        if failed:
            for copy in self.partitions.values():
                if copy.acknowledged != copy.sent:
                    copy.sent, copy.stopped = copy.acknowledged, True
        return True

    def appended(self, runs: Iterable[Copied]) -> None:
        """After `ended`: where the records are that the target has acknowledged."""
        for run in runs:
            copy = self.partitions[run.tp]
            if copy.acknowledged is not None and run.source_offset + run.count <= copy.acknowledged:
                copy.last_copied = run.source_offset + run.count - 1, run.target_offset + run.count - 1

    def progress(self) -> dict[TopicPartition, Progress]:
        """What is to be written to the progress topic, after `ended` and `appended`."""
        return {tp: progress for tp, progress in self._reached().items() if progress != self._progress.get(tp)}

    def committed(self, now: Now) -> None:
        """The progress is durable."""
        for copy in self.partitions.values():
            if copy.acknowledged is not None:
                _count(copy, copy.acknowledged, now)
                if copy.held or (copy.acknowledged != copy.committed and copy.due_ms <= now.monotonic_ms):
                    copy.error, copy.attempts = None, 0
                copy.committed, copy.held = copy.acknowledged, False
        self._progress |= self._reached()
        self._attempts = 0
        self._commit_ended()

    def undone(self, error: KafkaError | None, now: Now) -> None:
        """The transaction was aborted; `error`, if it failed itself. Everything goes back to the last commit."""
        if error is not None:
            self._attempts += 1
        for copy in self.partitions.values():
            changed = copy.sent != copy.committed or copy.waiting
            copy.waiting.clear()
            copy.sent = copy.acknowledged = copy.committed
            if (known := self._progress.get(copy.tp)) is not None and not copy.held:
                copy.last_copied = known.last_copied
            copy.stopped = copy.stopped or bool(changed)
            if error is not None and (changed or copy.held):
                self._pause(copy, error, now, attempts=self._attempts)
        self._commit_ended()
        if any(copy.held for copy in self.partitions.values()):
            self._commit_due_ms = now.monotonic_ms + self._backoff(max(1, self._attempts))

    def not_committed(self, error: KafkaError, now: Now) -> None:
        """At-least-once: the progress could not be written. The next commit writes it; records go on."""
        self._attempts += 1
        for copy in self.partitions.values():
            if copy.acknowledged is not None:
                _count(copy, copy.acknowledged, now)
                if copy.held or copy.acknowledged != copy.committed:
                    copy.error = error
        self._commit_ended()
        self._commit_due_ms = now.monotonic_ms + self._backoff(self._attempts)

    # --- what is shown

    def status(self, now: Now) -> list[PartitionStatus]:
        shown = []
        for copy in self.partitions.values():
            while copy.recent and copy.recent[0][0] < now.monotonic_ms - RATE_WINDOW_MS:
                copy.recent.popleft()
            seconds = RATE_WINDOW_MS / 1000
            lag = None
            if copy.source_end is not None and copy.committed is not None:
                lag = max(0, copy.source_end - copy.committed)
            age = None if copy.last_timestamp_ms is None else max(0, now.wall_ms - copy.last_timestamp_ms)
            failure = copy.error or copy.source_error
            error = copy.blocked or (failure.message if failure is not None else copy.notice)
            shown.append(
                PartitionStatus(
                    copy.tp.topic,
                    copy.tp.partition,
                    copy.target.topic,
                    self.number,
                    "blocked" if copy.blocked else "running" if failure is None else "failing",
                    copy.committed,
                    lag,
                    copy.records,
                    copy.size_bytes,
                    sum(records for _, records, _ in copy.recent) / seconds,
                    sum(size for _, _, size in copy.recent) / seconds,
                    age,
                    copy.ages.read(now.monotonic_ms),
                    copy.latencies.read(now.monotonic_ms),
                    copy.lost,
                    error,
                    copy.attempts,
                )
            )
        return shown

    # --- internals

    def _reached(self) -> dict[TopicPartition, Progress]:
        return {
            copy.tp: Progress(copy.acknowledged, copy.topic_id, copy.last_copied)
            for copy in self.partitions.values()
            if copy.acknowledged is not None
        }

    def _wants_commit(self, now: Now) -> None:
        if self._commit_due_ms is None:
            self._commit_due_ms = now.monotonic_ms + self._settings.commit_interval_ms

    def _commit_ended(self) -> None:
        for copy in self.partitions.values():
            if copy.new_topic_id is not None:
                self._begin_anew(copy)
        self._bytes = 0
        self._commit_due_ms = None

    def _begin_anew(self, copy: PartitionCopy) -> None:
        """With the first record of the topic that was created in place of the former one."""
        self._found.append(_before_first(copy))
        copy.notice = "the topic was deleted and created again in the source: the new one is copied from its beginning"
        copy.topic_id, copy.new_topic_id, copy.may_be_new = copy.new_topic_id, None, False
        copy.committed = copy.acknowledged = copy.sent = 0
        copy.last_copied = None

    def _pause(self, copy: PartitionCopy, error: KafkaError, now: Now, *, attempts: int | None = None) -> None:
        copy.attempts = copy.attempts + 1 if attempts is None else attempts
        copy.error = error
        copy.due_ms = now.monotonic_ms + self._backoff(copy.attempts)

    def _backoff(self, attempts: int) -> int:
        return backoff_ms(attempts, self._settings.backoff_ms, self._settings.backoff_ms_max, self._jitter)


def _may_be_new(copy: PartitionCopy, topic_id: UUID | None) -> bool:
    return bool(copy.sent) and copy.topic_id is not None and topic_id not in (None, copy.topic_id)


def _note_move(copy: PartitionCopy, offset: int) -> None:
    if copy.sent is None:
        return
    if offset > copy.sent:
        copy.lost += offset - copy.sent
        reason = "the source had deleted the first of them before it was copied"
        copy.notice = f"offsets {copy.sent} to {offset - 1} are not copied: {reason}"
    else:
        copy.notice = f"the source goes on at offset {offset}, before {copy.sent}: it was truncated or created anew"


def _before_first(copy: PartitionCopy) -> Copied:
    """All records to come are in the target behind the last one that was copied."""
    return Copied(copy.tp, BEFORE_FIRST, -1 if copy.last_copied is None else copy.last_copied[1], 1)


def _count(copy: PartitionCopy, acknowledged: int, now: Now) -> None:
    """The batches before this offset are copied; those behind it are sent again."""
    records = size_bytes = 0
    while copy.waiting and copy.waiting[0].next_offset <= acknowledged:
        sent = copy.waiting.popleft()
        records += sent.record_count
        size_bytes += sent.size_bytes
        if sent.max_timestamp_ms >= 0:
            copy.last_timestamp_ms = sent.max_timestamp_ms
            copy.latencies.add(max(0, now.wall_ms - sent.max_timestamp_ms), sent.record_count, now.monotonic_ms)
    copy.waiting.clear()
    copy.records += records
    copy.size_bytes += size_bytes
    if records:
        copy.recent.append((now.monotonic_ms, records, size_bytes))
