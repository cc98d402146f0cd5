"""Each request for the state of a share-partition ends once, whatever its share coordinators answer."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.protocol.messages.write_share_group_state import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from raylog.sharecoord.persister import ANSWER_MS_MAX, Persister
from raylog.sharecoord.records import SharePartitionKey
from raylog.sharecoord.states import Write
from raylog.transport.commits import CommitQueues

KEY = SharePartitionKey("g", UUID(int=1), 0)
WRITE = Write(KEY, 0, 0, 5, 0, ())


class Bench:
    """A broker without shards of its own: the share-partition is coordinated by broker `coordinator`."""

    def __init__(self) -> None:
        self.now = Now(0, 0)
        self.coordinator = 1
        self.asked: list[tuple[int, Callable[[Any, Now], None], Callable[[KafkaError, Now], None]]] = []
        """The broker that was asked, and what to call with its response or the failure."""
        self.results: list[Any] = []
        self.persister = Persister(
            BrokerId(0),
            cast("Any", None),
            coordinator=lambda key, now: BrokerId(self.coordinator),
            link_to=cast("Any", lambda broker: SimpleNamespace(request=self._request(broker))),
            commits=CommitQueues(),
            clock=lambda: self.now,
        )

    def _request(self, broker: int) -> Callable[..., None]:
        return lambda request, answered, failed, **_: self.asked.append((broker, answered, failed))

    def write(self) -> None:
        self.persister.write(WRITE, on_result=lambda result, now: self.results.append(result), now=self.now)

    def answer(self, code: ErrorCode, message: str | None = None) -> int:
        """The broker that was asked."""
        broker, answered, _ = self.asked.pop()
        result = PartitionResult(partition=0, error_code=code, error_message=message)
        topic = WriteStateResult(topic_id=KEY.topic_id, partitions=(result,))
        answered(WriteShareGroupStateResponse(results=(topic,)), self.now)
        return broker

    def pass_time(self, ms: int) -> None:
        self.now = Now(self.now.monotonic_ms + ms, 0)
        self.persister.tick(self.now)


@pytest.mark.parametrize("message", [None, "", "not me"])
def test_a_former_coordinator_that_refuses_is_followed_by_the_next_one(message: str | None) -> None:
    """Its answer has no message. While the write is in progress no other one of the share-partition begins."""
    bench = Bench()
    bench.write()
    bench.coordinator = 2
    assert bench.answer(ErrorCode.NOT_COORDINATOR, message) == 1
    assert bench.results == []
    bench.pass_time(1000)
    assert bench.answer(ErrorCode.NONE) == 2
    assert [result.error_code for result in bench.results] == [ErrorCode.NONE]
    assert bench.persister.next_deadline_ms() is None


def test_after_the_deadline_the_last_error_is_the_result() -> None:
    bench = Bench()
    bench.write()
    while not bench.results:
        bench.answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        bench.pass_time(1000)
    assert bench.now.monotonic_ms >= ANSWER_MS_MAX
    (error,) = bench.results
    assert (error.code, error.message) == (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.sentence,
    )


def test_a_lost_connection_is_made_again() -> None:
    bench = Bench()
    bench.write()
    _, _, failed = bench.asked.pop()
    failed(KafkaError(ErrorCode.NETWORK_EXCEPTION, "lost"), bench.now)
    bench.pass_time(1000)
    assert bench.answer(ErrorCode.FENCED_STATE_EPOCH) == 1
    assert [result.code for result in bench.results] == [ErrorCode.FENCED_STATE_EPOCH]
