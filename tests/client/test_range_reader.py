"""A range of offsets is read fetch by fetch, without gap or duplicate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import pytest

from raylog.client import range_reader
from raylog.client.client_config import ClientConfig
from raylog.client.cluster_client import Fetched
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.reader import whole_batches

BROKERS = ClientConfig("somewhere:9092")


def batch(base_offset: int, count: int) -> bytes:
    return bytes(
        build_batch([NewRecord(None, b"%d" % (base_offset + n), 0) for n in range(count)], base_offset=base_offset)
    )


class Scripted:
    """A cluster client that answers Fetch at an offset with the bytes given for it."""

    def __init__(self, answers: Mapping[int, bytes], latest: int) -> None:
        self._answers, self._latest = answers, latest

    def __call__(self, _: object, *, client_id: str) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def fetch(self, tp: TopicPartition, offset: int, *, max_bytes: int, max_wait_ms: int, committed: bool) -> Fetched:
        assert committed
        return Fetched(memoryview(self._answers[offset]), ())

    def offset_for(self, tp: TopicPartition, timestamp: int, *, committed: bool) -> int:
        assert committed
        return self._latest


def given(monkeypatch: pytest.MonkeyPatch, answers: Mapping[int, bytes], latest: int = 99) -> None:
    monkeypatch.setattr(range_reader, "ClusterClient", Scripted(answers, latest))


RANGE: Any = {"start_offset": 2, "end_offset": 9, "mapped": False}
ANSWERS = {2: batch(0, 4) + batch(4, 2) + batch(6, 3)[:-1], 6: batch(6, 2), 8: batch(8, 4)}


def test_batches_are_whole_and_give_the_next_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, ANSWERS)
    chunks = range_reader.fetch_batches(BROKERS, "t", 0, **RANGE)
    fetched = [(chunk.start, bytes(chunk.records)) for chunk in chunks]
    assert fetched == [(2, batch(0, 4) + batch(4, 2)), (6, batch(6, 2)), (8, batch(8, 4))]


def test_records_are_those_of_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, ANSWERS)
    lists = [[r.offset for r in records] for records in range_reader.fetch_range(BROKERS, "t", 0, **RANGE)]
    assert lists == [[2, 3, 4, 5], [6, 7], [8]]


def test_a_response_without_a_whole_batch_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, {2: batch(0, 4)[:-1]})
    with pytest.raises(KafkaError, match="cannot read a batch at offset 2") as caught:
        list(range_reader.fetch_batches(BROKERS, "t", 0, **RANGE))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_range_that_was_deleted_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, {2: b""}, latest=5)
    with pytest.raises(KafkaError, match="ends before offset 9") as caught:
        list(range_reader.fetch_batches(BROKERS, "t", 0, **RANGE))
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_partial_batch_at_the_end_is_dropped() -> None:
    assert whole_batches(memoryview(ANSWERS[2])) == (len(batch(0, 4) + batch(4, 2)), 6)
    assert whole_batches(memoryview(ANSWERS[2])[:70]) == (0, 0)
