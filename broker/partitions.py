"""The partitions on this broker's disk: those assigned to it, those present, and their background work.

The metadata image defines the assignment; `follow` and `metadata_changed` apply it. A partition whose disk fails stays
closed or goes offline, without effect on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from uuid import UUID

from raylog.broker.partition_directories import Background, PartitionDirectories
from raylog.broker.partition_round import PartitionRound
from raylog.config.topic import topic_configs, topic_replication
from raylog.core.clock import Now
from raylog.core.config import Configs
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID, BrokerId, Offset, TopicPartition
from raylog.logstore.deletion import DeletionPlan
from raylog.logstore.disk import Disk, DiskUsage
from raylog.logstore.log import Log
from raylog.logstore.log_dir import Jobs, LogDir
from raylog.logstore.offset_checkpoint import CheckpointPlan
from raylog.logstore.settings import log_settings
from raylog.metadata.image import MetadataImage, PartitionImage
from raylog.metadata.records import (
    IsrChanged,
    LeaderChanged,
    MetadataRecord,
    PartitionCreated,
    ReplicasChanged,
    TopicConfigsChanged,
    TopicDeleted,
)
from raylog.replication.partition import NOTHING_COMMITTED, Partition
from raylog.replication.throttle import is_throttled
from raylog.transport.node import Job

NO_OFFSET_LAG = -1
RETIRED_PER_STEP = 1
"""Segments that retention deletes in one step: each syncs its directory twice."""


class ReplicaOnDisk(NamedTuple):
    """One log in the directory: the size of its segments, and its lag behind the high watermark."""

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int
    """-1 if the log is not served."""


class PartitionTable:
    """Owns the log directory from `__init__` to `close` or `abandon`."""

    def __init__(
        self,
        disk: Disk,
        log_path: str,
        *,
        broker_id: BrokerId,
        cluster_id: str,
        configs: Configs,
        new_id: Callable[[], UUID],
        background: Background,
        on_change: Callable[[TopicPartition], None],
        on_gone: Callable[[TopicPartition], None],
        on_progress: Callable[[Now], None],
        now_ms: int,
        run_all: Callable[[Jobs], None],
    ) -> None:
        """Locks the directory and recovers its logs through `run_all`. Raises KafkaError.

        `on_change` is called for each partition with a new log start offset or leader epoch, `on_gone` for each that
        is deleted, or led by another broker from now on, and `on_progress` after each piece of work on `directories`.
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
        self._log_dir = LogDir.open(
            disk,
            log_path,
            cluster_id=cluster_id,
            broker_id=broker_id,
            settings_for=lambda _: default_settings,
            now_ms=now_ms,
            new_id=new_id,
            run_all=run_all,
        )
        self.directories = PartitionDirectories(
            self._log_dir,
            background,
            assigned=self._assigned_id,
            open_partition=self._open_partition,
            on_progress=on_progress,
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
        logs = self._log_dir.logs
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
                self._want(TopicPartition(topic.name, record.partition), record.topic_id)
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
            self._want(tp, record.topic_id)
        else:
            self._partition_changed(partition, shown, now)

    def configs_changed(self, configs: Configs) -> None:
        """Apply the broker's new configuration."""
        self._configs = configs
        for topic in {tp.topic for tp in self.online}:
            self._apply_configs(topic)

    @property
    def directory_id(self) -> UUID:
        """The id of the log directory (KIP-858)."""
        return self._log_dir.directory_id

    @property
    def log_path(self) -> str:
        return self._log_dir.path

    def disk_usage(self) -> DiskUsage:
        """Usage of the disk that holds the directory. Raises OSError."""
        return self._disk.usage(self._log_dir.path)

    def replicas(self) -> Iterator[ReplicaOnDisk]:
        """All logs in the directory, in order."""
        for tp, log in sorted(self._log_dir.logs.items()):
            partition = self.online.get(tp)
            served = partition is not None and log.offline_reason is None
            lag = max(partition.high_watermark - log.log_end_offset, 0) if served and partition else NO_OFFSET_LAG
            yield ReplicaOnDisk(tp, log.size_bytes, lag)

    def close(self) -> None:
        """A clean stop: all data is flushed and the directory marked clean, so the next start need not recover."""
        self._log_dir.close()

    def abandon(self) -> None:
        """Release the directory without marking the stop as clean: the next start recovers, as after a crash."""
        self._log_dir.abandon()

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
        plan = self._log_dir.plan_deletion(now.wall_ms)
        if plan is not None:
            self._background.add_job(Job(plan.run, partial(self._deletion_ended, plan)))

    def _deletion_ended(self, plan: DeletionPlan, failure: OSError | None) -> None:
        self._log_dir.deletion_ended(plan, failure)
        if failure is None:
            self.delete_retired(self._background.now)

    def check_files(self) -> None:
        """Take logs, or the whole directory, offline if another process has deleted or changed their files.

        If a leader cannot use its log, another in-sync replica must lead. Only a whole broker can be fenced, so the
        directory goes offline, as in Kafka at any error.
        """
        self._log_dir.check_files()
        for tp, partition in self.online.items():
            reason = partition.log.offline_reason
            if reason is not None and partition.has_other_in_sync_replicas:
                self._log_dir.take_offline(f"another replica must lead {tp}: {reason}")
                return

    @property
    def offline_reason(self) -> str | None:
        """Why the log directory is offline; None if it is not."""
        return self._log_dir.offline_reason

    def offline_partitions(self) -> dict[TopicPartition, str]:
        """The partitions whose log is offline, although the directory is not, each with the reason."""
        return {
            tp: partition.log.offline_reason
            for tp, partition in self.online.items()
            if partition.log.offline_reason is not None
        }

    def write_recovery_points(self, now: Now) -> None:
        """Write the recovery points, which shorten the recovery at the next start."""
        self._carry_out(self._log_dir.plan_recovery_points())

    def write_high_watermarks(self, now: Now) -> None:
        """Write the high watermarks that the next incarnation serves until it has heard from the other replicas."""
        offsets = {tp: offset for tp, offset in self._log_dir.high_watermarks.items() if tp in self._log_dir.logs}
        offsets.update((tp, one.high_watermark) for tp, one in self.online.items())
        self._carry_out(self._log_dir.plan_high_watermarks(offsets))

    def truncate(self, tp: TopicPartition, offset: Offset) -> None:
        """Truncate records that the leader does not have. Raises KafkaError."""
        self._log_dir.truncate_log(tp, offset)
        self.online[tp].truncated()

    def write_log_start_offsets(self, now: Now) -> None:
        """Write the log start offsets, which a later start cannot recover from the logs."""
        self._carry_out(self._log_dir.plan_log_start_offsets())

    def write_cleaned(self, now: Now) -> None:
        """Write the offsets up to which logs are compacted."""
        self._carry_out(self._log_dir.plan_cleaned())

    def _carry_out(self, plan: CheckpointPlan | None) -> None:
        if plan is not None:
            self.directories.write_checkpoint(plan)

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

    def _open_partition(self, tp: TopicPartition, log: Log, now: Now) -> None:
        """If the disk fails the partition stays closed: clients get KAFKA_STORAGE_ERROR, and a later round retries."""
        topic = self._image.topics[tp.topic]
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
            high_watermark=self._log_dir.high_watermarks.get(tp, NOTHING_COMMITTED),
        )
        self._configure(partition, configs)
        self._on_change(tp)

    def _apply_configs(self, topic: str) -> None:
        shown = self._image.topics[topic]
        configs = topic_configs(shown.configs, self._configs)
        for number in range(len(shown.partitions)):
            partition = self.online.get(TopicPartition(topic, number))
            if partition is not None:
                partition.log.settings = log_settings(configs)
                self._configure(partition, configs)

    def _configure(self, partition: Partition, configs: Configs) -> None:
        number = partition.topic_partition.partition
        settings = topic_replication(configs)
        partition.min_insync_replicas = settings.min_insync_replicas
        partition.throttled_as_leader = is_throttled(settings.throttled_on_leader, number, self._broker_id)
        partition.throttled_as_follower = is_throttled(settings.throttled_on_follower, number, self._broker_id)

    def _close_replica(self, tp: TopicPartition, topic_id: UUID, shown: PartitionImage, now: Now) -> None:
        """Other brokers hold the partition now, and this broker's replica is no longer needed."""
        self._of_topic.get(topic_id, {}).pop(tp, None)
        partition = self.online.pop(tp, None)
        if partition is not None:
            partition.leader_changed(shown, now.monotonic_ms)  # fails the requests that wait for it
        self.directories.remove(tp)
        self._on_gone(tp)

    def _close_topic(self, topic_id: UUID) -> None:
        for tp in self._of_topic.pop(topic_id, ()):
            was_open = self.online.pop(tp, None) is not None
            self.directories.remove(tp)
            if was_open:
                self._on_gone(tp)
