"""DescribeQuorum on any broker returns the controller's view of the metadata log and its replicas."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.broker.handlers.forwarded import FORWARD_MS_MAX
from raylog.controller.observers import SESSION_MS
from raylog.core.errors import ErrorCode
from raylog.core.ids import ZERO_TOPIC_ID
from raylog.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from raylog.transport.endpoints import Endpoint
from tests.support.direct_cluster import CONTROLLER_ID, DirectCluster, DirectMember

METADATA = "__cluster_metadata"


@pytest.fixture
def cluster() -> DirectCluster:
    return DirectCluster(2)


def asking(*topics: tuple[str, tuple[int, ...]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=tuple(
            RequestTopicData(
                topic_name=name, partitions=tuple(RequestPartitionData(partition_index=each) for each in partitions)
            )
            for name, partitions in topics
        )
    )


def ask(member: DirectMember, *, version: int = 2) -> Any:
    """The one partition's data."""
    answer = member.call(asking((METADATA, (0,))), version=version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    (topic,) = answer.topics
    (partition,) = topic.partitions
    assert (topic.topic_name, partition.partition_index) == (METADATA, 0)
    assert (partition.error_code, partition.error_message) == (ErrorCode.NONE, None)
    return partition


@pytest.mark.parametrize("version", range(3))
def test_every_version_returns_the_leader_and_the_replicas(cluster: DirectCluster, version: int) -> None:
    cluster.create_topic("t")
    controller = cluster.active
    for member in cluster.brokers:
        seen = ask(member, version=version)
        end_offset = controller.next_offset
        assert end_offset > 0
        assert (seen.leader_id, seen.leader_epoch, seen.high_watermark) == (CONTROLLER_ID, 1, end_offset)
        (voter,) = seen.current_voters
        assert (voter.replica_id, voter.log_end_offset) == (CONTROLLER_ID, end_offset)
        assert [(each.replica_id, each.log_end_offset) for each in seen.observers] == [(0, end_offset), (1, end_offset)]
        now_ms = cluster.now().wall_ms if version >= 1 else -1
        for each in (voter, *seen.observers):
            assert (each.last_fetch_timestamp, each.last_caught_up_timestamp) == (now_ms, now_ms)
        assert voter.replica_directory_id == (controller.directory_id if version == 2 else ZERO_TOPIC_ID)
        assert controller.directory_id != ZERO_TOPIC_ID
        assert [each.replica_directory_id for each in seen.observers] == [ZERO_TOPIC_ID] * 2


def test_the_newest_version_returns_the_endpoints_of_the_voter(cluster: DirectCluster) -> None:
    cluster.active.start({"INTERNAL": Endpoint("127.0.0.1", 4711)}, cluster.now())
    (node,) = cluster.brokers[0].call(asking((METADATA, (0,))), version=2).nodes
    assert node.node_id == CONTROLLER_ID
    assert [(each.name, each.host, each.port) for each in node.listeners] == [("INTERNAL", "127.0.0.1", 4711)]


def test_a_partitioned_broker_lags_and_is_removed_from_the_observers(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    before = ask(first).observers[1]
    second.silent = True
    cluster.pass_time(1000)
    cluster.create_topic("t", on=[0])
    seen = ask(first)
    assert seen.observers[0].log_end_offset == seen.high_watermark > before.log_end_offset
    assert seen.observers[0].last_caught_up_timestamp == cluster.now().wall_ms
    assert seen.observers[1] == before
    cluster.pass_time(SESSION_MS)
    assert [each.replica_id for each in ask(first).observers] == [0]
    second.silent = False
    cluster.pass_time(20_000)
    assert [each.replica_id for each in ask(first).observers] == [0, 1]


def test_a_refused_fetch_does_not_make_an_observer(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    second.silent = True
    before = ask(first).observers[1]
    second.silent = False
    second.broker.follower.next_offset = type(second.broker.follower.next_offset)(1_000_000)
    second.broker.follower.catch_up(second.broker.lifecycle.link, lambda _: None, cluster.now())
    cluster.settle()
    assert ask(first).observers[1] == before


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    "topics", [(("t", (0,)),), ((METADATA, (1,)),), ((METADATA, (0, 1)),), ((METADATA, (0,)), ("t", (3,)))]
)
def test_other_partitions_are_unknown(
    cluster: DirectCluster, topics: tuple[tuple[str, tuple[int, ...]], ...], version: int
) -> None:
    cluster.create_topic("t")
    answer = cluster.brokers[0].call(asking(*topics), version=version)
    assert answer.error_code == ErrorCode.NONE
    assert answer.nodes == ()
    refused = [(topic.topic_name, each) for topic in answer.topics for each in topic.partitions]
    assert [(name, each.partition_index) for name, each in refused] == [
        (name, number) for name, numbers in topics for number in numbers
    ]
    for _, each in refused:
        assert each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert bool(each.error_message) == (version == 2)
        assert (each.leader_id, each.leader_epoch, each.high_watermark) == (-1, -1, -1)
        assert each.current_voters == each.observers == ()


@pytest.mark.parametrize("version", range(3))
def test_without_a_controller_the_request_times_out(cluster: DirectCluster, version: int) -> None:
    member = cluster.brokers[0]
    cluster.stop_controller()
    sent = member.send(asking((METADATA, (0,))), version=version)
    cluster.pass_time(FORWARD_MS_MAX)
    answer = member.answer(sent)
    assert (answer.error_code, answer.topics) == (ErrorCode.REQUEST_TIMED_OUT, ())
    assert ("did not respond" in (answer.error_message or "")) == (version == 2)
