"""Batches that an earlier process has written, held against their checksums before anyone is served.

A recovery checks what it keeps; after a clean stop nothing is read at all. So a bit that the disk has flipped since is
found out here, when the batch is first wanted, and not by the client.
"""

from __future__ import annotations

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records.batch import crc_is_valid, split_batches
from raylog.protocol.records.compression import Buffer


def check_stored(batches: Buffer, *, path: str, position: int, following: int) -> None:
    """Raises CORRUPT_MESSAGE for a batch that fails its checksum, or whose offsets overlap the next one's.

    `position` is where they lie in the file at `path`, `following` the first offset that is known to lie behind them.
    The leader epoch of a batch has no checksum.
    """
    at, ends_at = 0, 0
    try:
        for at, header in split_batches(batches):
            if header.base_offset < ends_at:
                raise _damaged(path, position + at, f"offset {header.base_offset} comes again")
            if not crc_is_valid(batches, at, header):
                raise _damaged(path, position + at, "the batch fails its checksum")
            ends_at = header.next_offset
    except KafkaError as error:
        if error.message.startswith(path):
            raise
        raise _damaged(path, position + at, error.message) from error
    if ends_at > following:
        raise _damaged(path, position + at, f"the batch ends at {ends_at}, behind the beginning of the next one")


def _damaged(path: str, position: int, what: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path}: at position {position}: {what}")
