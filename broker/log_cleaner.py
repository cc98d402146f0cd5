"""Decides which logs of a broker are cleaned, the dirtiest first, and swaps in what a cleaning has written.

Every log.cleaner.backoff.ms the broker looks at its compacted logs, and cleans one after another until none is left
that is dirty enough. At most log.cleaner.threads cleanings run at a time, as jobs. A partition that cannot be cleaned,
because one of its batches is damaged, is reported once and left alone until it is opened again. One that is being moved
to another log directory is cleaned when it is there, as in Kafka.
Source: Kafka documentation, "Log Compaction".
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Final, Protocol

from raylog.broker.partition_directories import Background, disk_may_fail
from raylog.config.compaction import CleanerSettings
from raylog.core.clock import Now
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from raylog.logstore.cleaner import CleanedLog, CleanerBuffers, CleaningPlan, clean
from raylog.logstore.disk import Disk
from raylog.logstore.log import Log
from raylog.logstore.log_cleaning import Cleanable
from raylog.logstore.segment_swap import remove_cleaned
from raylog.protocol.records.compaction import SECRET_BYTES
from raylog.replication.partition import Partition
from raylog.transport.node import Job, JobKind

LOOKS_PER_STEP: Final = 200
"""Partitions that one step looks at: about a millisecond."""
IO_BYTES_MIN: Final = 4096
BACKOFF_MS_MIN: Final = 100
"""A smaller log.cleaner.backoff.ms would only cost CPU time."""
events = logging.getLogger("raylog.broker")


class CleaningRunner(Protocol):
    """Carries out cleanings: in processes of their own (logstore/cleaner_process.py) or, in tests, at once."""

    def run(self, plan: CleaningPlan, buffers: CleanerBuffers) -> CleanedLog:
        """`cleaner.clean`. Blocks. Raises CORRUPT_MESSAGE and OSError, also after `abort`."""
        ...

    def abort(self) -> None:
        """End the cleanings that are running, and begin no others."""
        ...


class DirectRunner:
    """Cleans in the thread that calls it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def run(self, plan: CleaningPlan, buffers: CleanerBuffers) -> CleanedLog:
        return clean(self._disk, plan, buffers)

    def abort(self) -> None:
        pass


