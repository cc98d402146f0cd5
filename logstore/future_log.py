"""A copy of a partition's log in another log directory of its broker, until it takes the place of that log (KIP-113).

Jobs fill it from the files of the current log, a bounded piece each, while that log is written and read. Its own files
are open only while a job runs, and are not among those that the loop may close. `LogDirs.swap` exchanges the two logs.
The directory is called `<topic>-<partition>.<id>-future`, as in Kafka.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import Offset, TopicId
from raylog.logstore.checkpoint import PARTITION_METADATA_FILE, encode_partition_metadata, write_file_atomically
from raylog.logstore.disk import Disk
from raylog.logstore.log import Log, SegmentPlace
from raylog.logstore.log_dir import LogDir, future_name
from raylog.protocol.records.batch import BATCH_LENGTH_AT, HEADER_SIZE, LOG_OVERHEAD, split_batches

COPY_BYTES: Final = 4 << 20
"""What one job copies: some milliseconds."""
TAIL_BYTES: Final = 1 << 20
"""What may be left to copy when the logs are exchanged."""


class FutureLog:
    """Plans run one at a time; between them `end_offset` and `size_bytes` are as of the last one."""

    def __init__(self, disk: Disk, target: LogDir, current: Log, identity: UUID) -> None:
        self.target = target
        self.identity = identity
        self.topic_partition = current.topic_partition
        self.path = f"{target.path}/{future_name(current.topic_partition, identity)}"
        self.end_offset = Offset(current.log_start_offset)
        self.size_bytes = 0
        self.is_caught_up = False
        """Whether the last plan has copied all that there was when it was made."""
        self.is_closed = False
        """Whether it can be opened under another path."""
        self._disk = disk
        self._current = current
        self._generation = current.generation
        self._cleaned_upto = current.cleaned_upto
        self._log: Log | None = None

    @property
    def lag(self) -> int:
        return self._current.log_end_offset - self.end_offset

    @property
    def is_obsolete(self) -> bool:
        """Whether the current log differs from what was copied: it was truncated or compacted, or its retention was
        faster."""
        current = self._current
        return (
            current.generation != self._generation
            or current.cleaned_upto != self._cleaned_upto
            or self.end_offset < current.log_start_offset
        )

    def plan(self, *, now_ms: int, close: bool) -> CopyPlan:
        """Plan the next piece, for a job off the loop; with `close` the log is flushed and closed after it. The caller
        then calls `ended`. Raises KafkaError and OSError if the current log cannot be read."""
        current = self._current
        place = current.locate(self.end_offset, upto=current.log_end_offset)
        return CopyPlan(self, self._disk, current, place, now_ms=now_ms, close=close)

    def ended(self, plan: CopyPlan) -> None:
        """The plan has run, or has failed."""
        if self._log is not None:
            self.end_offset = max(self.end_offset, self._log.log_end_offset)
            self.size_bytes = self._log.size_bytes
            self.is_caught_up = self.end_offset >= plan.upto
            self.is_closed = plan.has_closed
            if self.is_closed:
                self._log = None

    def discard(self) -> None:
        """Close the files. No plan may be running."""
        if self._log is not None:
            self._log.abandon()
            self._log = None

    def create(self) -> None:
        """Make the directory, by which a broker that is killed knows of the move. Raises OSError."""
        self._disk.mkdir(self.path)

    # In the job

    def open(self, topic_id: TopicId, now_ms: int) -> Log:
        if self._log is None:
            begins = not self._disk.exists(f"{self.path}/{PARTITION_METADATA_FILE}")
            if begins:
                if not self._disk.exists(self.path):
                    self.create()
                self._disk.fsync_dir(self.target.path)
                metadata = encode_partition_metadata(topic_id)
                write_file_atomically(self._disk, f"{self.path}/{PARTITION_METADATA_FILE}", metadata)
            self._log = Log.open(
                self._disk.for_jobs(),
                self.path,
                self.topic_partition,
                self._current.settings,
                now_ms=now_ms,
                recovery_point=Offset(0) if begins else self.end_offset,
                clean=not begins,
                cleaned_upto=self._cleaned_upto,
            )
        return self._log

    def release(self) -> None:
        """Close the files until the next job: a broker may move thousands of replicas at once."""
        if self._log is not None:
            self._log.release()


class CopyPlan:
    """From `FutureLog.plan`: one piece of the current log, from the open file of its segment."""

    def __init__(
        self, future: FutureLog, disk: Disk, current: Log, place: SegmentPlace, *, now_ms: int, close: bool
    ) -> None:
        self._future = future
        self._disk = disk
        self._topic_id = current.topic_id
        self.upto = current.log_end_offset
        self.has_closed = False
        self.copied_bytes = 0
        self.failure: KafkaError | None = None
        """What the log has refused, once it has run."""
        self._is_empty = current.log_start_offset == current.log_end_offset
        self._bytes_max = min(COPY_BYTES, current.settings.segment_bytes)
        self._position = place.position
        self._now_ms = now_ms
        self._close = close
        self._handle = disk.open(place.path, writable=False)  # the file may be replaced before the job begins

    def run(self) -> None:
        """Blocks. Raises OSError."""
        try:
            log = self._future.open(self._topic_id, self._now_ms)
            if self._is_empty and log.log_end_offset < self.upto:
                log.truncate_fully_and_start_at(self.upto)
            elif log.log_end_offset < self.upto:
                batches = self._read()
                if log.log_end_offset == 0:
                    log.truncate_fully_and_start_at(Offset(int.from_bytes(batches[:8], "big")))
                log.append_as_follower(batches, now_ms=self._now_ms)
                self.copied_bytes = len(batches)
            if self._close:
                log.close()
                self.has_closed = True
        except KafkaError as error:
            self.failure = error
        finally:
            self._future.release()
            self._disk.close(self._handle)

    def _read(self) -> bytes:
        """Complete batches from the position on, at most `_bytes_max`, but at least one, and none beyond `upto`.

        Raises CORRUPT_MESSAGE, as in a file that is truncated meanwhile."""
        data = self._disk.pread(self._handle, self._bytes_max, self._position)
        if len(data) >= HEADER_SIZE and _size_at(data, 0) > len(data):
            data = self._disk.pread(self._handle, _size_at(data, 0), self._position)
        end = 0
        while end + HEADER_SIZE <= len(data) and (size := _size_at(data, end)) <= len(data) - end:
            [(_, header)] = split_batches(data[end : end + size])
            end += size
            if header.next_offset >= self.upto:
                break
        if not end:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self._future.topic_partition}: incomplete batch")
        return data[:end]


def _size_at(data: bytes, position: int) -> int:
    length = int.from_bytes(data[position + BATCH_LENGTH_AT : position + BATCH_LENGTH_AT + 4], "big")
    return LOG_OVERHEAD + length
