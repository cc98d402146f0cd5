"""One partition's log: append, read, roll, truncate, retain, recover. Decides nothing about leadership.

On disk it is Kafka's partition directory. In memory it is a list of segments, the newest of which (the active one)
is appended to, with the producers and leader epochs as of the log end offset.

```
   log_start_offset          recovery_point        log_end_offset
          v                        v                    v
  [ segment | segment | segment | segment | active segment ]
   deleted by retention   ^ rescanned after an unclean stop
```

What a crash may and may not do, and by which order of writes:
- Data is written, then memory changes, the log end offset last. Indexes are written when a segment is closed.
- `flush` syncs the data, the indexes of closed segments and the directory, and only then moves the recovery point.
- An unclean stop rescans every segment that reaches beyond the recovery point, checksums and all, and cuts the log at
  the first bad batch. A cut is synced before anything is written behind it: a file must not keep older batches that a
  later recovery could take for ours.

Each method may raise KafkaError(KAFKA_STORAGE_ERROR) when the disk fails. Unless only space was short, the log is then
offline (`offline_reason`) for good: what the disk holds is known again only after a reopening.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from dataclasses import dataclass
from uuid import UUID

from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import NO_TIMESTAMP_MS, ZERO_TOPIC_ID, LeaderEpoch, Offset, TopicPartition
from raylog.logstore.checkpoint import LEADER_EPOCH_FILE, write_file_atomically
from raylog.logstore.disk import Disk
from raylog.logstore.leader_epochs import LeaderEpochs
from raylog.logstore.producer_state import ProducerState
from raylog.logstore.segment import (
    LOG_SUFFIX,
    RELATIVE_OFFSET_MAX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    Segment,
    file_name,
)
from raylog.logstore.settings import LogSettings, MessageTimestampType
from raylog.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    patch_log_append_time,
    patch_offset_and_epoch,
    split_batches,
    verify_crc,
)
from raylog.protocol.records.compression import CODECS_KNOWN

_SPACE_IS_SHORT = (errno.ENOSPC, errno.EDQUOT)
_FIRST_OFFSET = Offset(0)
_RECALL_BYTES = 8 << 20
"""How far back the log is looked through for batches of the producers that a snapshot names."""
_LEFTOVER_SUFFIXES = (".deleted", ".cleaned", ".tmp")
_UNFINISHED_SWAP_SUFFIX = ".swap"


@dataclass(frozen=True, slots=True)
class LogAppendInfo:
    """What an append did: the offsets given (both inclusive), or those given before when the batch was a duplicate."""

    first_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    """-1 under CreateTime."""
    log_start_offset: Offset
    record_count: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class FetchSlice:
    """Whole batches from the one that holds `start`; the first may begin before it, and the reader skips."""

    start: Offset
    records: bytes | memoryview
    next_offset: Offset
    """Where the following read should start: one past the last offset in `records`, `start` when it is empty."""
    log_start_offset: Offset
    log_end_offset: Offset


class Log:
    """One partition's log, from `open` to `close`. One caller at a time; nothing here waits or starts a thread.

    Invariants: segments are in order of their base offsets and never none; `log_start_offset` lies in
    [first base offset, log_end_offset]; `recovery_point` is at most `log_end_offset`.
    """

    def __init__(
        self, disk: Disk, path: str, topic_partition: TopicPartition, settings: LogSettings, *, now_ms: int
    ) -> None:
        """Not to be called: use `open`."""
        self.path = path
        self.topic_partition = topic_partition
        self.topic_id: UUID = ZERO_TOPIC_ID
        """Set by the log directory from `partition.metadata`."""
        self.settings = settings
        """Read anew at each call, so that a new object takes effect with the next one."""
        self.log_start_offset = _FIRST_OFFSET
        self.log_end_offset = _FIRST_OFFSET
        self.recovery_point = _FIRST_OFFSET
        """Everything below it is on disk for certain."""
        self.offline_reason: str | None = None
        self.leader_epochs = LeaderEpochs()
        self._disk = disk
        self._opened_ms = now_ms
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._producers = ProducerState()
        self._dirty_since_ms: int | None = None
        self._directory_dirty = False

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
    ) -> Log:
        """The log in the directory `path`, which is created when it is new; its parent must exist.

        `clean` says that the last stop was a `close`: then the files are trusted. Otherwise everything from
        `recovery_point` on is checked and the log is cut at the first bad batch. Raises KAFKA_STORAGE_ERROR when the
        disk fails or holds what cannot be opened.
        """
        log = cls(disk, path, topic_partition, settings, now_ms=now_ms)
        try:
            if not disk.exists(path):
                disk.mkdir(path)
                disk.fsync_dir(path.rpartition("/")[0])
            log._load(recovery_point=recovery_point, clean=clean, log_start_offset=log_start_offset)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} cannot be opened: {error}") from error
        return log

    @property
    def size_bytes(self) -> int:
        """Size of all segments, without their indexes."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def producers(self) -> ProducerState:
        """Of the log up to its end; for DescribeProducers. Not to be changed."""
        return self._producers

    # Append

    def append_as_leader(
        self, record_set: memoryview, *, leader_epoch: LeaderEpoch, now_ms: int, from_client: bool = True
    ) -> LogAppendInfo:
        """Checks a record set, gives it offsets and writes it, or tells that it was written before.

        `record_set` is writable, is patched in place (offset, epoch, under LogAppendTime also timestamp and checksum),
        and is not kept. It must be whole v2 batches; only one when a producer id is in it. The code of the KafkaError
        says what is wrong: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, INVALID_TXN_STATE, MESSAGE_TOO_LARGE,
        RECORD_LIST_TOO_LARGE, UNSUPPORTED_FOR_MESSAGE_FORMAT, or of the producer: INVALID_PRODUCER_EPOCH,
        OUT_OF_ORDER_SEQUENCE_NUMBER. After such a refusal nothing has changed.
        With `from_client` false (coordinators), control batches are allowed and the time bounds are not applied.
        """
        self._check_online()
        settings = self.settings
        batches = self._check_record_set(record_set, settings, now_ms, from_client)
        append_time = settings.message_timestamp_type is MessageTimestampType.LOG_APPEND_TIME
        if append_time:
            batches = [(position, header._replace(max_timestamp=now_ms)) for position, header in batches]
        first = batches[0][1]
        if first.producer_id >= 0 and not first.is_control:  # then it is the only batch
            written = self._producers.check(first)
            if written is not None:
                return LogAppendInfo(
                    written.first_offset,
                    Offset(written.last_offset),
                    written.timestamp_ms if append_time else NO_TIMESTAMP_MS,
                    self.log_start_offset,
                    first.record_count,
                    True,
                )
        if 0 <= leader_epoch < self.leader_epochs.latest:
            raise InvariantViolation(
                f"{self.topic_partition}: append under epoch {leader_epoch} after {self.leader_epochs.latest}"
            )
        first_offset = self.log_end_offset
        next_offset = int(first_offset)
        appended: list[tuple[int, int, int]] = []
        largest_timestamp = NO_TIMESTAMP_MS
        for position, header in batches:
            last_offset = next_offset + header.last_offset_delta
            timestamp = header.max_timestamp
            if timestamp > largest_timestamp:
                largest_timestamp = timestamp
            appended.append((position, last_offset, timestamp))
            next_offset = last_offset + 1
        self._roll_if_needed(len(record_set), next_offset - 1, largest_timestamp, now_ms)
        for (position, header), (_, last_offset, _) in zip(batches, appended, strict=True):
            patch_offset_and_epoch(record_set, position, last_offset - header.last_offset_delta, leader_epoch)
            if append_time:
                patch_log_append_time(record_set, position, header, now_ms)
        self._write(record_set, appended, now_ms)
        self.leader_epochs.assign(leader_epoch, first_offset)
        if first.producer_id >= 0:
            self._producers.update(first, base_offset=first_offset, now_ms=now_ms)
        self._advance(Offset(next_offset))
        return LogAppendInfo(
            first_offset,
            Offset(next_offset - 1),
            now_ms if append_time else NO_TIMESTAMP_MS,
            self.log_start_offset,
            next_offset - first_offset,
            False,
        )

    def append_as_follower(self, record_set: memoryview | bytes, *, now_ms: int) -> LogAppendInfo:
        """Writes batches fetched from the leader as they are: whole batches that continue at the log end offset.

        Offsets may leave gaps (compaction on the leader) but not go back. Raises CORRUPT_MESSAGE, or
        OFFSET_OUT_OF_RANGE when a batch does not lie behind what is here.
        """
        self._check_online()
        appended: list[tuple[int, int, int]] = []
        headers: list[BatchHeader] = []
        next_offset = int(self.log_end_offset)
        largest_timestamp = NO_TIMESTAMP_MS
        for position, header in split_batches(record_set):
            if header.base_offset < next_offset:
                what = f"{self.topic_partition}: a batch at {header.base_offset} where {next_offset} should follow"
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, what)
            verify_crc(record_set, position, header)
            appended.append((position, header.last_offset, header.max_timestamp))
            headers.append(header)
            largest_timestamp = max(largest_timestamp, header.max_timestamp)
            next_offset = header.next_offset
        if not headers:
            raise KafkaError(ErrorCode.INVALID_RECORD, "the record set holds no batch")
        self._roll_if_needed(len(record_set), next_offset - 1, largest_timestamp, now_ms)
        self._write(record_set, appended, now_ms)
        for header in headers:
            self._replay(header, now_ms)
        self._advance(Offset(next_offset))
        return LogAppendInfo(
            Offset(headers[0].base_offset),
            Offset(next_offset - 1),
            NO_TIMESTAMP_MS,
            self.log_start_offset,
            sum(header.record_count for header in headers),
            False,
        )

    def _check_record_set(
        self, record_set: memoryview, settings: LogSettings, now_ms: int, from_client: bool
    ) -> list[tuple[int, BatchHeader]]:
        batches = list(split_batches(record_set))
        if not batches:
            raise KafkaError(ErrorCode.INVALID_RECORD, "the record set holds no batch")
        for position, header in batches:
            _, length, _, _, _, attributes, last_delta, base_time, max_time, producer_id, epoch, sequence, n = header
            if length + 12 > settings.max_message_bytes:
                raise KafkaError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"a batch of {length + 12} bytes: max.message.bytes={settings.max_message_bytes}",
                )
            verify_crc(record_set, position, header)
            if n <= 0 or last_delta != n - 1:
                raise _invalid(f"{n} records and a last offset delta of {last_delta} contradict each other")
            if attributes & CODEC_MASK >= CODECS_KNOWN:
                raise _invalid(f"compression type {attributes & CODEC_MASK} is unknown")
            if producer_id >= 0:
                if epoch < 0 or (sequence < 0 and not attributes & CONTROL_BIT):
                    raise _invalid(f"producer {producer_id} without an epoch ({epoch}) or a sequence ({sequence})")
                if len(batches) > 1:
                    raise _invalid("a record set with a producer id holds exactly one batch")
            if from_client:
                if attributes & CONTROL_BIT:
                    raise _invalid("clients may not write control batches")
                if attributes & TRANSACTIONAL_BIT:
                    raise KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not served yet")
                if settings.message_timestamp_type is MessageTimestampType.CREATE_TIME:
                    if attributes & LOG_APPEND_TIME_BIT:
                        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only the broker may say LogAppendTime")
                    _check_times(settings, now_ms, base_time, max_time)
        if len(record_set) > settings.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a record set of {len(record_set)} bytes: segment.bytes={settings.segment_bytes}",
            )
        return batches

    def _roll_if_needed(self, record_bytes: int, last_offset: int, largest_timestamp: int, now_ms: int) -> None:
        """Kafka's rules: by size, by age of the first batch, by index, by how far an offset lies from the base."""
        active = self._segments[-1]
        if active.size_bytes == 0:
            if last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
                raise _invalid(f"offset {last_offset} is too far from the segment's first, {active.base_offset}")
            return
        try:
            must_roll = self._must_roll(active, record_bytes, last_offset, largest_timestamp, now_ms)
        except OSError as error:
            raise self._failed(error, "read") from error
        if must_roll:
            self.roll(now_ms)

    def _must_roll(
        self, active: Segment, record_bytes: int, last_offset: int, largest_timestamp: int, now_ms: int
    ) -> bool:
        settings = self.settings
        if active.size_bytes + record_bytes > settings.segment_bytes:
            return True
        if last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
            return True
        first_timestamp = active.first_timestamp()
        age_ms = largest_timestamp - first_timestamp if first_timestamp >= 0 else now_ms - active.created_ms
        return age_ms > settings.segment_ms or active.index_is_full(settings.segment_index_bytes)

    def _write(self, record_set: memoryview | bytes, appended: list[tuple[int, int, int]], now_ms: int) -> None:
        active = self._segments[-1]
        try:
            active.append(record_set, appended, index_interval=self.settings.index_interval_bytes)
        except OSError as error:
            try:
                active.cut_back()
            except OSError:
                raise self._failed(error, "append") from error
            if error.errno in _SPACE_IS_SHORT:
                raise self._storage_error(error, "append") from error
            raise self._failed(error, "append") from error
        active.dirty = True
        if self._dirty_since_ms is None:
            self._dirty_since_ms = now_ms

    def _advance(self, log_end_offset: Offset) -> None:
        self.log_end_offset = log_end_offset
        if log_end_offset - self.recovery_point >= self.settings.flush_messages:
            self.flush()

    # Read

    def read(self, start: Offset, *, max_bytes: int, upto: Offset, at_least_one_batch: bool = True) -> FetchSlice:
        """Whole batches from the one that holds `start`, all below `upto` (exclusive), at most `max_bytes`.

        `at_least_one_batch` lets a first batch larger than `max_bytes` through. `start` may lie inside a batch. The
        records are fresh bytes. Nothing is decoded or checksummed. Raises OFFSET_OUT_OF_RANGE outside
        [log_start_offset, log_end_offset].
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
                for segment in self._segments[bisect_right(self._bases, start) - 1 :]:
                    found = segment.read(start, max_bytes=max_bytes, upto=upto, at_least_one_batch=at_least_one_batch)
                    if found is not None:
                        records, next_offset = found
                        break
            except OSError as error:
                raise self._failed(error, "read") from error
        return FetchSlice(start, records, Offset(next_offset), self.log_start_offset, self.log_end_offset)

    def offset_for_timestamp(self, timestamp_ms: int, *, upto: Offset) -> tuple[Offset, int, LeaderEpoch] | None:
        """(offset, its timestamp, its leader epoch) of the first record below `upto` that is not older; else None."""
        self._check_online()
        try:
            for segment in self._segments:
                if segment.base_offset >= upto:
                    break
                if segment.largest_timestamp() < timestamp_ms or segment.next_offset <= self.log_start_offset:
                    continue
                found = segment.offset_for_timestamp(
                    timestamp_ms, start=max(self.log_start_offset, segment.base_offset)
                )
                if found is not None:
                    return (Offset(found[0]), found[1], LeaderEpoch(found[2])) if found[0] < upto else None
        except OSError as error:
            raise self._failed(error, "read") from error
        return None

    def offset_of_max_timestamp(self, *, upto: Offset) -> tuple[Offset, int, LeaderEpoch] | None:
        """The same of the first record that has the largest timestamp of all below `upto` (ListOffsets -3)."""
        self._check_online()
        try:
            largest = NO_TIMESTAMP_MS
            for segment in self._segments:
                if segment.base_offset >= upto:
                    break
                if segment.next_offset <= upto:
                    largest = max(largest, segment.largest_timestamp())
                else:
                    largest = max(
                        largest, *(h.max_timestamp for _, h in segment.scan() if h.next_offset <= upto), largest
                    )
        except OSError as error:
            raise self._failed(error, "read") from error
        return self.offset_for_timestamp(largest, upto=upto) if largest >= 0 else None

    def end_offset_for_epoch(self, leader_epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """OffsetForLeaderEpoch: (largest known epoch not above it, end of its records); (-1, -1) when it is unknown."""
        return self.leader_epochs.end_offset_for(leader_epoch, log_end_offset=self.log_end_offset)

    # Change of shape

    def truncate_to(self, offset: Offset) -> None:
        """Removes every batch that reaches `offset` or lies behind it; the log then ends at a batch boundary.

        Durable when it returns. An offset before the log's first makes it empty and lets it begin there. The caller
        writes the checkpoints afterwards (`LogDir.truncate_log` does): a recovery point above the cut must not outlive
        it.
        """
        self._check_online()
        if offset >= self.log_end_offset:
            return
        try:
            if offset < self._segments[0].base_offset:
                self._start_anew_at(offset)
            else:
                keep = max(bisect_right(self._bases, offset - 1), 1)
                self._drop_segments_from(keep)
                active = self._segments[-1]
                active.truncate_to(offset, index_interval=self.settings.index_interval_bytes)
                self.log_end_offset = Offset(active.next_offset)
            self.recovery_point = min(self.recovery_point, self.log_end_offset)
            self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            self._write_leader_epochs()
            self._load_producers()
        except OSError as error:
            raise self._failed(error, "truncate") from error

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Removes everything; the log is empty and its next offset is `offset`. For a follower that fell behind."""
        self._check_online()
        try:
            self._start_anew_at(offset)
            self._write_leader_epochs()
            self._load_producers()
        except OSError as error:
            raise self._failed(error, "truncate") from error

    def delete_records_before(self, offset: Offset) -> None:
        """Moves `log_start_offset` up to `offset`; the files go with the next `apply_retention`.

        In memory until the checkpoints are written, as in Kafka. Lower than now: no change. Raises OFFSET_OUT_OF_RANGE
        above the log end offset; that it must not pass the high watermark is for the caller to check.
        """
        self._check_online()
        if offset > self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is above the log end {self.log_end_offset}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)

    def roll(self, now_ms: int) -> None:
        """Closes the active segment and begins a new one at the log end offset; nothing when the active one is empty.

        Not synced: `flush` does that.
        """
        self._check_online()
        active = self._segments[-1]
        if active.size_bytes == 0:
            return
        try:
            active.write_indexes(final=True)
            self._write_snapshot(sync=False)
            segment = Segment.create(self._disk, self.path, self.log_end_offset, now_ms=now_ms)
        except OSError as error:
            if error.errno in _SPACE_IS_SHORT:  # all of it can be done again
                raise self._storage_error(error, "roll") from error
            raise self._failed(error, "roll") from error
        active.dirty = True
        segment.dirty = True
        self._directory_dirty = True
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def flush(self) -> None:
        """Makes everything up to the log end durable and moves the recovery point there.

        After a failed fsync the log is offline: the system may have dropped the pages that it could not write.
        """
        self._check_online()
        try:
            if self.leader_epochs.dirty:
                self._write_leader_epochs()
            last = len(self._segments) - 1
            first_dirty = last
            while first_dirty > 0 and self._segments[first_dirty - 1].dirty:
                first_dirty -= 1
            for number in range(first_dirty, last + 1):
                segment = self._segments[number]
                if segment.dirty:
                    segment.flush(closed=number < last)
            if self._directory_dirty:
                self._disk.fsync_dir(self.path)
                self._directory_dirty = False
        except OSError as error:
            raise self._failed(error, "flush") from error
        self.recovery_point = self.log_end_offset
        self._dirty_since_ms = None

    def flush_if_due(self, now_ms: int) -> bool:
        """`flush` when flush.ms have passed since the first append after the last one; whether it did."""
        if self._dirty_since_ms is None or now_ms - self._dirty_since_ms < self.settings.flush_ms:
            return False
        self.flush()
        return True

    def apply_retention(self, now_ms: int, *, upto: Offset | None = None) -> int:
        """Deletes the oldest segments that retention.ms, retention.bytes or the log start offset give up; how many.

        Never the active segment, and none that reaches above `upto` (the high watermark; default: the log end).
        Forgets producers that have been silent for producer.id.expiration.ms as well.
        """
        self._check_online()
        settings = self.settings
        limit = self.log_end_offset if upto is None else upto
        size = self.size_bytes
        deletable = 0
        try:
            for segment in self._segments[:-1]:
                if segment.next_offset > limit:
                    break
                newest = segment.largest_timestamp()
                age_ms = now_ms - (newest if newest >= 0 else segment.created_ms)
                below_start = segment.next_offset <= self.log_start_offset
                too_large = 0 <= settings.retention_bytes <= size - segment.size_bytes
                too_old = settings.retention_ms >= 0 and age_ms > settings.retention_ms
                if not (below_start or too_large or too_old):
                    break
                size -= segment.size_bytes
                deletable += 1
            for _ in range(deletable):
                self._delete_oldest()
        except OSError as error:
            raise self._failed(error, "delete") from error
        self._producers.expire(now_ms=now_ms, expiration_ms=settings.producer_id_expiration_ms)
        return deletable

    def close(self, *, now_ms: int) -> None:
        """Flushes, writes the indexes and a producer snapshot, closes the files. An offline log only closes its files.

        Raises KAFKA_STORAGE_ERROR when the flush fails: the stop is then not a clean one.
        """
        del now_ms
        try:
            if self.offline_reason is None:
                self.flush()
                try:
                    self._segments[-1].write_indexes(final=True, sync=True)
                    self._write_snapshot(sync=True)
                    self._disk.fsync_dir(self.path)
                except OSError as error:
                    raise self._failed(error, "close") from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes the files and writes nothing: for a log that is to be deleted, or that is offline."""
        self.offline_reason = self.offline_reason or "the log is closed"
        for segment in self._segments:
            try:
                segment.close()
            except OSError:  # nothing is lost by it: what had to be durable was synced before
                continue
        self._segments.clear()
        self._bases.clear()

    # Opening

    def _load(self, *, recovery_point: Offset, clean: bool, log_start_offset: Offset) -> None:
        bases = self._tidy()
        self._segments = [Segment.open(self._disk, self.path, base, now_ms=self._opened_ms) for base in bases]
        self._directory_dirty = not (clean and self._segments)
        if not self._segments:
            self._segments.append(Segment.create(self._disk, self.path, log_start_offset, now_ms=self._opened_ms))
            self._segments[0].dirty = True
        self._bases = [segment.base_offset for segment in self._segments]
        for segment, following in zip(self._segments[:-1], self._segments[1:], strict=True):
            segment.next_offset = following.base_offset
        epochs_known = self._load_leader_epochs()
        interval = self.settings.index_interval_bytes
        if not clean:
            first = max(bisect_right(self._bases, recovery_point) - 1, 0)
            self._recover_from(first)
        elif not self._segments[-1].load(index_interval=interval):
            self._recover_from(len(self._segments) - 1)
        self.log_end_offset = Offset(self._segments[-1].next_offset)
        if log_start_offset > self.log_end_offset:
            # Records were deleted up to an offset that the crash took back. It must not be given a second time.
            self._start_anew_at(log_start_offset)
        self.log_start_offset = max(log_start_offset, Offset(self._bases[0]))
        self.recovery_point = min(self.log_end_offset if clean else recovery_point, self.log_end_offset)
        if not epochs_known:
            self._rebuild_leader_epochs()
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        self.leader_epochs.truncate_from_start(self.log_start_offset)
        self._load_producers()

    def _tidy(self) -> list[int]:
        """Base offsets of the segments, in order. Removes what unfinished deletions left behind."""
        bases: list[int] = []
        belonging: list[tuple[int, str]] = []
        for name in self._disk.listdir(self.path):
            if name.endswith(_LEFTOVER_SUFFIXES):
                self._disk.unlink(f"{self.path}/{name}")
            elif name.endswith(_UNFINISHED_SWAP_SUFFIX):
                what = f"{self.path}/{name}: Kafka was stopped while it compacted: start and stop it once more"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what)
            else:
                stem, dot, suffix = name.partition(".")
                if dot and len(stem) == 20 and stem.isdecimal():
                    if dot + suffix == LOG_SUFFIX:
                        bases.append(int(stem))
                    elif dot + suffix in SEGMENT_SUFFIXES:
                        belonging.append((int(stem), name))
        known = set(bases)
        for base, name in belonging:
            if base not in known:
                self._disk.unlink(f"{self.path}/{name}")
        return bases

    def _recover_from(self, first: int) -> None:
        """Rescans the segments from number `first` on, and drops whatever lies behind the first bad batch or gap."""
        next_offset = self._segments[first].base_offset
        self.leader_epochs.truncate_from_end(next_offset)

        def accept(header: BatchHeader) -> None:
            self.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)

        for number in range(first, len(self._segments)):
            segment = self._segments[number]
            if segment.base_offset != next_offset:
                self._drop_segments_from(number)
                return
            cut = segment.recover(
                next_offset=next_offset, index_interval=self.settings.index_interval_bytes, accept=accept
            )
            next_offset = segment.next_offset
            if cut:
                self._drop_segments_from(number + 1)
                return
            if number + 1 < len(self._segments):
                segment.write_indexes(final=True)

    def _load_leader_epochs(self) -> bool:
        """Whether the checkpoint was there and whole."""
        try:
            self.leader_epochs = LeaderEpochs.decode(self._disk.read_file(f"{self.path}/{LEADER_EPOCH_FILE}"))
        except (FileNotFoundError, ValueError):
            self.leader_epochs = LeaderEpochs()
            return False
        return True

    def _rebuild_leader_epochs(self) -> None:
        self.leader_epochs.clear()
        for segment in self._segments:
            for _, header in segment.scan():
                self.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)

    def _load_producers(self) -> None:
        """Producer state as of the log end: the newest whole snapshot, then the batches behind it.

        Snapshots above the log end are removed, and so are those that belong to no segment, but for the newest.
        """
        offsets = []
        for name in self._disk.listdir(self.path):
            stem, dot, suffix = name.partition(".")
            if dot + suffix == SNAPSHOT_SUFFIX and len(stem) == 20 and stem.isdecimal():
                offsets.append(int(stem))
        kept = [offset for offset in offsets if offset <= self.log_end_offset]
        kept = [offset for offset in kept if offset in self._bases or offset == kept[-1]]
        stray = [offset for offset in offsets if offset not in kept]
        for offset in stray:
            self._disk.unlink(f"{self.path}/{file_name(offset, SNAPSHOT_SUFFIX)}")
        if stray:
            self._disk.fsync_dir(self.path)  # or a snapshot of another history could come back
        self._producers = ProducerState()
        replay_from = self._bases[0]
        for offset in reversed(kept):
            try:
                data = self._disk.read_file(f"{self.path}/{file_name(offset, SNAPSHOT_SUFFIX)}")
                self._producers = ProducerState.decode_snapshot(data, now_ms=self._opened_ms)
            except ValueError:
                continue
            replay_from = offset
            break
        self._recall_producers(replay_from)
        if replay_from >= self.log_end_offset:
            return
        for segment in self._segments[max(bisect_right(self._bases, replay_from) - 1, 0) :]:
            for _, header in segment.scan():
                if header.last_offset >= replay_from and header.producer_id >= 0:
                    self._producers.update(header, base_offset=header.base_offset, now_ms=self._opened_ms)

    def _recall_producers(self, offset: int) -> None:
        """A snapshot holds one batch of each producer. The log before it gives back the others that may be repeated."""
        if not len(self._producers):
            return
        budget = _RECALL_BYTES
        for segment in reversed(self._segments):
            if segment.base_offset >= offset or budget <= 0:
                continue
            for header in reversed(segment.headers_before(offset, budget_bytes=budget)):
                self._producers.recall(header)
            budget -= segment.size_bytes

    def _replay(self, header: BatchHeader, now_ms: int) -> None:
        self.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            self._producers.update(header, base_offset=header.base_offset, now_ms=now_ms)

    # Inner parts

    def _write_leader_epochs(self) -> None:
        write_file_atomically(self._disk, f"{self.path}/{LEADER_EPOCH_FILE}", self.leader_epochs.encode())

    def _write_snapshot(self, *, sync: bool) -> None:
        """As of the log end. Its checksum tells whether it is whole, so that it need not be synced."""
        path = f"{self.path}/{file_name(self.log_end_offset, SNAPSHOT_SUFFIX)}"
        if self._disk.exists(path):
            self._disk.unlink(path)
        handle = self._disk.open(path, create=True)
        try:
            self._disk.pwrite(handle, self._producers.encode_snapshot(), 0)
            if sync:
                self._disk.fsync(handle)
        finally:
            self._disk.close(handle)

    def _drop_segments_from(self, number: int) -> None:
        """Removes the newest segments, newest first, for good before anything is written in their place."""
        dropped = self._segments[number:]
        del self._segments[number:], self._bases[number:]
        for segment in reversed(dropped):
            segment.delete()
        if dropped:
            self._disk.fsync_dir(self.path)

    def _start_anew_at(self, offset: Offset) -> None:
        self._drop_segments_from(0)
        self._segments.append(Segment.create(self._disk, self.path, offset, now_ms=self._opened_ms))
        self._segments[0].dirty = True
        self._bases.append(offset)
        self._disk.fsync_dir(self.path)
        self.log_start_offset = self.log_end_offset = self.recovery_point = offset
        self.leader_epochs.clear()

    def _delete_oldest(self) -> None:
        segment = self._segments.pop(0)
        del self._bases[0]
        self.log_start_offset = max(self.log_start_offset, Offset(self._bases[0]))
        self.leader_epochs.truncate_from_start(self.log_start_offset)
        segment.delete()
        snapshot = f"{self.path}/{file_name(segment.base_offset, SNAPSHOT_SUFFIX)}"
        if self._disk.exists(snapshot):
            self._disk.unlink(snapshot)
        self._disk.fsync_dir(self.path)  # oldest first, also across a power cut: a hole must not appear

    def _check_online(self) -> None:
        if self.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} is offline: {self.offline_reason}")

    def _failed(self, error: OSError, doing: str) -> KafkaError:
        self.offline_reason = f"{doing} failed: {error}"
        return self._storage_error(error, doing)

    def _storage_error(self, error: OSError, doing: str) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {doing} failed: {error}")


def _check_times(settings: LogSettings, now_ms: int, base_timestamp: int, max_timestamp: int) -> None:
    """CreateTime against its bounds, by the header alone; a batch without timestamps (-1) passes."""
    if max_timestamp == NO_TIMESTAMP_MS:
        return
    if max_timestamp - now_ms > settings.message_timestamp_after_max_ms:
        rule = f"message.timestamp.after.max.ms={settings.message_timestamp_after_max_ms}"
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {max_timestamp} is too far in the future: {rule}")
    if base_timestamp >= 0 and now_ms - base_timestamp > settings.message_timestamp_before_max_ms:
        rule = f"message.timestamp.before.max.ms={settings.message_timestamp_before_max_ms}"
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {base_timestamp} is too far in the past: {rule}")


def _invalid(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, what)
