"""Whether a process may open as many files as its logs hold open: one for each segment, from start to stop."""

from __future__ import annotations

from raylog.core.errors import ErrorCode, KafkaError

FILES_BESIDE_LOGS = 256
"""What a broker needs at least for listeners, connections, indexes while they are written, and Ray."""


def check_file_limit(path: str, *, segments: int, files_max: int) -> str | None:
    """What is to be warned of, or None. `files_max` is RLIMIT_NOFILE.

    Raises KAFKA_STORAGE_ERROR where the logs could not be opened, or nobody could connect.
    """
    needed = segments + FILES_BESIDE_LOGS
    rule = (
        f"{path} has {segments} segment files, which stay open; with {FILES_BESIDE_LOGS} for all else that makes"
        f" {needed}, and RLIMIT_NOFILE lets this process open {files_max}: raise the hard limit (ulimit -Hn)"
    )
    if needed > files_max:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, rule)
    return f"{rule}, or there will be no room for as much again" if 2 * needed > files_max else None
