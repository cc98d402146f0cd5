"""The log directories of a broker: each has its own lock, identity and checkpoints, and fails alone (KIP-112)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, TopicPartition
from raylog.logstore.disk import Disk
from raylog.logstore.log import Log
from raylog.logstore.log_dir import NO_BROKER_EPOCH, Jobs, LogDir, LogDirUnavailable
from raylog.logstore.settings import LogSettings

events = logging.getLogger("raylog.logstore")


class LogDirs:
    """From `open` to `close`. Not thread-safe. A partition is in one directory."""

    def __init__(self, dirs: Sequence[LogDir], unavailable: Mapping[str, str]) -> None:
        """Use `open` instead."""
        self.dirs = tuple(dirs)
        """Those that were opened, including those that have failed since."""
        self.unavailable = dict(unavailable)
        """Those that could not be opened because of the disk, by path, with the reason."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        paths: Sequence[str],
        *,
        cluster_id: str,
        broker_id: BrokerId,
        settings_for: Callable[[str], LogSettings],
        now_ms: int,
        new_id: Callable[[], UUID],
        run_all: Callable[[Jobs], None],
    ) -> LogDirs:
        """Open all directories with their partitions. One that the disk cannot read is unavailable, unless it is the
        last one. Of several, each must exist: an empty mount point must not pass for a new directory.

        Raises KafkaError if none can be opened, if one of them is refused for another reason, as by `LogDir.open`, and
        if two of them have the same id or the same partition.
        """
        opened: list[LogDir] = []
        unavailable: dict[str, str] = {}
        try:
            for path in paths:
                try:
                    log_dir = LogDir.open(
                        disk,
                        path,
                        cluster_id=cluster_id,
                        broker_id=broker_id,
                        settings_for=settings_for,
                        now_ms=now_ms,
                        new_id=new_id,
                        run_all=run_all,
                        may_create=len(paths) == 1,
                    )
                except LogDirUnavailable as error:
                    if len(unavailable) == len(paths) - 1:
                        raise
                    events.error("log directory unavailable", extra={"path": path, "reason": error.message})
                    unavailable[path] = error.message
                else:
                    _check_distinct(log_dir, opened)
                    opened.append(log_dir)
        except KafkaError:
            for log_dir in opened:
                log_dir.abandon()
            raise
        return cls(opened, unavailable)

    @property
    def online(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs if log_dir.offline_reason is None]

    @property
    def are_several(self) -> bool:
        return len(self.dirs) + len(self.unavailable) > 1

    @property
    def are_all_online(self) -> bool:
        """Whether every configured directory works."""
        return not self.unavailable and len(self.online) == len(self.dirs)

    @property
    def offline_reason(self) -> str | None:
        """Why no directory is online; None if there is one."""
        return None if self.online else self.dirs[0].offline_reason

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last clean shutdown: that in every directory. -1 if one is missing or differs."""
        epochs = {log_dir.previous_broker_epoch for log_dir in self.dirs}
        return epochs.pop() if len(epochs) == 1 and not self.unavailable else NO_BROKER_EPOCH

    def holder(self, topic_partition: TopicPartition) -> LogDir | None:
        """The directory that has the partition's log."""
        return next((log_dir for log_dir in self.dirs if topic_partition in log_dir.logs), None)

    def log(self, topic_partition: TopicPartition) -> Log | None:
        log_dir = self.holder(topic_partition)
        return None if log_dir is None else log_dir.logs[topic_partition]

    def logs(self) -> Iterator[tuple[TopicPartition, Log]]:
        for log_dir in self.dirs:
            yield from log_dir.logs.items()

    def emptiest(self, planned: Mapping[LogDir, int] | None = None) -> LogDir | None:
        """The online directory with the fewest partitions, counting those that are `planned`; None if none is
        online."""
        extra = Counter(planned or {})
        return min(self.online, key=lambda log_dir: len(log_dir.logs) + extra[log_dir], default=None)

    def close(self, *, broker_epoch: int) -> None:
        """Shut all down cleanly. The first error is raised after all are closed."""
        failure: KafkaError | None = None
        for log_dir in self.dirs:
            try:
                log_dir.close(broker_epoch=broker_epoch)
            except KafkaError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        for log_dir in self.dirs:
            log_dir.abandon()


def _check_distinct(log_dir: LogDir, others: Sequence[LogDir]) -> None:
    """Abandons `log_dir` and raises KafkaError if it has the id or a partition of another one."""
    for other in others:
        both = sorted(log_dir.logs.keys() & other.logs.keys())
        if both or log_dir.directory_id == other.directory_id:
            log_dir.abandon()
            what = (
                f"contain {both[0]}: move one of the two elsewhere, the one that has fewer records"
                if both
                else "have the same directory.id in meta.properties: one is a copy of the other"
            )
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"both {other.path} and {log_dir.path} {what}")
