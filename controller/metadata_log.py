"""The metadata log on a voter's disk, with Kafka's name and topic id: its segments, its snapshots, and the image.

    <log directory>/__cluster_metadata-0/    segments as of any log
                                             quorum-state                    epoch, vote and leader
                                             <end offset>-<epoch>.checkpoint  the image as of that offset

The image holds the records replayed so far: on the leader all of the log, on a follower those known to be committed.
The last two snapshots are kept, and the log from the older one on, so that a slightly lagging follower needs no
snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from raylog.controller.features import check_writable
from raylog.controller.quorum.election_state import QUORUM_STATE_FILE, ElectionState
from raylog.controller.quorum.events import LogEnd
from raylog.controller.quorum.voter_history import VoterHistory
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID, LeaderEpoch, Offset
from raylog.core.outcome import Outcome
from raylog.logstore.checkpoint import write_file_atomically
from raylog.logstore.deletion import DeletionPlan
from raylog.logstore.disk import Disk
from raylog.logstore.log import Log
from raylog.logstore.log_dir import LogDir
from raylog.logstore.offset_checkpoint import CheckpointPlan
from raylog.logstore.settings import LogSettings
from raylog.metadata import records
from raylog.metadata.control_records import VotersChanged
from raylog.metadata.image import MetadataImage
from raylog.metadata.levels import UnsupportedLevel
from raylog.metadata.records import MetadataRecord
from raylog.metadata.snapshot import SnapshotId, decode_snapshot, snapshot_named
from raylog.metadata.snapshot_writer import SnapshotWriter
from raylog.metadata.topic_names import METADATA_PARTITION, METADATA_TOPIC_ID
from raylog.metadata.voters import VoterSet
from raylog.protocol.records.batch import parse_header
from raylog.protocol.wire import Buffer
from raylog.transport.node import NodeIdentity

Response = TypeVar("Response")
METADATA_LOG_SETTINGS = LogSettings(retention_ms=-1, segment_ms=(1 << 63) - 1, max_message_bytes=64 << 20)
"""All records of a command are one batch: it must be able to hold the fencing of a broker with a million partitions."""
READ_BYTES = 1 << 20
SNAPSHOTS_KEPT = 2
events = logging.getLogger("raylog.controller")


class MetadataLog:
    """The metadata log of a controller.

    Used from `open` to `close`. If a method raises KafkaError the state in memory is unchanged.
    """

    def __init__(self, disk: Disk, log_dir: LogDir, log: Log, configured: VoterSet) -> None:
        """Private: use `open`."""
        self.log = log
        self.voters = VoterHistory(configured)
        """The voters in all of the log, committed or not."""
        self.image = MetadataImage()
        self.next_offset = Offset(0)
        """The offset of the next record to be replayed into the image."""
        self.snapshots: list[SnapshotId] = []
        """The snapshots on disk, the latest last."""
        self.election_state = ElectionState()
        """The state that was saved last."""
        self.bytes_since_snapshot = 0
        """Size of the records after the snapshot that was begun or loaded last."""
        self._disk = disk
        self._log_dir = log_dir

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        identity: NodeIdentity,
        *,
        voters: VoterSet,
        may_be_new: bool,
        new_id: Callable[[], UUID],
        now_ms: int,
    ) -> MetadataLog:
        """Lock and recover the directory, and load the latest snapshot. Raises KafkaError with the reason on failure.

        `voters` are those of the configuration, which apply as long as the log contains none.
        `may_be_new` lets it create the metadata log if there is none; for a voter that had one this would lose data.
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
            opened = cls(disk, log_dir, _find_log(log_dir, may_be_new=may_be_new, now_ms=now_ms), voters)
            opened._load()
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
        """The id of the directory that holds the log (KIP-858)."""
        return self._log_dir.directory_id

    @property
    def end_offset(self) -> Offset:
        """The offset of the next record to be appended."""
        return self.log.log_end_offset

    @property
    def start_offset(self) -> Offset:
        """The log start offset. A fetch from below it is redirected to a snapshot."""
        return self.log.log_start_offset

    @property
    def flushed_end(self) -> LogEnd:
        """The end of the part of the log that is durable."""
        flushed = self.log.recovery_point
        return LogEnd(self.epoch_before(flushed), flushed)

    def epoch_before(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch of the record before `offset`; 0 if there is none or it is not known."""
        if offset > self.start_offset:
            return self.log.leader_epochs.epoch_at(offset - 1)
        return next((each.epoch for each in self.snapshots if each.end_offset == offset), LeaderEpoch(0))

    # --- writing

    def decide(self, outcome: Outcome[Response, MetadataRecord], *, leader_epoch: LeaderEpoch, now_ms: int) -> Response:
        """Append the outcome's records under this epoch, then replay them into the image."""
        if outcome.records:
            check_writable(outcome.records, self.image.metadata_level)
            expected = self.end_offset
            batch = records.batch_of(outcome.records, now_ms=now_ms)
            appended = self.log.append_as_leader(
                memoryview(batch), leader_epoch=leader_epoch, now_ms=now_ms, from_client=False
            )
            if (appended.first_offset, self.next_offset) != (expected, expected):
                raise InvariantViolation(f"appended at {appended.first_offset}, replayed up to {self.next_offset}")
            self.bytes_since_snapshot += len(batch)
            for at, record in enumerate(outcome.records):
                self.image.replay(record)
                if isinstance(record, VotersChanged):
                    self.voters.appended(record.voters, Offset(expected + at))
            self.next_offset = self.end_offset
        return outcome.response

    def append_fetched(self, batches: Buffer, *, now_ms: int) -> None:
        """Append batches from the leader. They are durable when this returns."""
        self.log.append_as_follower(memoryview(batches), now_ms=now_ms)
        for offset, changed in records.voters_in(batches):
            self.voters.appended(changed.voters, offset)
        self.flush()

    def flush(self) -> None:
        """Make appended records durable. Raises InvariantViolation if that fails, since they are in the log already."""
        if self.log.recovery_point < self.log.log_end_offset:
            try:
                self.log.flush()
            except KafkaError as error:
                raise InvariantViolation(f"appended records cannot be flushed: {error.message}") from error

    def truncate_to(self, offset: Offset) -> None:
        """Drop records that the new leader does not have. Durable when it returns."""
        self._log_dir.truncate_log(METADATA_PARTITION, offset)
        self.voters.truncated(self.end_offset)
        if self.next_offset > self.end_offset:
            self.rewind(self.end_offset)

    def save(self, state: ElectionState) -> None:
        """Save the election state. Durable when it returns. Raises OSError."""
        write_file_atomically(self._disk, f"{self.log.path}/{QUORUM_STATE_FILE}", state.encode())
        self.election_state = state

    # --- reading

    def replay_upto(self, offset: Offset) -> None:
        """Replay all records before `offset`."""
        while self.next_offset < offset:
            piece = self.log.read(self.next_offset, max_bytes=READ_BYTES, upto=offset)
            for _, record in records.decode_batches(piece.records, from_offset=self.next_offset):
                self.image.replay(record)
            if piece.next_offset <= self.next_offset:
                raise InvariantViolation(f"{METADATA_PARTITION} cannot be read past offset {self.next_offset}")
            self.next_offset = piece.next_offset
            self.bytes_since_snapshot += len(piece.records)

    def rewind(self, offset: Offset) -> None:
        """Undo the replay of records from `offset` on by reloading the image. Raises InvariantViolation on failure."""
        if self.next_offset > offset:
            try:
                self._load_image()
                self.replay_upto(offset)
            except (OSError, KafkaError) as error:
                raise InvariantViolation(f"uncommitted records cannot be truncated: {error}") from error

    # --- snapshots

    def begin_snapshot(self, *, now_ms: int) -> SnapshotWriter | None:
        """A snapshot of the image, which must hold committed records only; None if that snapshot exists."""
        snapshot = SnapshotId(self.next_offset, self.epoch_before(self.next_offset))
        self.bytes_since_snapshot = 0
        return None if snapshot in self.snapshots else SnapshotWriter(snapshot, self.image, now_ms=now_ms)

    def write_snapshot(self, writer: SnapshotWriter) -> None:
        """Write the snapshot file. Blocks and touches no state: call it outside the event loop. Raises OSError."""
        writer.write(self._disk, self.log.path)

    def snapshot_written(self, writer: SnapshotWriter, *, now_ms: int) -> list[SnapshotId]:
        """Register the snapshot. Returns older ones that are no longer needed, for `remove_snapshots`.

        The log before the last snapshot but one is then deleted by `delete_old`. Raises KafkaError.
        """
        self.snapshots = sorted({*self.snapshots, writer.snapshot})
        self.log.roll(now_ms)
        old, self.snapshots = self.snapshots[:-SNAPSHOTS_KEPT], self.snapshots[-SNAPSHOTS_KEPT:]
        if len(self.snapshots) == SNAPSHOTS_KEPT:
            self.log.delete_records_before(self.snapshots[0].end_offset)
        return old

    def delete_old(self, *, now_ms: int) -> bool:
        """Delete the oldest segment if it is before the log start offset. Returns whether there was one."""
        return self.log.apply_retention(now_ms, segments_max=1) > 0

    def remove_snapshots(self, snapshots: Sequence[SnapshotId]) -> None:
        """Delete the files. Blocks and touches no state: call it outside the event loop. Raises OSError."""
        for snapshot in snapshots:
            self._disk.unlink(self._path(snapshot))

    def write_fetched_snapshot(self, snapshot: SnapshotId, data: bytes) -> None:
        """Write a snapshot from the leader. Blocks and touches no state: call it outside the event loop.

        `install` follows; without it the file is replaced by the next attempt, or used by the next start. Raises
        OSError.
        """
        write_file_atomically(self._disk, self._path(snapshot), data)

    def install(self, snapshot: SnapshotId, image: MetadataImage) -> None:
        """Replace log and image by a written snapshot from the leader; the log is empty afterwards."""
        self.snapshots = sorted({*self.snapshots, snapshot})
        self.bytes_since_snapshot = 0
        self._start_at(snapshot.end_offset)
        self.image, self.next_offset = image, snapshot.end_offset
        self.voters.restarted(image.voters, snapshot.end_offset)

    def read_snapshot(self, snapshot: SnapshotId, *, position: int, max_bytes: int) -> tuple[bytes, int]:
        """A part of the snapshot, and its total size. Raises KafkaError: SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE."""
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

    # --- lifecycle

    def plan_checkpoints(self) -> list[CheckpointPlan]:
        """Plans for the checkpoints of the directory, to be carried out off the loop; then `checkpoint_ended`."""
        return self._log_dir.plan_checkpoints()

    def checkpoint_ended(self, plan: CheckpointPlan, failure: OSError | None) -> None:
        """If it has failed the next start only takes longer."""
        self._log_dir.checkpoint_ended(plan, failure)

    def plan_deletion(self, now_ms: int) -> DeletionPlan | None:
        """Plan the deletion of files of old segments, to be carried out off the loop; then `deletion_ended`."""
        return self._log_dir.plan_deletion(now_ms)

    def deletion_ended(self, plan: DeletionPlan, failure: OSError | None) -> None:
        self._log_dir.deletion_ended(plan, failure)

    def close(self) -> None:
        self._log_dir.close()

    def abandon(self) -> None:
        self._log_dir.abandon()

    def _load(self) -> None:
        self.log.flush()  # records that a crash left unsynced must be durable before they are reported
        named = (snapshot_named(name) for name in self._disk.listdir(self.log.path))
        self.snapshots = sorted(each for each in named if each is not None)
        self._load_image()  # before the log is discarded: it removes damaged snapshots from the list
        if self.snapshots and self._is_of_another_log(self.snapshots[-1]):
            self._start_at(self.snapshots[-1].end_offset)  # a crash within `install`
        if self.next_offset < self.start_offset:
            missing = (
                f"{self.log.path} begins at offset {self.start_offset}, but no snapshot contains the "
                "records before it: restore the directory"
            )
            raise _storage_error(missing)
        self._load_voters()
        self._load_election_state(len(self.voters.newest.voters))

    def _load_voters(self) -> None:
        self.voters.restarted(self.image.voters, self.next_offset)
        position = self.next_offset
        while position < self.end_offset:
            try:
                piece = self.log.read(position, max_bytes=READ_BYTES, upto=self.end_offset)
                found = [each for each in records.voters_in(piece.records) if each[0] >= position]
            except (KafkaError, InvariantViolation) as error:
                raise _storage_error(f"{self.log.path} cannot be read: {error}") from error
            for offset, changed in found:
                self.voters.appended(changed.voters, offset)
            if piece.next_offset <= position:
                raise _storage_error(f"{self.log.path} cannot be read past offset {position}")
            position = piece.next_offset

    def _is_of_another_log(self, snapshot: SnapshotId) -> bool:
        """Whether this log ends before the snapshot, or has another epoch at its end offset.

        Neither the leader epoch checkpoint nor the epoch in a batch has a checksum, and the log of a wrong answer is
        discarded: both must have another epoch.
        """
        if not self.start_offset < snapshot.end_offset <= self.end_offset:
            return snapshot.end_offset > self.end_offset
        if self.epoch_before(snapshot.end_offset) == snapshot.epoch:
            return False
        last = self.log.read(Offset(snapshot.end_offset - 1), max_bytes=1, upto=snapshot.end_offset)
        return parse_header(last.records).partition_leader_epoch != snapshot.epoch

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
                if voter_count != 1:
                    raise _storage_error(
                        f"{path} cannot be read: {error}; without it this voter could vote "
                        "twice in one epoch: restore the file"
                    ) from error
        elif voter_count != 1 and last_epoch > 0:
            raise _storage_error(
                f"{path} is missing; without it this voter could vote twice in one epoch: restore the file"
            )
        if self.election_state.leader_epoch < last_epoch:
            if voter_count != 1:
                message = f"{path} is of epoch {self.election_state.leader_epoch}, the log of {last_epoch}"
                raise _storage_error(f"{message}: the files belong to different controllers")
            self.election_state = ElectionState(last_epoch)  # a single voter always leads in a new epoch

    def _start_at(self, offset: Offset) -> None:
        """No later step may fail: checkpoints that still describe the old log only slow down the next start."""
        self._log_dir.begin_log_at(METADATA_PARTITION, offset)

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self.log.path}/{snapshot.file_name}"


def _find_log(log_dir: LogDir, *, may_be_new: bool, now_ms: int) -> Log:
    log = log_dir.logs.get(METADATA_PARTITION)
    if log is not None and log.topic_id == ZERO_TOPIC_ID and log.log_end_offset == 0:
        log_dir.delete_log(METADATA_PARTITION, now_ms)  # the last incarnation crashed while it created the log
        log = None
    if log is None:
        if not may_be_new:
            raise _storage_error(
                f"{log_dir.path} has lost {METADATA_PARTITION}, and with it the votes and committed records of this"
                " controller: restore the directory"
            )
        log = log_dir.create_log(METADATA_PARTITION, METADATA_TOPIC_ID, now_ms)
    return log


def _storage_error(what: str) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what)
