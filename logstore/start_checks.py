"""(shell) Checks before a log directory is opened: a local file system, and the limit of open files."""

from __future__ import annotations

import logging
import os
import resource
from pathlib import Path

from raylog.logstore.file_limit import check_file_limit
from raylog.logstore.log_dir import DELETED_DIRECTORY_SUFFIX
from raylog.logstore.mounts import mount_of
from raylog.logstore.segment import LOG_SUFFIX

MOUNTS = Path("/proc/self/mountinfo")
log = logging.getLogger("raylog.logstore")


def check_machine(log_path: str) -> None:
    """Raise this process's soft limit of open files to the hard limit, and log warnings.

    Raises KAFKA_STORAGE_ERROR if the limit is too low for the logs in `log_path`, which may not exist.
    """
    _warn_of_network(log_path)
    warning = check_file_limit(log_path, segments=_count_segments(log_path), files_max=_raise_file_limit())
    if warning is not None:
        log.warning("low file limit detected", extra={"path": log_path, "rule": warning})


def _warn_of_network(log_path: str) -> None:
    try:
        mountinfo = MOUNTS.read_text(errors="surrogateescape")
    except OSError:  # not Linux
        return
    mount = mount_of(os.path.realpath(log_path), mountinfo)
    if mount is not None and mount.is_network:
        rule = (
            "a log directory needs a local disk: on a network file system the lock may not exclude a second broker,"
            " synced data may be lost, and mapped files may change"
        )
        log.warning(
            "network file system detected",
            extra={"path": log_path, "mount": mount.path, "file_system": mount.file_system, "rule": rule},
        )


def _raise_file_limit() -> int:
    """The resulting limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # the system has another limit
            return soft
    return hard


def _count_segments(log_path: str) -> int:
    try:
        with os.scandir(log_path) as entries:
            return sum(
                name.endswith(LOG_SUFFIX)
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and not entry.name.endswith(DELETED_DIRECTORY_SUFFIX)
                for name in os.listdir(entry.path)
            )
    except FileNotFoundError:
        return 0
