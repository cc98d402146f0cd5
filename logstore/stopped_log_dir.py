"""The log directory of a stopped broker, of raylog or Kafka: lock it, list and replace its partitions.

The broker must have been shut down cleanly, so that checkpoints and files are valid. `replace` describes the state
after a crash.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Self
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.checkpoint import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    decode_offsets,
    encode_offsets,
    write_file_atomically,
)
from raylog.logstore.disk import Disk, FileHandle
from raylog.logstore.log_dir import LOCK_FILE, partition_of, retired_name
from raylog.logstore.partition_copy import CopiedLog, copy_log, holds_records


class Fresh(NamedTuple):
    """A copy of a partition that has not replaced it yet, under the name of a directory to be deleted."""

    topic_partition: TopicPartition
    path: str
    log: CopiedLog


class StoppedLogDir:
    """Locked from `open` to the end of the `with` block. Methods raise KafkaError and OSError."""

    def __init__(self, disk: Disk, path: str, lock: FileHandle) -> None:
        """Use `open` instead."""
        self.path = path
        self._disk = disk
        self._lock = lock

    @classmethod
    def open(cls, disk: Disk, path: str) -> StoppedLogDir:
        """Raises KAFKA_STORAGE_ERROR if the broker runs or was not shut down cleanly, or it is not a log directory."""
        path = path.rstrip("/")
        if not disk.exists(f"{path}/{META_PROPERTIES_FILE}"):
            raise _refusal(f"{path} is not a log directory: it has no {META_PROPERTIES_FILE}")
        try:
            lock = disk.lock(f"{path}/{LOCK_FILE}")
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise _refusal(f"{path}/{LOCK_FILE} is locked: stop the broker that uses this directory") from None
        if not disk.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}"):
            disk.close(lock)
            what = "its broker was not shut down cleanly; start and stop it again"
            raise _refusal(f"{path} has no {CLEAN_SHUTDOWN_FILE}: {what}")
        return cls(disk, path, lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._disk.close(self._lock)

    def partitions(self) -> list[TopicPartition]:
        found = [partition_of(name) for name in self._disk.listdir(self.path)]
        return sorted(tp for tp in found if tp is not None and self._disk.is_dir(self.path_of(tp)))

    def path_of(self, topic_partition: TopicPartition) -> str:
        return f"{self.path}/{topic_partition}"

    def holds_records(self, topic_partition: TopicPartition) -> bool:
        return holds_records(self._disk, self.path_of(topic_partition))

    def log_start_offset(self, topic_partition: TopicPartition) -> Offset:
        """The log start offset in the checkpoint; 0 if it has none."""
        return self._checkpoint(LOG_START_OFFSET_FILE).get(topic_partition, Offset(0))

    def take_copy(
        self, topic_partition: TopicPartition, source: StoppedLogDir, *, new_id: Callable[[], UUID], now_ms: int
    ) -> Fresh:
        """Copy the source's partition next to our own, with our partition.metadata. Durable except for its name."""
        disk = self._disk
        metadata = f"{self.path_of(topic_partition)}/{PARTITION_METADATA_FILE}"
        if not disk.exists(metadata):
            raise _refusal(f"{metadata} is missing; start and stop the broker of {self.path} again")
        path = f"{self.path}/{retired_name(topic_partition, new_id())}"
        try:
            log = copy_log(
                disk,
                source.path_of(topic_partition),
                path,
                log_start_offset=source.log_start_offset(topic_partition),
                metadata=disk.read_file(metadata),
                now_ms=now_ms,
            )
        except (OSError, KafkaError):
            disk.rmtree(path)
            raise
        return Fresh(topic_partition, path, log)

    def discard(self, fresh: Fresh) -> None:
        self._disk.rmtree(fresh.path)

    def replace(self, copies: Collection[Fresh]) -> None:
        """Replace the partitions by the copies, then update the checkpoints.

        Each partition is exchanged atomically: after a crash it is the old or the new one, and the next start of the
        broker deletes the other. Its log start offset is removed from the checkpoint before and added after: in
        between, records that DeleteRecords has removed may be readable again, but none is lost.
        """
        disk = self._disk
        replaced = {fresh.topic_partition: fresh.log for fresh in copies}
        self._change(LOG_START_OFFSET_FILE, dict.fromkeys(replaced))
        self._change(CLEANER_OFFSET_FILE, dict.fromkeys(replaced))
        for fresh in copies:
            disk.exchange(fresh.path, self.path_of(fresh.topic_partition))
        disk.fsync_dir(self.path)  # before the old ones are deleted
        self._change(RECOVERY_POINT_FILE, {tp: log.log_end_offset for tp, log in replaced.items()})
        if disk.exists(f"{self.path}/{HIGH_WATERMARK_FILE}"):
            self._change(HIGH_WATERMARK_FILE, {tp: log.log_end_offset for tp, log in replaced.items()})
        self._change(LOG_START_OFFSET_FILE, {tp: log.log_start_offset or None for tp, log in replaced.items()})
        for fresh in copies:
            disk.rmtree(fresh.path)

    def _change(self, name: str, changes: Mapping[TopicPartition, Offset | None]) -> None:
        """Change entries of a checkpoint; None removes one."""
        before = self._checkpoint(name)
        after = {tp: offset for tp, offset in {**before, **changes}.items() if offset is not None}
        if after != before:
            write_file_atomically(self._disk, f"{self.path}/{name}", encode_offsets(after))

    def _checkpoint(self, name: str) -> dict[TopicPartition, Offset]:
        path = f"{self.path}/{name}"
        try:
            data = self._disk.read_file(path)
            return decode_offsets(data) if data else {}  # Kafka creates and accepts empty files
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise _refusal(f"{path} cannot be read: {error}") from None


def _refusal(what: str) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what)
