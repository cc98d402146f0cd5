"""Requests whose responses may be long are answered in steps, and what is named twice is described once."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.broker.handlers import describe_configs, describe_groups, describe_producers, list_groups, offset_fetch
from raylog.protocol.framing import frame
from raylog.protocol.header import encode_request
from raylog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.protocol.messages.describe_groups import DescribeGroupsRequest
from raylog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.list_groups import ListGroupsRequest
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from raylog.protocol.registry import api_for
from raylog.protocol.schema import Message
from tests.support.direct_broker import DirectBroker

GROUPS = tuple(f"g{number}" for number in range(6))
PARTITIONS = 6


@pytest.fixture
def broker() -> DirectBroker:
    """Six groups with committed offsets, and a topic of six partitions."""
    broker = DirectBroker({"offsets.topic.num.partitions": "2"})
    broker.create_topic("t", partitions=PARTITIONS)
    broker.call(FindCoordinatorRequest(coordinator_keys=GROUPS))
    broker.pass_time(1000)
    for group in GROUPS:
        committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
        topic = OffsetCommitRequestTopic(name="t", partitions=(committed,))
        broker.call(OffsetCommitRequest(group_id=group, topics=(topic,)), version=8)
    return broker


def configs_of(*names: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=tuple(DescribeConfigsResource(resource_type=2, resource_name=name) for name in names)
    )


def producers_of(*partitions: int) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=(TopicRequest(name="t", partition_indexes=partitions),))


def offsets_of(*groups: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=tuple(OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups))


LONG: dict[str, tuple[Any, str, Message, int]] = {
    "DescribeConfigs": (describe_configs, "STEP_RESOURCES", configs_of("t", "u", "v", "w", "x"), 4),
    "ListGroups": (list_groups, "STEP_GROUPS", ListGroupsRequest(), 5),
    "DescribeGroups": (describe_groups, "STEP_MEMBERS", DescribeGroupsRequest(groups=GROUPS), 6),
    "DescribeProducers": (describe_producers, "STEP_PRODUCERS", producers_of(*range(PARTITIONS)), 0),
    "OffsetFetch": (offset_fetch, "STEP_PARTITIONS", offsets_of(*GROUPS), 9),
}
"""Each: its handler, the name of its bound, a request of six entries, a version."""


@pytest.mark.parametrize("name", LONG)
def test_steps_give_the_response_of_one_piece(broker: DirectBroker, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    handler, bound, request, version = LONG[name]
    whole = broker.call(request, version=version)
    monkeypatch.setattr(handler, bound, 1)
    connection = broker.connect()
    frames = frame(encode_request(request, api_version=version, correlation_id=1, client_id="test"))
    data = b"".join(frames)
    connection.receive_buffer()[: len(data)] = data
    broker.broker.bytes_received(connection, len(data), broker.now())
    turns = 0
    while broker.broker.wants_turn:
        broker.broker.next_turn(broker.now())
        turns += 1
    spec = api_for(request.api.key)
    assert spec is not None
    assert broker.answer((spec.key, version), connection=connection) == whole
    assert turns >= 5


@pytest.mark.parametrize(
    ("twice", "once", "version"),
    [
        (configs_of("t", "u", "t"), configs_of("t", "u"), 4),
        (DescribeGroupsRequest(groups=("g0", "g1", "g0")), DescribeGroupsRequest(groups=("g0", "g1")), 6),
        (producers_of(0, 1, 0), producers_of(0, 1), 0),
        (offsets_of("g0", "g1", "g0"), offsets_of("g0", "g1"), 9),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_named_twice_is_described_once(
    broker: DirectBroker, twice: Message, once: Message, version: int
) -> None:
    """Else a request of a megabyte could ask for gigabytes."""
    assert broker.call(twice, version=version) == broker.call(once, version=version)
