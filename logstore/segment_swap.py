"""Replaces segments by cleaned copies in steps that a crash may interrupt, and completes what a crash has interrupted.

The new segment has the base offset of the first one that it replaces. Its files are complete and durable, with the
suffix `.cleaned`, before the swap begins:

1. The `.log.cleaned` is renamed to `.log.swap`, durably. From here on the swap is completed, even by another process.
2. The other replaced segments are removed, and the new indexes get their names, durably. From here on readers get the
   `.log.swap`.
3. The `.log.swap` is renamed to `.log`, in place of the first replaced segment.

Until step 1 a start deletes `.cleaned` files. As in Kafka, a start that finds a `.swap` removes the segments whose
offsets it contains. (Kafka renames the indexes to `.swap` too.)
"""

from __future__ import annotations

from typing import Final

from raylog.logstore.batch_scan import scan_file
from raylog.logstore.disk import Disk
from raylog.logstore.segment import LOG_SUFFIX, file_name
from raylog.logstore.segment_indexes import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from raylog.logstore.transaction_index import TRANSACTION_INDEX_SUFFIX

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"


def begin_swap(disk: Disk, directory: str, base_offset: int) -> None:
    """Step 1, until the caller syncs the directory. If it raises, the log must be opened again."""
    log = f"{directory}/{file_name(base_offset, LOG_SUFFIX)}"
    disk.rename(log + CLEANED_SUFFIX, log + SWAP_SUFFIX)


def undo_swap(disk: Disk, directory: str, base_offset: int) -> None:
    """Undo step 1, durably. Can be repeated if it raises."""
    log = f"{directory}/{file_name(base_offset, LOG_SUFFIX)}{SWAP_SUFFIX}"
    if disk.exists(log):
        disk.unlink(log)
    disk.fsync_dir(directory)


def place_indexes(disk: Disk, directory: str, base_offset: int) -> None:
    """Step 2, after the caller has removed the other segments, and until it syncs the directory."""
    # The transaction index first, which may have no successor: the others are still there if it was not replaced yet.
    for suffix in (TRANSACTION_INDEX_SUFFIX, TIME_INDEX_SUFFIX, OFFSET_INDEX_SUFFIX):
        path = f"{directory}/{file_name(base_offset, suffix)}"
        if (fresh := _fresh(disk, path)) is not None:
            disk.rename(fresh, path)
        elif disk.exists(path) and _fresh(disk, f"{directory}/{file_name(base_offset, OFFSET_INDEX_SUFFIX)}"):
            disk.unlink(path)


def end_swap(disk: Disk, directory: str, base_offset: int) -> None:
    """Step 3, which is not durable yet."""
    log = f"{directory}/{file_name(base_offset, LOG_SUFFIX)}"
    disk.rename(log + SWAP_SUFFIX, log)


def _fresh(disk: Disk, path: str) -> str | None:
    """The file that is to replace this one; None if there is none, or it has."""
    return next((path + ending for ending in (CLEANED_SUFFIX, SWAP_SUFFIX) if disk.exists(path + ending)), None)


def complete_swaps(disk: Disk, directory: str) -> None:
    """Complete the swaps that a crash has interrupted after step 1. Raises OSError."""
    names = disk.listdir(directory)
    logs = {int(name[:20]): name for name in names if _is_log(name, LOG_SUFFIX)}
    for name in names:
        if not _is_log(name, LOG_SUFFIX + SWAP_SUFFIX):
            continue
        base_offset = int(name[:20])
        next_offset = _next_offset(disk, f"{directory}/{name}", base_offset)
        for base, log in logs.items():
            if base_offset < base < next_offset:
                disk.unlink(f"{directory}/{log}")
        place_indexes(disk, directory, base_offset)
        disk.fsync_dir(directory)
        end_swap(disk, directory, base_offset)
        disk.fsync_dir(directory)


def remove_cleaned(disk: Disk, directory: str) -> None:
    """Delete what a cleaning that was not swapped in has left. Raises OSError."""
    for name in disk.listdir(directory):
        if name.endswith(CLEANED_SUFFIX):
            disk.unlink(f"{directory}/{name}")


def _is_log(name: str, suffix: str) -> bool:
    return len(name) == 20 + len(suffix) and name.endswith(suffix) and name[:20].isdecimal()


def _next_offset(disk: Disk, path: str, base_offset: int) -> int:
    handle = disk.open(path, writable=False)
    try:
        next_offset = base_offset
        for _, header in scan_file(disk, handle, position=0, size_bytes=disk.size(handle), whole=False):
            next_offset = header.next_offset
        return next_offset
    finally:
        disk.close(handle)
