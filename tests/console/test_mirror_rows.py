"""Flows are shown from their own records; records of something else are left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raylog.client.consumer.fetched import ConsumerRecord
from raylog.console.mirror_rows import flow_rows, heartbeats_in, progress_in
from raylog.core.ids import TopicPartition
from raylog.mirror.formats import Heartbeat
from raylog.mirror.progress import FlowId, Progress, encode_progress

ORDERS = TopicPartition("orders", 2)


def record(key: bytes | None, value: bytes | None, time_ms: int = 0) -> ConsumerRecord:
    return ConsumerRecord("t", 0, 0, time_ms, 0, key, value, ())


def test_a_flow_with_its_progress_and_heartbeats() -> None:
    key, value = encode_progress(FlowId("east", "west"), ORDERS, Progress(120))
    copied = {"east": progress_in("east", [record(key, value, 5_000), record(b"other", b"{}")])}
    beats = heartbeats_in(
        record(*Heartbeat(source, "west", time_ms).encode())
        for source, time_ms in (("east", 9_000), ("east", 8_000), ("north", 1))
    )
    assert flow_rows(copied, beats, 10_000) == [
        {
            "source": "east",
            "targets": ["west"],
            "by_raylog": True,
            "age_ms": 1_000,
            "partitions": [{"topic": "orders", "partition": 2, "copied": 120, "age_ms": 5_000}],
        },
        {"source": "north", "targets": ["west"], "by_raylog": False, "age_ms": 9_999, "partitions": []},
    ]


def test_progress_that_was_deleted_is_gone() -> None:
    key, value = encode_progress(FlowId("east", ""), ORDERS, Progress(120))
    assert progress_in("east", [record(key, value), record(key, None)]) == {}
    assert progress_in("west", [record(key, value)]) == {}
    assert flow_rows({"east": {}}, {}, 0)[0]["age_ms"] is None


@given(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=30))
def test_foreign_records(key: bytes | None, value: bytes | None) -> None:
    progress_in("east", [record(key, value)])
    heartbeats_in([record(key, value)])
