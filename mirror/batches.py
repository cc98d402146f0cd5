"""From the batches of a source to those of the target. Pure.

Most batches are copied as they are encoded. Those that a producer could not have sent so (they have gaps since a
compaction, timestamps of the append, or begin before the position) are built anew from their records, in their codec.
Control batches, batches of aborted transactions and those without records are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from raylog.protocol.records.batch import MalformedBatch, crc_is_valid, parse_header, split_batches
from raylog.protocol.records.builder import BatchBuilder
from raylog.protocol.records.compression import Buffer
from raylog.protocol.records.copied import CopiedBatch, can_be_copied
from raylog.protocol.records.isolation import Aborted, AbortedBatches
from raylog.protocol.records.reader import read_records


@dataclass(frozen=True, slots=True)
class OutgoingBatch:
    """Records for the target."""

    batch: CopiedBatch
    first_offset: int
    """Of its first record in the source."""
    last_offset: int
    """Of its last record there."""
    next_offset: int
    """Where the source goes on behind them."""
    is_rebuilt: bool = False

    @property
    def record_count(self) -> int:
        return self.batch.count

    @property
    def size_bytes(self) -> int:
        """Of the records as they are sent."""
        return self.batch.size_bytes

    @property
    def max_timestamp_ms(self) -> int:
        return self.batch.max_timestamp_ms


def outgoing_batches(
    records: Buffer,
    *,
    start: int,
    aborted: Sequence[Aborted] = (),
    check_crcs: bool,
    is_wanted: Callable[[int], bool] = lambda _: True,
) -> Iterator[OutgoingBatch]:
    """The records with offsets from `start` on, in order, of the producers whose ids are wanted.

    Raises MalformedBatch at a batch that cannot be read, after those before it; with `check_crcs` also at one whose
    checksum is wrong: it must not get a right one.
    """
    aborted_batches = AbortedBatches(aborted)
    for position, header in split_batches(records):
        is_aborted = aborted_batches.include(header)
        if check_crcs and not crc_is_valid(records, position, header):
            raise MalformedBatch(header.base_offset, header.next_offset, "its checksum is wrong")
        if is_aborted or header.is_control or not header.record_count or header.next_offset <= start:
            continue
        if not is_wanted(header.producer_id):
            continue
        if header.base_offset >= start and can_be_copied(header):
            whole = memoryview(records)[position : position + header.size_bytes]
            last_offset = header.base_offset + header.last_offset_delta
            yield OutgoingBatch(CopiedBatch(whole, header), header.base_offset, last_offset, header.next_offset)
            continue
        builder = BatchBuilder()
        wanted = [record for record in read_records(records, position, header) if record.offset >= start]
        for record in wanted:
            builder.append(record.key, record.value, record.timestamp_ms, record.headers)
        if wanted:
            built = builder.build(codec=header.codec)
            copied = CopiedBatch(built, parse_header(built))
            first, last = wanted[0].offset, wanted[-1].offset
            yield OutgoingBatch(copied, first, last, header.next_offset, is_rebuilt=True)


def producer_ids(records: Buffer) -> set[int]:
    """Of the batches with records. Ends at one that cannot be read."""
    found = set[int]()
    with suppress(MalformedBatch):
        for _, header in split_batches(records):
            if not header.is_control:
                found.add(header.producer_id)
    return found
