"""Creates the directories of new partitions off the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicId, TopicPartition
from raylog.logstore.checkpoint import PARTITION_METADATA_FILE, encode_partition_metadata, write_file_atomically
from raylog.logstore.disk import Disk
from raylog.logstore.log import Log


class NewLog(NamedTuple):
    """A partition whose log is to be created."""

    topic_partition: TopicPartition
    topic_id: TopicId


class CreationPlan:
    """Directories of partitions to create, from `LogDir.plan_creation`.

    The caller calls `run` in another thread, then `LogDir.creation_ended` on the loop.

    A partition that cannot be created does not affect the others.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        wanted: Sequence[NewLog],
        open_log: Callable[[TopicPartition, str], Log],
    ) -> None:
        self.wanted = wanted
        self.created: dict[TopicPartition, Log] = {}
        """Open logs; their directories are durable."""
        self.failed: dict[TopicPartition, KafkaError] = {}
        self._disk = disk
        self._directory = directory
        self._open_log = open_log

    def run(self) -> None:
        """Blocks, and changes nothing but this plan. One sync makes the names of all new directories durable."""
        made: list[NewLog] = []
        for new in self.wanted:
            try:
                self._disk.mkdir(self._path(new))
            except OSError as error:
                self._fail(new, error)
            else:
                made.append(new)
        try:
            if made:
                self._disk.fsync_dir(self._directory)
        except OSError as error:
            for new in made:
                self._fail(new, error)
            return
        for new in made:
            try:
                self.created[new.topic_partition] = self._create(new)
            except KafkaError as error:
                self.failed[new.topic_partition] = error
            except OSError as error:
                self._fail(new, error)

    def _create(self, new: NewLog) -> Log:
        path = self._path(new)
        log = self._open_log(new.topic_partition, path)
        try:
            metadata = encode_partition_metadata(new.topic_id)
            write_file_atomically(self._disk, f"{path}/{PARTITION_METADATA_FILE}", metadata)
        except OSError:
            log.abandon()
            raise
        log.topic_id = new.topic_id
        return log

    def _path(self, new: NewLog) -> str:
        return f"{self._directory}/{new.topic_partition}"

    def _fail(self, new: NewLog, error: OSError) -> None:
        what = f"cannot create {new.topic_partition}: {error}"
        self.failed[new.topic_partition] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what)
