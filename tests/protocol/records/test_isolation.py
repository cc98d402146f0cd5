"""A reader under read_committed gets the records of committed transactions, and those outside of transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.protocol.records import columnar_numpy
from raylog.protocol.records.batch import MalformedBatch, parse_header, patch_offset_and_epoch
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.columnar import decode_columns
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.isolation import Aborted
from raylog.protocol.records.markers import EndTransactionMarker, build_marker
from raylog.protocol.records.reader import read_batches
from tests.protocol.records.raw_batches import CONTROL, TRANSACTIONAL, raw_batch

NO_PRODUCER = -1


@dataclass(frozen=True)
class Step:
    """One batch: of `producer` within its transaction, outside of one, or the marker of its transaction."""

    producer: int
    marker: bool | None
    """Whether it is a marker, and of a commit; None: no marker."""
    transactional: bool
    codec: Codec
    count: int
    gap: int
    """How many offsets are missing before the batch."""


steps = st.lists(
    st.builds(
        Step,
        producer=st.sampled_from([0, 0, 1, 1, NO_PRODUCER]),
        marker=st.sampled_from([None, None, True, False]),
        transactional=st.sampled_from([True, True, True, False]),
        codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD]),
        count=st.integers(1, 3),
        gap=st.sampled_from([0, 0, 0, 2]),
    ),
    min_size=6,
    max_size=25,
)


@dataclass
class Transaction:
    """A model of one transaction, which is looked at when all is written."""

    producer: int
    first: int
    end: int | None = None
    committed: bool = False


@dataclass
class Written:
    batch: bytes
    offsets: range
    transaction: Transaction | None
    marker: bool = False


def write(plan: list[Step]) -> tuple[list[Written], list[Transaction]]:
    log: list[Written] = []
    opened: dict[int, Transaction] = {}
    transactions: list[Transaction] = []
    offset = 0
    for step in plan:
        offset += step.gap
        producer = step.producer
        if producer == NO_PRODUCER or (not step.transactional and step.marker is None and producer not in opened):
            data = build_batch(values(offset, step.count), codec=step.codec, producer_id=producer)
            transaction = None
        elif step.marker is not None:
            data = build_marker(
                EndTransactionMarker(step.marker, 0), producer_id=producer, producer_epoch=0, timestamp_ms=0
            )
            transaction = opened.pop(producer, None)
            if transaction is not None:
                transaction.end, transaction.committed = offset, step.marker
        else:
            data = build_batch(values(offset, step.count), codec=step.codec, producer_id=producer, transactional=True)
            if producer not in opened:
                opened[producer] = Transaction(producer, offset)
                transactions.append(opened[producer])
            transaction = opened[producer]
        header = parse_header(data)
        patch_offset_and_epoch(data, 0, header, offset, 0)
        log.append(Written(bytes(data), range(offset, offset + header.record_count), transaction, header.is_control))
        offset += header.record_count
    return log, transactions


def values(offset: int, count: int) -> list[NewRecord]:
    return [NewRecord(None, b"%d" % (offset + number), 0) for number in range(count)]


def compacted(log: list[Written], transactions: list[Transaction], draw: st.DataObject) -> list[Written]:
    """The log without some batches, and without the markers, some of them only emptied, that then end nothing."""
    kept = [
        written
        for written in log
        if written.marker or written.transaction is None or written.transaction.end is None or draw.draw(st.booleans())
    ]
    left: list[Written] = []
    for written in kept:
        owner = written.transaction
        ends_nothing = owner is None or all(other.transaction is not owner or other.marker for other in kept)
        if not written.marker or not ends_nothing:
            left.append(written)
            continue
        if owner in transactions:
            transactions.remove(owner)
        if draw.draw(st.booleans()):
            producer = parse_header(written.batch).producer_id
            left.append(Written(emptied_marker(producer, written.offsets.start), written.offsets, None, marker=True))
    return left


def emptied_marker(producer: int, offset: int) -> bytes:
    return raw_batch(b"", 0, base_offset=offset, attributes=TRANSACTIONAL | CONTROL, producer_id=producer)


@given(steps, st.data())
def test_the_records_are_those_of_a_model_that_knows_how_transactions_end(
    plan: list[Step], draw: st.DataObject
) -> None:
    log, transactions = write(plan)
    end = log[-1].offsets.stop
    stable = min((each.first for each in transactions if each.end is None), default=end)
    if draw.draw(st.booleans()):
        log = compacted(log, transactions, draw)
    start = draw.draw(st.sampled_from([0, stable // 3, stable // 2]))
    read = [written for written in log if start < written.offsets.stop and written.offsets.start < stable]
    read = read[: draw.draw(st.sampled_from([len(read), len(read) // 2, 1]))]
    upto = read[-1].offsets.stop if read else start
    aborted = [
        Aborted(each.producer, each.first)
        for each in draw.draw(st.permutations(transactions))
        if each.end is not None and not each.committed and each.end >= start and each.first < upto
    ]
    expected = [
        offset
        for written in read
        if not written.marker and (written.transaction is None or written.transaction.committed)
        for offset in written.offsets
        if offset >= start
    ]
    data = b"".join(written.batch for written in read)
    records = list(read_batches(data, from_offset=start, aborted=aborted))
    assert [record.offset for record in records] == expected
    assert [record.value for record in records] == [b"%d" % offset for offset in expected]
    assert decode_offsets(data, from_offset=start, aborted=aborted, target_bytes=300) == expected


def decode_offsets(data: bytes, **options: Any) -> list[int]:
    found: list[int] = []
    for columns in decode_columns(data, ("offset",), kernel=columnar_numpy, **options):
        assert columns.offset is not None
        found += columns.offset.tolist()
    return found


def test_read_uncommitted_shows_aborted_records_and_no_markers() -> None:
    log, _ = write([Step(0, None, True, Codec.NONE, 2, 0), Step(0, False, True, Codec.NONE, 1, 0)])
    assert [record.offset for record in read_batches(b"".join(each.batch for each in log))] == [0, 1]


def test_an_emptied_marker_ends_the_transaction() -> None:
    """Compaction keeps the last batch of a segment, without its records. What follows is another transaction."""
    aborted, committed = (
        bytes(build_batch(values(offset, 1), producer_id=0, transactional=True, base_offset=offset))
        for offset in (0, 2)
    )
    data = aborted + emptied_marker(0, 1) + committed
    assert [record.offset for record in read_batches(data, aborted=[Aborted(0, 0)])] == [2]


def test_only_batches_of_transactions_are_hidden() -> None:
    data = build_batch(values(5, 1), producer_id=0, base_offset=5)
    assert [record.offset for record in read_batches(data, aborted=[Aborted(0, 0)])] == [5]


@pytest.mark.parametrize("read", [read_batches, decode_offsets])
def test_an_aborted_batch_is_not_decoded(read: Callable[..., Iterable[object]]) -> None:
    malformed = raw_batch(b"?", 1, attributes=TRANSACTIONAL, producer_id=0)
    data = malformed + bytes(build_batch(values(9, 1), base_offset=9))
    assert len(list(read(data, aborted=[Aborted(0, 0)]))) == 1
    with pytest.raises(MalformedBatch):
        list(read(data))
