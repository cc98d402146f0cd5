"""Checks the limit of open files, since logs keep one file per segment open."""

from __future__ import annotations

from raylog.core.errors import ErrorCode, KafkaError

FILES_BESIDE_LOGS = 256
"""Files that a broker needs at least for listeners, connections, indexes and Ray."""


def check_file_limit(path: str, *, segments: int, files_max: int) -> str | None:
    """A warning, or None. `files_max` is RLIMIT_NOFILE.

    Raises KAFKA_STORAGE_ERROR if the limit is too low for the logs and for connections.
    """
    needed = segments + FILES_BESIDE_LOGS
    rule = (
        f"{path} has {segments} segment files, which stay open; with {FILES_BESIDE_LOGS} for other uses this process"
        f" needs {needed} files, but RLIMIT_NOFILE is {files_max}: raise the hard limit (ulimit -Hn)"
    )
    if needed > files_max:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, rule)
    return f"{rule}, since the logs may grow to twice their size" if 2 * needed > files_max else None
