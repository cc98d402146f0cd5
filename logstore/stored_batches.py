"""Verifies the checksums of batches that an earlier process has written, before they are served.

Recovery verifies the log, but a start after a clean shutdown reads nothing. Bits that the disk has flipped are detected
here on the first read of a batch, instead of by the client.
"""

from __future__ import annotations

from collections.abc import Callable

from raylog.core.errors import KafkaError
from raylog.protocol.records.batch import crc_is_valid, split_batches
from raylog.protocol.records.compression import Buffer


def sound_batches(
    batches: Buffer, *, position: int, following: int, damaged: Callable[[int, str], KafkaError]
) -> tuple[int, int]:
    """(size in bytes, next offset) of the batches before the first damaged one; raises an error if that is the first.

    A batch is damaged if it fails its checksum, or if its offsets overlap the next batch. `position` is their position
    in the file, `following` the first offset known to come after them. `damaged` creates the error from the position in
    the file and the reason. The checksum does not cover the leader epoch of a batch.
    """
    sound = before = (0, 0)
    damaged_at, wrong = 0, ""
    try:
        for at, header in split_batches(batches):
            damaged_at = at
            if header.base_offset < sound[1]:
                wrong = f"offset {header.base_offset} is repeated"
                sound = before  # the base offset of either batch may be wrong
                break
            if not crc_is_valid(batches, at, header):
                wrong = "the batch fails its checksum"
                break
            before, sound = sound, (at + header.size_bytes, header.next_offset)
    except KafkaError as error:
        damaged_at, wrong = sound[0], error.message
    if not wrong and sound[1] > following:
        wrong = f"the batch ends at {sound[1]}, after the start of the next one"
        sound = before
    if wrong and not sound[0]:
        raise damaged(position + damaged_at, wrong)
    return sound
