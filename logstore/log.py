"""The log of one partition: append, read, roll, truncate, retention, recovery. It does not decide about leadership.

On disk it is Kafka's partition directory. In memory it is a list of segments, the last of which is the active one,
and the producer state and leader epochs as of the log end offset.

```
   log_start_offset          recovery_point        log_end_offset
          v                        v                    v
  [ segment | segment | segment | segment | active segment ]
   deleted by retention   ^ rescanned after an unclean stop
```

The order of writes, on which recovery after a crash relies:
- Data is written first, then memory is updated, the log end offset last. Indexes are written when a segment is closed.
- `flush` syncs the data, the indexes of closed segments and the directory, and then moves the recovery point.
- recovery.py describes what happens when a log is opened.

Each method can raise KafkaError(KAFKA_STORAGE_ERROR) if the disk fails. If the disk was full, or the process had too
many files open, the call can be repeated. Any other error (an I/O error, a read-only file system, a failed fsync of
data) takes the log offline (`offline_reason`) until it is reopened and recovered, since the content of the disk is not
known. So does a truncation while too many files are open, or where a batch is damaged.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_TIMESTAMP_MS, ZERO_TOPIC_ID, LeaderEpoch, Offset, TopicPartition
from raylog.logstore.background_sync import SyncPlan
from raylog.logstore.cleaner import CleanedLog, CleaningPlan
from raylog.logstore.deletion import Deletion
from raylog.logstore.disk import NO_MORE_FILES, SPACE_IS_SHORT, Disk, is_transient
from raylog.logstore.durability import Durability
from raylog.logstore.log_cleaning import Cleanable, LogCleaning
from raylog.logstore.log_producers import LogProducers
from raylog.logstore.producer_state import AbortedTransaction, ProducerState
from raylog.logstore.publication import Publication
from raylog.logstore.record_set import CheckedRecordSet, check_record_set, invalid_record
from raylog.logstore.recovery import Recovered, recover
from raylog.logstore.retention import count_deletable
from raylog.logstore.retirement import Retirement
from raylog.logstore.rolling import must_roll
from raylog.logstore.segment import Segment
from raylog.logstore.settings import LogSettings, MessageTimestampType
from raylog.protocol.records.batch import (
    BatchHeader,
    patch_log_append_time,
    patch_offset_and_epoch,
    split_batches,
    verify_crc,
)
from raylog.protocol.records.markers import EndTransactionMarker, read_marker

_FIRST_OFFSET = Offset(0)
_ABORTED_LISTED_MAX = 1000
"""Approximate number of aborted transactions in one list, which takes the broker about a millisecond to make."""
_LOG_APPEND_TIME = MessageTimestampType.LOG_APPEND_TIME
events = logging.getLogger("raylog.logstore")


class LogAppendInfo(NamedTuple):
    """The offsets of an append (both inclusive), or those of the earlier append if the batch is a duplicate."""

    first_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    """-1 under CreateTime."""
    log_start_offset: Offset
    record_count: int
    duplicate: bool


class FetchSlice(NamedTuple):
    """Complete batches from the one that contains `start`; the first may begin before it, which the reader skips."""

    start: Offset
    records: bytes | memoryview
    next_offset: Offset
    """The start of the next read: the last offset in `records` + 1, or `start` if it is empty."""
    log_start_offset: Offset
    log_end_offset: Offset


class SegmentPlace(NamedTuple):
    """The position of the batch that contains an offset, or of the next one; the end of the file if there is none."""

    path: str
    base_offset: int
    position: int


class Log:
    """The log of one partition, from `open` to `close`. Not thread-safe; no method waits or starts a thread.

    Invariants: there is at least one segment, and segments are ordered by base offset; `log_start_offset` is in
    [first base offset, log_end_offset]; `recovery_point` is at most `log_end_offset`.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
        found: Recovered,
        now_ms: int,
    ) -> None:
        """Use `open` instead."""
        self.path = path
        self.topic_partition = topic_partition
        self.topic_id: UUID = ZERO_TOPIC_ID
        """Set by the log directory from `partition.metadata`."""
        self.settings = settings
        """Read at each call, so that a new value takes effect with the next one."""
        self.log_start_offset = found.log_start_offset
        self.log_end_offset = found.log_end_offset
        self.offline_reason: str | None = None
        self.generation = 0
        """Number of truncations since the log was opened."""
        self.leader_epochs = found.leader_epochs
        self._disk = disk
        self._opened_ms = now_ms
        self._directory_identity: tuple[int, int] | None = None
        self._next_checked = 0
        """The number of the closed segment that `check_files` checks next."""
        self._is_full = False
        """Whether a write was refused for lack of space since the last append, which is logged once."""
        self._segments = found.segments
        self._producers = LogProducers(disk, path, found.segments, found.producers, opened_ms=now_ms)
        self._durability = Durability(
            disk,
            path,
            found.segments,
            found.leader_epochs,
            recovery_point=found.recovery_point,
            dirty_since_ms=now_ms if found.recovery_point < found.log_end_offset else None,
        )
        self._publication = Publication(found.segments, found.log_end_offset)
        self._retirement = Retirement(found.segments, self._durability, self._producers)
        self._cleaning = LogCleaning(
            disk, path, found.segments, self._durability, self._producers, self._retirement, upto=found.cleaned_upto
        )

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
        *,
        now_ms: int,
        recovery_point: Offset,
        clean: bool,
        log_start_offset: Offset = _FIRST_OFFSET,
        cleaned_upto: Offset = _FIRST_OFFSET,
    ) -> Log:
        """Open the log in the directory `path`, which is created if it does not exist; its parent must exist.

        `clean` means that the log was closed by `close`: its files are trusted. Otherwise everything from
        `recovery_point` on is checked, and the log is truncated at the first invalid batch, or where offsets are
        missing between two segments that are not compacted (`cleaned_upto`). If flush.messages requires it, the log is
        synced before it is read. Raises KAFKA_STORAGE_ERROR if the disk fails or a file cannot be opened.
        """
        try:
            if not disk.exists(path):
                disk.mkdir(path)
                disk.fsync_dir(path.rpartition("/")[0])
            found = recover(
                disk,
                path,
                index_interval=settings.index_interval_bytes,
                now_ms=now_ms,
                recovery_point=recovery_point,
                clean=clean,
                log_start_offset=log_start_offset,
                cleaned_upto=cleaned_upto,
            )
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot open {path}: {error}") from error
        log = cls(disk, path, topic_partition, settings, found, now_ms)
        try:
            log._flush_if_many()
        except KafkaError:
            log.abandon()
            raise
        log.release()
        return log

    @property
    def recovery_point(self) -> Offset:
        """Everything below it is durable."""
        return self._durability.recovery_point

    @property
    def cleaned_upto(self) -> Offset:
        """The offset up to which the log is compacted."""
        return self._cleaning.upto

    @property
    def size_bytes(self) -> int:
        """Size of all segments, without their indexes."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def producers(self) -> ProducerState:
        """The producer state as of the log end offset, for DescribeProducers. Read-only."""
        return self._producers.state

    # Append

    def append_as_leader(
        self,
        record_set: memoryview | CheckedRecordSet,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        from_client: bool = True,
    ) -> LogAppendInfo:
        """Validate a record set, assign offsets and append it, or return the offsets of a duplicate.

        `record_set` is writable and patched in place (offset, epoch, timestamps, checksum) if it is not recompressed.
        It is not kept. It is one complete v2 batch (of coordinators: several), or a client's checked batch.
        Raises KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, INVALID_TXN_STATE, MESSAGE_TOO_LARGE,
        RECORD_LIST_TOO_LARGE, UNSUPPORTED_FOR_MESSAGE_FORMAT, and for producers INVALID_PRODUCER_EPOCH,
        OUT_OF_ORDER_SEQUENCE_NUMBER, TRANSACTION_COORDINATOR_FENCED. After these errors the log is unchanged.
        With `from_client` false (coordinators), control batches are allowed and records are not scanned.
        """
        self._check_online()
        settings = self.settings
        if isinstance(record_set, memoryview):
            record_set = check_record_set(record_set, settings, now_ms=now_ms, from_client=from_client)
        data, batches, _ = record_set
        append_time = settings.message_timestamp_type is _LOG_APPEND_TIME
        if append_time:
            batches = [(position, header._replace(max_timestamp=now_ms)) for position, header in batches]
        first = batches[0][1]
        marker = None
        if first.producer_id >= 0:  # a batch with a producer id is the only one
            marker, written = self._producers.check(first, data)
            if written is not None:
                self._flush_if_many()  # the flush may have failed after the first append
                return LogAppendInfo(
                    written.first_offset,
                    Offset(written.last_offset),
                    written.timestamp_ms if append_time else NO_TIMESTAMP_MS,
                    self.log_start_offset,
                    first.record_count,
                    True,
                )
        if 0 <= leader_epoch < self.leader_epochs.latest:
            what = f"the log has leader epoch {self.leader_epochs.latest}, but the current epoch is {leader_epoch}"
            self.take_offline(f"{what}: the log is damaged, or belongs to another partition")
            self._check_online()
        first_offset = self.log_end_offset
        next_offset = int(first_offset)
        placed: list[tuple[int, int, int]] = []
        largest_timestamp = NO_TIMESTAMP_MS
        for position, header in batches:
            last_offset = next_offset + header.last_offset_delta
            timestamp = header.max_timestamp
            if timestamp > largest_timestamp:
                largest_timestamp = timestamp
            placed.append((position, last_offset, timestamp))
            next_offset = last_offset + 1
        try:
            self._roll_if_needed(len(data), next_offset - 1, largest_timestamp, now_ms)
            base_offset = int(first_offset)
            for position, header in batches:
                patch_offset_and_epoch(data, position, header, base_offset, leader_epoch)
                if append_time:
                    patch_log_append_time(data, position, header, now_ms)
                base_offset += header.record_count
            self._write(data, placed, now_ms)
        except KafkaError:
            if first.producer_id >= 0:
                self._producers.state.expect_retry(first, now_ms=now_ms)
            raise
        self.leader_epochs.assign(leader_epoch, first_offset)
        if first.producer_id >= 0:
            self._producers.note(first, base_offset=first_offset, now_ms=now_ms, marker=marker)
        self.log_end_offset = Offset(next_offset)
        self._flush_if_many()
        return LogAppendInfo(
            first_offset,
            Offset(next_offset - 1),
            now_ms if append_time else NO_TIMESTAMP_MS,
            self.log_start_offset,
            next_offset - first_offset,
            False,
        )

    def append_as_follower(self, record_set: memoryview | bytes, *, now_ms: int) -> LogAppendInfo:
        """Append batches fetched from the leader unchanged: complete batches from the log end offset on.

        Offsets may have gaps (compaction on the leader) but must increase. An empty log also takes a batch that
        contains its next offset: DeleteRecords moves the leader's log start offset into a batch. The log start offset
        stays. Raises CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE if a batch begins below the log end offset, or INVALID_RECORD
        if one ends so far above it that no segment can have both.
        """
        self._check_online()
        start = self.log_start_offset
        first_base: Offset | None = None
        placed: list[tuple[int, int, int]] = []
        headers: list[tuple[BatchHeader, EndTransactionMarker | None]] = []
        next_offset = int(self.log_end_offset)
        largest_timestamp = NO_TIMESTAMP_MS
        for position, header in split_batches(record_set):
            if not headers and start == next_offset and header.base_offset < start < header.next_offset:
                first_base = Offset(header.base_offset)
            elif header.base_offset < next_offset:
                what = f"{self.topic_partition}: batch at offset {header.base_offset}, expected offset {next_offset}"
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, what)
            verify_crc(record_set, position, header)
            placed.append((position, header.last_offset, header.max_timestamp))
            ends = header.is_control and header.producer_id >= 0
            headers.append((header, read_marker(record_set, position, header) if ends else None))
            largest_timestamp = max(largest_timestamp, header.max_timestamp)
            next_offset = header.next_offset
        if not headers:
            raise invalid_record("the record set contains no batch")
        if first_base is not None:
            self.truncate_fully_and_start_at(first_base)
        self._roll_if_needed(len(record_set), next_offset - 1, largest_timestamp, now_ms)
        self._write(record_set, placed, now_ms)
        for header, marker in headers:
            self.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                self._producers.note(header, base_offset=header.base_offset, now_ms=now_ms, marker=marker)
        self.log_end_offset = Offset(next_offset)
        self.delete_records_before(start)
        self._flush_if_many()
        return LogAppendInfo(
            Offset(headers[0][0].base_offset),
            Offset(next_offset - 1),
            NO_TIMESTAMP_MS,
            self.log_start_offset,
            sum(header.record_count for header, _ in headers),
            False,
        )

    def _roll_if_needed(self, record_bytes: int, last_offset: int, largest_timestamp: int, now_ms: int) -> None:
        try:
            due = must_roll(
                self._segments.active,
                self.settings,
                self.topic_partition,
                record_bytes=record_bytes,
                last_offset=last_offset,
                largest_timestamp=largest_timestamp,
                now_ms=now_ms,
            )
        except OSError as error:
            raise self._transient_error(error, "read") from error
        if due:
            self.roll(now_ms)
            # Once more: after a gap left by compaction it may be too far from the new segment's first offset too.
            self._roll_if_needed(record_bytes, last_offset, largest_timestamp, now_ms)

    def _write(self, record_set: memoryview | bytes, placed: list[tuple[int, int, int]], now_ms: int) -> None:
        active = self._segments.active
        try:
            active.check_end()
        except OSError as error:
            raise self._transient_error(error, "append") from error
        try:
            active.append(record_set, placed, index_interval=self.settings.index_interval_bytes)
        except OSError as error:
            if error.errno in NO_MORE_FILES:  # its file could not be opened
                raise self._storage_error(error, "append") from error
            try:
                active.cut_back()
            except OSError:
                raise self._failed(error, "append") from error
            if error.errno in SPACE_IS_SHORT:
                raise self._storage_error(error, "append") from error
            raise self._failed(error, "append") from error
        self._is_full = False
        active.dirty = True
        if self._durability.dirty_since_ms is None:
            self._durability.dirty_since_ms = now_ms

    def _flush_if_many(self) -> None:
        if self.log_end_offset - self._durability.recovery_point >= self.settings.flush_messages:
            self.flush()

    # Read

    def read(
        self,
        start: Offset,
        *,
        max_bytes: int,
        upto: Offset,
        at_least_one_batch: bool = True,
        resident_only: bool = False,
    ) -> FetchSlice:
        """Complete batches from the one that contains `start`, all below `upto` (exclusive), at most `max_bytes`.

        `at_least_one_batch` returns a first batch even if it is larger than `max_bytes`. `start` may be inside a batch.
        The records are a copy; they are neither decoded nor checked. Raises OFFSET_OUT_OF_RANGE outside
        [log_start_offset, log_end_offset]; with `resident_only` ColdRead if it would wait for the disk.
        """
        self._check_online()
        if not self.log_start_offset <= start <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: offset {start} is not in [{self.log_start_offset}, {self.log_end_offset}]",
            )
        records: bytes | memoryview = b""
        next_offset = int(start)
        if start < upto and start < self.log_end_offset:
            try:
                found = self._segments.read(
                    start,
                    max_bytes=max_bytes,
                    upto=upto,
                    at_least_one_batch=at_least_one_batch,
                    resident_only=resident_only,
                )
            except OSError as error:
                raise self._transient_error(error, "read") from error
            if found is not None:
                records, next_offset = found
        return FetchSlice(start, records, Offset(next_offset), self.log_start_offset, self.log_end_offset)

    def locate(self, offset: Offset, *, upto: Offset) -> SegmentPlace:
        """The place of `offset`, for readers of files. Raises OFFSET_OUT_OF_RANGE outside [log_start_offset, upto]."""
        self._check_online()
        if not self.log_start_offset <= offset <= upto:
            what = f"{self.topic_partition}: offset {offset} is not in [{self.log_start_offset}, {upto}]"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, what)
        try:
            segment, position = self._segments.place_of(offset)
        except OSError as error:
            raise self._transient_error(error, "read") from error
        return SegmentPlace(segment.path, segment.base_offset, position)

    def publish(self, upto: Offset) -> tuple[int, int]:
        """Allow readers of the files to read up to `upto`: (base offset of its segment, position in the segment).

        The position is the end of the complete batches below `upto`. A later truncation does not change the bytes
        before it in files that are mapped.
        """
        self._check_online()
        try:
            return self._publication.publish(upto, log_end_offset=self.log_end_offset)
        except OSError as error:
            raise self._transient_error(error, "read") from error

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """The offset below which all transactions are complete; the high watermark if none is open.

        `high_watermark` must not decrease from call to call.
        """
        return self._producers.last_stable_offset(high_watermark, log_start_offset=self.log_start_offset)

    def committed(self, high_watermark: Offset) -> None:
        """The high watermark has moved, and must not decrease: forget the transactions whose end is committed."""
        self._producers.state.committed(high_watermark)

    def aborted_transactions(self, start: Offset, upto: Offset) -> list[AbortedTransaction]:
        """Aborted transactions with records in [start, upto), which read_committed must skip; by their end offsets."""
        return self._producers.aborted_transactions(start, upto)

    @property
    def aborted_upto(self) -> Offset:
        """The offset after the newest marker of an aborted transaction; 0 for none. It may be too high."""
        return self._producers.aborted_upto

    def aborted_in_file(
        self, base_offset: int, identity: tuple[int, int], start: Offset, *, wanted: Offset, upto: Offset
    ) -> tuple[list[AbortedTransaction], Offset] | None:
        """The aborted transactions among the batches of a segment's file, for a reader of the file.

        They are those with records from `start` on and below the offset that is returned: `upto`, which is stable, or
        the end of the segment; or less if there are very many, but at least `wanted`. None if the file is no longer the
        segment's: what a cleaning has removed from the log is still in the file, but not in the index for long.
        """
        self._check_online()
        segment = self._segments[self._segments.number_of(base_offset)]
        end = min(int(upto), segment.next_offset)
        try:
            if segment.base_offset != base_offset or segment.identity() != identity or not start <= wanted <= end:
                return None
        except OSError as error:
            raise self._transient_error(error, "read") from error
        found, end = self._producers.list_aborted(start, wanted=wanted, upto=end, count_max=_ABORTED_LISTED_MAX)
        return found, Offset(end)

    def offset_for_timestamp(self, timestamp_ms: int, *, upto: Offset) -> tuple[Offset, int, LeaderEpoch] | None:
        """(offset, timestamp, leader epoch) of the first record below `upto` with this timestamp or a later one."""
        self._check_online()
        try:
            found = self._segments.offset_for_timestamp(timestamp_ms, start=self.log_start_offset, upto=upto)
        except OSError as error:
            raise self._transient_error(error, "read") from error
        return None if found is None else (Offset(found[0]), found[1], LeaderEpoch(found[2]))

    def offset_of_max_timestamp(self, *, upto: Offset) -> tuple[Offset, int, LeaderEpoch] | None:
        """The same for the first record with the largest timestamp below `upto` (ListOffsets -3)."""
        self._check_online()
        try:
            largest = self._segments.largest_timestamp_between(self.log_start_offset, upto)
        except OSError as error:
            raise self._transient_error(error, "read") from error
        return self.offset_for_timestamp(largest, upto=upto) if largest >= 0 else None

    def end_offset_for_epoch(self, leader_epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """OffsetForLeaderEpoch: (largest known epoch not above it, its end offset); (-1, -1) if unknown."""
        return self.leader_epochs.end_offset_for(leader_epoch, log_end_offset=self.log_end_offset)

    # Truncation, rolling, flushing, retention

    def truncate_to(self, offset: Offset) -> None:
        """Remove all batches with offsets from `offset` on; the log then ends at a batch boundary.

        A file that readers have mapped is replaced by a shorter copy. Durable on return. An offset before the log start
        makes the log empty, beginning there. The caller first writes the checkpoints with a recovery point not above
        `offset` (see `LogDir.truncate_log`).
        """
        self._check_online()
        if offset >= self.log_end_offset:
            return
        self._durability.drop_plan()
        self.generation += 1
        try:
            self._cleaning.settle()
            if offset < self._segments[0].base_offset:
                self._start_anew_at(offset)
            else:
                last = self._segments.number_of(offset - 1)
                self._segments[last].position_of(offset)  # a damaged segment raises before any is removed
                self._segments.drop_from(last + 1)
                active = self._segments.active
                unseen = not self._publication.reaches(offset)
                active.truncate_to(offset, in_place=unseen, index_interval=self.settings.index_interval_bytes)
                self.log_end_offset = Offset(active.next_offset)
            self._durability.recovery_point = min(self._durability.recovery_point, self.log_end_offset)
            self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
            self._publication.truncated(self.log_end_offset)
            self._cleaning.drop(upto=self.log_end_offset)
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            self._durability.write_leader_epochs_or_later()
            self._producers.reload(self.log_end_offset)
        except (OSError, KafkaError) as error:
            raise self._failed(error, "truncate") from error

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Remove all records; the next offset is `offset`. For a follower whose leader has deleted what it needs."""
        self._check_online()
        self._durability.drop_plan()
        self.generation += 1
        try:
            self._cleaning.settle()
            self._start_anew_at(offset)
            self._durability.write_leader_epochs_or_later()
            self._producers.reload(self.log_end_offset)
        except OSError as error:
            raise self._failed(error, "truncate") from error

    def delete_records_before(self, offset: Offset) -> None:
        """Move `log_start_offset` up to `offset`; the next `apply_retention` deletes the files.

        In memory until the checkpoints are written, as in Kafka. A lower offset has no effect. Raises
        OFFSET_OUT_OF_RANGE above the log end offset; the caller checks the high watermark.
        """
        self._check_online()
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is above the log end offset {self.log_end_offset}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)

    def roll(self, now_ms: int) -> None:
        """Close the active segment and open a new one at the log end offset, unless the active one is empty.

        It does not sync; see `flush`.
        """
        self._check_online()
        active = self._segments.active
        if active.size_bytes == 0:
            return
        try:
            active.write_indexes(final=True)
            self._producers.write_snapshot(self.log_end_offset, sync=False)
            segment = Segment.create(self._disk, self.path, self.log_end_offset, now_ms=now_ms)
            segment.release()
        except OSError as error:
            raise self._transient_error(error, "roll") from error  # the roll can be repeated
        active.dirty = True
        segment.dirty = True
        self._durability.directory_changed()
        self._segments.add(segment)

    def flush(self) -> None:
        """Make everything up to the log end durable, and move the recovery point there.

        After a failed fsync the log is offline, since the system may have dropped the pages that it could not write.
        """
        self._check_online()
        try:
            self._durability.prepare_flush()
        except OSError as error:
            raise self._transient_error(error, "flush") from error
        try:
            self._durability.flush(self.log_end_offset)
        except OSError as error:
            if error.errno in NO_MORE_FILES:
                raise self._storage_error(error, "flush") from error
            raise self._failed(error, "flush") from error

    def plan_sync(self, now_ms: int) -> SyncPlan | None:
        """A plan that makes the closed segments durable, and everything if the oldest unflushed record is older than
        flush.ms; None if there is nothing to do, or while the last plan is running.

        The caller calls its `run` in another thread, and then `sync_ended`.
        """
        if self._durability.is_planned or self.offline_reason is not None:
            return None
        dirty_since_ms = self._durability.dirty_since_ms
        due = dirty_since_ms is not None and now_ms - dirty_since_ms >= self.settings.flush_ms
        try:
            snapshot_path = self._producers.snapshot_path(self._segments.active.base_offset)
            return self._durability.plan(snapshot_path, upto=self.log_end_offset if due else None)
        except OSError as error:
            if is_transient(error):
                return None
            raise self._failed(error, "flush") from error

    def sync_ended(self, plan: SyncPlan, failure: OSError | None) -> None:
        """The plan has run, or failed: then the log goes offline, as after any failed fsync.

        A plan from before a truncation is ignored, since its files have changed. A plan that could not open its files
        because too many are open is made again.
        """
        if not self._durability.end_plan(plan):
            return
        if failure is not None:
            self._durability.not_carried_out(plan)
        if failure is not None and failure.errno in NO_MORE_FILES:
            return  # the next call of plan_sync retries
        if failure is not None:
            self.take_offline(f"cannot flush {self.topic_partition}: {failure}")
            return
        self._durability.carried_out(plan)

    def apply_retention(self, now_ms: int, *, upto: Offset | None = None, segments_max: int | None = None) -> int:
        """Delete the oldest segments by retention (see retention.py), and return how many. Files are deleted later.

        At most `segments_max`, since each is synced to the disk: the next call continues. Segments that extend above
        `upto` (the high watermark; default: the log end) are kept. If the active one is deleted, an empty one replaces
        it. Producers expire after producer.id.expiration.ms.
        """
        self._check_online()
        limit = self.log_end_offset if upto is None else upto
        try:
            due_ms = now_ms + self.settings.file_delete_delay_ms
            self._retirement.finish(due_ms=due_ms)
            deletable = count_deletable(
                self._segments, self.settings, log_start_offset=self.log_start_offset, limit=limit, now_ms=now_ms
            )
            deletable = deletable if segments_max is None else min(deletable, segments_max)
            if deletable:
                self._cleaning.settle()
            all_go = deletable == len(self._segments)
            for _ in range(deletable - all_go):
                self._retire_oldest(due_ms)
            if all_go:
                self.roll(now_ms)
                self._retire_oldest(due_ms)
        except OSError as error:
            raise self._transient_error(error, "delete") from error
        self._producers.state.expire(now_ms=now_ms, expiration_ms=self.settings.producer_id_expiration_ms)
        return deletable

    # Compaction

    def cleanable(self, *, limit: Offset, now_ms: int) -> Cleanable | None:
        """What a cleaning would read below `limit`, up to which nothing can change any more; None for nothing."""
        self._check_online()
        try:
            return self._cleaning.cleanable(
                self.settings, log_start_offset=self.log_start_offset, limit=limit, now_ms=now_ms
            )
        except OSError as error:
            raise self._transient_error(error, "read") from error

    def plan_cleaning(self, cleanable: Cleanable, *, now_ms: int, secret: bytes) -> CleaningPlan:
        """A plan for `cleaner.clean`; `secret` are the random bytes that it needs.

        The caller calls `clean` in another process, then `begin_swaps`, then `swap_next` until it returns None.
        """
        return self._cleaning.plan(cleanable, self.settings, generation=self.generation, now_ms=now_ms, secret=secret)

    def begin_swaps(self, plan: CleaningPlan, cleaned: CleanedLog) -> bool:
        """Whether the cleaned segments can be swapped in: not if the log was truncated or closed since the plan."""
        if self.offline_reason is not None or plan.generation != self.generation:
            return False
        self._cleaning.begin_swaps(cleaned)
        return True

    def swap_next(self, now_ms: int) -> Callable[[], None] | None:
        """Take the next step of the swaps. Returns what to do off the event loop before the next call; None at the end.

        If that raises OSError, the caller takes the log offline.

        `cleaned_upto` moves with the last step.
        """
        self._check_online()
        try:
            return self._cleaning.swap_next(now_ms=now_ms, due_ms=now_ms + self.settings.file_delete_delay_ms)
        except OSError as error:
            raise self._failed(error, "compact") from error

    def check_files(self) -> None:
        """Take the log offline if another process has deleted, moved or truncated its directory, its active segment, or
        one of the others, in turn. Otherwise records would be acknowledged that a restart does not find."""
        if self.offline_reason is not None:
            return
        try:
            identity = self._disk.status(self.path).identity
            if self._directory_identity not in (None, identity):
                raise FileNotFoundError(errno.ENOENT, "the directory was replaced", self.path)
            self._directory_identity = identity
            self._segments.active.check_file()
            self._next_checked = (self._next_checked + 1) % len(self._segments)
            self._segments[self._next_checked].check_file()
        except OSError as error:
            self.take_offline(f"check of its files failed: {error}")

    def due_deletions(self, now_ms: int) -> list[Deletion]:
        """The deletion of files retired file.delete.delay.ms ago. Files that a stop leaves are deleted by a start."""
        return self._retirement.deletions(now_ms)

    def close(self) -> None:
        """Flush, write the indexes and a producer snapshot, and close the files. An offline log only closes its files.

        Raises KAFKA_STORAGE_ERROR if the flush fails; the shutdown is then not clean.
        """
        try:
            if self.offline_reason is None:
                self.flush()
                try:
                    self._cleaning.settle()
                    self._segments.active.write_indexes(final=True, sync=True)
                    self._producers.write_snapshot(self.log_end_offset, sync=True)
                    self._disk.fsync_dir(self.path)
                except OSError as error:
                    raise self._storage_error(error, "close") from error
        finally:
            self.abandon()

    def take_offline(self, reason: str) -> None:
        """Take the log offline because the disk and the memory disagree, until it is reopened."""
        if self.offline_reason is None:
            self.offline_reason = reason
            where = {"topic_partition": str(self.topic_partition), "path": self.path, "reason": reason}
            events.error("log offline", extra=where)

    def release(self) -> None:
        """Close the files; the next use opens them again."""
        self._segments.release()

    def abandon(self) -> None:
        """Close the files without writing: for a log that will be deleted, or that is offline."""
        self.offline_reason = self.offline_reason or "the log is closed"
        self._segments.close()

    # Internals

    def _start_anew_at(self, offset: Offset) -> None:
        due_ms = self._opened_ms + self.settings.file_delete_delay_ms
        self._retirement.finish(due_ms=due_ms)  # before new files take the same names
        self._producers.remove_snapshots()
        self._segments.start_anew_at(offset, now_ms=self._opened_ms)
        self._cleaning.drop(upto=_FIRST_OFFSET)
        self.log_start_offset = self.log_end_offset = self._durability.recovery_point = offset
        self.leader_epochs.clear()

    def _retire_oldest(self, due_ms: int) -> None:
        self._retirement.begin_oldest()
        self.log_start_offset = max(self.log_start_offset, Offset(self._segments[0].base_offset))
        self.leader_epochs.truncate_from_start(self.log_start_offset)
        self._retirement.finish(due_ms=due_ms)

    def _check_online(self) -> None:
        if self.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} is offline: {self.offline_reason}")

    def _transient_error(self, error: OSError, doing: str) -> KafkaError:
        """For an operation that can be repeated."""
        return self._storage_error(error, doing) if is_transient(error) else self._failed(error, doing)

    def _failed(self, error: OSError | KafkaError, doing: str) -> KafkaError:
        self.take_offline(f"{doing} failed: {error}")
        return self._storage_error(error, doing)

    def _storage_error(self, error: OSError | KafkaError, doing: str) -> KafkaError:
        if isinstance(error, OSError) and error.errno in SPACE_IS_SHORT and not self._is_full:
            self._is_full = True
            where = {"topic_partition": str(self.topic_partition), "path": self.path, "reason": str(error)}
            events.warning("disk full, writes refused", extra=where)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {doing} failed: {error}")
