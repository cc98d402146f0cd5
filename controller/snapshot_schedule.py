"""When a controller takes snapshots of the metadata: encoded in steps, the file written outside the event loop."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from raylog.controller.metadata_log import MetadataLog
from raylog.core.clock import Now
from raylog.core.errors import KafkaError
from raylog.metadata.snapshot_writer import SnapshotWriter
from raylog.transport.node import Job, Node

STEP_RECORDS: Final = 500
"""Encoded in one step between two requests: 2 to 5 ms."""
log = logging.getLogger("raylog.controller")


class SnapshotSchedule:
    """One snapshot at a time, as soon as `interval_bytes` of records were appended since the last one."""

    def __init__(self, node: Node, metadata_log: MetadataLog, *, interval_bytes: int) -> None:
        self.in_progress = False
        self._node = node
        self._log = metadata_log
        self._interval_bytes = interval_bytes
        self._due_bytes = interval_bytes

    @property
    def is_due(self) -> bool:
        return not self.in_progress and self._log.bytes_since_snapshot >= self._due_bytes

    def begin(self, now: Now) -> None:
        """Begin a snapshot of the current image, which must hold committed records only."""
        writer = self._log.begin_snapshot(now_ms=now.wall_ms)
        if writer is not None:
            self.in_progress = True
            self._node.add_steps(partial(self._step, writer))

    def _step(self, writer: SnapshotWriter, now: Now) -> bool:
        if not writer.step(STEP_RECORDS):
            return True
        run = partial(self._log.write_snapshot, writer)
        self._node.add_job(Job(run, partial(self._written, writer, now.wall_ms)))
        return False

    def _written(self, writer: SnapshotWriter, now_ms: int, failure: OSError | None) -> None:
        self.in_progress = False
        try:
            if failure is not None:
                raise failure
            old = self._log.snapshot_written(writer, now_ms=now_ms)
        except (OSError, KafkaError) as error:
            log.warning("snapshot failed", extra={"reason": str(error)})
            self._due_bytes = self._log.bytes_since_snapshot + self._interval_bytes  # retried one interval later
        else:
            self._due_bytes = self._interval_bytes
            log.info("snapshot taken", extra={"end_offset": writer.snapshot.end_offset, "bytes": writer.size_bytes})
            self._node.add_steps(self._delete_old_segment)
            if old:
                self._node.add_job(Job(partial(self._log.remove_snapshots, old), _removed))

    def _delete_old_segment(self, now: Now) -> bool:
        try:
            return self._log.delete_old(now_ms=now.wall_ms)
        except KafkaError as error:
            log.warning("old metadata not deleted", extra={"reason": str(error)})
            return False


def _removed(failure: OSError | None) -> None:
    """What could not be removed is found by the next start, and removed after the next snapshot."""
    if failure is not None:
        log.warning("old snapshot not removed", extra={"reason": str(failure)})
