"""Opens, creates and removes the logs of partitions in bounded pieces, so that a large topic does not stop the broker.

Opening an existing log and renaming the directory of a deleted one are steps between requests. Creating directories
syncs them to the disk and is a job. Removals come first: a new partition may have the name of a deleted one. Partitions
are opened in the order in which they were asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Final, Protocol

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicId, TopicPartition
from raylog.logstore.creation import CreationPlan, NewLog
from raylog.logstore.log import Log
from raylog.logstore.log_dir import LogDir
from raylog.logstore.log_dirs import LogDirs
from raylog.logstore.offset_checkpoint import CheckpointPlan
from raylog.transport.node import Job

STEP_PARTITIONS: Final = 32
"""Opened, created or removed in one step or job: a few milliseconds."""


class Background(Protocol):
    """Carries out work outside the current event. Implemented by `Node`."""

    now: Now
    """The time of the current event."""

    def add_job(self, job: Job) -> None:
        """Run the job off the loop."""

    def add_steps(self, step: Callable[[Now], bool]) -> None:
        """Call `step` between requests as long as it returns True."""


class PartitionDirectories:
    """What is still to be opened, created or removed in the log directories."""

    def __init__(
        self,
        log_dirs: LogDirs,
        background: Background,
        *,
        assigned: Callable[[TopicPartition], TopicId | None],
        place: Callable[[TopicPartition, Mapping[LogDir, int]], LogDir | None],
        open_partition: Callable[[TopicPartition, Log, Now], None],
        on_progress: Callable[[Now], None],
    ) -> None:
        """`assigned` returns the topic id if this broker has to hold a replica of the partition now.

        `place` returns the directory for a new log, given the number of other logs that are about to be created in
        each; None if it must not be created now. `open_partition` may raise KafkaError; `on_progress` is called after
        each step and job."""
        self._log_dirs = log_dirs
        self._background = background
        self._assigned = assigned
        self._place = place
        self._open_partition = open_partition
        self._on_progress = on_progress
        self._wanted: dict[TopicPartition, int] = {}
        """To be opened, with increasing tickets, including those that are being created."""
        self._next_ticket = 0
        self._failed: dict[TopicPartition, None] = {}
        """Could not be opened because of the disk."""
        self._removed: dict[TopicPartition, None] = {}
        """Logs to be removed."""
        self._creating: set[CreationPlan] = set()
        """No more than one for each directory. The next ones begin when all have ended."""
        self._awaits_checkpoint = False
        """Whether a checkpoint may still contain partitions that are to be created again."""
        self._stepping = False

    def open(self, tp: TopicPartition) -> None:
        """Open the log, which is created if it does not exist."""
        self._failed.pop(tp, None)
        if tp not in self._wanted:
            self._wanted[tp] = self._next_ticket
            self._next_ticket += 1
        self._go_on()

    def remove(self, tp: TopicPartition) -> None:
        """Remove the log, if there is one, before another one of this name is opened. It must not be in use."""
        self._wanted.pop(tp, None)
        self._failed.pop(tp, None)
        if self._log_dirs.holder(tp) is not None:
            self._removed[tp] = None
        self._go_on()

    def retry(self) -> None:
        """Open the partitions again that could not be opened, for example for lack of space."""
        for tp in list(self._failed):
            self.open(tp)

    def is_opening(self, tp: TopicPartition) -> bool:
        """Whether the partition will be open soon; False if the disk has failed."""
        return tp in self._wanted

    @property
    def last_ticket(self) -> int:
        """Of the partition that `open` was called for last."""
        return self._next_ticket - 1

    def has_opened(self, ticket: int) -> bool:
        """Whether every partition up to the one with this ticket is open, removed, or could not be opened."""
        return next(iter(self._wanted.values()), self._next_ticket) > ticket

    def write_checkpoint(self, log_dir: LogDir, plan: CheckpointPlan) -> None:
        """Write a checkpoint of a log directory off the loop."""
        self._background.add_job(Job(plan.run, partial(self._checkpoint_ended, log_dir, plan)))

    # Steps

    def _go_on(self) -> None:
        if not self._stepping and self._has_steps:
            self._stepping = True
            self._background.add_steps(self._step)

    @property
    def _has_steps(self) -> bool:
        waits = bool(self._creating) or self._awaits_checkpoint
        return bool(self._removed) or (bool(self._wanted) and not waits)

    def _step(self, now: Now) -> bool:
        if self._removed:
            self._remove_some(now)
        elif self._has_steps:
            self._open_some(now)
        self._stepping = self._has_steps
        self._on_progress(now)
        return self._stepping

    def _remove_some(self, now: Now) -> None:
        for tp in list(islice(self._removed, STEP_PARTITIONS)):
            del self._removed[tp]
            log_dir = self._log_dirs.holder(tp)
            if log_dir is not None:
                with disk_may_fail():  # the log directory retries
                    log_dir.delete_log(tp, now.wall_ms)

    def _open_some(self, now: Now) -> None:
        missing: dict[LogDir, list[NewLog]] = {}
        for tp in list(islice(self._wanted, STEP_PARTITIONS)):
            topic_id = self._assigned(tp)
            log = self._log_dirs.log(tp)
            if topic_id is None:
                del self._wanted[tp]
            elif log is not None:
                assert log.topic_id == topic_id
                self._open(tp, log, now)
            else:
                log_dir = self._place(tp, {each: len(new) for each, new in missing.items()})
                if log_dir is None:
                    self._fail(tp)
                else:
                    missing.setdefault(log_dir, []).append(NewLog(tp, topic_id))
        for log_dir, new in missing.items():
            self._create(log_dir, new, now)

    def _open(self, tp: TopicPartition, log: Log, now: Now) -> None:
        opened = False
        with disk_may_fail():
            self._open_partition(tp, log, now)
            opened = True
        if opened:
            del self._wanted[tp]
        else:
            self._fail(tp)

    def _fail(self, tp: TopicPartition) -> None:
        del self._wanted[tp]
        self._failed[tp] = None

    # Jobs

    def _create(self, log_dir: LogDir, missing: list[NewLog], now: Now) -> None:
        prepared: list[NewLog] = []
        for new in missing:
            try:
                log_dir.prepare_creation(new.topic_partition, now.wall_ms)
            except KafkaError:
                self._fail(new.topic_partition)
            else:
                prepared.append(new)
        if any(log_dir.may_name_deleted(new.topic_partition) for new in prepared):
            self._awaits_checkpoint = True
            for checkpoint in log_dir.plan_checkpoints():
                self.write_checkpoint(log_dir, checkpoint)
        elif prepared:
            plan = log_dir.plan_creation(prepared, now.wall_ms)
            self._creating.add(plan)
            self._background.add_job(Job(plan.run, partial(self._created, log_dir, plan)))

    def _checkpoint_ended(self, log_dir: LogDir, plan: CheckpointPlan, failure: OSError | None) -> None:
        self._awaits_checkpoint = False
        if not log_dir.checkpoint_ended(plan, failure):
            for tp in [tp for tp in self._wanted if log_dir.may_name_deleted(tp)]:
                self._fail(tp)
        self._go_on()
        self._on_progress(self._background.now)

    def _created(self, log_dir: LogDir, plan: CreationPlan, _: OSError | None) -> None:
        now = self._background.now
        self._creating.discard(plan)
        log_dir.creation_ended(plan)
        for tp, topic_id in plan.wanted:
            log = plan.created.get(tp)
            still_wanted = tp in self._wanted and self._assigned(tp) == topic_id
            if log is None:
                if still_wanted:
                    self._fail(tp)
            elif still_wanted:
                self._open(tp, log, now)
            else:
                self._removed[tp] = None
        self._go_on()
        self._on_progress(now)


@contextmanager
def disk_may_fail() -> Iterator[None]:
    """For periodic work: a failed log has gone offline and returns errors to its clients; the other logs continue."""
    try:
        yield
    except KafkaError as error:
        if error.code != ErrorCode.KAFKA_STORAGE_ERROR:
            raise
