"""Moves replicas between the log directories of this broker while they are written and read (KIP-113).

A move copies the log by jobs, one at a time for the whole broker, reports the new directory to the controller, and then
exchanges the logs in one event. The controller knows first: if the broker ends in between, it reports the directory
that has the replica when it starts again.

    COPYING --caught up--> REPORTING --the controller knows--> CLOSING --closed, caught up--> exchanged
       ^                                                          |
       +-------------- too much was appended meanwhile -----------+

A move begins again if the log is truncated, and ends without effect if its topic is deleted, the replica is moved to
another broker, or a disk fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from uuid import UUID

from raylog.broker.partition_directories import Background
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.logstore.disk import Disk
from raylog.logstore.future_log import CopyPlan, FutureLog
from raylog.logstore.log import Log
from raylog.logstore.log_dir import LogDir
from raylog.logstore.log_dirs import LogDirs
from raylog.replication.throttle import ReplicationThrottle
from raylog.transport.node import Job

events = logging.getLogger("raylog.broker")


class MoveState(Enum):
    COPYING = "copying"
    REPORTING = "reporting"
    CLOSING = "closing"


class _Move:
    def __init__(self, future: FutureLog) -> None:
        self.future = future
        self.state = MoveState.COPYING
        self.is_cancelled = False


class ReplicaMoves:
    """`moving` are the moves by replica. The caller of `begin` has checked that there is a log to move."""

    def __init__(
        self,
        disk: Disk,
        log_dirs: LogDirs,
        background: Background,
        *,
        new_id: Callable[[], UUID],
        report: Callable[[TopicPartition, UUID], None],
        is_reported: Callable[[TopicPartition, UUID], bool],
        on_moved: Callable[[TopicPartition, Log], None],
        rate_bytes_per_sec: Callable[[], int],
    ) -> None:
        """`report` tells the controller the directory of a replica, and `is_reported` says whether it knows it.
        `on_moved` is called with the log that has taken the place of the former one."""
        self._disk = disk
        self._log_dirs = log_dirs
        self._background = background
        self._new_id = new_id
        self._report = report
        self._is_reported = is_reported
        self._on_moved = on_moved
        self._rate_bytes_per_sec = rate_bytes_per_sec
        self._throttle = ReplicationThrottle(now_ms=0)
        self._due_ms: int | None = None
        """When the next job may begin, if the throttle holds it back."""
        self._moves: dict[TopicPartition, _Move] = {}
        self._running: _Move | None = None

    def begin(self, tp: TopicPartition, target: LogDir) -> None:
        """Move the replica to `target`, instead of to the directory to which it is being moved. Raises KafkaError."""
        move = self._moves.get(tp)
        if move is not None and move.future.target is target:
            return
        self.cancel(tp)
        source, log = self._log_dirs.holder(tp), self._log_dirs.log(tp)
        if source is target or log is None:
            return
        future = FutureLog(self._disk, target, log, self._new_id())
        try:
            future.create()
        except OSError as error:
            _warn_of_failure(tp, target.path, str(error))
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{target.path}: {error}") from error
        self._moves[tp] = _Move(future)
        self.go_on(self._background.now)

    def cancel(self, tp: TopicPartition) -> None:
        """End the move, if there is one. The replica stays where it is."""
        move = self._moves.pop(tp, None)
        if move is None:
            return
        move.is_cancelled = True
        if move is not self._running:
            self._discard(move)
        source = self._log_dirs.holder(tp)
        if move.state is not MoveState.COPYING and source is not None:
            self._report(tp, source.directory_id)

    def is_moving(self, tp: TopicPartition) -> bool:
        """Whether the replica is being moved. It must not be compacted then, since the copy would begin again."""
        return tp in self._moves

    def futures(self, log_dir: LogDir) -> Iterator[tuple[TopicPartition, FutureLog]]:
        """The future logs in the directory, in order."""
        for tp, move in sorted(self._moves.items()):
            if move.future.target is log_dir:
                yield tp, move.future

    def close(self) -> None:
        """The broker stops, and no job is running. The moves begin again when it starts."""
        for move in self._moves.values():
            move.future.discard()

    def next_deadline_ms(self) -> int | None:
        return self._due_ms

    def tick(self, now: Now) -> None:
        if self._due_ms is not None and now.monotonic_ms >= self._due_ms:
            self.go_on(now)

    def go_on(self, now: Now) -> None:
        """Begin the next job, if none is running. Also to be called from time to time."""
        if self._running is not None:
            return
        for tp, move in list(self._moves.items()):
            if self._is_failed(tp, move):
                self._give_up(tp, "a log directory has failed")
            elif move.future.is_obsolete:
                self._begin_again(tp, move)
        rate, now_ms = self._rate_bytes_per_sec(), now.monotonic_ms
        free_ms = self._throttle.free_ms(rate_bytes_per_sec=rate, now_ms=now_ms)
        self._due_ms = free_ms if self._moves and free_ms > now_ms else None
        if self._due_ms is not None:
            return
        for tp, move in list(self._moves.items()):
            directory_id = move.future.target.directory_id
            if move.state is MoveState.REPORTING and self._is_reported(tp, directory_id):
                move.state = MoveState.CLOSING
            if move.state is not MoveState.REPORTING and self._run_next(tp, move, now):
                return

    def _run_next(self, tp: TopicPartition, move: _Move, now: Now) -> bool:
        try:
            close = move.state is MoveState.CLOSING and move.future.is_caught_up
            plan = move.future.plan(now_ms=now.wall_ms, close=close)
        except (OSError, KafkaError) as error:
            self._give_up(tp, str(error))
            return False
        self._running = move
        del self._moves[tp]
        self._moves[tp] = move  # the others come first next time
        self._background.add_job(Job(plan.run, partial(self._copied, tp, move, plan)))
        return True

    def _copied(self, tp: TopicPartition, move: _Move, plan: CopyPlan, error: OSError | None) -> None:
        self._running = None
        move.future.ended(plan)
        now = self._background.now
        rate = self._rate_bytes_per_sec()
        self._throttle.used(plan.copied_bytes, rate_bytes_per_sec=rate, now_ms=now.monotonic_ms)
        failure = error or plan.failure
        if move.is_cancelled:
            self._discard(move)
        elif self._is_failed(tp, move) or (failure is not None and not move.future.is_obsolete):
            self._give_up(tp, str(failure or "a log directory has failed"))
        elif not move.future.is_obsolete:
            self._advance(tp, move, now)
        self.go_on(now)

    def _advance(self, tp: TopicPartition, move: _Move, now: Now) -> None:
        match move.state:
            case MoveState.COPYING if move.future.is_caught_up:
                move.state = MoveState.REPORTING
                self._report(tp, move.future.target.directory_id)
            case MoveState.CLOSING if move.future.is_closed:
                self._exchange(tp, move, now)
            case _:
                pass

    def _exchange(self, tp: TopicPartition, move: _Move, now: Now) -> None:
        source = self._log_dirs.holder(tp)
        try:
            log = self._log_dirs.swap(move.future, now_ms=now.wall_ms)
        except KafkaError as error:
            self._give_up(tp, error.message)
            return
        if log is None:
            move.future.is_caught_up = False  # it is opened again, and the rest is copied
            return
        del self._moves[tp]
        where = {"topic_partition": str(tp), "source": source.path if source else "", "target": log.path}
        events.info("replica moved", extra=where)
        self._on_moved(tp, log)

    def _is_failed(self, tp: TopicPartition, move: _Move) -> bool:
        log = self._log_dirs.log(tp)
        return move.future.target.offline_reason is not None or log is None or log.offline_reason is not None

    def _begin_again(self, tp: TopicPartition, move: _Move) -> None:
        target = move.future.target
        self.cancel(tp)
        log = self._log_dirs.log(tp)
        if log is not None:
            self._moves[tp] = _Move(FutureLog(self._disk, target, log, self._new_id()))

    def _give_up(self, tp: TopicPartition, reason: str) -> None:
        _warn_of_failure(tp, self._moves[tp].future.target.path, reason)
        self.cancel(tp)

    def _discard(self, move: _Move) -> None:
        future = move.future
        future.discard()
        name = future.path.rpartition("/")[2]
        due_ms = self._background.now.wall_ms
        future.target.retire_future(name, future.topic_partition, future.identity, due_ms=due_ms)


def _warn_of_failure(tp: TopicPartition, target: str, reason: str) -> None:
    events.warning("move of a replica failed", extra={"topic_partition": str(tp), "target": target, "reason": reason})
