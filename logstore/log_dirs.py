"""The log directories of a broker: each has its own lock, identity and checkpoints, and fails alone (KIP-112)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, TopicPartition
from raylog.logstore.disk import Disk
from raylog.logstore.future_log import TAIL_BYTES, FutureLog
from raylog.logstore.log import Log
from raylog.logstore.log_dir import NO_BROKER_EPOCH, Jobs, LogDir, LogDirUnavailable, retired_name
from raylog.logstore.settings import LogSettings

events = logging.getLogger("raylog.logstore")


class LogDirs:
    """The log directories of a broker, from `open` to `close`. Not thread-safe. A partition is in one directory."""

    def __init__(self, disk: Disk, dirs: Sequence[LogDir], unavailable: Mapping[str, str], found: _Futures) -> None:
        """Use `open` instead."""
        self._disk = disk
        self.dirs = tuple(dirs)
        """Those that were opened, including those that have failed since."""
        self.unavailable = dict(unavailable)
        """Those that could not be opened because of the disk, by path, with the reason."""
        self.interrupted = found.interrupted
        """Moves that the last process did not finish: each replica, and the directory to which it was to be moved."""
        self.without_current = found.without_current
        """Replicas of which only the beginning of a copy was found. They must not be created, which would hide that
        their records are lost."""

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
        claimed: list[LogDir] = []
        opened: list[LogDir] = []
        unavailable: dict[str, str] = {}

        def failed(path: str, error: LogDirUnavailable) -> None:
            if len(unavailable) == len(paths) - 1:
                raise error
            events.error("log directory unavailable", extra={"path": path, "reason": error.message})
            unavailable[path] = error.message

        try:
            for path in paths:
                try:
                    log_dir = LogDir.claim(
                        disk,
                        path,
                        cluster_id=cluster_id,
                        broker_id=broker_id,
                        settings_for=settings_for,
                        new_id=new_id,
                        may_create=len(paths) == 1,
                    )
                except LogDirUnavailable as error:
                    failed(path, error)
                else:
                    claimed.append(log_dir)
            _check_distinct(claimed)
            found = _resolve_futures(claimed, are_all_there=not unavailable)
            for log_dir in claimed:
                try:
                    log_dir.load(now_ms, run_all)
                except LogDirUnavailable as error:
                    failed(log_dir.path, error)
                else:
                    opened.append(log_dir)
        except KafkaError:
            for log_dir in claimed:
                log_dir.abandon()
            raise
        return cls(disk, opened, unavailable, found)

    @property
    def online(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs if log_dir.offline_reason is None]

    @property
    def failed(self) -> dict[str, str]:
        """The directories that do not work, by path, with the reason."""
        offline = {each.path: each.offline_reason for each in self.dirs if each.offline_reason is not None}
        return {**self.unavailable, **offline}

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

    def swap(self, future: FutureLog, *, now_ms: int) -> Log | None:
        """Let the future log, which is closed, take the place of the current one, and return it. None if too much is
        left to copy.

        The future log first gets the rest, so that it has all records before its name or that of the current one
        changes. Then the directory of the current log is renamed, to the name of a deleted one with the id of the
        future log: a start that finds both finishes the exchange. Readers of the old files finish on them. If anything
        fails, everything is as before, and KafkaError is raised; a directory in which that cannot be undone is taken
        offline."""
        tp, target = future.topic_partition, future.target
        source = self.holder(tp)
        assert source is not None
        current = source.logs[tp]
        tail: list[bytes | memoryview] = []
        position, size = future.end_offset, 0
        while position < current.log_end_offset:
            piece = current.read(position, max_bytes=TAIL_BYTES, upto=current.log_end_offset)
            tail.append(piece.records)
            position, size = piece.next_offset, size + len(piece.records)
            if size > TAIL_BYTES:
                return None
        if target.may_name_deleted(tp):
            target.write_checkpoints()
        retired = f"{source.path}/{retired_name(tp, future.identity)}"
        renamed: list[tuple[str, str, LogDir]] = []
        try:
            if self._disk.exists(f"{target.path}/{tp}"):
                raise _refusal(f"{target.path}/{tp} exists already")
            if tail:
                self._append(future, current, tail, now_ms=now_ms)
            target.announce(tp, current)
            for before, after, log_dir in (
                (f"{source.path}/{tp}", retired, source),
                (future.path, f"{target.path}/{tp}", target),
            ):
                self._disk.rename(before, after)
                renamed.append((before, after, log_dir))
                self._disk.fsync_dir(log_dir.path)
            log = Log.open(
                self._disk,
                f"{target.path}/{tp}",
                tp,
                current.settings,
                now_ms=now_ms,
                recovery_point=current.log_end_offset,
                clean=True,
                log_start_offset=current.log_start_offset,
                cleaned_upto=current.cleaned_upto,
            )
            if log.log_end_offset != current.log_end_offset:
                log.abandon()
                raise _refusal(f"the copy ends at {log.log_end_offset} instead of {current.log_end_offset}")
        except (OSError, KafkaError) as error:
            for before, after, log_dir in reversed(renamed):
                self._undo_rename(before, after, log_dir)
            raise _refusal(f"{tp} cannot be moved to {target.path}: {error}") from error
        log.topic_id, log.generation = current.topic_id, current.generation + 1
        target.logs[tp] = log
        if tp in source.high_watermarks:
            target.high_watermarks[tp] = source.high_watermarks[tp]
        source.give_up(tp, future.identity, due_ms=now_ms + current.settings.file_delete_delay_ms)
        return log

    def _append(self, future: FutureLog, current: Log, tail: list[bytes | memoryview], *, now_ms: int) -> None:
        log = Log.open(
            self._disk,
            future.path,
            future.topic_partition,
            current.settings,
            now_ms=now_ms,
            recovery_point=future.end_offset,
            clean=True,
            cleaned_upto=current.cleaned_upto,
        )
        try:
            for records in tail:
                log.append_as_follower(records, now_ms=now_ms)
            log.close()
        finally:
            log.abandon()

    def _undo_rename(self, before: str, after: str, log_dir: LogDir) -> None:
        """Durably: a log under the name of a deleted one would be deleted by the next start, with all that it got
        since."""
        try:
            self._disk.rename(after, before)
            self._disk.fsync_dir(log_dir.path)
        except OSError as error:
            log_dir.take_offline(f"{after} cannot be renamed back to {before}: {error}")

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


def _check_distinct(log_dirs: Sequence[LogDir]) -> None:
    """Raises KafkaError if two directories have the same id or the same partition."""
    with_id: dict[UUID, str] = {}
    holders: dict[TopicPartition, str] = {}
    for log_dir in log_dirs:
        other = with_id.setdefault(log_dir.directory_id, log_dir.path)
        if other != log_dir.path:
            what = "have the same directory.id in meta.properties: one is a copy of the other"
            raise _refusal(f"both {other} and {log_dir.path} {what}")
        for tp, _ in log_dir.contents().partitions:
            other = holders.setdefault(tp, log_dir.path)
            if other != log_dir.path:
                what = f"contain {tp}: move one of the two elsewhere, the one that has fewer records"
                raise _refusal(f"both {other} and {log_dir.path} {what}")


class _Futures(NamedTuple):
    """The future logs that were found at a start."""

    interrupted: dict[TopicPartition, str]
    without_current: set[TopicPartition]


def _resolve_futures(log_dirs: Sequence[LogDir], *, are_all_there: bool) -> _Futures:
    """Finish the exchanges that the last process had begun, and discard the future logs of other moves, which begin
    again. While a directory is unavailable it may have the current log, so that they are kept."""
    contents = {log_dir: log_dir.contents() for log_dir in log_dirs}
    replaced = {identity for names in contents.values() for identity in names.retired_ids()}
    current = {tp for names in contents.values() for tp, _ in names.partitions}
    found = _Futures({}, set())
    for log_dir, names in contents.items():
        for future in names.futures:
            tp = future.topic_partition
            if tp not in current and future.identity in replaced:
                log_dir.promote(future)
                events.info("move of a replica completed", extra={"topic_partition": str(tp), "path": log_dir.path})
            elif tp in current:
                log_dir.discard(future)
                found.interrupted[tp] = log_dir.path
            else:
                found.without_current.add(tp)
                if are_all_there:
                    extra = {"topic_partition": str(tp), "path": f"{log_dir.path}/{future.name}"}
                    events.error("only an unfinished copy of a replica exists", extra=extra)
    return found


def _refusal(what: str) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what)
