"""What the files of a partition directory make up: after a clean stop the log as it was, otherwise what of it is whole.

An unclean stop rescans every segment that reaches beyond the recovery point, checksums and all, and cuts the log at the
first bad batch. A cut is synced before anything is written behind it: a file must not keep older batches that a later
recovery could take for ours.
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import Offset
from raylog.logstore.checkpoint import LEADER_EPOCH_FILE, TEMPORARY_SUFFIX
from raylog.logstore.disk import Disk
from raylog.logstore.leader_epochs import LeaderEpochs
from raylog.logstore.producer_snapshots import ProducerSnapshots
from raylog.logstore.producer_state import ProducerState
from raylog.logstore.segment import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES
from raylog.logstore.segment_list import SegmentList
from raylog.protocol.records.batch import BatchHeader

_LEFTOVER_SUFFIXES = (DELETED_SUFFIX, TEMPORARY_SUFFIX, ".cleaned")
_UNFINISHED_SWAP_SUFFIX = ".swap"


class Recovered(NamedTuple):
    """The parts of a log, agreeing with each other and with the disk."""

    segments: SegmentList
    leader_epochs: LeaderEpochs
    producers: ProducerState
    log_start_offset: Offset
    log_end_offset: Offset
    recovery_point: Offset


def recover(
    disk: Disk,
    directory: str,
    *,
    index_interval: int,
    now_ms: int,
    recovery_point: Offset,
    clean: bool,
    log_start_offset: Offset,
    cleaned_upto: Offset,
) -> Recovered:
    """Opens the files of `directory`, which exists. `clean` trusts them; otherwise `recovery_point` says what to check.

    Segments up to `cleaned_upto` were compacted: between two of them offsets may be missing.

    Raises OSError as the disk does, and KAFKA_STORAGE_ERROR for what must not be opened; then nothing is left open.
    """
    bases = _tidy(disk, directory)
    segments = SegmentList.open(disk, directory, bases, first_base=log_start_offset, now_ms=now_ms)
    try:
        leader_epochs, epochs_known = _read_leader_epochs(disk, directory)
        last_known = len(segments) - 1
        if not clean:
            first = segments.number_of(recovery_point)
            last_known = first - 1
            if first > 0 and segments[first].base_offset == recovery_point:
                # The one before was synced to its end, but as the active one: of its indexes a part may be there.
                segments[first - 1].rebuild_indexes()
                last_known = first - 2
            _rescan_from(first, segments, leader_epochs, index_interval=index_interval, cleaned_upto=cleaned_upto)
        elif not segments.active.load(index_interval=index_interval):
            last = len(segments) - 1
            _rescan_from(last, segments, leader_epochs, index_interval=index_interval, cleaned_upto=cleaned_upto)
        for number in range(last_known + 1):
            segments[number].load_transactions(segments.header_of)
        log_end_offset = Offset(segments.active.next_offset)
        if not epochs_known:
            _rebuild_leader_epochs(leader_epochs, segments)
        snapshots = ProducerSnapshots(disk, directory)
        if log_start_offset > log_end_offset:
            # Records were deleted up to an offset that the crash took back. It must not be given a second time.
            snapshots.remove_all()
            segments.start_anew_at(log_start_offset, now_ms=now_ms)
            leader_epochs.clear()
            recovery_point = log_end_offset = log_start_offset
        log_start_offset = max(log_start_offset, Offset(segments[0].base_offset))
        leader_epochs.truncate_from_end(log_end_offset)
        leader_epochs.truncate_from_start(log_start_offset)
        return Recovered(
            segments,
            leader_epochs,
            snapshots.load(segments, log_end_offset=log_end_offset, now_ms=now_ms),
            log_start_offset,
            log_end_offset,
            log_end_offset if clean else min(recovery_point, log_end_offset),
        )
    except (OSError, KafkaError):
        segments.close()
        raise


def _tidy(disk: Disk, directory: str) -> list[int]:
    """Base offsets of the segments, in order. Removes what unfinished deletions left behind."""
    bases: list[int] = []
    belonging: list[tuple[int, str]] = []
    for name in disk.listdir(directory):
        if name.endswith(_LEFTOVER_SUFFIXES):
            disk.unlink(f"{directory}/{name}")
        elif name.endswith(_UNFINISHED_SWAP_SUFFIX):
            what = f"{directory}/{name}: Kafka was stopped while it compacted: start and stop it once more"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what)
        else:
            stem, dot, suffix = name.partition(".")
            if dot and len(stem) == 20 and stem.isdecimal():
                if dot + suffix == LOG_SUFFIX:
                    bases.append(int(stem))
                elif dot + suffix in SEGMENT_SUFFIXES:
                    belonging.append((int(stem), name))
    known = set(bases)
    for base, name in belonging:
        if base not in known:
            disk.unlink(f"{directory}/{name}")
    return bases


def _rescan_from(
    first: int, segments: SegmentList, leader_epochs: LeaderEpochs, *, index_interval: int, cleaned_upto: int
) -> None:
    """Checks the segments from number `first` on, and drops whatever lies behind the first bad batch or gap.

    A gap before a segment is one that a crash has made, since a segment that is closed need not be synced; but for
    those of compaction, which syncs what it writes.
    """
    next_offset = segments[first].base_offset
    leader_epochs.truncate_from_end(next_offset)

    def accept(header: BatchHeader) -> None:
        leader_epochs.assign(header.partition_leader_epoch, header.base_offset)

    count = len(segments)
    for number in range(first, count):
        segment = segments[number]
        compacted = segment.base_offset <= cleaned_upto
        if segment.base_offset != next_offset and not (compacted and segment.base_offset > next_offset):
            segments.drop_from(number)
            return
        cut = segment.recover(next_offset=next_offset, index_interval=index_interval, accept=accept)
        next_offset = segment.next_offset
        if number + 1 == count:
            return
        if cut:
            segments.drop_from(number + 1)
            return
        segment.write_indexes(final=True)


def _read_leader_epochs(disk: Disk, directory: str) -> tuple[LeaderEpochs, bool]:
    """(what the checkpoint says, whether it was there and whole)."""
    try:
        return LeaderEpochs.decode(disk.read_file(f"{directory}/{LEADER_EPOCH_FILE}")), True
    except (FileNotFoundError, ValueError):
        return LeaderEpochs(), False


def _rebuild_leader_epochs(leader_epochs: LeaderEpochs, segments: SegmentList) -> None:
    leader_epochs.clear()
    for segment in segments:
        for _, header in segment.scan():
            leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