class LogCleaner:
    """Chooses the logs of one broker that are compacted, and runs the cleanings."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        background: Background,
        disk: Disk,
        runner: CleaningRunner,
        *,
        settings: Callable[[], CleanerSettings],
        new_secret: Callable[[int], bytes],
        is_moving: Callable[[TopicPartition], bool],
        on_cleaned: Callable[[Now], None],
        now: Now,
    ) -> None:
        """`is_moving` says whether a log is being copied to another directory, `on_cleaned` is called when a log has
        been cleaned, to save up to where."""
        self._partitions = partitions
        self._background = background
        self._disk = disk
        self._runner = runner
        self._settings = settings
        self._new_secret = new_secret
        self._is_moving = is_moving
        self._on_cleaned = on_cleaned
        self._looked_ms = now.monotonic_ms
        """When the last round began."""
        self._unseen: deque[TopicPartition] = deque()
        """Partitions that the current round has not looked at."""
        self._dirty: dict[TopicPartition, float] = {}
        """Partitions that it has found dirty enough, with their dirty ratios."""
        self._running: dict[TopicPartition, _Cleaning] = {}
        self._uncleanable: dict[TopicPartition, tuple[Log, str]] = {}
        """Logs that cannot be cleaned, each with the reason."""
        self.cleaned_logs = self.read_bytes = self.written_bytes = 0
        """Of cleanings that were completed since the start."""
        self._stopped = False

    @property
    def running(self) -> int:
        """The number of logs that are being cleaned."""
        return len(self._running)

    def uncleanable(self) -> dict[TopicPartition, str]:
        """Partitions that cannot be cleaned, each with the reason."""
        return {tp: reason for tp, (_, reason) in self._uncleanable.items()}

    def next_deadline_ms(self) -> int:
        """When to look for logs again (monotonic)."""
        return self._looked_ms + max(self._settings().backoff_ms, BACKOFF_MS_MIN)

    def tick(self, now: Now) -> None:
        if now.monotonic_ms >= self.next_deadline_ms():
            self._looked_ms = now.monotonic_ms
            self.begin(now)

    def begin(self, now: Now) -> None:
        """Look for logs to clean. Does nothing if the last round has not ended."""
        settings = self._settings()
        if settings.enabled and settings.threads and not (self._unseen or self._dirty or self._stopped):
            self._forget_reopened()
            self._unseen.extend(self._partitions)
            self._background.add_steps(self._look)

    def stop(self) -> None:
        """End the cleanings that are running. Their logs are as before."""
        self._stopped = True
        self._unseen.clear()
        self._dirty.clear()
        self._runner.abort()

    def _look(self, now: Now) -> bool:
        for tp in list(islice(self._unseen, LOOKS_PER_STEP)):
            self._unseen.popleft()
            found = self._cleanable(tp, now)
            if found is not None:
                self._dirty[tp] = found.dirty_ratio
        if self._unseen:
            return True
        self._begin_next(now)
        return False

    def _cleanable(self, tp: TopicPartition, now: Now) -> Cleanable | None:
        """What may be cleaned of the log, if it is dirty enough."""
        partition = self._partitions.get(tp)
        if partition is None or tp in self._running or tp in self._uncleanable or self._is_moving(tp):
            return None
        settings = partition.log.settings
        found = None
        if settings.is_compacted:
            with disk_may_fail():
                found = partition.log.cleanable(limit=partition.last_stable_offset, now_ms=now.wall_ms)
        if found is None or not (found.is_overdue or found.dirty_ratio > settings.min_cleanable_dirty_ratio):
            return None
        return found

    def _begin_next(self, now: Now) -> None:
        settings = self._settings()
        if not settings.threads:
            self._dirty.clear()  # what is still dirty when there are threads again is found by a later round
        while self._dirty and len(self._running) < settings.threads:
            tp = max(self._dirty, key=lambda each: self._dirty[each])
            del self._dirty[tp]
            found = self._cleanable(tp, now)
            if found is None:
                continue
            log = self._partitions[tp].log
            plan = log.plan_cleaning(found, now_ms=now.wall_ms, secret=self._new_secret(SECRET_BYTES))
            buffers = CleanerBuffers(
                settings.dedupe_bytes // settings.threads,
                max(settings.io_bytes // settings.threads, IO_BYTES_MIN),
                settings.load_factor,
                settings.io_bytes_per_second / settings.threads,
            )
            cleaning = self._running[tp] = _Cleaning(tp, log, plan, partial(self._runner.run, plan, buffers))
            expected: tuple[type[Exception], ...] = (OSError, KafkaError)
            self._background.add_job(
                Job(cleaning.run, partial(self._ended, cleaning), JobKind.CLEAN, expected=expected)
            )

    def _ended(self, cleaning: _Cleaning, failure: Exception | None) -> None:
        tp, log, cleaned = cleaning.topic_partition, cleaning.log, cleaning.cleaned
        is_open = log.offline_reason is None
        if cleaned is not None and is_open and log.begin_swaps(cleaning.plan, cleaned):
            self._swap(cleaning)
            return
        if failure is not None and is_open and not self._stopped:
            where = {"topic_partition": str(tp), "reason": str(failure)}
            if isinstance(failure, KafkaError):
                events.error("log cannot be cleaned", extra=where)
                self._uncleanable[tp] = log, str(failure)
            else:  # no space, or the child was killed: the next round tries again
                events.warning("log not cleaned", extra=where)
        self._remove_leftovers(cleaning)

    def _swap(self, cleaning: _Cleaning) -> None:
        """Take the next step, and do by a job what it takes before another one."""
        log, cleaned, now = cleaning.log, cleaning.cleaned, self._background.now
        assert cleaned is not None
        sync: Callable[[], None] | None = None
        with disk_may_fail():
            sync = log.swap_next(now.wall_ms)
        if sync is not None:
            self._background.add_job(Job(sync, partial(self._synced, cleaning), JobKind.CLEAN))
            return
        if log.cleaned_upto != cleaned.upto:
            self._remove_leftovers(cleaning)
            return
        what = {"topic_partition": str(cleaning.topic_partition), "upto": cleaned.upto}
        sizes = {"read_bytes": cleaned.read_bytes, "written_bytes": cleaned.written_bytes}
        self.cleaned_logs += 1
        self.read_bytes += cleaned.read_bytes
        self.written_bytes += cleaned.written_bytes
        events.info("log cleaned", extra={**what, **sizes})
        self._on_cleaned(now)
        self._finish(cleaning)

    def _synced(self, cleaning: _Cleaning, failure: OSError | None) -> None:
        if failure is not None and cleaning.log.offline_reason is None:
            cleaning.log.take_offline(f"compact failed: {failure}")
        self._swap(cleaning)

    def _remove_leftovers(self, cleaning: _Cleaning) -> None:
        """A cleaning was not, or not completely, swapped in."""
        if cleaning.log.offline_reason is not None or self._stopped:
            self._finish(cleaning)
            return
        remove = partial(remove_cleaned, self._disk, cleaning.plan.directory)
        self._background.add_job(Job(remove, lambda _: self._finish(cleaning), JobKind.CLEAN))

    def _finish(self, cleaning: _Cleaning) -> None:
        del self._running[cleaning.topic_partition]
        self._begin_next(self._background.now)

    def _forget_reopened(self) -> None:
        """A log that was opened again may be cleaned."""
        for tp, (log, _) in list(self._uncleanable.items()):
            partition = self._partitions.get(tp)
            if partition is None or partition.log is not log:
                del self._uncleanable[tp]


class _Cleaning:
    """One cleaning that runs as a job."""

    def __init__(
        self, topic_partition: TopicPartition, log: Log, plan: CleaningPlan, clean_log: Callable[[], CleanedLog]
    ) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self.plan = plan
        self.cleaned: CleanedLog | None = None
        self._clean_log = clean_log

    def run(self) -> None:
        self.cleaned = self._clean_log()
