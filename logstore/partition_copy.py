"""Copies the log of one partition for another cluster: verifies all batches, and replaces what is cluster-specific.

- **Leader epochs.** The target partition has its own leader epoch, which is at least 0. A log with a later epoch could
  not be appended to: raylog considers it damaged, or another partition's. Kafka drops the later entries of its
  checkpoint and appends, but returns the epochs in the batch headers; a Java consumer commits them, and its successor
  rejects all older metadata and finds no leader. The copy therefore has epoch 0 in all headers (outside the checksum)
  and in the checkpoint. Copies for several replicas are identical, byte for byte.
- **Producers.** Each cluster allocates its own producer ids. An id of the source can later be allocated to another
  producer of the target, whose first batch would be taken for a duplicate and dropped. The copy therefore ends with an
  empty segment and a snapshot without producers, as after producer.id.expiration.ms.
- **Open transactions.** No coordinator of the target would complete them, so they are an error. Completed transactions
  are copied with their markers and their `.txnindex`.

Indexes are rebuilt from the batches. Compacted logs are copied with their gaps between offsets; but if offsets are
missing between two segments, the second one is named so that it begins at the end of the first. In a log that is not
known to be compacted, recovery takes such a gap for the result of a crash, and deletes what follows.
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_OFFSET, LeaderEpoch, Offset
from raylog.logstore.checkpoint import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE
from raylog.logstore.disk import Disk, FileHandle
from raylog.logstore.leader_epochs import LeaderEpochs
from raylog.logstore.producer_snapshots import SNAPSHOT_SUFFIX, ProducerSnapshots
from raylog.logstore.producer_state import ProducerState
from raylog.logstore.segment import LOG_SUFFIX, RELATIVE_OFFSET_MAX, Segment, file_name
from raylog.logstore.transaction_index import ENTRY_SIZE, TRANSACTION_INDEX_SUFFIX, TransactionIndex
from raylog.logstore.transaction_index import decode as decode_transactions
from raylog.protocol.records.batch import HEADER_SIZE, BatchHeader, parse_header, patch_offset_and_epoch, verify_crc

COPIED_EPOCH = LeaderEpoch(0)
"""The leader epoch of all copied records: the first epoch of a partition."""

_PIECE_BYTES = 1 << 20
"""Bytes copied at once; a larger batch is copied on its own."""
_INDEX_INTERVAL_BYTES = 4096
_GAP_MAX = RELATIVE_OFFSET_MAX // 2
"""Largest distance by which a segment's base offset is lowered, so that its offsets fit the index."""
_UNFINISHED_SUFFIXES = (".swap", ".cleaned")


class CopiedLog(NamedTuple):
    """The content of a copy."""

    log_start_offset: Offset
    log_end_offset: Offset
    size_bytes: int
    batch_count: int


def copy_log(
    disk: Disk, source: str, target: str, *, log_start_offset: Offset, metadata: bytes, now_ms: int
) -> CopiedLog:
    """Create the partition directory `target` from that of a cleanly stopped broker, durable except for its name.

    `metadata` becomes its partition.metadata. Segments that end before `log_start_offset` are omitted. Raises
    KafkaError that names file, position and rule: CORRUPT_MESSAGE, UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_TXN_STATE,
    KAFKA_STORAGE_ERROR for a directory whose compaction was interrupted; and OSError. `target` may then be incomplete.
    """
    bases = _segment_bases(disk, source)
    disk.mkdir(target)
    copying = _Copying(disk, source, target, now_ms=now_ms)
    for number, base in enumerate(bases):
        following = bases[number + 1] if number + 1 < len(bases) else None
        if following is None or following > log_start_offset:
            copying.copy_segment(base, following)
    end = Offset(copying.next_offset)
    _check_transactions(disk, source, end, copying.open_transactions)
    start = min(max(log_start_offset, Offset(bases[0])), end)
    _add_segment(disk, target, end, now_ms=now_ms)
    if copying.batch_count:
        ProducerSnapshots(disk, target).write(ProducerState(), end, sync=True)
    epochs = LeaderEpochs([(COPIED_EPOCH, start)] if start < end else [])
    _write(disk, f"{target}/{LEADER_EPOCH_FILE}", epochs.encode())
    _write(disk, f"{target}/{PARTITION_METADATA_FILE}", metadata)
    disk.fsync_dir(target)
    return CopiedLog(start, end, copying.size_bytes, copying.batch_count)


