"""What compaction does to one batch: compiled and in Python, against a naive map, and with malformed records."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.records import compaction
from raylog.protocol.records.batch import parse_header, rebuilt, verify_crc, write_crc
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compaction import (
    CLEANED_BYTES_MAX,
    SECRET_BYTES,
    CompiledOffsetMap,
    OffsetMap,
    PythonOffsetMap,
    Span,
    Terms,
    compacted,
    delete_horizon_ms,
    emptied,
    with_delete_horizon,
)
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.reader import DECOMPRESSED_BYTES_MAX, Record, decompressed_records, read_records

SECRET = bytes(range(SECRET_BYTES))
NOW_MS = 1_700_000_000_000
HORIZON_MS = NOW_MS + 5_000

KINDS = ["python"] if compaction.compiled is None else ["python", "C"]


def new_map(kind: str, keys_max: int = 1000) -> OffsetMap:
    return PythonOffsetMap(keys_max) if kind == "python" else CompiledOffsetMap(keys_max, SECRET)


def records_of(batch: bytes | bytearray | memoryview) -> list[Record]:
    header = parse_header(batch)
    verify_crc(batch, 0, header)
    return read_records(batch, 0, header)


def a_batch(*pairs: tuple[bytes | None, bytes | None], base_offset: int = 0, codec: Codec = Codec.NONE) -> bytearray:
    records = [NewRecord(key, value, NOW_MS + 7 * number) for number, (key, value) in enumerate(pairs)]
    return build_batch(records, base_offset=base_offset, codec=codec)


def add_to(latest: OffsetMap, batch: bytearray, first: int = 0) -> bool:
    header = parse_header(batch)
    added = latest.add(decompressed_records(batch, 0, header), header, first=first)
    if added:
        latest.latest_offset = header.last_offset
    return added


keys = st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([b"a", b"b", b"c" * 300]))
values = st.one_of(st.none(), st.binary(max_size=20))
headers = st.lists(st.tuples(st.text(max_size=3), values), max_size=2)
timestamps = st.integers(NOW_MS - (1 << 40), NOW_MS + (1 << 40))
encoded = st.builds(NewRecord, keys, values, timestamps, headers)
batches = st.lists(st.tuples(st.lists(encoded, min_size=1, max_size=6), st.sampled_from(Codec)), min_size=1, max_size=4)


@pytest.mark.parametrize("kind", KINDS)
@given(contents=batches, first=st.integers(0, 8), after_horizon=st.booleans())
def test_the_latest_record_of_each_key_is_retained(
    kind: str, contents: list[tuple[list[NewRecord], Codec]], first: int, after_horizon: bool
) -> None:
    latest = new_map(kind)
    expected_offsets: dict[bytes, int] = {}
    stored: list[bytearray] = []
    for records, codec in contents:
        base_offset = parse_header(stored[-1]).next_offset + 3 if stored else 0
        batch = build_batch(records, base_offset=base_offset, codec=codec)
        stored.append(batch)
        assert add_to(latest, batch, first)
        for record in records_of(batch):
            if record.key is not None and record.offset >= first:
                expected_offsets[record.key] = record.offset
    for batch in stored:
        expected = [
            record
            for record in records_of(batch)
            if record.key is not None and record.offset >= expected_offsets.get(record.key, -1)
        ]
        header = parse_header(batch)
        result = compacted(batch, header, latest, now_ms=NOW_MS, horizon_ms=HORIZON_MS)
        assert (records_of(result) if result is not None else []) == expected
        if result is None:
            continue
        changed = parse_header(result)
        assert changed.last_offset == header.last_offset
        assert changed.max_timestamp == max(record.timestamp_ms for record in expected)
        has_tombstone = any(record.value is None for record in expected)
        assert delete_horizon_ms(changed) == (HORIZON_MS if has_tombstone else None)
        later = HORIZON_MS if after_horizon else HORIZON_MS - 1
        again = compacted(result, changed, latest, now_ms=later, horizon_ms=HORIZON_MS + 1)
        kept = [record for record in expected if record.value is not None or not after_horizon]
        assert (records_of(again) if again is not None else []) == kept
        if kept == expected:
            assert again is result


@pytest.mark.parametrize("kind", KINDS)
def test_records_above_the_latest_offset_are_retained(kind: str) -> None:
    latest = new_map(kind)
    add_to(latest, a_batch((b"a", b"1")))
    above = a_batch((b"a", b"2"), (None, b"3"), (b"b", b"4"), base_offset=1)
    assert compacted(above, parse_header(above), latest, now_ms=NOW_MS, horizon_ms=HORIZON_MS) is above


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_map_refuses_new_keys_and_updates_others(kind: str) -> None:
    latest = new_map(kind, keys_max=2)
    assert add_to(latest, a_batch((b"a", b"1"), (b"b", b"1")))
    assert add_to(latest, a_batch((b"a", b"2"), base_offset=2))
    assert not add_to(latest, a_batch((b"c", b"1"), base_offset=3))
    old = a_batch((b"a", b"1"), (b"b", b"1"))
    result = compacted(old, parse_header(old), latest, now_ms=NOW_MS, horizon_ms=HORIZON_MS)
    assert result is not None
    assert [record.key for record in records_of(result)] == [b"b"]


@pytest.mark.parametrize("kind", KINDS)
def test_many_keys_share_no_slot(kind: str) -> None:
    count = 20_000 if kind == "C" else 1_000
    latest = new_map(kind, count)
    batch = a_batch(*((str(number).encode(), b"v") for number in range(count)))
    assert add_to(latest, batch)
    assert compacted(batch, parse_header(batch), latest, now_ms=NOW_MS, horizon_ms=HORIZON_MS) is batch


@pytest.mark.parametrize("horizon_ms", [HORIZON_MS, (1 << 63) - 1, 0, NOW_MS])
@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_with_a_delete_horizon_contains_the_same_records(codec: Codec, horizon_ms: int) -> None:
    batch = a_batch((b"a", b"1"), (b"b", None), codec=codec)
    changed = with_delete_horizon(batch, parse_header(batch), horizon_ms)
    assert delete_horizon_ms(parse_header(changed)) == horizon_ms
    assert records_of(changed) == records_of(batch)


def test_an_emptied_batch_keeps_its_offsets_and_sequence_numbers() -> None:
    batch = build_batch(
        [NewRecord(b"k", b"v", NOW_MS)] * 3,
        base_offset=10,
        codec=Codec.ZSTD,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
        transactional=True,
    )
    header, empty = parse_header(batch), parse_header(emptied(parse_header(batch)))
    assert records_of(emptied(header)) == []
    assert (empty.base_offset, empty.last_offset, empty.last_sequence) == (10, 12, 42)
    assert (empty.producer_id, empty.producer_epoch, empty.is_transactional) == (7, 2, True)
    assert (empty.codec, empty.max_timestamp) == (Codec.NONE, NOW_MS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_timestamp_of_a_log_append_time_batch_stays(kind: str) -> None:
    latest = new_map(kind)
    batch = build_batch([NewRecord(b"a", None, 5), NewRecord(b"a", None, 9)], timestamp_type=1)
    add_to(latest, batch)
    header = parse_header(batch)
    result = compacted(batch, header, latest, now_ms=NOW_MS, horizon_ms=HORIZON_MS)
    assert result is not None
    assert parse_header(result).max_timestamp == header.max_timestamp
    assert [(record.offset, record.timestamp_ms) for record in records_of(result)] == [(1, header.max_timestamp)]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_malformed_records_are_refused_and_nothing_else_is_accessed(kind: str, data: st.DataObject) -> None:
    """Both implementations agree on what is malformed."""
    batch = a_batch((b"key", b"value"), (b"k" * 20, None), (None, b"v"))
    header = parse_header(batch)
    records = bytearray(decompressed_records(batch, 0, header))
    for _ in range(data.draw(st.integers(1, 3))):
        records[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
    del records[data.draw(st.integers(0, len(records))) :]
    count = data.draw(st.integers(0, 5))
    header = parse_header(rebuilt(header._replace(record_count=count), records))
    results: list[object] = []
    for each in dict.fromkeys(("python", kind)):
        latest = new_map(each)
        try:
            added = latest.add(bytes(records), header, first=0)
            latest.latest_offset = header.last_offset
            retained = latest.retain(bytes(records), header, keep_tombstones=False, shift=1 << 62)
            results.append((added, bytes(retained.records), retained.kept, retained.tombstones))
        except KafkaError as error:
            results.append((error.code, error.message))
    assert results[0] == results[-1]
    assert isinstance(results[0], tuple)
    assert results[0][0] in (True, ErrorCode.CORRUPT_MESSAGE)


@pytest.mark.skipif(compaction.compiled is None, reason="there is no compiled code")
@pytest.mark.parametrize(
    ("position", "value", "is_added"),
    [
        (0, (99).to_bytes(8), False),  # base offset before the segment
        (0, (200).to_bytes(8), False),  # and after it
        (16, b"\x01", False),  # magic
        (21, b"\0\x04", False),  # compressed
        (21, b"\0\x20", False),  # a marker
        (21, b"\0\x10", False),  # transactional
        (23, (100).to_bytes(4), False),  # its last offset is after the segment
        (23, (-1).to_bytes(4, signed=True), False),
        (27, ((1 << 63) - 1).to_bytes(8), True),  # the largest timestamp overflows
        (27, (-(1 << 63)).to_bytes(8, signed=True), True),  # the difference to the delete horizon does
        (57, (3).to_bytes(4), False),  # more records than there are
        (57, (-1).to_bytes(4, signed=True), False),
        (61, b"\xff\xff\xff\xff\x0f", False),  # the length of a record
    ],
)
def test_the_walk_over_batches_ends_before_one_that_is_not_plain(position: int, value: bytes, is_added: bool) -> None:
    span, terms = Span(100, 200), Terms(NOW_MS, HORIZON_MS, array("q"), 4096)
    plain = bytes(a_batch((b"a", b"1"), (b"b", None), (b"b", None), base_offset=100))
    odd = bytearray(a_batch((b"b", None), (b"b", None), base_offset=103))
    odd[position : position + len(value)] = value
    write_crc(odd, 0, len(odd))
    data = memoryview(plain + odd + plain)
    latest = CompiledOffsetMap(10, SECRET)
    read_to = len(plain + odd) if is_added else len(plain)
    assert latest.add_batches(data, 0, span, first=100, may_be_transactional=False) == read_to
    latest.latest_offset = 199
    retained = latest.retain_batches(data, 0, span, terms, since_index=0)
    assert retained.following == len(plain)


@pytest.mark.skipif(compaction.compiled is None, reason="there is no compiled code")
def test_the_walk_over_batches_never_reads_beyond_the_buffer() -> None:
    data = bytes(a_batch((b"a", b"1")) + a_batch((b"b", b"2"), base_offset=1) + a_batch((b"c", b"3"), base_offset=2))
    batch_bytes = len(data) // 3
    latest = CompiledOffsetMap(10, SECRET)
    for size in range(len(data) + 1):
        taken = max((size - 1) // batch_bytes, 0) * batch_bytes
        assert latest.add_batches(memoryview(data[:size]), 0, Span(0, 9), first=0, may_be_transactional=False) == taken
    with pytest.raises(ValueError, match="position"):
        latest.add_batches(memoryview(data), len(data) + 1, Span(0, 9), first=0, may_be_transactional=False)


@pytest.mark.skipif(compaction.compiled is None, reason="there is no compiled code")
def test_the_hash_is_siphash() -> None:
    """The published vector of SipHash-2-4-128 for the key 00..0f and the input 00..0e, and those of other lengths."""
    slots = bytearray(24)
    vectors = {
        0: "a3817f04ba25a8e66df67214c7550293",
        1: "da87c1d86b99af44347659119b22fc45",
        15: "5493e99933b0a8117e08ec0f97cfc3d9",
    }
    for length, expected in vectors.items():
        slots = bytearray(48)
        batch = a_batch((bytes(range(length)), b""))
        header = parse_header(batch)
        assert compaction.compiled.add(slots, SECRET, 0, 1, decompressed_records(batch, 0, header), 0, 1, 0) == (0, 1)
        used = slots[:24] if any(slots[16:24]) else slots[24:]
        assert used[:16].hex() == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_a_producer_may_send_can_be_cleaned_again_when_its_tombstones_have_a_horizon(kind: str) -> None:
    """Even if it consists of the smallest records, and each becomes as long as it can."""
    batch = build_batch([NewRecord(b"", None, 0)] * 60)
    lengthened = compacted(batch, parse_header(batch), new_map(kind), now_ms=0, horizon_ms=(1 << 63) - 1)
    assert lengthened is not None
    growth = len(decompressed_records(lengthened, 0, parse_header(lengthened))) / (
        len(decompressed_records(batch, 0, parse_header(batch)))
    )
    assert growth > 2
    assert growth * DECOMPRESSED_BYTES_MAX < CLEANED_BYTES_MAX
