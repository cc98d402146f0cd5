"""A log on the real disk and readers that map its files, joined without a broker."""

from __future__ import annotations

import os
from pathlib import Path

from raylog.core.ids import Offset
from raylog.logstore.disk import FileHandle, RealDisk
from raylog.logstore.local_log import AbortedList, ListAborted, LocalLog, SegmentFile
from raylog.logstore.log import Log
from raylog.logstore.settings import LogSettings
from raylog.logstore.shared_page import PageSnapshot
from raylog.protocol.local_messages import AbortedInFile, pack_aborted, unpack_aborted
from tests.logstore.batches import EPOCH, NOW, TP


class QuickDisk(RealDisk):
    """Nothing here depends on the power staying on."""

    def fsync(self, handle: FileHandle) -> None:
        pass

    def fsync_path(self, path: str) -> None:
        pass

    def fsync_dir(self, path: str) -> None:
        pass


_opened: list[Log | LocalLog] = []


def close_all() -> None:
    """What the functions of this file have opened, as often as a test has left it open."""
    for each in _opened:
        if isinstance(each, Log):
            each.abandon()
        else:
            each.close()
    _opened.clear()


def open_real_log(
    directory: Path,
    settings: LogSettings | None = None,
    *,
    clean: bool = False,
    log_start_offset: int = 0,
    now_ms: int = NOW,
) -> Log:
    log = Log.open(
        QuickDisk(),
        str(directory / str(TP)),
        TP,
        settings or LogSettings(),
        now_ms=now_ms,
        recovery_point=Offset(0),
        clean=clean,
        log_start_offset=Offset(log_start_offset),
    )
    _opened.append(log)
    return log


def publish(log: Log, high_watermark: int | None = None) -> PageSnapshot:
    """What a broker would put on the page."""
    upto = log.log_end_offset if high_watermark is None else Offset(high_watermark)
    place = log.publish(upto)
    stable = log.last_stable_offset(upto)
    return PageSnapshot(
        log.log_start_offset, log.log_end_offset, upto, stable, EPOCH, log.generation, *place, log.aborted_upto
    )


def locate(log: Log, offset: int, *, upto: int | None = None) -> SegmentFile:
    """What a broker would answer."""
    place = log.locate(Offset(offset), upto=log.log_end_offset if upto is None else Offset(upto))
    descriptor = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
    return SegmentFile(descriptor, place.base_offset, place.position, log.generation)


def list_aborted(log: Log, segment: SegmentFile, offset: int, wanted: int, *, upto: int) -> AbortedList | None:
    """What a broker would answer, with the last stable offset `upto`."""
    status = os.fstat(segment.descriptor)
    listed = log.aborted_in_file(
        segment.base_offset, (status.st_dev, status.st_ino), Offset(offset), wanted=Offset(wanted), upto=Offset(upto)
    )
    if listed is None:
        return None
    transactions, end = listed
    found = [AbortedInFile(each.producer_id, each.first_offset, each.last_offset) for each in transactions]
    return AbortedList(unpack_aborted(pack_aborted(found)), end)


def reader_of(
    log: Log, offset: int = 0, *, keep_chunks: bool, check_crc: bool = True, listing: ListAborted | None = None
) -> LocalLog:
    reader = LocalLog(
        str(TP),
        lambda position: locate(log, position),
        Offset(offset),
        list_aborted=listing,
        keep_chunks=keep_chunks,
        check_crc=check_crc,
    )
    _opened.append(reader)
    return reader
