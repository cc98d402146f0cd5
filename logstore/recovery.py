"""Opens the files of a partition directory: as they are after a clean shutdown, with recovery after an unclean one.

Recovery scans every segment beyond the recovery point, verifies checksums, and truncates the log at the first invalid
batch. A truncation is synced before new data is appended: the file must not keep older batches that a later recovery
could accept.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from raylog.core.errors import KafkaError
from raylog.core.ids import Offset
from raylog.logstore.checkpoint import LEADER_EPOCH_FILE, TEMPORARY_SUFFIX
from raylog.logstore.disk import Disk
from raylog.logstore.leader_epochs import LeaderEpochs
from raylog.logstore.producer_snapshots import ProducerSnapshots
from raylog.logstore.producer_state import ProducerState
from raylog.logstore.segment import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, Cut, Segment, ignore_transient_errors
from raylog.logstore.segment_list import SegmentList
from raylog.logstore.segment_swap import CLEANED_SUFFIX, SWAP_SUFFIX, complete_swaps
from raylog.protocol.records.batch import BatchHeader

_LEFTOVER_SUFFIXES = (DELETED_SUFFIX, TEMPORARY_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
_MISSING = "missing"
events = logging.getLogger("raylog.logstore")


class Recovered(NamedTuple):
    """The state of a log, consistent with the disk."""

    segments: SegmentList
    leader_epochs: LeaderEpochs
    producers: ProducerState
    log_start_offset: Offset
    log_end_offset: Offset
    recovery_point: Offset
    cleaned_upto: Offset


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
    """Open the files of `directory`, which exists. `clean` trusts them; otherwise they are checked from
    `recovery_point` on.

    Segments up to `cleaned_upto` are compacted, so that offsets between two of them may be missing.

    Raises the OSErrors of the disk, and KAFKA_STORAGE_ERROR for files that must not be opened; all files are closed.
    """
    complete_swaps(disk, directory)
    bases = _remove_leftovers(disk, directory)
    segments = SegmentList.open(disk, directory, bases, first_base=log_start_offset, now_ms=now_ms)
    try:
        leader_epochs, unreadable_reason = _read_leader_epochs(disk, directory)
        last_known = len(segments) - 1
        if not clean:
            first = segments.number_of(recovery_point)
            last_known = first - 1
            if first > 0 and segments[first].base_offset == recovery_point:
                # The previous segment was synced while it was active: its index files may be incomplete.
                segments[first - 1].rebuild_indexes()
                last_known = first - 2
            _rescan_from(first, segments, leader_epochs, index_interval=index_interval, cleaned_upto=cleaned_upto)
        elif not segments.active.load(index_interval=index_interval):
            last = len(segments) - 1
            events.warning("index rebuilt", extra={"path": segments.active.path, "why": "does not fit the log"})
            _rescan_from(last, segments, leader_epochs, index_interval=index_interval, cleaned_upto=cleaned_upto)
        for number in range(last_known + 1):
            segments[number].load_transactions(segments.header_of)
        log_end_offset = Offset(segments.active.next_offset)
        if unreadable_reason is not None:
            if log_end_offset > segments[0].base_offset:
                where = {"path": f"{directory}/{LEADER_EPOCH_FILE}", "why": unreadable_reason}
                # A log has no such file before its first flush.
                level = logging.INFO if unreadable_reason == _MISSING and not clean else logging.WARNING
                events.log(level, "leader epochs rebuilt", extra=where)
            _rebuild_leader_epochs(leader_epochs, segments)
        snapshots = ProducerSnapshots(disk, directory)
        if log_start_offset > log_end_offset:
            # The crash has removed records below the log start offset. Their offsets must not be reused.
            places: dict[str, object] = {
                "path": directory,
                "log_end_offset": log_end_offset,
                "log_start_offset": log_start_offset,
            }
            events.warning("log restarted at its start offset", extra=places)
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
            min(cleaned_upto, log_end_offset),
        )
    except (OSError, KafkaError):
        segments.close()
        raise


def _remove_leftovers(disk: Disk, directory: str) -> list[int]:
    """Base offsets of the segments, in order. Deletes the remains of unfinished deletions."""
    bases: list[int] = []
    belonging: list[tuple[int, str]] = []
    for name in disk.listdir(directory):
        if name.endswith(_LEFTOVER_SUFFIXES):
            disk.unlink(f"{directory}/{name}")
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
    """Check the segments from number `first` on, and delete everything after the first invalid batch or gap.

    A gap before a segment results from a crash, since closed segments may be unsynced; except for gaps from compaction,
    which syncs its output.
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
            before = segments[number - 1]
            _drop_from(number, segments, before, Cut(before.size_bytes, 0, "gap before the next segment"))
            return
        cut = segment.recover(next_offset=next_offset, index_interval=index_interval, accept=accept)
        next_offset = segment.next_offset
        if cut is not None:
            _drop_from(number + 1, segments, segment, cut)
            return
        if number + 1 == count:
            return
        with ignore_transient_errors():  # a later flush retries
            segment.write_indexes(final=True)


def _drop_from(number: int, segments: SegmentList, last: Segment, cut: Cut) -> None:
    """End the log with `last`, which was truncated by `cut`, and delete the segments from `number` on."""
    dropped = list(segments)[number:]
    events.warning(
        "log truncated",
        extra={
            "path": last.path,
            "position": cut.position,
            "next_offset": last.next_offset,
            "dropped_bytes": cut.size_bytes + sum(segment.size_bytes for segment in dropped),
            "dropped_segments": len(dropped),
            "why": cut.why,
        },
    )
    if dropped:
        segments.drop_from(number)


def _read_leader_epochs(disk: Disk, directory: str) -> tuple[LeaderEpochs, str | None]:
    """(the entries of the checkpoint, the reason if it has none)."""
    try:
        return LeaderEpochs.decode(disk.read_file(f"{directory}/{LEADER_EPOCH_FILE}")), None
    except FileNotFoundError:
        return LeaderEpochs(), _MISSING
    except ValueError:
        return LeaderEpochs(), "malformed"


def _rebuild_leader_epochs(leader_epochs: LeaderEpochs, segments: SegmentList) -> None:
    leader_epochs.clear()
    for segment in segments:
        for _, header in segment.scan():
            leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
