"""Verifies the checksums of batches that an earlier process has written, before they are served.

Recovery verifies the log, but a start after a clean shutdown reads nothing. Bits that the disk has flipped are detected
here on the first read of a batch, instead of by the client.
"""

from __future__ import annotations

from collections.abc import Callable

from raylog.core.errors import KafkaError
from raylog.protocol.records.batch import crc_is_valid, split_batches
from raylog.protocol.records.compression import Buffer


def check_stored(batches: Buffer, *, position: int, following: int, damaged: Callable[[int, str], KafkaError]) -> None:
    """Raises an error for a batch that fails its checksum, or whose offsets overlap the next batch.

    `position` is their position in the file, `following` the first offset known to come after them. `damaged` creates
    the error from the position in the file and the reason. The checksum does not cover the leader epoch of a batch.
    """
    at, ends_at = 0, 0
    wrong: str | None = None
    try:
        for at, header in split_batches(batches):
            if header.base_offset < ends_at:
                wrong = f"offset {header.base_offset} is repeated"
                break
            if not crc_is_valid(batches, at, header):
                wrong = "the batch fails its checksum"
                break
            ends_at = header.next_offset
    except KafkaError as error:
        raise damaged(position + at, error.message) from error
    if wrong is None and ends_at > following:
        wrong = f"the batch ends at {ends_at}, after the start of the next one"
    if wrong is not None:
        raise damaged(position + at, wrong)
