"""The share-partitions that this node coordinates: a shard for each partition of __share_group_state that it leads.

__share_group_state is not compacted, because updates build on one another: records before the oldest of the last
snapshots are deleted from time to time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from raylog.coordination.shards import Coordinated, CoordinatorShards, ShardLog
from raylog.core.clock import Now
from raylog.core.errors import KafkaError
from raylog.core.ids import Offset, TopicPartition
from raylog.protocol.records.batch import BatchHeader
from raylog.protocol.records.reader import Record
from raylog.replication.partition import Partition
from raylog.sharecoord import records
from raylog.sharecoord.records import SharePartitionKey, ShareRecord, SnapshotWritten, StateDeleted
from raylog.sharecoord.states import ShareStates

SHARE_STATE_TOPIC: Final = "__share_group_state"
COLD_SNAPSHOTS_MAX: Final = 100
"""How many share-partitions of a shard get a snapshot because it is the oldest, each time records are deleted."""
DELETE_BATCH_MAX: Final = 1000
"""Tombstones per append: the size of a batch is limited."""


class ShareShard:
    """The share-partitions of one partition, over its log, for one leader epoch."""

    def __init__(
        self,
        partition: Partition,
        *,
        updates_max: Callable[[], int],
        exists: Callable[[UUID, int], bool],
        on_append: Callable[[TopicPartition, int], None],
    ) -> None:
        self.leader_epoch = partition.leader_epoch
        self.states = ShareStates(updates_max=updates_max, exists=exists)
        self._partition = partition
        self._snapshots: dict[SharePartitionKey, int] = {}
        """The offset of the last snapshot of each share-partition."""
        self._redundant: tuple[Offset, Offset] | None = None
        """Records before the first offset can be deleted once all before the second are committed, and with them the
        snapshots that make the others redundant."""
        self._log: ShardLog[ShareRecord] = ShardLog(
            partition, encode=records.encode, decode=self._decode, replay=self.states.replay, on_append=on_append
        )
        self.load_some = self._log.load_some
        self.commit_point = self._log.commit_point

    def loaded(self, now: Now) -> None:
        """The log is replayed."""

    def append(self, decided: Sequence[ShareRecord], now: Now) -> None:
        """Append and replay the records. Raises KafkaError with the client's error code; nothing changes then."""
        offset = self._partition.log.log_end_offset
        self._log.append(decided, now)
        for place, record in enumerate(decided):
            self._note(record, offset + place)

    def prune(self, now: Now) -> bool:
        """Delete the records that are redundant, and write snapshots so that more will be. Raises KafkaError.

        Returns whether the log begins later than before.
        """
        log = self._partition.log
        oldest = sorted(self._snapshots, key=lambda key: self._snapshots[key])
        if self._redundant is None:
            upto = self._snapshots[oldest[0]] if oldest else log.log_end_offset
            self._redundant = Offset(upto), log.log_end_offset
        upto, once_committed = self._redundant
        deletes = False
        if self._partition.high_watermark >= once_committed:
            self._redundant = None
            deletes = upto > log.log_start_offset
        if deletes:
            self._partition.delete_records_before(upto)
        if log.log_end_offset - log.log_start_offset > 2 * len(oldest):
            self.append([self.states.snapshot(key, now_ms=now.wall_ms) for key in oldest[:COLD_SNAPSHOTS_MAX]], now)
        return deletes

    def _note(self, record: ShareRecord, offset: int) -> None:
        if isinstance(record, SnapshotWritten):
            self._snapshots[record.key] = offset
        elif isinstance(record, StateDeleted):
            self._snapshots.pop(record.key, None)

    def _decode(self, header: BatchHeader, record: Record) -> ShareRecord | None:
        if header.is_control:
            return None
        decoded = records.decode(record.key or b"", record.value)
        if decoded is not None:
            self._note(decoded, record.offset)
        return decoded


class ShareShards:
    """All shards of this node."""

    def __init__(
        self,
        node: Coordinated,
        *,
        updates_max: Callable[[], int],
        exists: Callable[[UUID, int], bool],
        on_pruned: Callable[[TopicPartition], None],
    ) -> None:
        def make(partition: Partition) -> ShareShard:
            return ShareShard(partition, updates_max=updates_max, exists=exists, on_append=node.partition_appended)

        self._shards = CoordinatorShards(SHARE_STATE_TOPIC, node, make)
        self._on_pruned = on_pruned

    def of(self, key: SharePartitionKey, now: Now) -> ShareShard:
        """The shard of the share-partition. Raises KafkaError: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
        COORDINATOR_LOAD_IN_PROGRESS, or the error of a log that cannot be read."""
        return self._shards.of(key.text, now)

    def topic_deleted(self, topic_id: UUID, now: Now) -> None:
        """Delete the state of a deleted topic. Shards whose append fails keep it; it has no effect."""
        for shard in self._shards.all():
            gone = shard.states.of_topic(topic_id)
            try:
                for start in range(0, len(gone), DELETE_BATCH_MAX):
                    shard.append(gone[start : start + DELETE_BATCH_MAX], now)
            except KafkaError:
                continue

    def prune(self, now: Now) -> None:
        """Delete redundant records of all shards; those whose log fails are retried the next time."""
        for number, shard in list(self._shards.loaded.items()):
            try:
                if shard.prune(now):
                    self._on_pruned(TopicPartition(SHARE_STATE_TOPIC, number))
            except KafkaError:
                continue

    def leadership_changed(self, tp: TopicPartition, now: Now) -> None:
        """The leader or leader epoch of a partition has changed, or the partition was deleted."""
        self._shards.leadership_changed(tp, now)
