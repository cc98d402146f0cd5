"""A mirror sends the records that a reader of the source sees, in order, and opens a batch only where it must."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.mirror.batches import OutgoingBatch, outgoing_batches
from raylog.protocol.records.batch import HEADER_SIZE, MalformedBatch, parse_header, split_batches, verify_crc
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.isolation import Aborted
from raylog.protocol.records.reader import read_batches
from tests.protocol.records.raw_batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, raw_batch, raw_record
from tests.support.forms import by_form

DELETE_HORIZON = 0x40
SMALL = st.one_of(st.none(), st.binary(max_size=30))
RECORDS = st.lists(
    st.builds(
        NewRecord,
        key=SMALL,
        value=SMALL,
        timestamp_ms=st.integers(-1, 1 << 45),
        headers=st.lists(st.tuples(st.text(max_size=5), SMALL), max_size=2).map(tuple),
    ),
    max_size=5,
)
Content = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass
class Source:
    log: bytearray = field(default_factory=bytearray)
    aborted: list[Aborted] = field(default_factory=list)

    def contents(self, start: int) -> list[Content]:
        """The records one by one, as any reader gets them."""
        found = read_batches(self.log, from_offset=start, aborted=self.aborted)
        return [(each.timestamp_ms, each.key, each.value, each.headers) for each in found]


@st.composite
def sources(draw: st.DrawFn) -> Source:
    """Batches of every codec, with gaps, of aborted and committed transactions with markers, with LogAppendTime."""
    source = Source()
    offset = draw(st.integers(0, 1 << 50))
    opened: dict[int, int] = {}
    for _ in range(draw(st.integers(0, 6))):
        producer = draw(st.integers(0, 2))
        if producer in opened and draw(st.booleans()):
            first, is_aborted = opened.pop(producer), draw(st.booleans())
            if is_aborted:
                source.aborted.append(Aborted(producer, first))
            attributes = TRANSACTIONAL | CONTROL
            marker = raw_record(0, timestamp_delta=0, key=b"\0\0\0\1", value=bytes(6), headers=[])
            source.log += raw_batch(marker, 1, base_offset=offset, attributes=attributes, producer_id=producer)
            offset += 1
            continue
        offset += draw(st.integers(0, 2))
        deltas = count() if draw(st.booleans()) else count(draw(st.integers(0, 2)), 2)
        made, last = [], -1
        for delta, record in zip(deltas, draw(RECORDS), strict=False):
            headers = [(name.encode(), value) for name, value in record.headers]
            made.append(
                raw_record(
                    delta, timestamp_delta=record.timestamp_ms, key=record.key, value=record.value, headers=headers
                )
            )
            last = delta
        attributes = draw(st.sampled_from([0, 0, 0, LOG_APPEND_TIME, DELETE_HORIZON]))
        if producer:
            attributes |= TRANSACTIONAL
            opened.setdefault(producer, offset)
        last = max(last, 0) + draw(st.sampled_from([0, 0, 1]))
        source.log += raw_batch(
            b"".join(made),
            len(made),
            base_offset=offset,
            last_offset_delta=last,
            max_timestamp=1 << 45,
            attributes=attributes,
            producer_id=producer,
            codec=draw(st.sampled_from(list(Codec))),
        )
        offset += last + 1
    source.aborted += [Aborted(producer, first) for producer, first in opened.items() if draw(st.booleans())]
    return source


def sent(batch: OutgoingBatch, **producer: int | bool) -> bytearray:
    return batch.batch.build(**producer)  # type: ignore[arg-type]


@settings(max_examples=by_form(200, long=3000), deadline=None)
@given(source=sources(), skipped=st.integers(-1, 8), producer_id=st.integers(0, 1 << 62), transactional=st.booleans())
def test_what_is_sent_equals_a_copy_record_by_record(
    source: Source, skipped: int, producer_id: int, transactional: bool
) -> None:
    start = (parse_header(source.log).base_offset if source.log else 0) + skipped
    data = bytes(source.log)
    next_offset = start
    out = bytearray()
    for batch in outgoing_batches(data, start=start, aborted=source.aborted, check_crcs=True):
        made = sent(batch, producer_id=producer_id, producer_epoch=3, base_sequence=9, transactional=transactional)
        header = parse_header(made)
        verify_crc(made, 0, header)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, 3, 9)
        assert (header.base_offset, header.partition_leader_epoch, header.timestamp_type) == (0, -1, 0)
        assert header.is_transactional == transactional
        assert not header.is_control
        assert not header.attributes & DELETE_HORIZON
        assert batch.record_count == header.record_count == header.last_offset_delta + 1 > 0
        assert next_offset < batch.next_offset
        next_offset = batch.next_offset
        out += made
    copied = [(each.timestamp_ms, each.key, each.value, each.headers) for each in read_batches(out)]
    assert copied == source.contents(start)


def plain(codec: Codec = Codec.LZ4, base_offset: int = 100) -> bytes:
    records = [NewRecord(b"k", b"v" * 50, 1000 + number, (("h", None),)) for number in range(3)]
    return bytes(build_batch(records, codec=codec, base_offset=base_offset, producer_id=1, leader_epoch=8))


@pytest.mark.parametrize("codec", list(Codec))
def test_a_plain_batch_keeps_its_encoded_payload(codec: Codec) -> None:
    source = plain(codec)
    (batch,) = outgoing_batches(source, start=100, check_crcs=True)
    assert not batch.is_rebuilt
    assert sent(batch, producer_id=5)[HEADER_SIZE:] == source[HEADER_SIZE:]
    assert (batch.next_offset, batch.max_timestamp_ms, batch.size_bytes) == (103, 1002, len(source) - HEADER_SIZE)


@pytest.mark.parametrize(
    "source",
    [
        raw_batch(raw_record(0) + raw_record(2), 2, last_offset_delta=2),
        raw_batch(raw_record(0), 1, last_offset_delta=4),
        raw_batch(raw_record(0), 1, attributes=LOG_APPEND_TIME, max_timestamp=77),
        raw_batch(raw_record(0), 1, attributes=DELETE_HORIZON),
    ],
    ids=["gap", "cut end", "append time", "delete horizon"],
)
def test_a_batch_that_no_producer_sends_is_rebuilt(source: bytes) -> None:
    (batch,) = outgoing_batches(source, start=0, check_crcs=True)
    assert batch.is_rebuilt


def test_a_batch_with_a_wrong_checksum_is_refused_after_those_before_it() -> None:
    damaged = bytearray(plain() + plain(base_offset=103))
    damaged[-1] ^= 1
    found: Iterator[OutgoingBatch] = outgoing_batches(damaged, start=100, check_crcs=True)
    assert next(found).next_offset == 103
    with pytest.raises(MalformedBatch, match=r"offsets 103 to 105 .* checksum") as raised:
        next(found)
    assert raised.value.base_offset == 103


def test_a_damaged_batch_is_not_sent_even_if_it_must_be_rebuilt() -> None:
    with pytest.raises(MalformedBatch):
        list(outgoing_batches(raw_batch(b"\x01\x02\x03", 1, last_offset_delta=3), start=0, check_crcs=True))


def test_a_batch_is_sent_again_under_another_sequence() -> None:
    (batch,) = outgoing_batches(plain(), start=0, check_crcs=True)
    first, second = sent(batch, base_sequence=1), sent(batch, base_sequence=4)
    assert [header.base_sequence for made in (first, second) for _, header in split_batches(made)] == [1, 4]
    assert first[HEADER_SIZE:] == second[HEADER_SIZE:]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_is_built_anew_keeps_its_codec(codec: Codec) -> None:
    (batch,) = outgoing_batches(plain(codec), start=101, check_crcs=True)
    assert batch.is_rebuilt
    assert parse_header(sent(batch)).codec is codec
    assert (batch.first_offset, batch.last_offset, batch.record_count) == (101, 102, 2)
