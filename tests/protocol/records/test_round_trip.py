"""The reader, kafka-python and aiokafka read what the builder writes, and the reader what these clients write."""

from __future__ import annotations

from typing import Any

import kafka.codec
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder

from raylog.protocol.records.batch import HEADER_SIZE, parse_header, split_batches, verify_crc
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.reader import Record, read_batches, read_records

LIBRARY_MISSING = [
    codec
    for codec, available in ((Codec.SNAPPY, kafka.codec.has_snappy), (Codec.ZSTD, kafka.codec.has_zstd))
    if not available()
]
"""Codecs that the installed kafka-python cannot do; aiokafka brings all of them."""

SMALL = st.one_of(st.none(), st.binary(max_size=300))
RECORDS = st.lists(
    st.builds(
        NewRecord,
        key=SMALL,
        value=SMALL,
        timestamp_ms=st.integers(-1, 1 << 45),
        headers=st.lists(st.tuples(st.text(max_size=20), SMALL), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)
CODECS = st.sampled_from(list(Codec))


def expected(records: list[NewRecord], base_offset: int) -> list[Record]:
    return [
        Record(base_offset + number, record.timestamp_ms, 0, record.key, record.value, tuple(record.headers))
        for number, record in enumerate(records)
    ]


@settings(max_examples=150, deadline=None)
@given(RECORDS, CODECS, st.integers(0, 1 << 50))
def test_the_reader_returns_the_input_of_the_builder(records: list[NewRecord], codec: Codec, base_offset: int) -> None:
    batch = build_batch(records, codec=codec, base_offset=base_offset, producer_id=7, producer_epoch=1, base_sequence=3)
    header = parse_header(batch)
    verify_crc(batch, 0, header)
    assert header.size_bytes == len(batch)
    assert (header.codec, header.record_count, header.last_offset) == (
        codec,
        len(records),
        base_offset + len(records) - 1,
    )
    assert read_records(batch, 0, header) == expected(records, base_offset)


@settings(max_examples=60, deadline=None)
@given(RECORDS, CODECS)
def test_other_clients_read_our_batches(records: list[NewRecord], codec: Codec) -> None:
    batch = bytes(build_batch(records, codec=codec, base_offset=5))
    for reader_class in (AioBatch,) if codec in LIBRARY_MISSING else (KafkaBatch, AioBatch):
        reader: Any = reader_class(batch)
        assert reader.validate_crc()
        read = [
            Record(r.offset, r.timestamp, 0, r.key, r.value, tuple((name, value) for name, value in r.headers))
            for r in reader
        ]
        assert read == expected(records, 5)


@settings(max_examples=60, deadline=None)
@given(RECORDS, CODECS)
def test_we_read_batches_of_other_clients(records: list[NewRecord], codec: Codec) -> None:
    for builder_class in (AioBuilder,) if codec in LIBRARY_MISSING else (KafkaBuilder, AioBuilder):
        builder: Any = builder_class(
            magic=2,
            compression_type=codec.value,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 20,
        )
        for number, record in enumerate(records):
            builder.append(
                number,
                timestamp=max(record.timestamp_ms, 0),
                key=record.key,
                value=record.value,
                headers=list(record.headers),
            )
        batch = bytes(builder.build())
        header = parse_header(batch)
        verify_crc(batch, 0, header)
        wanted = [record._replace(timestamp_ms=max(record.timestamp_ms, 0)) for record in records]
        assert read_records(batch, 0, header) == expected(wanted, 0)


def test_reading_starts_at_an_offset_and_skips_control_batches_and_the_partial_end() -> None:
    data = b"".join(
        [
            build_batch([NewRecord(None, b"a", 1), NewRecord(None, b"b", 2), NewRecord(None, b"c", 3)]),
            build_batch([NewRecord(b"\0\0\0\1", b"", 4)], base_offset=3, transactional=True, control=True),
            build_batch([NewRecord(None, b"d", 5)], base_offset=4, codec=Codec.ZSTD),
            build_batch([NewRecord(None, b"e", 6)], base_offset=5)[:-1],
        ]
    )
    assert [(r.offset, r.value) for r in read_batches(data, from_offset=1)] == [(1, b"b"), (2, b"c"), (4, b"d")]
    assert [r.offset for r in read_batches(memoryview(data)[: HEADER_SIZE - 1])] == []


def test_log_append_time_is_the_timestamp_of_every_record() -> None:
    batch = build_batch([NewRecord(None, b"a", 10), NewRecord(None, b"b", 99)], timestamp_type=1)
    assert [(r.timestamp_ms, r.timestamp_type) for r in read_batches(batch)] == [(99, 1), (99, 1)]


def test_sequences_wrap_to_0() -> None:
    records = [NewRecord(None, b"", 0)] * 3
    batch = build_batch(records, producer_id=1, producer_epoch=0, base_sequence=(1 << 31) - 2)
    assert parse_header(batch).last_sequence == 0
    assert parse_header(build_batch(records)).last_sequence == -1


def test_a_record_set_is_split_into_its_batches() -> None:
    one, two = build_batch([NewRecord(None, b"a", 1)]), build_batch([NewRecord(None, b"bb", 1)], base_offset=1)
    assert [(position, header.base_offset) for position, header in split_batches(one + two)] == [(0, 0), (len(one), 1)]


def test_a_batch_without_records_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])
