"""Batches that an earlier process has written, held against their checksums before anyone is served.

A recovery checks what it keeps; after a clean stop nothing is read at all. So a bit that the disk has flipped since is
found out here, when the batch is first wanted, and not by the client.
"""

from __future__ import annotations

from collections.abc import Callable

from raylog.core.errors import KafkaError
from raylog.protocol.records.batch import crc_is_valid, split_batches
from raylog.protocol.records.compression import Buffer


def check_stored(batches: Buffer, *, position: int, following: int, damaged: Callable[[int, str], KafkaError]) -> None:
    """Raises for a batch that fails its checksum, or whose offsets overlap the next one's.

    `position` is where they lie in their file, `following` the first offset that is known to lie behind them. `damaged`
    makes the error of the position in the file and what is wrong there. The leader epoch of a batch has no checksum.
    """
    at, ends_at = 0, 0
    wrong: str | None = None
    try:
        for at, header in split_batches(batches):
            if header.base_offset < ends_at:
                wrong = f"offset {header.base_offset} comes again"
                break
            if not crc_is_valid(batches, at, header):
                wrong = "the batch fails its checksum"
                break
            ends_at = header.next_offset
    except KafkaError as error:
        raise damaged(position + at, error.message) from error
    if wrong is None and ends_at > following:
        wrong = f"the batch ends at {ends_at}, behind the beginning of the next one"
    if wrong is not None:
        raise damaged(position + at, wrong)
