"""Headers of all kinds are a whole envelope, or those of an ordinary record: none is an error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.client.chunks.envelope import NAMES, Chunk, chunk_headers, chunk_of
from raylog.client.chunks.pool import ReassemblyPool
from raylog.client.chunks.references import Reference, reference_headers, reference_of
from raylog.client.consumer.fetched import ConsumerRecord
from raylog.core.ids import TopicPartition
from tests.support.forms import by_form

DIGEST = b"sha256:" + b"0" * 64
GOOD = Chunk(b"0" * 32, 1, 3, 9, None)
texts = st.one_of(
    st.none(), st.binary(max_size=40), st.integers(-(1 << 70), 1 << 70).map(lambda number: b"%d" % number)
)
envelopes = st.tuples(
    st.sampled_from((b"0" * 32, b"1" * 32)),
    st.sampled_from((b"0", b"0", b"1", b"2")),
    st.sampled_from((b"1", b"2", b"3")),
    st.sampled_from((b"3", b"12", b"999", b"1001", b"99999999999999999")),
    st.just(DIGEST),
).map(list)
"""Such as begin a message of any size."""
names = st.sampled_from((*NAMES, "raylog.chunk.digest", "raylog.chunk.surplus", "raylog.reference", "", "own"))


@given(st.integers(1, 10**6), st.data())
def test_what_is_written_is_read(count: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, count - 1))
    digest = DIGEST if index == count - 1 else None
    chunk = Chunk(b"%032x" % count, index, count, data.draw(st.integers(count, 10**17)), digest)
    assert chunk_of([*chunk_headers(chunk), ("own", None)]) == chunk
    reference = Reference(f"a.b_c-d/{count:032x}", count, DIGEST)
    assert reference_of([*reference_headers(reference), ("own", None)]) == reference


@pytest.mark.parametrize(
    "headers",
    [
        chunk_headers(GOOD)[1:],
        chunk_headers(GOOD)[:3],
        [("own", b""), *chunk_headers(GOOD)],
        chunk_headers(replace(GOOD, message_id=b"0" * 31)),
        chunk_headers(replace(GOOD, message_id=b"G" * 32)),
        chunk_headers(replace(GOOD, index=3)),
        chunk_headers(replace(GOOD, index=2)),
        chunk_headers(replace(GOOD, index=2, digest=b"md5:00")),
        chunk_headers(replace(GOOD, index=-1)),
        chunk_headers(replace(GOOD, count=0)),
        chunk_headers(replace(GOOD, count=10)),
        chunk_headers(replace(GOOD, size=10**18)),
        [*chunk_headers(GOOD)[:3], ("raylog.chunk.size", b"09")],
        [*chunk_headers(GOOD)[:3], ("raylog.chunk.size", None)],
        [*chunk_headers(GOOD)[:3], ("raylog.chunk.size", "٩".encode())],
    ],
)
def test_no_envelope(headers: Any) -> None:
    assert chunk_of(headers) is None


@settings(max_examples=by_form(150, quick=50, long=20_000))
@given(
    st.lists(
        st.tuples(
            st.one_of(
                envelopes, st.lists(texts, min_size=4, max_size=5), st.lists(st.tuples(names, texts), max_size=6)
            ),
            st.one_of(st.none(), st.binary(max_size=12)),
        ),
        max_size=8,
    )
)
def test_the_pool_takes_any_headers_within_its_bounds(given_records: list[Any]) -> None:
    pool = ReassemblyPool(bytes_max=1000, offset_gap_max=4, age_ms_max=10, tracked_max=3)
    tp = TopicPartition("t", 0)
    for offset, (given_headers, value) in enumerate(given_records):
        headers = given_headers
        if headers and not isinstance(headers[0], tuple):
            headers = list(zip((*NAMES, "raylog.chunk.digest"), headers, strict=False))
        record = ConsumerRecord("t", 0, offset, 0, 0, None, value, tuple(headers))
        found = pool.take(tp, [record], offset, offset + 1)
        assert len(found) <= 1
        if chunk_of(headers) is None and headers[:1] != [("raylog.chunk.surplus", headers[0][1] if headers else None)]:
            assert found == [record]
        reference_of(headers)
        assert 0 <= pool.used_bytes <= 1000
        assert offset + 1 - pool.safe_offset(tp, offset + 1) <= 4
