"""The metadata log on a voter's disk: Kafka's name and id for it, its snapshots, and the image that it makes.

    <log directory>/__cluster_metadata-0/    segments as of any log
                                             quorum-state                    what the voter must not forget
                                             <end offset>-<epoch>.checkpoint  the image as of that offset

The image holds what was replayed so far: on the leader everything in the log, elsewhere what is known to be committed.
Two snapshots are kept, and the log from the older one on, so that whoever lags a little goes on by the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from raylog.controller.features import check_writable
from raylog.controller.quorum.election_state import QUORUM_STATE_FILE, ElectionState
from raylog.controller.quorum.events import LogEnd
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID, LeaderEpoch, Offset
from raylog.core.outcome import Outcome
from raylog.logstore.checkpoint import write_file_atomically
from raylog.logstore.disk import Disk
from raylog.logstore.log import Log
from raylog.logstore.log_dir import LogDir
from raylog.logstore.settings import LogSettings
from raylog.metadata import records
from raylog.metadata.image import MetadataImage
from raylog.metadata.levels import UnsupportedLevel
from raylog.metadata.records import MetadataRecord
from raylog.metadata.snapshot import SnapshotId, decode_snapshot, snapshot_named
from raylog.metadata.snapshot_writer import SnapshotWriter
from raylog.metadata.topic_names import METADATA_PARTITION, METADATA_TOPIC_ID
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.wire import Buffer
from raylog.transport.node import NodeIdentity

Response = TypeVar("Response")
METADATA_LOG_SETTINGS = LogSettings(retention_ms=-1, segment_ms=(1 << 63) - 1, max_message_bytes=64 << 20)
"""A decision is one batch: that a broker is fenced which leads a million partitions must find room in it."""
READ_BYTES = 1 << 20
SNAPSHOTS_KEPT = 2
events = logging.getLogger("raylog.controller")


class MetadataLog:
    """From `open` to `close`. What it raises as KafkaError has changed nothing in memory."""

    def __init__(self, disk: Disk, log_dir: LogDir, log: Log) -> None:
        """Not to be called: use `open`."""
        self.log = log
        self.image = MetadataImage()
        self.next_offset = Offset(0)
        """Of the first record that the image does not hold."""
        self.snapshots: list[SnapshotId] = []
        """Those that are on disk, the latest last."""
        self.election_state = ElectionState()
        """As it was saved last."""
        self.bytes_since_snapshot = 0
        """Of records behind the snapshot that was begun last, or loaded."""
        self._disk = disk
        self._log_dir = log_dir

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        identity: NodeIdentity,
        *,
        voter_count: int,
        may_be_new: bool,
        new_id: Callable[[], UUID],
        now_ms: int,
    ) -> MetadataLog:
        """Locks and recovers the directory; the image is that of the latest snapshot. Raises KafkaError with what is
        wrong.

        `may_be_new` lets it begin a metadata log where there is none; where the voter has a past, that is a loss.
        """
        log_dir = LogDir.open(
            disk,
            path,
            cluster_id=identity.cluster_id,
            broker_id=identity.node_id,
            settings_for=lambda _: METADATA_LOG_SETTINGS,
            now_ms=now_ms,
            new_id=new_id,
        )
        try:
            opened = cls(disk, log_dir, _find_log(log_dir, may_be_new=may_be_new, now_ms=now_ms))
            opened._load(voter_count=voter_count)
        except OSError as error:
            log_dir.abandon()
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} cannot be opened: {error}") from error
        except UnsupportedLevel as error:
            log_dir.abandon()
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{path} cannot be opened: {error}") from error
        except BaseException:
            log_dir.abandon()
            raise
        return opened

    @property
    def directory_id(self) -> UUID:
        """Names the directory that the log is in (KIP-858)."""
        return self._log_dir.directory_id

    @property
    def end_offset(self) -> Offset:
        """Of the next record to be written."""
        return self.log.log_end_offset

    @property
    def start_offset(self) -> Offset:
        """Whoever wants what lies before it is given a snapshot."""
        return self.log.log_start_offset

    @property
    def flushed_end(self) -> LogEnd:
        """Where the part of the log ends that is certain to last."""
        flushed = self.log.recovery_point
        return LogEnd(self.epoch_before(flushed), flushed)

    def epoch_before(self, offset: Offset) -> LeaderEpoch:
        """Of the record before `offset`; 0 where there is none, or none is known."""
        if offset > self.start_offset:
            return self.log.leader_epochs.epoch_at(offset - 1)
        return next((each.epoch for each in self.snapshots if each.end_offset == offset), LeaderEpoch(0))

    # --- writing

    def decide(self, outcome: Outcome[Response, MetadataRecord], *, leader_epoch: LeaderEpoch, now_ms: int) -> Response:
        """Append the outcome's records under this epoch, then make them true in the image."""
        if outcome.records:
            check_writable(outcome.records, self.image.metadata_level)
            expected = self.end_offset
            batch = build_batch([NewRecord(None, records.encode(record), now_ms) for record in outcome.records])
            appended = self.log.append_as_leader(
                memoryview(batch), leader_epoch=leader_epoch, now_ms=now_ms, from_client=False
            )
            if (appended.first_offset, self.next_offset) != (expected, expected):
                raise InvariantViolation(f"appended at {appended.first_offset}, replayed up to {self.next_offset}")
            self.bytes_since_snapshot += len(batch)
            for record in outcome.records:
                self.image.replay(record)
            self.next_offset = self.end_offset
        return outcome.response

    def append_fetched(self, batches: Buffer, *, now_ms: int) -> None:
        """What the leader has sent, durable when this returns."""
        self.log.append_as_follower(memoryview(batches), now_ms=now_ms)
        self.flush()

    def flush(self) -> None:
        """Make durable what was appended. Raises InvariantViolation: it stands in the log, and counts for nothing."""
        if self.log.recovery_point < self.log.log_end_offset:
            try:
                self.log.flush()
            except KafkaError as error:
                raise InvariantViolation(f"what was appended cannot be made durable: {error.message}") from error

    def truncate_to(self, offset: Offset) -> None:
        """Drop what another leader has not got. Durable when it returns."""
        self._log_dir.truncate_log(METADATA_PARTITION, offset)
        if self.next_offset > self.end_offset:
            self.rewind(self.end_offset)

    def save(self, state: ElectionState) -> None:
        """Durable when it returns. Raises OSError."""
        write_file_atomically(self._disk, f"{self.log.path}/{QUORUM_STATE_FILE}", state.encode())
        self.election_state = state

    # --- reading

    def replay_upto(self, offset: Offset) -> None:
        """Make true everything before `offset`."""
        while self.next_offset < offset:
            piece = self.log.read(self.next_offset, max_bytes=READ_BYTES, upto=offset)
            for _, record in records.decode_batches(piece.records, from_offset=self.next_offset):
                self.image.replay(record)
            if piece.next_offset <= self.next_offset:
                raise InvariantViolation(f"{METADATA_PARTITION} cannot be read past offset {self.next_offset}")
            self.next_offset = piece.next_offset
            self.bytes_since_snapshot += len(piece.records)

    def rewind(self, offset: Offset) -> None:
        """Take back what was replayed from `offset` on, by beginning anew. Raises InvariantViolation if it cannot."""
        if self.next_offset > offset:
            try:
                self._load_image()
                self.replay_upto(offset)
            except (OSError, KafkaError) as error:
                raise InvariantViolation(f"what was not committed cannot be taken back: {error}") from error

    # --- snapshots

    def begin_snapshot(self, *, now_ms: int) -> SnapshotWriter | None:
        """A snapshot of the image, which must hold committed records only; None where that snapshot exists."""
        snapshot = SnapshotId(self.next_offset, self.epoch_before(self.next_offset))
        self.bytes_since_snapshot = 0
        return None if snapshot in self.snapshots else SnapshotWriter(snapshot, self.image, now_ms=now_ms)

    def write_snapshot(self, writer: SnapshotWriter) -> None:
        """Blocks, and touches no state: to be run off the loop. Raises OSError."""
        writer.write(self._disk, self.log.path)

    def snapshot_written(self, writer: SnapshotWriter, *, now_ms: int) -> None:
        """The log before the last snapshot but one is deleted. Raises KafkaError."""
        self.snapshots = sorted({*self.snapshots, writer.snapshot})
        self.log.roll(now_ms)
        self._forget_old(now_ms)

    def install(self, snapshot: SnapshotId, data: bytes) -> None:
        """Begin anew from a snapshot that the leader has sent; the log is empty then. Raises CORRUPT_MESSAGE."""
        image = decode_snapshot(data)
        try:
            write_file_atomically(self._disk, self._path(snapshot), data)
        except OSError as error:
            raise _storage_error(f"{snapshot.file_name} cannot be written: {error}") from error
        self.snapshots = sorted({*self.snapshots, snapshot})
        self.bytes_since_snapshot = 0
        self._begin_at(snapshot.end_offset)
        self.image, self.next_offset = image, snapshot.end_offset

    def read_snapshot(self, snapshot: SnapshotId, *, position: int, max_bytes: int) -> tuple[bytes, int]:
        """A piece of it, and the size of the whole. Raises KafkaError(SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE)."""
        if snapshot not in self.snapshots:
            raise KafkaError(ErrorCode.SNAPSHOT_NOT_FOUND)
        try:
            handle = self._disk.open(self._path(snapshot), writable=False)
            try:
                size = self._disk.size(handle)
                if not 0 <= position < size:
                    raise KafkaError(ErrorCode.POSITION_OUT_OF_RANGE)
                return self._disk.pread(handle, min(max_bytes, size - position), position), size
            finally:
                self._disk.close(handle)
        except OSError as error:
            raise _storage_error(f"{snapshot.file_name} cannot be read: {error}") from error

    # --- life

    def write_checkpoints(self) -> None:
        self._log_dir.write_checkpoints()
        self._log_dir.delete_retired(0)

    def close(self) -> None:
        self._log_dir.close()

    def abandon(self) -> None:
        self._log_dir.abandon()

    def _load(self, *, voter_count: int) -> None:
        self.log.flush()  # what a crash has left unsynced must not be told before it is certain to last
        named = (snapshot_named(name) for name in self._disk.listdir(self.log.path))
        self.snapshots = sorted(each for each in named if each is not None)
        if self.snapshots and self._is_of_another_log(self.snapshots[-1]):
            self._begin_at(self.snapshots[-1].end_offset)  # a crash within `install`
        self._load_image()
        if self.next_offset < self.start_offset:
            missing = f"{self.log.path} begins at offset {self.start_offset}, and no snapshot holds what was before"
            raise _storage_error(missing)
        self._load_election_state(voter_count)

    def _is_of_another_log(self, snapshot: SnapshotId) -> bool:
        """Whether this log does not come as far, or has something else there."""
        beyond = snapshot.end_offset > self.end_offset
        return beyond or (
            snapshot.end_offset > self.start_offset and self.epoch_before(snapshot.end_offset) != snapshot.epoch
        )

    def _load_image(self) -> None:
        self.image, self.next_offset = MetadataImage(), Offset(0)
        self.bytes_since_snapshot = 0
        for snapshot in self.snapshots[::-1]:
            try:
                self.image = decode_snapshot(self._disk.read_file(self._path(snapshot)))
            except KafkaError as error:
                events.error("snapshot damaged", extra={"path": self._path(snapshot), "reason": error.message})
                self.snapshots.remove(snapshot)
                continue
            self.next_offset = snapshot.end_offset
            return

    def _load_election_state(self, voter_count: int) -> None:
        path = f"{self.log.path}/{QUORUM_STATE_FILE}"
        last_epoch = self.flushed_end.last_epoch
        if self._disk.exists(path):
            try:
                self.election_state = ElectionState.decode(self._disk.read_file(path))
            except ValueError as error:
                if voter_count > 1:
                    raise _storage_error(f"{path}: {error}: this voter may have voted already") from error
        elif voter_count > 1 and last_epoch > 0:
            raise _storage_error(f"{path} is missing: this voter does not know whom it has voted for")
        if self.election_state.leader_epoch < last_epoch:
            if voter_count > 1:
                message = f"{path} is of epoch {self.election_state.leader_epoch}, the log of {last_epoch}"
                raise _storage_error(f"{message}: it is another one's")
            self.election_state = ElectionState(last_epoch)  # alone it leads in a new epoch whatever was before

    def _begin_at(self, offset: Offset) -> None:
        """Nothing may fail behind it: what is said of the former log in checkpoints only makes a start longer."""
        self._log_dir.begin_log_at(METADATA_PARTITION, offset)

    def _forget_old(self, now_ms: int) -> None:
        old, self.snapshots = self.snapshots[:-SNAPSHOTS_KEPT], self.snapshots[-SNAPSHOTS_KEPT:]
        if len(self.snapshots) == SNAPSHOTS_KEPT:
            self.log.delete_records_before(self.snapshots[0].end_offset)
            self._log_dir.write_log_start_offsets()
            self.log.apply_retention(now_ms)
        try:
            for snapshot in old:
                self._disk.unlink(self._path(snapshot))
        except OSError as error:
            raise _storage_error(f"an old snapshot cannot be removed: {error}") from error

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self.log.path}/{snapshot.file_name}"


def _find_log(log_dir: LogDir, *, may_be_new: bool, now_ms: int) -> Log:
    log = log_dir.logs.get(METADATA_PARTITION)
    if log is not None and log.topic_id == ZERO_TOPIC_ID and log.log_end_offset == 0:
        log_dir.delete_log(METADATA_PARTITION, now_ms)  # a crash in its making: nothing says it would last
        log = None
    if log is None:
        if not may_be_new:
            raise _storage_error(
                f"{log_dir.path} holds no {METADATA_PARTITION}, but has held one: this voter does not know any more"
                " what it has agreed to; restore the directory"
            )
        log = log_dir.create_log(METADATA_PARTITION, METADATA_TOPIC_ID, now_ms)
    return log


def _storage_error(what: str) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what)
