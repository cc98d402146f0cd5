"""(shell) Checks before a log directory is opened: a local file system, and the limit of open files."""

from __future__ import annotations

import logging
import os
import resource
from pathlib import Path

from raylog.core.errors import ErrorCode, KafkaError
from raylog.logstore.mounts import mount_of

FILES_MIN = 512
"""The lowest limit of open files with which a node starts."""
MOUNTS = Path("/proc/self/mountinfo")
log = logging.getLogger("raylog.logstore")


def check_machine(*log_paths: str) -> int:
    """Raise this process's soft limit of open files to the hard limit, and log a warning for a network file system.

    Returns how many of the files the segments of logs may keep open: half of them, since the other half is for
    connections. Raises KAFKA_STORAGE_ERROR if the limit is below FILES_MIN.
    """
    for log_path in log_paths:
        _warn_of_network(log_path)
    files_max = _raise_file_limit()
    if files_max < FILES_MIN:
        rule = f"a node needs {FILES_MIN} files, but RLIMIT_NOFILE is {files_max}: raise the hard limit (ulimit -Hn)"
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, rule)
    log.info("open files limited", extra={"files_max": files_max, "segment_files_max": files_max // 2})
    return files_max // 2


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
