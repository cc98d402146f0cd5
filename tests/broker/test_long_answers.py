"""Long responses are made in steps, what is named twice is described once, and the number of groups is limited."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.broker import group_description
from raylog.broker.handlers import (
    describe_producers,
    describe_topic_partitions,
    find_coordinator,
    list_groups,
    offset_fetch,
)
from raylog.core.errors import ErrorCode
from raylog.groupcoord import shards
from raylog.groupcoord.shard import GroupShard
from raylog.metadata.handlers import describe_configs
from raylog.protocol.framing import frame
from raylog.protocol.header import encode_request
from raylog.protocol.messages.delete_groups import DeleteGroupsRequest
from raylog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.protocol.messages.describe_groups import DescribeGroupsRequest
from raylog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from raylog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from raylog.protocol.messages.describe_topic_partitions import TopicRequest as PartitionsOf
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
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
    return with_groups({})


def with_groups(config: dict[str, Any]) -> DirectBroker:
    """Six groups with committed offsets, and a topic of six partitions."""
    broker = DirectBroker({"offsets.topic.num.partitions": "2", **config})
    broker.create_topic("t", partitions=PARTITIONS)
    broker.call(FindCoordinatorRequest(coordinator_keys=GROUPS))
    broker.pass_time(1000)
    assert {commit(broker, group) for group in GROUPS} == {ErrorCode.NONE}
    return broker


def commit(broker: DirectBroker, group: str) -> ErrorCode:
    committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    topic = OffsetCommitRequestTopic(name="t", partitions=(committed,))
    answered = broker.call(OffsetCommitRequest(group_id=group, topics=(topic,)), version=8)
    code: ErrorCode = answered.topics[0].partitions[0].error_code
    return code


def configs_of(*names: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=tuple(DescribeConfigsResource(resource_type=2, resource_name=name) for name in names)
    )


def topics_named(*names: str) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(topics=tuple(PartitionsOf(name=name) for name in names))


def producers_of(*partitions: int) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=(TopicRequest(name="t", partition_indexes=partitions),))


def offsets_of(*groups: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=tuple(OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups))


LONG: dict[str, tuple[Any, str, Message, int]] = {
    "DescribeConfigs": (describe_configs, "STEP_RESOURCES", configs_of("t", "u", "v", "w", "x"), 4),
    "ListGroups": (list_groups, "STEP_GROUPS", ListGroupsRequest(), 5),
    "DescribeGroups": (group_description, "STEP_MEMBERS", DescribeGroupsRequest(groups=GROUPS), 6),
    "DescribeProducers": (describe_producers, "STEP_PRODUCERS", producers_of(*range(PARTITIONS)), 0),
    "DescribeTopicPartitions": (describe_topic_partitions, "STEP_TOPICS", topics_named("t", "u", "v", "w", "x"), 0),
    "FindCoordinator": (find_coordinator, "STEP_KEYS", FindCoordinatorRequest(coordinator_keys=GROUPS), 4),
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


def join(broker: DirectBroker, group: str) -> ErrorCode:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    joining = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(protocol,),
    )
    code: ErrorCode = broker.call(joining, version=4).error_code
    return code


def test_groups_beyond_the_limit_are_refused() -> None:
    broker = with_groups({"max.groups.per.broker": str(len(GROUPS))})
    assert join(broker, "one-more") == commit(broker, "one-more") == ErrorCode.POLICY_VIOLATION
    assert join(broker, "g0") == ErrorCode.MEMBER_ID_REQUIRED
    assert commit(broker, "g1") == ErrorCode.NONE
    assert broker.call(DeleteGroupsRequest(groups_names=("g1",))).results[0].error_code == ErrorCode.NONE
    assert commit(broker, "one-more") == ErrorCode.NONE


def test_groups_expire_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "EXPIRE_STEP_GROUPS", 2)
    broker = with_groups({"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "70000"})
    steps: list[int] = []
    expire = GroupShard.expire

    def expire_some(shard: GroupShard, group_ids: list[str], **limits: Any) -> None:
        steps.append(len(group_ids))
        expire(shard, group_ids, **limits)

    monkeypatch.setattr(GroupShard, "expire", expire_some)
    broker.pass_time(141_000)
    assert sum(steps) == len(GROUPS)
    assert max(steps) <= 2
    assert broker.call(ListGroupsRequest()).groups == ()