def holds_records(disk: Disk, directory: str) -> bool:
    """Whether the log in this directory contains records."""
    for name in disk.listdir(directory):
        if name.endswith(LOG_SUFFIX):
            handle = disk.open(f"{directory}/{name}")
            try:
                if disk.size(handle):
                    return True
            finally:
                disk.close(handle)
    return False


def _segment_bases(disk: Disk, directory: str) -> list[int]:
    bases = []
    for name in disk.listdir(directory):
        stem, dot, suffix = name.partition(".")
        if name.endswith(_UNFINISHED_SUFFIXES):
            what = f"{directory}/{name}: its broker was stopped during a compaction; start and stop it again"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what)
        if dot + suffix == LOG_SUFFIX and len(stem) == 20 and stem.isdecimal():
            bases.append(int(stem))
    if not bases:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: contains no {LOG_SUFFIX} file")
    return bases


class _Copying:
    """The copy of one log, segment by segment in order."""

    def __init__(self, disk: Disk, source: str, target: str, *, now_ms: int) -> None:
        self.next_offset = 0
        self.size_bytes = 0
        self.batch_count = 0
        self.open_transactions: dict[int, int] = {}
        """Producer id -> first offset of its open transaction."""
        self._disk = disk
        self._source = source
        self._target = target
        self._now_ms = now_ms

    def copy_segment(self, base: int, following: int | None) -> None:
        """`following` is the base offset of the next segment. Segments without batches are omitted."""
        disk = self._disk
        path = f"{self._source}/{file_name(base, LOG_SUFFIX)}"
        if base < self.next_offset:
            raise _damage(path, 0, f"the segment before it ends at offset {self.next_offset}")
        before, self.next_offset = self.next_offset, base
        begins_at = before if self.batch_count and base - before <= _GAP_MAX else base
        handle = disk.open(path)
        try:
            size_bytes = disk.size(handle)
            if not size_bytes:
                return
            segment = Segment.create(disk, self._target, begins_at, now_ms=self._now_ms)
            try:
                self._copy_batches(handle, path, size_bytes, segment, following)
                assert segment.transactions is not None  # new segments have a transaction index
                self._copy_transactions(base, segment.transactions)
                segment.flush(closed=True)
            finally:
                segment.close()
        finally:
            disk.close(handle)

    def _copy_batches(
        self, handle: FileHandle, path: str, size_bytes: int, segment: Segment, following: int | None
    ) -> None:
        """`following` is the offset at which the segment must end."""
        upto = segment.base_offset + RELATIVE_OFFSET_MAX + 1
        if following is not None:
            upto = min(upto, following)
        position, want = 0, _PIECE_BYTES
        while position < size_bytes:
            piece = bytearray(self._disk.pread(handle, min(want, size_bytes - position), position))
            batches: list[tuple[int, int, int]] = []
            at = 0
            while at < len(piece):
                left, left_in_file = len(piece) - at, size_bytes - position - at
                if left < HEADER_SIZE and left < left_in_file:
                    break
                header = _header(path, piece, at, position)
                if header.size_bytes > left_in_file:
                    what = f"a batch of {header.size_bytes} bytes is truncated after {left_in_file}"
                    raise _damage(path, position + at, what)
                if header.size_bytes > left:
                    want = max(header.size_bytes, _PIECE_BYTES)
                    break
                self._check(path, position + at, header, piece, at, upto)
                patch_offset_and_epoch(piece, at, header, header.base_offset, COPIED_EPOCH)
                batches.append((at, header.last_offset, header.max_timestamp))
                self._note(header)
                at += header.size_bytes
            if batches:
                with memoryview(piece) as view:
                    segment.append(view[:at], batches, index_interval=_INDEX_INTERVAL_BYTES)
            position += at
            self.batch_count += len(batches)
        self.size_bytes += size_bytes

    def _check(self, path: str, position: int, header: BatchHeader, piece: bytearray, at: int, upto: int) -> None:
        if header.base_offset < self.next_offset:
            raise _damage(
                path, position, f"a batch at offset {header.base_offset}, expected at least {self.next_offset}"
            )
        if header.next_offset > upto:
            raise _damage(path, position, f"a batch up to offset {header.last_offset}, but the segment ends at {upto}")
        if header.last_offset_delta < header.record_count - 1:
            what = f"{header.record_count} records in {header.last_offset_delta + 1} offsets"
            raise _damage(path, position, what)
        try:
            verify_crc(piece, at, header)
        except KafkaError as error:
            raise _damage(path, position, error.message) from None

    def _note(self, header: BatchHeader) -> None:
        self.next_offset = header.next_offset
        if header.is_control:
            self.open_transactions.pop(header.producer_id, None)
        elif header.is_transactional:
            self.open_transactions.setdefault(header.producer_id, header.base_offset)

    def _copy_transactions(self, base: int, index: TransactionIndex) -> None:
        """Add them to the index of the copied segment, which writes them when it is flushed."""
        path = f"{self._source}/{file_name(base, TRANSACTION_INDEX_SUFFIX)}"
        if not self._disk.exists(path):
            return
        try:
            for number, aborted in enumerate(decode_transactions(self._disk.read_file(path))):
                if (
                    not aborted.first_offset <= aborted.last_offset
                    or not base <= aborted.last_offset < self.next_offset
                ):
                    what = f"offsets {aborted.first_offset} to {aborted.last_offset}: no such transaction ends here"
                    raise _damage(path, number * ENTRY_SIZE, what)
                index.add(aborted)
        except ValueError as error:
            raise _damage(path, 0, str(error)) from None


