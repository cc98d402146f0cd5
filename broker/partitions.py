"""The partitions on this broker's disk: those assigned to it, those present, and their background work.

The metadata image defines the assignment; `follow` and `metadata_changed` apply it. A partition whose disk fails stays
closed or goes offline, without effect on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple
from uuid import UUID

from raylog.broker.partition_directories import Background, PartitionDirectories
from raylog.broker.partition_round import PartitionRound
from raylog.broker.replica_moves import ReplicaMoves
from raylog.config.topic import TopicReplication, topic_configs, topic_replication
from raylog.core.clock import Now
from raylog.core.config import Configs
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID, BrokerId, Offset, TopicPartition
from raylog.logstore.deletion import DeletionPlan
from raylog.logstore.disk import Disk, DiskUsage
from raylog.logstore.log import Log
from raylog.logstore.log_dir import Jobs, LogDir
from raylog.logstore.log_dirs import LogDirs
from raylog.logstore.offset_checkpoint import CheckpointPlan
from raylog.logstore.settings import log_settings
from raylog.metadata.image import MetadataImage, PartitionImage
from raylog.metadata.records import (
    IsrChanged,
    LeaderChanged,
    MetadataRecord,
    PartitionCreated,
    ReplicasAssignedToDirectory,
    ReplicasChanged,
    TopicConfigsChanged,
    TopicDeleted,
)
from raylog.replication.partition import NOTHING_COMMITTED, Partition
from raylog.replication.throttle import is_throttled
from raylog.transport.node import Job

NO_OFFSET_LAG = -1
PREFERRED_MAX = 10_000
"""Replicas for which a log directory is remembered before they exist; the oldest is forgotten first."""
RETIRED_PER_STEP = 1
"""Segments that retention deletes in one step: each syncs its directory twice."""


class ReplicaOnDisk(NamedTuple):
    """One log in a directory: the size of its segments, and its lag behind the high watermark; that of a future log
    behind the current one."""

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int
    """-1 if the log is not served."""
    is_future: bool = False


class PartitionTable:
    """Owns the log directories from `__init__` to `close` or `abandon`."""

    def __init__(
        self,
        disk: Disk,
        log_paths: Sequence[str],
        *,
        broker_id: BrokerId,
        cluster_id: str,
        configs: Configs,
        new_id: Callable[[], UUID],
        background: Background,
        on_change: Callable[[TopicPartition], None],
        on_gone: Callable[[TopicPartition], None],
        on_progress: Callable[[Now], None],
        on_placed: Callable[[TopicPartition, UUID, UUID], None],
        move_rate: Callable[[], int],
        now_ms: int,
        run_all: Callable[[Jobs], None],
    ) -> None:
        """Locks the directories and recovers their logs through `run_all`. Raises KafkaError.

        `on_change` is called for each partition with a new log start offset or leader epoch, `on_gone` for each that
        is deleted, or led by another broker from now on, and `on_progress` after each piece of work on `directories`.
        `on_placed` is called for a replica, its topic id and the id of its directory, if the image does not have that.
        `move_rate` returns the bytes per second that replicas may be moved between directories.
        """
        self.online: dict[TopicPartition, Partition] = {}
        """The open replicas: all except those whose disk has failed. Not all of them are leaders."""
        self._broker_id = broker_id
        self._configs = configs
        self._on_change = on_change
        self._on_gone = on_gone
        self._disk = disk
        self._background = background
        self._of_topic: dict[UUID, dict[TopicPartition, None]] = {}
        """The replicas of each topic, open or not."""
        self._image = MetadataImage()
        default_settings = log_settings(topic_configs({}, configs))
        self._new: set[TopicPartition] = set()
        """Replicas that this broker was given while it ran and that are not open yet."""
        self._on_placed = on_placed
        self._preferred: dict[TopicPartition, LogDir] = {}
        """The directories in which replicas are to be created that this broker does not have yet."""
        self._on_progress = on_progress
        self.log_dirs = LogDirs.open(
            disk,
            log_paths,
            cluster_id=cluster_id,
            broker_id=broker_id,
            settings_for=lambda _: default_settings,
            now_ms=now_ms,
            new_id=new_id,
            run_all=run_all,
        )
        self.directories = PartitionDirectories(
            self.log_dirs,
            background,
            assigned=self._assigned_id,
            place=self._place,
            open_partition=self._open_partition,
            on_progress=on_progress,
        )
        self.moves = ReplicaMoves(
            disk,
            self.log_dirs,
            background,
            new_id=new_id,
            report=self._report_move,
            is_reported=self._is_in_directory,
            on_moved=self._moved,
            rate_bytes_per_sec=move_rate,
        )
        self._flushes = PartitionRound(self.online, background, self._plan_sync, on_progress=on_progress)
        self._retention = PartitionRound(self.online, background, self._delete_old, on_progress=on_progress)

    def follow(self, image: MetadataImage) -> None:
        """Apply `image` from now on. Raises KafkaError for the directory of an unknown topic id.

        Before this call no partition is open: an image that is still catching up may contain topics deleted long ago.
        Directories of deleted topics and of replicas that other brokers hold now are removed. A crash while a partition
        was created can leave an empty directory without a topic id: it is created again.
        """
        self._image = image
        logs = dict(self.log_dirs.logs())
        removed = [tp for tp, log in sorted(logs.items()) if self._is_removed(tp, log)]
        for tp in removed:
            self.directories.remove(tp)
        assigned = [(tp, topic_id) for tp, topic_id, _ in image.partitions_on(self._broker_id)]
        for tp, topic_id in sorted(assigned, key=lambda each: each[0] not in logs):  # those that exist first
            self._want(tp, topic_id)

    def _is_removed(self, tp: TopicPartition, log: Log) -> bool:
        image = self._image
        topic = image.topics.get(tp.topic)
        if topic is not None and topic.topic_id == log.topic_id:
            shown = image.partition(tp)
            return shown is not None and self._broker_id in shown.former
        never_finished = log.topic_id == ZERO_TOPIC_ID and log.log_end_offset == 0
        if log.topic_id not in image.deleted_topics and not never_finished:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"directory {tp} has topic id {log.topic_id}, which is not in the cluster metadata:"
                " move the directory elsewhere",
            )
        return True

    def metadata_changed(self, record: MetadataRecord, now: Now) -> None:
        """`record` was just replayed into the image."""
        match record:
            case PartitionCreated() if self._broker_id in record.replicas:
                topic = self._image.topics_by_id[record.topic_id]
                tp = TopicPartition(topic.name, record.partition)
                self._new.add(tp)
                self._want(tp, record.topic_id)
            case LeaderChanged() | IsrChanged():
                topic = self._image.topics_by_id[record.topic_id]
                tp = TopicPartition(topic.name, record.partition)
                partition = self.online.get(tp)
                if partition is not None:
                    self._partition_changed(partition, topic.partitions[record.partition], now)
            case ReplicasChanged():
                self._replicas_changed(record, now)
            case TopicConfigsChanged():
                self._apply_configs(self._image.topics_by_id[record.topic_id].name)
            case TopicDeleted():
                self._close_topic(record.topic_id)
            case ReplicasAssignedToDirectory() if record.broker_id == self._broker_id:
                self.moves.go_on(now)

    def _partition_changed(self, partition: Partition, shown: PartitionImage, now: Now) -> None:
        tp = partition.topic_partition
        if shown.leader_epoch != partition.leader_epoch:
            partition.leader_changed(shown, now.monotonic_ms)
            (self._on_change if partition.is_leader else self._on_gone)(tp)
            return
        if shown.replicas != partition.assigned:
            partition.replicas_changed(shown, now.monotonic_ms)
        if partition.isr_changed(shown.isr, shown.partition_epoch):
            self._on_change(tp)

    def _replicas_changed(self, record: ReplicasChanged, now: Now) -> None:
        topic = self._image.topics_by_id[record.topic_id]
        tp, shown = TopicPartition(topic.name, record.partition), topic.partitions[record.partition]
        partition = self.online.get(tp)
        if self._broker_id not in shown.replicas:
            self._close_replica(tp, record.topic_id, shown, now)
        elif partition is None:
            if tp not in self._of_topic.get(record.topic_id, {}):
                self._new.add(tp)
            self._want(tp, record.topic_id)
        else:
            self._partition_changed(partition, shown, now)

    def configs_changed(self, configs: Configs) -> None:
        """Apply the broker's new configuration."""
        self._configs = configs
        for topic in {tp.topic for tp in self.online}:
            self._apply_configs(topic)

    @property
    def directory_ids(self) -> tuple[UUID, ...]:
        """The ids of the log directories that work (KIP-858)."""
        return tuple(log_dir.directory_id for log_dir in self.log_dirs.online)

    def disk_usage(self, log_dir: LogDir) -> DiskUsage:
        """Usage of the disk that holds the directory. Raises OSError."""
        return self._disk.usage(log_dir.path)

    def replicas(self, log_dir: LogDir) -> Iterator[ReplicaOnDisk]:
        """All logs in the directory, in order."""
        for tp, log in sorted(log_dir.logs.items()):
            partition = self.online.get(tp)
            served = partition is not None and log.offline_reason is None
            lag = max(partition.high_watermark - log.log_end_offset, 0) if served and partition else NO_OFFSET_LAG
            yield ReplicaOnDisk(tp, log.size_bytes, lag)
        for tp, future in self.moves.futures(log_dir):
            yield ReplicaOnDisk(tp, future.size_bytes, future.lag, is_future=True)

    def move(self, tp: TopicPartition, path: str) -> None:
        """Move a replica to the log directory with this path. Raises KafkaError.

        LOG_DIR_NOT_FOUND for an unknown directory; KAFKA_STORAGE_ERROR if it or the replica is offline;
        REPLICA_NOT_AVAILABLE if there is no replica yet: it will be created in that directory.
        """
        target = next((each for each in self.log_dirs.dirs if each.path == path.rstrip("/")), None)
        if target is None and path not in self.log_dirs.unavailable:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not a log directory of broker {self._broker_id}.")
        if target is None or target.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline.")
        partition = self.online.get(tp)
        if partition is None and self._assigned_id(tp) is not None and not self.directories.is_opening(tp):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is offline.")
        if partition is None:
            while len(self._preferred) >= PREFERRED_MAX:
                del self._preferred[next(iter(self._preferred))]
            self._preferred[tp] = target
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"Broker {self._broker_id} has no replica of {tp}.")
        if partition.log.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is offline: {partition.log.offline_reason}")
        self.moves.begin(tp, target)

    def _report_move(self, tp: TopicPartition, directory_id: UUID) -> None:
        topic = self._image.topics.get(tp.topic)
        if topic is not None:
            self._on_placed(tp, topic.topic_id, directory_id)
            self._on_progress(self._background.now)

    def _is_in_directory(self, tp: TopicPartition, directory_id: UUID) -> bool:
        topic = self._image.topics.get(tp.topic)
        known = None if topic is None else self._image.directory_of(self._broker_id, topic.topic_id, tp.partition)
        return known == directory_id

    def _moved(self, tp: TopicPartition, log: Log) -> None:
        partition = self.online.get(tp)
        if partition is not None:
            partition.log = log
            self._on_change(tp)
            self._on_progress(self._background.now)

    def close(self, *, broker_epoch: int) -> None:
        """A clean stop: all data is flushed and the directories marked clean, so the next start need not recover."""
        self.moves.close()
        self.log_dirs.close(broker_epoch=broker_epoch)

    def abandon(self) -> None:
        """Release the directories without marking the stop as clean: the next start recovers, as after a crash."""
        self.moves.close()
        self.log_dirs.abandon()

    def flush(self, now: Now) -> None:
        """Flush closed segments, and logs with records older than flush.ms, in the background."""
        self._flushes.begin()

    def _plan_sync(self, partition: Partition, now: Now) -> bool:
        plan = partition.log.plan_sync(now.wall_ms)
        if plan is None:
            return False
        self._background.add_job(Job(partial(plan.run, self._disk), partial(partition.log.sync_ended, plan)))
        return True

    def delete_retired(self, now: Now) -> None:
        """Delete files of removed segments and partitions whose delay has passed."""
        for log_dir in self.log_dirs.dirs:
            plan = log_dir.plan_deletion(now.wall_ms)
            if plan is not None:
                self._background.add_job(Job(plan.run, partial(self._deletion_ended, log_dir, plan)))

    def _deletion_ended(self, log_dir: LogDir, plan: DeletionPlan, failure: OSError | None) -> None:
        log_dir.deletion_ended(plan, failure)
        if failure is None:
            self.delete_retired(self._background.now)

    def check_files(self) -> bool:
        """Take logs, or whole directories, offline if another process has deleted or changed their files.

        Returns whether all logs are online.

        If a leader cannot use its log, another in-sync replica must lead. The controller elects others for whole
        directories, so the directory goes offline, as in Kafka at any error.
        """
        for log_dir in self.log_dirs.dirs:
            log_dir.check_files()
        offline = False
        for tp, partition in self.online.items():
            reason = partition.log.offline_reason
            offline = offline or reason is not None
            if reason is not None and partition.has_other_in_sync_replicas:
                failed = self.log_dirs.holder(tp)
                if failed is not None:
                    failed.take_offline(f"another replica must lead {tp}: {reason}")
        self.moves.go_on(self._background.now)
        return not offline

    @property
    def offline_reason(self) -> str | None:
        """Why no log directory is online; None if there is one."""
        return self.log_dirs.offline_reason

    @property
    def failed_directory_ids(self) -> tuple[UUID, ...]:
        """The log directories that have failed since the start."""
        return tuple(log_dir.directory_id for log_dir in self.log_dirs.dirs if log_dir.offline_reason is not None)

    def offline_partitions(self) -> dict[TopicPartition, str]:
        """The partitions whose log is offline, although the directory is not, each with the reason."""
        return {
            tp: partition.log.offline_reason
            for tp, partition in self.online.items()
            if partition.log.offline_reason is not None
        }

    def write_recovery_points(self, now: Now) -> None:
        """Write the recovery points, which shorten the recovery at the next start."""
        for log_dir in self.log_dirs.dirs:
            self._carry_out(log_dir, log_dir.plan_recovery_points())

    def write_high_watermarks(self, now: Now) -> None:
        """Write the high watermarks that the next incarnation serves until it has heard from the other replicas."""
        for log_dir in self.log_dirs.dirs:
            offsets = {tp: offset for tp, offset in log_dir.high_watermarks.items() if tp in log_dir.logs}
            offsets.update((tp, self.online[tp].high_watermark) for tp in log_dir.logs if tp in self.online)
            self._carry_out(log_dir, log_dir.plan_high_watermarks(offsets))

    def truncate(self, tp: TopicPartition, offset: Offset) -> None:
        """Truncate records that the leader does not have. Raises KafkaError."""
        self._directory_of(tp).truncate_log(tp, offset)
        self.online[tp].truncated()

    def restart(self, tp: TopicPartition, offset: Offset) -> None:
        """Remove all records, so that the log begins at `offset`. Raises KafkaError."""
        partition = self.online[tp]
        if offset < partition.log.log_end_offset:
            self._directory_of(tp).begin_log_at(tp, offset)
        else:  # the checkpoints remain valid
            partition.log.truncate_fully_and_start_at(offset)
        partition.truncated()

    def _directory_of(self, tp: TopicPartition) -> LogDir:
        log_dir = self.log_dirs.holder(tp)
        assert log_dir is not None
        return log_dir

    def write_log_start_offsets(self, now: Now) -> None:
        """Write the log start offsets, which a later start cannot recover from the logs."""
        for log_dir in self.log_dirs.dirs:
            self._carry_out(log_dir, log_dir.plan_log_start_offsets())

    def write_cleaned(self, now: Now) -> None:
        """Write the offsets up to which logs are compacted."""
        for log_dir in self.log_dirs.dirs:
            self._carry_out(log_dir, log_dir.plan_cleaned())

    def _carry_out(self, log_dir: LogDir, plan: CheckpointPlan | None) -> None:
        if plan is not None:
            self.directories.write_checkpoint(log_dir, plan)

    def apply_retention(self, now: Now) -> None:
        """Delete old segments, and retry partitions that could not be created, for example for lack of space."""
        self.directories.retry()
        self._retention.begin()

    def _delete_old(self, partition: Partition, now: Now) -> bool:
        deleted = partition.log.apply_retention(
            now.wall_ms, upto=partition.high_watermark, segments_max=RETIRED_PER_STEP
        )
        if deleted:
            self._on_change(partition.topic_partition)
        return deleted > 0

    def _want(self, tp: TopicPartition, topic_id: UUID) -> None:
        self._of_topic.setdefault(topic_id, {})[tp] = None
        self.directories.open(tp)

    def _assigned_id(self, tp: TopicPartition) -> UUID | None:
        """The topic id of a partition that the image assigns to this broker; None for others."""
        shown = self._image.partition(tp)
        if shown is None or self._broker_id not in shown.replicas:
            return None
        return self._image.topics[tp.topic].topic_id

    def _place(self, tp: TopicPartition, planned: Mapping[LogDir, int]) -> LogDir | None:
        """The directory for a replica that is in none of those that work.

        It may be in one that does not work, so that a second copy must not be created while there is one, unless the
        replica is new. A replica whose directory was replaced is created anew in another one.
        """
        is_new = tp in self._new
        if not is_new and (not self.log_dirs.are_all_online or tp in self.log_dirs.without_current):
            return None
        preferred = self._preferred.get(tp)
        if preferred is not None and preferred.offline_reason is None:
            return preferred
        directory_id = self._image.directory_of(self._broker_id, self._image.topics[tp.topic].topic_id, tp.partition)
        known = next((each for each in self.log_dirs.online if each.directory_id == directory_id), None)
        return known or self.log_dirs.emptiest(planned)

    def _report_directory(self, tp: TopicPartition, topic_id: UUID, log_dir: LogDir) -> None:
        known = self._image.directory_of(self._broker_id, topic_id, tp.partition)
        is_implied = known is None and not self.log_dirs.are_several
        if known != log_dir.directory_id and not is_implied:
            self._on_placed(tp, topic_id, log_dir.directory_id)

    def _open_partition(self, tp: TopicPartition, log: Log, now: Now) -> None:
        """If the disk fails the partition stays closed: clients get KAFKA_STORAGE_ERROR, and a later round retries."""
        log_dir = self.log_dirs.holder(tp)
        assert log_dir is not None
        topic = self._image.topics[tp.topic]
        self._report_directory(tp, topic.topic_id, log_dir)
        configs = topic_configs(topic.configs, self._configs)
        log.settings = log_settings(configs)
        if log.settings.flush_messages == 1:
            log.flush()  # records left unsynced by a crash must not be read before they are durable
        partition = self.online[tp] = Partition(
            tp,
            topic.topic_id,
            log,
            topic.partitions[tp.partition],
            self._broker_id,
            now_ms=now.monotonic_ms,
            high_watermark=log_dir.high_watermarks.get(tp, NOTHING_COMMITTED),
        )
        self._new.discard(tp)
        self._preferred.pop(tp, None)
        self._configure(partition, topic_replication(configs))
        self._on_change(tp)
        self._resume_move(tp)

    def _resume_move(self, tp: TopicPartition) -> None:
        path = self.log_dirs.interrupted.pop(tp, None)
        target = next((each for each in self.log_dirs.online if each.path == path), None)
        if target is not None:
            with suppress(KafkaError):  # which is logged: the replica stays where it is
                self.moves.begin(tp, target)

    def _apply_configs(self, topic: str) -> None:
        shown = self._image.topics[topic]
        configs = topic_configs(shown.configs, self._configs)
        settings, replication = log_settings(configs), topic_replication(configs)
        for number in range(len(shown.partitions)):
            partition = self.online.get(TopicPartition(topic, number))
            if partition is not None:
                partition.log.settings = settings
                self._configure(partition, replication)

    def _configure(self, partition: Partition, settings: TopicReplication) -> None:
        number = partition.topic_partition.partition
        partition.min_insync_replicas = settings.min_insync_replicas
        partition.throttled_as_leader = is_throttled(settings.throttled_on_leader, number, self._broker_id)
        partition.throttled_as_follower = is_throttled(settings.throttled_on_follower, number, self._broker_id)

    def _close_replica(self, tp: TopicPartition, topic_id: UUID, shown: PartitionImage, now: Now) -> None:
        """Other brokers hold the partition now, and this broker's replica is no longer needed."""
        self._of_topic.get(topic_id, {}).pop(tp, None)
        self._new.discard(tp)
        self.moves.cancel(tp)
        partition = self.online.pop(tp, None)
        if partition is not None:
            partition.leader_changed(shown, now.monotonic_ms)  # fails the requests that wait for it
        self.directories.remove(tp)
        self._on_gone(tp)

    def _close_topic(self, topic_id: UUID) -> None:
        for tp in self._of_topic.pop(topic_id, ()):
            self._new.discard(tp)
            self.moves.cancel(tp)
            was_open = self.online.pop(tp, None) is not None
            self.directories.remove(tp)
            if was_open:
                self._on_gone(tp)
