"""The records of a fetch response that a read_committed consumer returns (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from raylog.protocol.records.batch import split_batches
from raylog.protocol.records.reader import Record, read_batches


class Aborted(Protocol):
    """An aborted transaction in a Fetch response."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


def committed_records(records: bytes, aborted: Sequence[Aborted], *, from_offset: int = 0) -> Iterator[Record]:
    """The records from the offset on, without those of aborted transactions."""
    begins = sorted((each.first_offset, each.producer_id) for each in aborted)
    skipped: set[int] = set()
    for position, header in split_batches(records):
        while begins and begins[0][0] <= header.last_offset:
            skipped.add(begins.pop(0)[1])
        if header.is_control:
            skipped.discard(header.producer_id)
        elif header.producer_id not in skipped:
            yield from read_batches(records[position : position + header.size_bytes], from_offset=from_offset)