def _header(path: str, piece: bytearray, at: int, position: int) -> BatchHeader:
    try:
        return parse_header(piece, at)
    except KafkaError as error:
        raise KafkaError(error.code, f"{path}: at position {position + at}: {error.message}") from None


def _check_transactions(disk: Disk, directory: str, end: Offset, seen: dict[int, int]) -> None:
    """Raise an error for open transactions, by the source's snapshot as of the end; without one, by the batches."""
    path = f"{directory}/{file_name(end, SNAPSHOT_SUFFIX)}"
    if disk.exists(path):
        try:
            state = ProducerState.decode_snapshot(disk.read_file(path), now_ms=0)
        except ValueError as error:
            raise _damage(path, 0, str(error)) from None
        seen = {
            producer_id: state.open_transaction(producer_id)
            for producer_id in state.producers()
            if state.open_transaction(producer_id) != NO_OFFSET
        }
    for producer_id, first_offset in sorted(seen.items()):
        what = f"producer {producer_id} has an open transaction from offset {first_offset}; commit or abort it first"
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{directory}: {what}")


def _add_segment(disk: Disk, directory: str, base: Offset, *, now_ms: int) -> None:
    segment = Segment.create(disk, directory, base, now_ms=now_ms)
    try:
        segment.flush(closed=True)
    finally:
        segment.close()


def _write(disk: Disk, path: str, data: bytes) -> None:
    handle = disk.open(path, create=True)
    try:
        disk.pwrite(handle, data, 0)
        disk.fsync(handle)
    finally:
        disk.close(handle)


def _damage(path: str, position: int, what: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path}: at position {position}: {what}")
