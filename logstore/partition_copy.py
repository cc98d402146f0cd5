"""The log of one partition as another cluster may take it over: every batch checked, under a leader epoch it can know.

What a log says beyond its records belongs to the cluster that wrote it, and the copy must not claim it:

- **Leader epochs.** The receiving partition has a leader epoch of its own, 0 at the least. A log whose newest epoch is
  above it could not be appended to: raylog takes such a log for a damaged one, or another's. Kafka drops the newer
  entries of its checkpoint and appends, but goes on to hand out the epochs in the batch headers; a Java consumer
  commits them, and its successor refuses all older metadata and finds no leader any more. So both change: the copy is
  wholly of epoch 0, in each header (outside the checksum) and in the checkpoint. Copies for several replicas are
  therefore equal, byte for byte.
- **Producers.** Producer ids are handed out by a cluster. An id of the source is sooner or later that of another
  producer at the receiver, whose first batch would look like a repetition and not be written. So the copy ends with an
  empty segment and a snapshot without producers: at its end both brokers know nobody, as after
  producer.id.expiration.ms.
- **Open transactions.** No coordinator of the receiver would ever end them: they are refused. Ended ones are carried
  with their markers and their `.txnindex`.

Indexes are made anew from the batches. Compacted logs are carried with the gaps between their offsets; but where
offsets are missing between two segments, the copy's second one is named so that it begins where the first ends. Such a
gap in a log that is not known to be compacted looks like a crash, and a recovery would drop what lies behind it.
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
"""The leader epoch of every copied record: the first that any partition has."""

_PIECE_BYTES = 1 << 20
"""Copied at once; a larger batch is a piece by itself."""
_INDEX_INTERVAL_BYTES = 4096
_GAP_MAX = RELATIVE_OFFSET_MAX // 2
"""A segment is not named so far back, so that its last offsets still have room in the index."""
_UNFINISHED_SUFFIXES = (".swap", ".cleaned")


class CopiedLog(NamedTuple):
    """What a copy holds."""

    log_start_offset: Offset
    log_end_offset: Offset
    size_bytes: int
    batch_count: int


def copy_log(
    disk: Disk, source: str, target: str, *, log_start_offset: Offset, metadata: bytes, now_ms: int
) -> CopiedLog:
    """Makes the partition directory `target` from that of a cleanly stopped broker, durably but for its own name.

    `metadata` becomes its partition.metadata. Segments that end before `log_start_offset` are left out. Raises
    KafkaError that names file, position and rule: CORRUPT_MESSAGE, UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_TXN_STATE,
    KAFKA_STORAGE_ERROR for a directory whose compaction was interrupted; OSError. Half of `target` may then be there.
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
    """Whether a log in this directory has anything to lose."""
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
            what = f"{directory}/{name}: its broker was stopped while it compacted: start and stop it once more"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what)
        if dot + suffix == LOG_SUFFIX and len(stem) == 20 and stem.isdecimal():
            bases.append(int(stem))
    if not bases:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: holds no {LOG_SUFFIX} file")
    return bases


class _Copying:
    """One log, segment after segment in their order."""

    def __init__(self, disk: Disk, source: str, target: str, *, now_ms: int) -> None:
        self.next_offset = 0
        self.size_bytes = 0
        self.batch_count = 0
        self.open_transactions: dict[int, int] = {}
        """Producer id -> first offset, of transactions whose marker has not come yet."""
        self._disk = disk
        self._source = source
        self._target = target
        self._now_ms = now_ms

    def copy_segment(self, base: int, following: int | None) -> None:
        """`following` is the base of the next one. A segment without a batch is left out."""
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
                assert segment.transactions is not None  # a new segment has them
                self._copy_transactions(base, segment.transactions)
                segment.flush(closed=True)
            finally:
                segment.close()
        finally:
            disk.close(handle)

    def _copy_batches(
        self, handle: FileHandle, path: str, size_bytes: int, segment: Segment, following: int | None
    ) -> None:
        """`following` is the offset at which the segment must have ended."""
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
            raise _damage(path, position, f"a batch at offset {header.base_offset} where {self.next_offset} may follow")
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
        """Into the index of the copied segment, which writes them when it is flushed."""
        path = f"{self._source}/{file_name(base, TRANSACTION_INDEX_SUFFIX)}"
        if not self._disk.exists(path):
            return
        try:
            for number, aborted in enumerate(decode_transactions(self._disk.read_file(path))):
                if (
                    not aborted.first_offset <= aborted.last_offset
                    or not base <= aborted.last_offset < self.next_offset
                ):
                    what = f"offsets {aborted.first_offset} to {aborted.last_offset}: no transaction that ends here"
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
    """The source's own word counts, its snapshot as of the end; without one, what the batches tell."""
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
        what = f"producer {producer_id} has a transaction open since offset {first_offset}: commit or abort it first"
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
