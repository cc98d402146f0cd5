"""One replica on this broker: its log, whether it leads, and up to where it may be read.

What everybody in sync has is committed, and only that is read; in_sync_replicas.py tells who that is. A follower knows
of the high watermark what its leader has told it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, TopicPartition
from raylog.logstore.log import Log, LogAppendInfo, SegmentPlace
from raylog.logstore.shared_page import PageSnapshot
from raylog.metadata.image import PartitionImage
from raylog.replication.in_sync_replicas import InSyncReplicas
from raylog.transport.commits import CommitPoint

NOTHING_COMMITTED = Offset(0)


class Partition:
    """Lives from the moment the metadata image shows it until it shows it no more."""

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
        """`high_watermark` is one that was known before; `shown` says whether this broker leads."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.min_insync_replicas = min_insync_replicas
        self.leader_epoch = LeaderEpoch(NO_LEADER_EPOCH)
        self.leader = shown.leader
        self.throttled_as_leader = self.throttled_as_follower = False
        """Whether those that catch up are held to a rate while they copy from here, and this one while it copies."""
        self.assigned = shown.replicas
        self.replicas: InSyncReplicas | None = None
        """While this broker leads."""
        self._broker_id = broker_id
        self._high_watermark = high_watermark
        self.leader_changed(shown, now_ms)

    def leader_changed(self, shown: PartitionImage, now_ms: int) -> None:
        """A new leadership, of this broker or another, has begun."""
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
        """Replicas were added, under the same leadership."""
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
    def knows_what_is_committed(self) -> bool:
        """A new leader may know of less than its predecessor had told, until its followers have been heard."""
        return self.replicas is None or self.high_watermark >= self.replicas.epoch_start_offset

    @property
    def last_stable_offset(self) -> Offset:
        """Up to here, read_committed may read: below it every transaction is decided."""
        return self.log.last_stable_offset(self.high_watermark)

    def readable_upto(self, *, committed: bool) -> Offset:
        """One past the last offset that a client may see, `committed` under isolation level read_committed."""
        return self.last_stable_offset if committed else self.high_watermark

    # --- as leader

    def follower_fetched(
        self, replica: BrokerId, offset: int, *, log_start_offset: int, broker_epoch: int, now_ms: int
    ) -> bool:
        """It has everything from `log_start_offset` up to `offset`; whether the high watermark has moved.

        Raises KafkaError(NOT_LEADER_OR_FOLLOWER).
        """
        replicas = self._leading()
        end_offset = self.log.log_end_offset
        replicas.fetched(
            replica,
            offset,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            leader_end_offset=end_offset,
            now_ms=now_ms,
        )
        return self._advance(replicas)

    def propose_isr(
        self, *, lag_ms_max: int, may_join: Callable[[BrokerId], bool], now_ms: int
    ) -> list[tuple[BrokerId, int]] | None:
        """`InSyncReplicas.proposal`; None as well where another broker leads."""
        replicas = self.replicas
        if replicas is None:
            return None
        self._high_watermark = self.high_watermark  # who is asked for holds it back from now on
        return replicas.proposal(
            high_watermark=self._high_watermark,
            leader_end_offset=self.log.log_end_offset,
            lag_ms_max=lag_ms_max,
            may_join=may_join,
            now_ms=now_ms,
        )

    def isr_changed(self, isr: Collection[BrokerId], partition_epoch: int) -> bool:
        """The controller has decided so; whether the high watermark has moved."""
        replicas = self.replicas
        if replicas is None:
            return False
        self._high_watermark = before = self.high_watermark
        replicas.changed(isr, partition_epoch)
        self._advance(replicas)
        return self.high_watermark > before

    def is_in_sync(self, replica: BrokerId) -> bool:
        """Whether the follower is, by what this leader knows."""
        return self.replicas is not None and replica in self.replicas.isr

    def _advance(self, replicas: InSyncReplicas) -> bool:
        committed = replicas.committed_upto(self.log.log_end_offset)
        if committed <= self._high_watermark:
            return False
        self._high_watermark = Offset(committed)
        return True

    def _leading(self) -> InSyncReplicas:
        if self.replicas is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.replicas

    def commit_point(self) -> CommitPoint | None:
        """The end of the log, for an answer that may reveal what is in it; None where all of it is committed."""
        replicas = self.replicas
        if replicas is None or replicas.alone or self._high_watermark >= self.log.log_end_offset:
            return None
        return CommitPoint(self.topic_partition, self.log.log_end_offset)

    # --- as follower

    def append_as_follower(
        self, records: memoryview | bytes, *, high_watermark: int, log_start_offset: int, now_ms: int
    ) -> bool:
        """What the leader has sent, and what it has told of itself; whether the high watermark has moved.

        Raises KafkaError as `Log` does.
        """
        log = self.log
        if len(records):
            log.append_as_follower(records, now_ms=now_ms)
        before = self._high_watermark
        self._high_watermark = max(before, min(Offset(high_watermark), log.log_end_offset))
        if log_start_offset > log.log_start_offset:
            log.delete_records_before(min(Offset(log_start_offset), self._high_watermark))
        return self._high_watermark > before

    def truncated(self) -> None:
        """The log ends earlier than it did."""
        self._high_watermark = min(self._high_watermark, self.log.log_end_offset)

    # --- what clients ask

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raises KafkaError where the client's view of the leadership is not this broker's (KIP-320)."""
        if current_leader_epoch == NO_LEADER_EPOCH or current_leader_epoch == self.leader_epoch:
            return
        newer = current_leader_epoch > self.leader_epoch
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.FENCED_LEADER_EPOCH)

    @property
    def has_enough_replicas(self) -> bool:
        """As many in sync as min.insync.replicas asks for; all, where the partition has fewer, as in Kafka."""
        least = min(self.min_insync_replicas, len(self.assigned))
        return self.replicas is not None and len(self.replicas.isr) >= least

    def check_insync_replicas(self) -> None:
        """Before an append with acks=all. Raises KafkaError(NOT_ENOUGH_REPLICAS)."""
        if not self.has_enough_replicas:
            message = f"min.insync.replicas is {self.min_insync_replicas}, in sync is {len(self._leading().isr)}"
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, message)

    def append_as_leader(self, record_set: memoryview, *, now_ms: int, from_client: bool = True) -> LogAppendInfo:
        """Append a client's batches, or with `from_client=False` our own. Raises KafkaError as `Log` does."""
        return self.log.append_as_leader(
            record_set, leader_epoch=self.leader_epoch, now_ms=now_ms, from_client=from_client
        )

    def publish(self) -> PageSnapshot:
        """What readers that map the files may know. From now on no record below the watermark is cut off in place.

        Raises KafkaError where the log is offline.
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
        )

    def locate(self, offset: Offset) -> SegmentPlace:
        """The file and position to read `offset` at. Raises KafkaError(OFFSET_OUT_OF_RANGE) above the watermark."""
        return self.log.locate(offset, upto=self.high_watermark)

    def delete_records_before(self, offset: Offset) -> Offset:
        """Let the log begin at `offset` at least; where it begins now. Raises KafkaError(OFFSET_OUT_OF_RANGE)."""
        if not 0 <= offset <= self.high_watermark:
            what = f"{self.topic_partition}: offset {offset} is not in [0, {self.high_watermark}]"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, what)
        self.log.delete_records_before(offset)
        return self.log.log_start_offset

    def end_offset_for_epoch(self, leader_epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch up to `leader_epoch` in this log, and the offset where it ends; (-1, -1) for none."""
        if leader_epoch == self.leader_epoch:
            return leader_epoch, self.log.log_end_offset
        return self.log.end_offset_for_epoch(leader_epoch)

    def epoch_of(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch in which the record at `offset` was written; -1 where nothing was."""
        return self.log.leader_epochs.epoch_at(offset)

    def diverging_epoch(
        self, last_fetched_epoch: LeaderEpoch, fetch_offset: Offset
    ) -> tuple[LeaderEpoch, Offset] | None:
        """Where the reader's log and this one part, or None where they agree up to `fetch_offset` (KIP-595).

        Raises KafkaError(OFFSET_OUT_OF_RANGE) for an epoch of which nothing is known.
        """
        if last_fetched_epoch == NO_LEADER_EPOCH:
            return None
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch == NO_LEADER_EPOCH:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < fetch_offset else None
