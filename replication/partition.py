"""One replica on this broker: its log, its role, and the offset up to which clients may read it.

Records that all in-sync replicas have are committed, and clients read only committed records; in_sync_replicas.py
tracks the ISR. A follower learns the high watermark from its leader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, TopicPartition
from raylog.logstore.log import Log, LogAppendInfo, SegmentPlace
from raylog.logstore.producer_state import AbortedTransaction
from raylog.logstore.record_set import CheckedRecordSet
from raylog.logstore.shared_page import PageSnapshot
from raylog.metadata.image import PartitionImage
from raylog.metadata.node_roles import only_brokers
from raylog.replication.in_sync_replicas import InSyncReplicas
from raylog.transport.commits import CommitPoint

NOTHING_COMMITTED = Offset(0)


class Partition:
    """Lives as long as the metadata image assigns it to this broker."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        shown: PartitionImage,
        broker_id: BrokerId,
        *,
        now_ms: int,
        high_watermark: Offset = NOTHING_COMMITTED,
        min_insync_replicas: int = 1,
    ) -> None:
        """`high_watermark` is the last known one; `shown` says whether this broker leads."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.min_insync_replicas = min_insync_replicas
        self.leader_epoch = LeaderEpoch(NO_LEADER_EPOCH)
        self.leader = shown.leader
        self.throttled_as_leader = self.throttled_as_follower = False
        """Whether replication from this replica, or to it, is throttled while the receiver is out of sync."""
        self.assigned = shown.replicas
        self.replicas: InSyncReplicas | None = None
        """None unless this broker leads."""
        self._broker_id = broker_id
        self._high_watermark = high_watermark
        self.leader_changed(shown, now_ms)

    def leader_changed(self, shown: PartitionImage, now_ms: int) -> None:
        """A new leader epoch has begun, under this broker or another."""
        log = self.log
        self._high_watermark = min(max(self.high_watermark, log.log_start_offset), log.log_end_offset)
        self.leader, self.leader_epoch, self.assigned = shown.leader, shown.leader_epoch, shown.replicas
        self.replicas = None
        if shown.leader == self._broker_id:
            self.replicas = InSyncReplicas(
                self._broker_id,
                shown.replicas,
                shown.isr,
                shown.partition_epoch,
                epoch_start_offset=log.log_end_offset,
                now_ms=now_ms,
            )
            if shown.leader_epoch > log.leader_epochs.latest:
                log.leader_epochs.assign(shown.leader_epoch, log.log_end_offset)

    def replicas_changed(self, shown: PartitionImage, now_ms: int) -> None:
        """Replicas were added within the same leader epoch."""
        self.assigned = shown.replicas
        if self.replicas is not None:
            self.replicas.reassigned(shown.replicas, now_ms)

    @property
    def is_leader(self) -> bool:
        return self.replicas is not None

    @property
    def high_watermark(self) -> Offset:
        replicas = self.replicas
        return self.log.log_end_offset if replicas is not None and replicas.alone else self._high_watermark

    @property
    def is_high_watermark_known(self) -> bool:
        """Whether the high watermark is current. A new leader's may be too low until its followers have fetched."""
        return self.replicas is None or self.high_watermark >= self.replicas.epoch_start_offset

    @property
    def last_stable_offset(self) -> Offset:
        """The offset up to which read_committed may read: every transaction below it is completed."""
        return self.log.last_stable_offset(self.high_watermark)

    def readable_upto(self, *, committed: bool) -> Offset:
        """One past the last offset that a client may read; `committed` selects isolation level read_committed."""
        return self.last_stable_offset if committed else self.high_watermark

    # --- as leader

    def follower_fetched(
        self, replica: BrokerId, offset: int, *, log_start_offset: int, broker_epoch: int, now_ms: int
    ) -> bool:
        """The follower's log covers `log_start_offset` up to `offset`.

        Returns whether the high watermark has moved, or the follower's log start offset. Raises
        KafkaError(NOT_LEADER_OR_FOLLOWER).
        """
        replicas = self._leading()
        end_offset = self.log.log_end_offset
        log_start_moved = replicas.fetched(
            replica,
            offset,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            leader_end_offset=end_offset,
            now_ms=now_ms,
        )
        return self._advance(replicas) or log_start_moved

    def follower_was_caught_up(self, replica: BrokerId, at_ms: int) -> None:
        """A follower had all records when it fetched at `at_ms`, without naming the partition (KIP-227)."""
        if self.replicas is not None:
            self.replicas.was_caught_up(replica, at_ms)

    def check_follower_start(self, replica: BrokerId, offset: int, *, log_start_offset: int) -> None:
        """Refuse a follower whose empty log begins after records of this one: it would never have those.

        Such a log is left over from before an unclean election. A follower in the ISR has deleted the records.
        Raises KafkaError: OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER.
        """
        if log_start_offset == offset > self.log.log_start_offset and replica not in self._leading().maximal_isr:
            what = f"{self.topic_partition}: a replica without records must begin at {self.log.log_start_offset}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, what)

    def low_watermark(self, is_alive: Callable[[BrokerId], bool]) -> Offset:
        """The smallest log start offset of this leader and the live followers; -1 if one has not fetched yet.

        Raises KafkaError(NOT_LEADER_OR_FOLLOWER).
        """
        followers = self._leading().followers
        starts = [follower.log_start_offset for replica, follower in followers.items() if is_alive(replica)]
        return Offset(min([self.log.log_start_offset, *starts]))

    def propose_isr(
        self, *, lag_ms_max: int, may_join: Callable[[BrokerId], bool], now_ms: int
    ) -> list[tuple[BrokerId, int]] | None:
        """`InSyncReplicas.proposal`; also None if another broker leads."""
        replicas = self.replicas
        if replicas is None:
            return None
        self._high_watermark = self.high_watermark  # a proposed replica holds back the high watermark from now on
        return replicas.proposal(
            high_watermark=self._high_watermark,
            leader_end_offset=self.log.log_end_offset,
            lag_ms_max=lag_ms_max,
            may_join=may_join,
            now_ms=now_ms,
        )

    def isr_changed(self, isr: Collection[BrokerId], partition_epoch: int) -> bool:
        """The controller has changed the ISR. Returns whether the high watermark has moved."""
        replicas = self.replicas
        if replicas is None:
            return False
        self._high_watermark = before = self.high_watermark
        replicas.changed(isr, partition_epoch)
        self._advance(replicas)
        return self.high_watermark > before

    @property
    def has_other_in_sync_replicas(self) -> bool:
        """Whether this broker leads the partition, and another one could."""
        return self.replicas is not None and len(self.replicas.isr) > 1

    def is_in_sync(self, replica: BrokerId) -> bool:
        """Whether the replica is in sync, as far as this leader knows."""
        return self.replicas is not None and replica in self.replicas.isr

    def _advance(self, replicas: InSyncReplicas) -> bool:
        committed = replicas.committed_upto(self.log.log_end_offset)
        if committed <= self._high_watermark:
            return False
        self._high_watermark = Offset(committed)
        self.log.committed(self._high_watermark)
        return True

    def _leading(self) -> InSyncReplicas:
        if self.replicas is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.replicas

    def commit_point(self) -> CommitPoint | None:
        """The end of the log, for a response that may reveal its records; None if all of it is committed."""
        replicas = self.replicas
        if replicas is None or replicas.alone or self._high_watermark >= self.log.log_end_offset:
            return None
        return CommitPoint(self.topic_partition, self.log.log_end_offset)

    # --- as follower

    def append_as_follower(
        self, records: memoryview | bytes, *, high_watermark: int, log_start_offset: int, now_ms: int
    ) -> bool:
        """Append the leader's records and apply the offsets it sent. Returns whether the high watermark has moved.

        Raises KafkaError as `Log` does.
        """
        log = self.log
        if len(records):
            log.append_as_follower(records, now_ms=now_ms)
        before = self._high_watermark
        self._high_watermark = max(before, min(Offset(high_watermark), log.log_end_offset))
        if log_start_offset > log.log_start_offset:
            log.delete_records_before(min(Offset(log_start_offset), self._high_watermark))
        if self._high_watermark == before:
            return False
        log.committed(self._high_watermark)
        return True

    def truncated(self) -> None:
        """The log was truncated."""
        self._high_watermark = min(self._high_watermark, self.log.log_end_offset)

    # --- for client requests

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raises KafkaError if the client's leader epoch differs from this broker's (KIP-320)."""
        if current_leader_epoch == NO_LEADER_EPOCH or current_leader_epoch == self.leader_epoch:
            return
        newer = current_leader_epoch > self.leader_epoch
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.FENCED_LEADER_EPOCH)

    @property
    def has_enough_replicas(self) -> bool:
        """Whether min.insync.replicas brokers are in sync, or all that have a replica if there are fewer, as in Kafka.

        Coordinators do not count, so that the loss of one refuses no write.
        """
        least = min(self.min_insync_replicas, len(only_brokers(self.assigned)))
        return self.replicas is not None and len(only_brokers(self.replicas.isr)) >= least

    def check_insync_replicas(self) -> None:
        """Called before an append with acks=all. Raises KafkaError(NOT_ENOUGH_REPLICAS)."""
        if not self.has_enough_replicas:
            count = len(only_brokers(self._leading().isr))
            message = f"{count} replica(s) in sync, but min.insync.replicas is {self.min_insync_replicas}"
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, message)

    def append_as_leader(
        self, record_set: memoryview | CheckedRecordSet, *, now_ms: int, from_client: bool = True
    ) -> LogAppendInfo:
        """Append batches of a client, or of the broker if `from_client=False`. Raises KafkaError as `Log` does."""
        appended = self.log.append_as_leader(
            record_set, leader_epoch=self.leader_epoch, now_ms=now_ms, from_client=from_client
        )
        if not from_client:  # a marker, which a leader without followers commits at once
            self.log.committed(self.high_watermark)
        return appended

    def publish(self) -> PageSnapshot:
        """A snapshot for readers that map the files. No record below the high watermark is later truncated in place.

        Raises KafkaError if the log is offline.
        """
        high_watermark = self.high_watermark
        log = self.log
        base_offset, position = log.publish(high_watermark)
        return PageSnapshot(
            log.log_start_offset,
            log.log_end_offset,
            high_watermark,
            self.last_stable_offset,
            self.leader_epoch,
            log.generation,
            base_offset,
            position,
            log.aborted_upto,
        )

    def locate(self, offset: Offset) -> SegmentPlace:
        """The file and position of `offset`. Raises KafkaError(OFFSET_OUT_OF_RANGE) above the high watermark."""
        return self.log.locate(offset, upto=self.high_watermark)

    def aborted_in_file(
        self, base_offset: int, identity: tuple[int, int], start: Offset, wanted: Offset
    ) -> tuple[list[AbortedTransaction], Offset] | None:
        """`Log.aborted_in_file` below the last stable offset."""
        return self.log.aborted_in_file(base_offset, identity, start, wanted=wanted, upto=self.last_stable_offset)

    def delete_records_before(self, offset: Offset) -> Offset:
        """Raise the log start offset to at least `offset` and return it. Raises KafkaError(OFFSET_OUT_OF_RANGE)."""
        if not 0 <= offset <= self.high_watermark:
            what = f"{self.topic_partition}: offset {offset} is not in [0, {self.high_watermark}]"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, what)
        self.log.delete_records_before(offset)
        return self.log.log_start_offset

    def end_offset_for_epoch(self, leader_epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch up to `leader_epoch` in this log, and its end offset; (-1, -1) if there is none."""
        if leader_epoch == self.leader_epoch:
            return leader_epoch, self.log.log_end_offset
        return self.log.end_offset_for_epoch(leader_epoch)

    def epoch_of(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch in which the record at `offset` was written; -1 if there is no record."""
        return self.log.leader_epochs.epoch_at(offset)

    def diverging_epoch(
        self, last_fetched_epoch: LeaderEpoch, fetch_offset: Offset
    ) -> tuple[LeaderEpoch, Offset] | None:
        """Where the reader's log diverges from this one, or None if they agree up to `fetch_offset` (KIP-595).

        Raises KafkaError(OFFSET_OUT_OF_RANGE) for an unknown epoch.
        """
        if last_fetched_epoch == NO_LEADER_EPOCH:
            return None
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch == NO_LEADER_EPOCH:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < fetch_offset else None
