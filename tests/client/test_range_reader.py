"""A range of offsets is read fetch by fetch, without gap or duplicate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import UUID

import pytest

from raylog.client import range_reader
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.calls import Call, Results, Steps
from raylog.client.admin.topics import NewTopic
from raylog.client.client_config import ClientConfig
from raylog.client.cluster_metadata import LocatedPartition, TopicMetadata
from raylog.client.cluster_view import Node
from raylog.client.consumer.offset_lookup import OffsetAndTimestamp
from raylog.client.partition_calls import Fetched
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.fetch import FetchRequest
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.isolation import READ_COMMITTED
from raylog.protocol.records.reader import whole_batches
from tests.client.served import serve

T = TypeVar("T")
TP = TopicPartition("t", 0)

BROKERS = ClientConfig("somewhere:9092")


def batch(base_offset: int, count: int) -> bytes:
    return bytes(
        build_batch([NewRecord(None, b"%d" % (base_offset + n), 0) for n in range(count)], base_offset=base_offset)
    )


class Scripted:
    """A cluster that answers Fetch at an offset with the bytes given for it. It stands in for BlockingCalls."""

    def __init__(self, answers: Mapping[int, bytes], latest: int) -> None:
        self._answers, self._latest = answers, latest

    def __call__(self, _: object, **__: object) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, steps: Steps[T], timeout: float) -> T:
        call = next(steps)
        try:
            steps.send(Results({TP: self._value(call)}, {}))
        except StopIteration as end:
            result: T = end.value
            return result
        raise AssertionError("a further request")

    def _value(self, call: Call) -> Any:
        if call.request is None:
            return LocatedPartition(Node("", 0, "somewhere", 9092), TopicMetadata("t", UUID(int=7), ErrorCode.NONE, ()))
        request: Any = call.request([TP], 1000)
        assert request.isolation_level == READ_COMMITTED
        if isinstance(request, FetchRequest):
            assert request.topics[0].topic_id == UUID(int=7)
            return Fetched(memoryview(self._answers[request.topics[0].partitions[0].fetch_offset]), ())
        return OffsetAndTimestamp(self._latest, -1, 0)


def given(monkeypatch: pytest.MonkeyPatch, answers: Mapping[int, bytes], latest: int = 99) -> None:
    monkeypatch.setattr(range_reader, "BlockingCalls", Scripted(answers, latest))


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


def test_all_topics_are_those_that_the_brokers_do_not_call_internal(tmp_path: Path) -> None:
    with serve(tmp_path) as served, AdminClient(bootstrap_servers=served.plain) as admin:
        admin.create_topics(NewTopic("__mine", 2, 1))
        admin.list_consumer_group_offsets("any")  # its coordinator needs a topic
        offsets = "__consumer_offsets"
        brokers = ClientConfig(served.plain)
        named = range_reader.partition_counts(brokers, ["__mine", offsets])
        assert named.keys() == {"__mine", offsets}
        assert range_reader.partition_counts(brokers, None) == {"__mine": 2}
