"""A log directory: its lock, identity, checkpoints and partitions.

Order of a start: lock, identity, clean-shutdown marker (read, then deleted, so that a crash is an unclean shutdown),
checkpoints, partitions. Order of a clean shutdown: logs, checkpoints, marker, unlock. The directory contains only
Kafka's files. As in Kafka, a directory that is not a partition is an error, since log.dirs may be wrong.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import NamedTuple
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID, BrokerId, Offset, TopicId, TopicPartition
from raylog.logstore.checkpoint import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    MetaProperties,
    decode_clean_shutdown,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    write_file_atomically,
)
from raylog.logstore.creation import CreationPlan, NewLog
from raylog.logstore.deletion import Deletion, DeletionPlan
from raylog.logstore.disk import Disk, FileHandle, is_transient
from raylog.logstore.log import Log
from raylog.logstore.offset_checkpoint import CheckpointPlan, OffsetCheckpoint
from raylog.logstore.settings import LogSettings

LOCK_FILE = ".lock"
NO_BROKER_EPOCH = -1
CHECKPOINT_FILES = (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE, CLEANER_OFFSET_FILE)
CHECKED_LOGS_MAX = 500
"""The number of logs whose files one call of `check_files` looks at: about a millisecond."""
DELETIONS_MAX = 100
"""Files and directories deleted by one job, so that other jobs need not wait long."""
PROGRESS_LOGS = 100
"""Recovery logs its progress after each of this many logs."""
events = logging.getLogger("raylog.logstore")

Jobs = Sequence[Callable[[], None]]
"""Each job opens one log, shares no state with the others, and may raise KafkaError or OSError."""

DELETED_DIRECTORY_SUFFIX = "-delete"
FUTURE_DIRECTORY_SUFFIX = "-future"
FILE_NAME_LENGTH_MAX = 255
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d{1,10})")
_DELETED_DIRECTORY = re.compile(r".+\.([0-9a-f]{32})-delete")
_FUTURE_DIRECTORY = re.compile(r"(.+)\.([0-9a-f]{32})-future")


def run_in_order(jobs: Jobs) -> None:
    for job in jobs:
        job()


class LogDirUnavailable(KafkaError):
    """The disk of a log directory fails, or the directory is missing."""

    def __init__(self, what: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, what)


class LogDir:
    """A log directory, from `open` to `close`. Not thread-safe.

    Methods raise KafkaError(KAFKA_STORAGE_ERROR) if the disk fails or its content is not valid.
    """

    def __init__(
        self, disk: Disk, path: str, *, settings_for: Callable[[str], LogSettings], new_id: Callable[[], UUID]
    ) -> None:
        """Use `open` instead."""
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        """All logs; changed only by `creation_ended` and `delete_log`."""
        self.was_clean = False
        """Whether the last shutdown was clean."""
        self.previous_broker_epoch = NO_BROKER_EPOCH
        """The broker epoch of that clean shutdown; -1 after an unclean one, or if unknown."""
        self.directory_id: UUID = ZERO_TOPIC_ID
        self.offline_reason: str | None = None
        """Why the whole directory is offline, until it is opened again."""
        self._disk = disk
        self._settings_for = settings_for
        self._new_id = new_id
        self._lock: FileHandle | None = None
        self._identity: tuple[int, int] | None = None
        self._next_checked = 0
        """The number of the log that `check_files` checks next."""
        self._failed_deletions: set[TopicPartition] = set()
        """Partitions whose directory may exist after a failed `create_log` or `delete_log`."""
        self._retire_later: dict[TopicPartition, int] = {}
        """When to retry the deletion of directories."""
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        """The last checkpoint, of this process or an earlier one. A log may have been truncated since."""
        self._retired: dict[str, int] = {}
        """Paths of the directories of deleted partitions, and when to delete them."""
        self._retired_names_synced = True
        """False while a power failure could undo the renaming of one of them."""
        self._checkpoints = {name: OffsetCheckpoint(disk, path, name) for name in CHECKPOINT_FILES}
        self._deleting: DeletionPlan | None = None
        self._creating: CreationPlan | None = None

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        *,
        cluster_id: str,
        broker_id: BrokerId,
        settings_for: Callable[[str], LogSettings],
        now_ms: int,
        new_id: Callable[[], UUID],
        run_all: Callable[[Jobs], None] = run_in_order,
        may_create: bool = True,
    ) -> LogDir:
        """Open the directory at `path` with all its partitions. It is created if missing and `may_create`; its parent
        must exist.

        `settings_for` returns the settings of a topic, `new_id` a new UUID. Raises KafkaError without a change if
        another process has locked the directory, if it belongs to another cluster or broker, or contains a foreign
        directory; also if the files of any partition cannot be opened. Raises LogDirUnavailable if that is because of
        the disk. `run_all` opens the partitions, possibly in
        several threads (recovery_threads.py).
        """
        log_dir = cls.claim(
            disk,
            path,
            cluster_id=cluster_id,
            broker_id=broker_id,
            settings_for=settings_for,
            new_id=new_id,
            may_create=may_create,
        )
        log_dir.load(now_ms, run_all)
        return log_dir

    @classmethod
    def claim(
        cls,
        disk: Disk,
        path: str,
        *,
        cluster_id: str,
        broker_id: BrokerId,
        settings_for: Callable[[str], LogSettings],
        new_id: Callable[[], UUID],
        may_create: bool,
    ) -> LogDir:
        """The first part of `open`: lock the directory and check its identity and its content. `load` is the rest."""
        log_dir = cls(disk, path.rstrip("/"), settings_for=settings_for, new_id=new_id)
        with log_dir._opening():
            if may_create and not disk.exists(log_dir.path):
                disk.mkdir(log_dir.path)
            log_dir._claim(cluster_id, broker_id)
        return log_dir

    def load(self, now_ms: int, run_all: Callable[[Jobs], None]) -> None:
        """Open the partitions. Raises KafkaError as `open` does; the directory is released then."""
        with self._opening():
            self._load(now_ms, run_all)

    @contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._release()
            raise LogDirUnavailable(f"cannot open log directory {self.path}: {error}") from error
        except KafkaError as error:
            self._release()
            if isinstance(error.__cause__, OSError):
                raise LogDirUnavailable(error.message) from error.__cause__
            raise

    def create_log(self, topic_partition: TopicPartition, topic_id: TopicId, now_ms: int) -> Log:
        """Create an empty log, durable on return. Raises TOPIC_ALREADY_EXISTS if the directory has it.

        Remains of an earlier attempt or of a failed deletion are deleted first; a directory of other origin is kept and
        raises an error.
        """
        self.prepare_creation(topic_partition, now_ms)
        if self.may_name_deleted(topic_partition):
            self.write_checkpoints()
        plan = self.plan_creation([NewLog(topic_partition, topic_id)], now_ms)
        plan.run()
        self.creation_ended(plan)
        for error in plan.failed.values():
            raise error
        return self.logs[topic_partition]

    def prepare_creation(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Rename the remains of an earlier attempt or of a failed deletion. Raises KafkaError as `create_log` does."""
        self._check_online()
        if topic_partition in self.logs:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"{self.path} already contains {topic_partition}")
        path = f"{self.path}/{topic_partition}"
        if partition_of(str(topic_partition)) is None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic_partition!s} is not a valid directory name")
        if self._disk.exists(path):
            if topic_partition not in self._failed_deletions:
                raise _refusal(f"{path} exists, but was not created by this broker while it ran; move it elsewhere")
            self._retire_directory(topic_partition, due_ms=now_ms)

    def may_name_deleted(self, topic_partition: TopicPartition) -> bool:
        """Whether a checkpoint may contain a deleted partition of this name, whose offset would apply to a new one.

        Then the checkpoints must be written before the partition is created: by `write_checkpoints`, or by
        `plan_checkpoints` until this is False.
        """
        return any(each.may_name_deleted(topic_partition) for each in self._checkpoints.values())

    def plan_checkpoints(self) -> list[CheckpointPlan]:
        """Plans for all checkpoints that have changed and are not being written."""
        high_watermarks = {tp: offset for tp, offset in self.high_watermarks.items() if tp in self.logs}
        plans = [
            self.plan_recovery_points(),
            self.plan_log_start_offsets(),
            self.plan_high_watermarks(high_watermarks),
            self.plan_cleaned(),
        ]
        return [plan for plan in plans if plan is not None]

    def plan_creation(self, wanted: Sequence[NewLog], now_ms: int) -> CreationPlan:
        """Plan `create_log` for several prepared partitions, to be carried out off the loop; one plan at a time.

        The caller then calls `creation_ended`.
        """
        assert self._creating is None
        assert not any(self.may_name_deleted(new.topic_partition) for new in wanted)
        self._failed_deletions.update(new.topic_partition for new in wanted)

        def open_log(topic_partition: TopicPartition, path: str) -> Log:
            settings = self._settings_for(topic_partition.topic)
            return Log.open(
                self._disk, path, topic_partition, settings, now_ms=now_ms, recovery_point=Offset(0), clean=False
            )

        self._creating = CreationPlan(self._disk, self.path, wanted, open_log)
        return self._creating

    def creation_ended(self, plan: CreationPlan) -> None:
        """The plan has run: its new logs are in `logs`."""
        if plan is self._creating:
            self._creating = None
            self._failed_deletions -= plan.created.keys()
            self.logs.update(plan.created)
            if self.offline_reason is not None:
                for log in plan.created.values():
                    log.take_offline(self.offline_reason)

    def delete_log(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Close the log; `delete_retired` deletes its files after file.delete.delay.ms, and retries what fails here.

        Not durable: after a power failure the log may exist again. Raises UNKNOWN_TOPIC_OR_PARTITION if the directory
        does not have it.
        """
        log = self.logs.pop(topic_partition, None)
        if log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.path} does not contain {topic_partition}")
        log.abandon()
        self._failed_deletions.add(topic_partition)
        self._retire_later[topic_partition] = now_ms + log.settings.file_delete_delay_ms
        self._retire_directory(topic_partition, due_ms=self._retire_later[topic_partition])

    def delete_retired(self, now_ms: int) -> None:
        """Delete retired segment files and partition directories after file.delete.delay.ms.

        A failed deletion does not prevent the others, and is retried by the next call. Raises the first error.
        """
        failure: OSError | None = None
        while failure is None and (plan := self.plan_deletion(now_ms)) is not None:
            try:
                plan.run()
            except OSError as error:
                failure = error
            self.deletion_ended(plan, failure)
        if failure is not None:
            raise _refusal(f"deleted files in {self.path} cannot be removed: {failure}") from failure
        for topic_partition, due_ms in list(self._retire_later.items()):
            self._retire_directory(topic_partition, due_ms=due_ms)  # once more, to say why

    def plan_deletion(self, now_ms: int) -> DeletionPlan | None:
        """Plan a bounded part of what `delete_retired` does, to be carried out off the loop; None if nothing is due, or
        a plan is running. The caller then calls `deletion_ended`, and plans the next part."""
        if self._deleting is not None or self.offline_reason is not None:
            return None
        for topic_partition, due_ms in list(self._retire_later.items()):
            with suppress(KafkaError):  # tried again by the next plan
                self._retire_directory(topic_partition, due_ms=due_ms)
        deletions = [deletion for log in self.logs.values() for deletion in log.due_deletions(now_ms)]
        deletions += [
            Deletion(path, True, partial(self._retired.pop, path))
            for path, due_ms in self._retired.items()
            if due_ms <= now_ms
        ]
        sync_first = None if self._retired_names_synced else self.path
        if not deletions and sync_first is None:
            return None
        self._deleting = DeletionPlan(self._disk, sync_first, deletions[:DELETIONS_MAX])
        self._retired_names_synced = True  # of those that are there now, once it has run
        return self._deleting

    def deletion_ended(self, plan: DeletionPlan, failure: OSError | None) -> None:
        """What could not be deleted is in the next plan."""
        if plan is self._deleting:
            self._deleting = None
            plan.ended()
            if not plan.has_synced:
                self._retired_names_synced = False
            if failure is not None:
                events.warning("deletion failed", extra={"path": self.path, "reason": str(failure)})

    def truncate_log(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """`Log.truncate_to`, after the checkpoints: after a crash, recovery must check the log from `offset` on.

        A checkpoint is written only if it may hold a larger offset. If that fails, the log is not truncated.
        """
        self._write_checkpoints_before_cut(topic_partition, offset)
        self.logs[topic_partition].truncate_to(offset)

    def begin_log_at(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """The same with `Log.truncate_fully_and_start_at`, wherever `offset` is."""
        log = self.logs[topic_partition]
        self._write_checkpoints_before_cut(topic_partition, min(log.log_start_offset, offset))
        log.truncate_fully_and_start_at(offset)

    def write_checkpoints(self) -> None:
        """Write all checkpoints, without the logs that no longer exist."""
        self.write_recovery_points()
        cleaned = self._cleaned()
        if not self._checkpoints[CLEANER_OFFSET_FILE].contains(cleaned):
            self._write_checkpoint(CLEANER_OFFSET_FILE, cleaned)
        self.write_log_start_offsets()
        self.write_high_watermarks({tp: offset for tp, offset in self.high_watermarks.items() if tp in self.logs})

    def write_recovery_points(self) -> None:
        """Write the recovery points of all online logs (log.flush.offset.checkpoint.interval.ms)."""
        self._write_checkpoint(RECOVERY_POINT_FILE, self._recovery_points())

    def write_log_start_offsets(self) -> None:
        """Write the log start offsets of all logs (log.flush.start.offset.checkpoint.interval.ms)."""
        self._write_checkpoint(LOG_START_OFFSET_FILE, self._log_start_offsets())

    def write_high_watermarks(self, offsets: dict[TopicPartition, Offset]) -> None:
        """Write the high watermarks (replica.high.watermark.checkpoint.interval.ms)."""
        self._write_checkpoint(HIGH_WATERMARK_FILE, offsets)
        self.high_watermarks = offsets

    def plan_recovery_points(self) -> CheckpointPlan | None:
        """Plan `write_recovery_points` for a job off the loop; None if nothing has changed, or a plan is running. The
        caller then calls `checkpoint_ended`, as for the other plans."""
        return self._plan_checkpoint(RECOVERY_POINT_FILE, self._recovery_points())

    def plan_log_start_offsets(self) -> CheckpointPlan | None:
        """Plan `write_log_start_offsets`."""
        return self._plan_checkpoint(LOG_START_OFFSET_FILE, self._log_start_offsets())

    def plan_high_watermarks(self, offsets: dict[TopicPartition, Offset]) -> CheckpointPlan | None:
        """Plan `write_high_watermarks`."""
        self.high_watermarks = offsets
        return self._plan_checkpoint(HIGH_WATERMARK_FILE, offsets)

    def plan_cleaned(self) -> CheckpointPlan | None:
        """Plan the writing of the offsets up to which logs are compacted."""
        return self._plan_checkpoint(CLEANER_OFFSET_FILE, self._cleaned())

    def checkpoint_ended(self, plan: CheckpointPlan, failure: OSError | None) -> bool:
        """The plan has run. Returns False if it has failed: then the file is unchanged, and the next plan writes it."""
        try:
            plan.ended(failure)
        except OSError as error:
            events.warning("checkpoint not written", extra={"path": plan.path, "reason": str(error)})
            if not is_transient(error):
                self.take_offline(f"checkpoint {plan.path} cannot be written: {error}")
            return False
        return True

    def check_files(self) -> None:
        """Check that the directory and the files of CHECKED_LOGS_MAX logs, in turn, are still there. If another process
        has deleted, moved or truncated them, they go offline: otherwise records would be acknowledged and lost."""
        if self.offline_reason is not None:
            return
        try:
            identity = self._disk.status(self.path).identity
        except OSError as error:
            self.take_offline(f"the log directory is not available: {error}")
            return
        if identity != self._identity:
            self.take_offline(f"the log directory {self.path} was replaced")
            return
        logs = list(self.logs.values())
        for log in logs[self._next_checked : self._next_checked + CHECKED_LOGS_MAX]:
            log.check_files()
        self._next_checked += CHECKED_LOGS_MAX
        if self._next_checked >= len(logs):
            self._next_checked = 0

    def take_offline(self, reason: str) -> None:
        """Take all logs offline because the directory has failed."""
        if self.offline_reason is None:
            self.offline_reason = reason
            events.error("log directory offline", extra={"path": self.path, "reason": reason})
            for log in self.logs.values():
                log.take_offline(reason)

    def close(self, *, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Shut down cleanly: close all logs, write checkpoints and marker, release the lock.

        If a log is offline or cannot be flushed, the marker is not written, so that the next start checks all logs; the
        first such error is raised after everything is closed. A directory that is offline is only released.
        """
        self._end_creation()
        if self.offline_reason is not None:
            self._release()
            return
        failure: KafkaError | None = None
        clean = True
        recovery_points: dict[TopicPartition, Offset] = {}
        log_starts, cleaned = self._log_start_offsets(), self._cleaned()
        try:
            for topic_partition in sorted(self.logs):
                log = self.logs[topic_partition]
                online = log.offline_reason is None
                clean = clean and online
                try:
                    log.close()
                except KafkaError as error:
                    clean, failure = False, failure or error
                else:
                    if online:
                        recovery_points[topic_partition] = log.recovery_point
            self._write_checkpoint(RECOVERY_POINT_FILE, recovery_points)
            self._write_checkpoint(LOG_START_OFFSET_FILE, log_starts)
            if not self._checkpoints[CLEANER_OFFSET_FILE].contains(cleaned):
                self._write_checkpoint(CLEANER_OFFSET_FILE, cleaned)
            if clean:
                try:
                    marker = encode_clean_shutdown(broker_epoch)
                    write_file_atomically(self._disk, f"{self.path}/{CLEAN_SHUTDOWN_FILE}", marker)
                except OSError as error:
                    raise _refusal(f"cannot write {self.path}/{CLEAN_SHUTDOWN_FILE}: {error}") from error
        finally:
            self._release()
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Close all files and release the lock without a clean shutdown: the next start recovers the logs."""
        self._release()

    # Opening

    def _claim(self, cluster_id: str, broker_id: BrokerId) -> None:
        disk = self._disk
        self._identity = disk.status(self.path).identity
        disk.fsync_dir(
            self.path.rpartition("/")[0] or "/"
        )  # always, since an earlier start may have been interrupted before it
        self._take_lock()
        self._check_identity(cluster_id, broker_id)
        self._classify()

    def contents(self) -> DirectoryNames:
        """What the directory contains. Raises OSError, and KafkaError for a directory that is not a partition."""
        return self._classify()

    def promote(self, future: Future) -> None:
        """At a start: a future log takes the place of the current one, which is in this state on disk already."""
        with self._opening():
            self._disk.rename(f"{self.path}/{future.name}", f"{self.path}/{future.topic_partition}")
            self._disk.fsync_dir(self.path)

    def discard(self, future: Future) -> None:
        """At a start: `load` deletes the directory of this future log."""
        with self._opening():
            retired = f"{self.path}/{retired_name(future.topic_partition, future.identity)}"
            self._disk.rename(f"{self.path}/{future.name}", retired)

    def retire_future(self, name: str, topic_partition: TopicPartition, identity: UUID, *, due_ms: int) -> None:
        """Rename the directory of a future log that is not used any more, and schedule its deletion. If that fails the
        next start deletes it."""
        path = f"{self.path}/{name}"
        retired = f"{self.path}/{retired_name(topic_partition, identity)}"
        with suppress(OSError):
            if self.offline_reason is None and self._disk.exists(path):
                self._disk.rename(path, retired)
                self._retired[retired] = due_ms
                self._retired_names_synced = False

    def announce(self, topic_partition: TopicPartition, log: Log) -> None:
        """Write the offsets that recovery cannot find in the files of a log which is about to be moved here."""
        self._write_checkpoint(
            LOG_START_OFFSET_FILE, {**self._log_start_offsets(), topic_partition: log.log_start_offset}
        )
        if log.cleaned_upto:
            self._write_checkpoint(CLEANER_OFFSET_FILE, {**self._cleaned(), topic_partition: log.cleaned_upto})

    def give_up(self, topic_partition: TopicPartition, identity: UUID, *, due_ms: int) -> None:
        """The log was replaced by one in another directory, and its directory was renamed, durably."""
        self.logs.pop(topic_partition).abandon()
        self._retired[f"{self.path}/{retired_name(topic_partition, identity)}"] = due_ms
        self._note_deleted(topic_partition)

    def _load(self, now_ms: int, run_all: Callable[[Jobs], None]) -> None:
        disk = self._disk
        partitions, retired, _ = self._classify()
        marker = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        if disk.exists(marker):
            self.was_clean = True
            self.previous_broker_epoch = decode_clean_shutdown(disk.read_file(marker))
            disk.unlink(marker)
            disk.fsync_dir(self.path)
        if retired:  # the renaming may not have been durable before the crash
            disk.fsync_dir(self.path)
        for name in retired:
            disk.rmtree(f"{self.path}/{name}")
        recovery_points = self._read_checkpoint(RECOVERY_POINT_FILE)
        log_starts = self._read_checkpoint(LOG_START_OFFSET_FILE)
        self.high_watermarks = self._read_checkpoint(HIGH_WATERMARK_FILE)
        cleaned = self._read_cleaned()
        self._checkpoints[CLEANER_OFFSET_FILE].was_read(cleaned)
        opened: dict[TopicPartition, Log] = {}
        progress = {"path": self.path, "logs": len(partitions)}
        counter = count(1)  # thread-safe
        recovers = not self.was_clean and bool(partitions)
        if recovers:
            events.info("recovery started", extra=progress)

        def open_log(topic_partition: TopicPartition, path: str) -> None:
            log = Log.open(
                disk,
                path,
                topic_partition,
                self._settings_for(topic_partition.topic),
                now_ms=now_ms,
                recovery_point=recovery_points.get(topic_partition, Offset(0)),
                clean=self.was_clean,
                log_start_offset=log_starts.get(topic_partition, Offset(0)),
                cleaned_upto=cleaned.get(topic_partition, Offset(0)),
            )
            opened[topic_partition] = log
            log.topic_id = self._topic_id(path)
            recovered = next(counter)
            if recovers and recovered % PROGRESS_LOGS == 0:
                events.info("recovery progressed", extra={**progress, "recovered": recovered})

        try:
            run_all([partial(open_log, topic_partition, f"{self.path}/{name}") for topic_partition, name in partitions])
        finally:
            self.logs.update(sorted(opened.items()))
        if recovers:
            events.info("recovery completed", extra=progress)
        if not self.logs.keys() >= recovery_points.keys() | log_starts.keys() | cleaned.keys():
            self._forget_deleted({*recovery_points, *log_starts, *self.high_watermarks, *cleaned} - self.logs.keys())

    def _take_lock(self) -> None:
        path = f"{self.path}/{LOCK_FILE}"
        try:
            self._lock = self._disk.lock(path)
        except BlockingIOError:
            raise _refusal(f"{path} is locked by another broker") from None

    def _check_identity(self, cluster_id: str, broker_id: BrokerId) -> None:
        path = f"{self.path}/{META_PROPERTIES_FILE}"
        if not self._disk.exists(path):
            self.directory_id = self._new_id()
            meta = MetaProperties(cluster_id, broker_id, self.directory_id)
            write_file_atomically(self._disk, path, meta.encode())
            return
        try:
            meta = MetaProperties.decode(self._disk.read_file(path))
        except ValueError as error:
            raise _refusal(f"cannot read {path}: {error}") from None
        if meta.cluster_id != cluster_id:
            raise _refusal(f"{path}: cluster.id={meta.cluster_id}, but this broker belongs to cluster {cluster_id}")
        if meta.node_id != broker_id:
            raise _refusal(f"{path}: node.id={meta.node_id}, but this is broker {broker_id}")
        self.directory_id = meta.directory_id

    def _classify(self) -> DirectoryNames:
        partitions: list[tuple[TopicPartition, str]] = []
        retired: list[str] = []
        futures: list[Future] = []
        for name in self._disk.listdir(self.path):
            path = f"{self.path}/{name}"
            if not self._disk.is_dir(path) or name == "lost+found":
                continue
            if _DELETED_DIRECTORY.fullmatch(name):
                retired.append(name)
                continue
            future = _future_of(name)
            if future is not None:
                futures.append(future)
                continue
            partition = partition_of(name)
            if partition is None:
                raise _refusal(
                    f"{path} is not a partition: directories in a log directory must be named topic-partition "
                    f"(or topic-partition.<id>{DELETED_DIRECTORY_SUFFIX}). Move it, or correct log.dirs"
                )
            partitions.append((partition, name))
        return DirectoryNames(sorted(partitions), retired, futures)

    def _topic_id(self, path: str) -> UUID:
        """The id in `partition.metadata`; the zero id if it is missing, as after a crash in `create_log`."""
        file = f"{path}/{PARTITION_METADATA_FILE}"
        if not self._disk.exists(file):
            return ZERO_TOPIC_ID
        try:
            return decode_partition_metadata(self._disk.read_file(file))
        except ValueError as error:
            raise _refusal(f"cannot read {file}: {error}") from None

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, Offset]:
        """The checkpoint; empty if it is missing or malformed, so that all logs are checked completely."""
        path = f"{self.path}/{name}"
        try:
            return decode_offsets(self._disk.read_file(path))
        except FileNotFoundError:
            return {}
        except ValueError:
            self.was_clean = False
            events.warning("checkpoint malformed", extra={"path": path})
            return {}

    def _read_cleaned(self) -> dict[TopicPartition, Offset]:
        """The offsets up to which logs are compacted; empty if the checkpoint is missing or malformed."""
        try:
            return decode_offsets(self._disk.read_file(f"{self.path}/{CLEANER_OFFSET_FILE}"))
        except (FileNotFoundError, ValueError):
            return {}

    # Internals

    def _retire_directory(self, topic_partition: TopicPartition, *, due_ms: int) -> None:
        """Rename the directory so that the next start would delete it, and schedule its deletion."""
        self._check_online()
        retired = f"{self.path}/{retired_name(topic_partition, self._new_id())}"
        try:
            self._disk.rename(f"{self.path}/{topic_partition}", retired)
        except OSError as error:
            raise _refusal(f"cannot delete {topic_partition}: {error}") from error
        self._failed_deletions.remove(topic_partition)
        self._retire_later.pop(topic_partition, None)
        self._retired[retired] = due_ms
        self._retired_names_synced = False
        self._note_deleted(topic_partition)

    def _note_deleted(self, topic_partition: TopicPartition) -> None:
        """Remove the partition from the next checkpoints; `create_log` does not create it again before these."""
        for checkpoint in self._checkpoints.values():
            checkpoint.partition_deleted(topic_partition)
        self.high_watermarks.pop(topic_partition, None)

    def _forget_deleted(self, topic_partitions: set[TopicPartition]) -> None:
        """Remove partitions at a start. On a full disk the next checkpoints do it."""
        for topic_partition in topic_partitions:
            self._note_deleted(topic_partition)
        with suppress(KafkaError):
            self.write_checkpoints()

    def _log_start_offsets(self) -> dict[TopicPartition, Offset]:
        return {tp: log.log_start_offset for tp, log in self.logs.items()}

    def _cleaned(self) -> dict[TopicPartition, Offset]:
        return {tp: log.cleaned_upto for tp, log in self.logs.items() if log.cleaned_upto}

    def _recovery_points(self) -> dict[TopicPartition, Offset]:
        return {tp: log.recovery_point for tp, log in self.logs.items() if log.offline_reason is None}

    def _write_checkpoints_before_cut(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """The recovery point on disk moves down to `offset` before the truncation, the one in memory does not. So do
        the offset up to which the log is compacted, the log start offset and the high watermark."""
        checkpoints = [(RECOVERY_POINT_FILE, self._recovery_points), (CLEANER_OFFSET_FILE, self._cleaned)]
        if offset < self.logs[topic_partition].log_start_offset:
            checkpoints.append((LOG_START_OFFSET_FILE, self._log_start_offsets))
        if offset < self.high_watermarks.get(topic_partition, 0):
            checkpoints.append((HIGH_WATERMARK_FILE, self.high_watermarks.copy))
        for name, current in checkpoints:
            if not self._checkpoints[name].is_at_most(topic_partition, offset):
                offsets = current()
                if topic_partition in offsets:
                    offsets[topic_partition] = min(offsets[topic_partition], offset)
                self._write_checkpoint(name, offsets)

    def _check_online(self) -> None:
        """Nothing is written to a directory that is offline: it may be another one by now."""
        if self.offline_reason is not None:
            raise _refusal(f"{self.path} is offline: {self.offline_reason}")

    def _plan_checkpoint(self, name: str, offsets: dict[TopicPartition, Offset]) -> CheckpointPlan | None:
        return None if self.offline_reason is not None else self._checkpoints[name].plan(offsets)

    def _write_checkpoint(self, name: str, offsets: dict[TopicPartition, Offset]) -> None:
        self._check_online()
        try:
            self._checkpoints[name].write(offsets)
        except OSError as error:
            raise _refusal(f"cannot write {self.path}/{name}: {error}") from error

    def _end_creation(self) -> None:
        """At a stop: no job is running any more, and the end of the last one was perhaps not reported."""
        if self._creating is not None:
            self.creation_ended(self._creating)

    def _release(self) -> None:
        self._end_creation()
        for log in self.logs.values():
            log.abandon()
        if self._lock is not None:
            self._disk.close(self._lock)
            self._lock = None


class Future(NamedTuple):
    """The directory of a future log (KIP-113)."""

    name: str
    topic_partition: TopicPartition
    identity: UUID


class DirectoryNames(NamedTuple):
    """The directories in a log directory."""

    partitions: list[tuple[TopicPartition, str]]
    """In order."""
    retired: list[str]
    """Those of deleted and replaced partitions."""
    futures: list[Future]

    def retired_ids(self) -> set[UUID]:
        found = (_DELETED_DIRECTORY.fullmatch(name) for name in self.retired)
        return {UUID(hex=match[1]) for match in found if match is not None}


def partition_of(name: str) -> TopicPartition | None:
    """The partition of a directory name; None for other names, such as those of unfinished operations."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    partition = None if match is None else TopicPartition(match[1], int(match[2]))
    return partition if str(partition) == name else None


def future_name(topic_partition: TopicPartition, identity: UUID) -> str:
    """The name of the directory of a future log. Raises INVALID_REQUEST for a topic whose name is too long for it."""
    name = f"{topic_partition}.{identity.hex}{FUTURE_DIRECTORY_SUFFIX}"
    if len(name) > FILE_NAME_LENGTH_MAX:
        what = f"{topic_partition} cannot be moved: the name of its topic is too long for that of a directory"
        raise KafkaError(ErrorCode.INVALID_REQUEST, what)
    return name


def _future_of(name: str) -> Future | None:
    match = _FUTURE_DIRECTORY.fullmatch(name)
    partition = None if match is None else partition_of(match[1])
    return None if match is None or partition is None else Future(name, partition, UUID(hex=match[2]))


def retired_name(topic_partition: TopicPartition, identity: UUID) -> str:
    """The name of a directory that the next start of a broker, of raylog or Kafka, deletes.

    As in Kafka, a long topic name is shortened, since a file name has at most 255 bytes.
    """
    topic, partition = topic_partition
    suffix = f"-{partition}.{identity.hex}{DELETED_DIRECTORY_SUFFIX}"
    return topic[: FILE_NAME_LENGTH_MAX - len(suffix)] + suffix


def _refusal(what: str) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what)
