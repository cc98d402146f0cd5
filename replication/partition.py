"""One replica on this broker: its log, whether it leads, and up to where it may be read.

With one replica every appended record is committed, so the high watermark is the log end offset.
"""

from __future__ import annotations

from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition
from raylog.logstore.log import FetchSlice, Log, LogAppendInfo, SegmentPlace
from raylog.logstore.shared_page import PageSnapshot


class Partition:
    """Lives from the moment the metadata image shows it until it shows it no more."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        leader_epoch: LeaderEpoch,
        *,
        is_leader: bool = True,
        min_insync_replicas: int = 1,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_leader = is_leader
        self.min_insync_replicas = min_insync_replicas

    def leader_changed(self, *, leader_epoch: LeaderEpoch, is_leader: bool) -> None:
        self.leader_epoch = leader_epoch
        self.is_leader = is_leader

    @property
    def high_watermark(self) -> Offset:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> Offset:
        """Up to here, read_committed may read: below it every transaction is decided."""
        return self.log.last_stable_offset(self.high_watermark)

    def readable_upto(self, *, committed: bool) -> Offset:
        """One past the last offset that a client may see, `committed` under isolation level read_committed."""
        return self.last_stable_offset if committed else self.high_watermark

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raises KafkaError where the client's view of the leadership is not this broker's (KIP-320)."""
        if current_leader_epoch == NO_LEADER_EPOCH or current_leader_epoch == self.leader_epoch:
            return
        newer = current_leader_epoch > self.leader_epoch
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.FENCED_LEADER_EPOCH)

    def check_insync_replicas(self) -> None:
        """Before an append with acks=all. Raises KafkaError(NOT_ENOUGH_REPLICAS): the ISR is this broker alone."""
        if self.min_insync_replicas > 1:
            message = f"min.insync.replicas is {self.min_insync_replicas}, in sync is 1"
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, message)

    def append_as_leader(self, record_set: memoryview, *, now_ms: int, from_client: bool = True) -> LogAppendInfo:
        """Append a client's batches, or with `from_client=False` our own. Raises KafkaError as `Log` does."""
        return self.log.append_as_leader(
            record_set, leader_epoch=self.leader_epoch, now_ms=now_ms, from_client=from_client
        )

    def read(self, start: Offset, *, upto: Offset, max_bytes: int, at_least_one_batch: bool) -> FetchSlice:
        """Whole batches from the one that holds `start`, below `upto` and replicated. Raises OFFSET_OUT_OF_RANGE."""
        bound = min(upto, self.high_watermark)
        return self.log.read(start, max_bytes=max_bytes, upto=bound, at_least_one_batch=at_least_one_batch)

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
