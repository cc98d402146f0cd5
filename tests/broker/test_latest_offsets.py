"""The ends of partitions are asked of their leaders; those that do not answer are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from raylog.broker.latest_offsets import LatestOffsets
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId, TopicPartition
from raylog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

NOW = Now(0, 0)
HERE = BrokerId(0)
LEADERS = {0: HERE, 1: BrokerId(1), 2: BrokerId(1), 3: BrokerId(2), 4: NO_BROKER_ID}


class Link:
    """To another broker; it answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[ListOffsetsRequest] = []
        self.answer: Callable[[ListOffsetsResponse, Now], None]
        self.fail: Callable[[KafkaError, Now], None]

    def request(self, request: ListOffsetsRequest, answered: Any, failed: Any, **_: Any) -> None:
        self.asked.append(request)
        self.answer, self.fail = answered, failed


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def asked(*numbers: int) -> tuple[dict[BrokerId, Link], list[Mapping[TopicPartition, int]]]:
    """The links to other brokers, and what has been found."""
    links = {BrokerId(1): Link(), BrokerId(2): Link()}
    image: Any = SimpleNamespace(
        partition=lambda each: SimpleNamespace(leader=LEADERS[each.partition]) if each.partition in LEADERS else None
    )
    own: Any = {tp(0): SimpleNamespace(is_leader=True, high_watermark=7)}
    found: list[Mapping[TopicPartition, int]] = []
    find: Any = links.__getitem__
    LatestOffsets(HERE, own, lambda: image, find).find(map(tp, numbers), found.append, NOW)
    return links, found


def response(ends: Mapping[int, int | ErrorCode]) -> ListOffsetsResponse:
    partitions = tuple(
        ListOffsetsPartitionResponse(partition_index=number, error_code=end)
        if isinstance(end, ErrorCode)
        else ListOffsetsPartitionResponse(partition_index=number, offset=end)
        for number, end in ends.items()
    )
    return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=partitions),))


def test_its_own_partitions_are_known_at_once() -> None:
    links, found = asked(0, 4, 9)
    assert found == [{tp(0): 7}]
    assert not any(each.asked for each in links.values())


def test_all_leaders_are_waited_for() -> None:
    links, found = asked(0, 1, 2, 3)
    first, second = links.values()
    (request,) = first.asked
    assert [each.partition_index for topic in request.topics for each in topic.partitions] == [1, 2]
    first.answer(response({1: 11, 2: ErrorCode.NOT_LEADER_OR_FOLLOWER}), NOW)
    assert found == []
    second.fail(KafkaError(ErrorCode.NETWORK_EXCEPTION), NOW)
    assert found == [{tp(0): 7, tp(1): 11}]
