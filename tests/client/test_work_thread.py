"""The thread of a worker: what its work raises, and batches that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ray import cloudpickle

from raylog.client.consumer.fetched import ConsumerRecord
from raylog.client.processing.work_thread import WorkThread
from raylog.client.processing.worker_state import Batch, Lane, Result
from raylog.core.ids import TopicPartition

dumps: Callable[[Any], bytes] = cloudpickle.dumps
RECORDS = [ConsumerRecord("t", 0, offset, 0, 0, None, b"%d" % offset, ()) for offset in range(4)]
SEEN: list[list[int]] = []
"""The offsets of each batch: the work runs in a thread of this process."""


@contextmanager
def thread_of(work: Any) -> Iterator[WorkThread]:
    thread = WorkThread(dumps(work), {}, "out")
    thread.construct().result()
    yield thread
    thread.close()


def results(thread: WorkThread, lane: Lane, slice_ms: int = 60_000, *, first: int = 0) -> list[Result]:
    thread.run([Batch(lane, RECORDS[first:], {})], slice_ms).result()
    return thread.take_results()


class Panic(BaseException):
    """As extensions in Rust raise."""


def panics(record: ConsumerRecord) -> Any:
    if record.offset == 1:
        raise Panic("at 1")
    return record.value


class PanicsInBatches:
    def process_batch(self, records: list[ConsumerRecord]) -> list[Any]:
        return [panics(record) for record in records]


async def is_cancelled(record: ConsumerRecord) -> Any:
    if record.offset == 1:
        inner = asyncio.create_task(asyncio.Event().wait())
        inner.cancel("at 1")
        await inner
    return record.value


@pytest.mark.parametrize(
    ("work", "error_class"), [(panics, "Panic"), (PanicsInBatches, "Panic"), (is_cancelled, "CancelledError")]
)
def test_a_record_fails_whatever_is_raised(work: Any, error_class: str) -> None:
    with thread_of(work) as thread:
        first, second = results(thread, Lane(TopicPartition("t", 0)))
    assert (first.record.offset, first.failure) == (0, None)
    assert second.record.offset == 1
    assert second.failure is not None
    assert (second.failure.error_class.rpartition(".")[2], second.failure.message) == (error_class, "at 1")


class FailsInBatches:
    """At record 1, alone and with others."""

    def process_batch(self, records: list[ConsumerRecord]) -> list[Any]:
        SEEN.append([record.offset for record in records])
        if any(record.offset == 1 for record in records):
            raise ValueError("at 1")
        return [record.value for record in records]


def test_a_batch_that_fails_after_its_time_slice_is_not_repeated() -> None:
    """Its records are worked on one by one, up to the one that fails; then in batches again."""
    SEEN.clear()
    lane = Lane(TopicPartition("t", 0))
    with thread_of(FailsInBatches) as thread:
        assert results(thread, lane, 0) == []
        [first] = results(thread, lane, 0)
        assert (first.record.offset, first.failure) == (0, None)
        for _ in range(2):  # it is retried
            [second] = results(thread, lane, 0, first=1)
            assert (second.record.offset, second.failure is None) == (1, False)
        assert [each.record.offset for each in results(thread, lane, 0, first=2)] == [2, 3]
    assert SEEN == [[0, 1, 2, 3], [0], [1], [1], [2, 3]]
