"""A topic that a client requests is created through the controller, with one request at a time until it exists."""

from __future__ import annotations

import pytest

from raylog.core.errors import ErrorCode
from raylog.groupcoord.shards import OFFSETS_TOPIC
from raylog.protocol import registry
from raylog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.quotas.client_quotas import NAME_CHARACTERS_MAX
from tests.broker.test_lifecycle import listen_in
from tests.support.direct_cluster import DirectCluster, DirectMember


@pytest.fixture
def cluster() -> DirectCluster:
    return DirectCluster(2, {"num.partitions": "2", "offsets.topic.num.partitions": "4"})


def code(member: DirectMember, topic: str = "t") -> ErrorCode:
    found: ErrorCode = member.describe(topic, create=True).topics[0].error_code
    return found


def test_the_second_metadata_request_returns_it_on_any_broker(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    assert code(first) == ErrorCode.LEADER_NOT_AVAILABLE
    assert code(second) == ErrorCode.NONE
    assert sorted(partition.leader_id for partition in first.describe("t").topics[0].partitions) == [0, 1]


def test_concurrent_requests_send_one_to_the_controller(cluster: DirectCluster) -> None:
    (member, _) = cluster.brokers
    asked = listen_in(cluster.active, registry.CREATE_TOPICS)
    member.silent = True
    assert [code(member) for _ in range(5)] == [ErrorCode.LEADER_NOT_AVAILABLE] * 5
    assert code(member, "u") == ErrorCode.LEADER_NOT_AVAILABLE
    member.silent = False
    cluster.settle()
    assert [request.topics[0].name for request in asked] == ["t", "u"]
    assert code(member) == code(member, "u") == ErrorCode.NONE


def test_a_waiting_topic_keeps_little_of_its_requester(cluster: DirectCluster) -> None:
    (member, _) = cluster.brokers
    quota = RequestEntryData(
        entity=(EntityData(entity_type="client-id", entity_name=None),),
        ops=(OpData(key="controller_mutation_rate", value=100.0),),
    )
    member.call(AlterClientQuotasRequest(entries=(quota,)))
    member.silent = True
    for number in range(20):
        member.client_id = f"{number:02}{'x' * 30_000}"
        code(member, f"t{number}")
    waiting = member.broker._topic_creation._waiting
    assert len(waiting) > 10
    assert max(len(each.client_id or "") for each in waiting if each is not None) == NAME_CHARACTERS_MAX + 1
    member.silent = False
    cluster.settle()
    assert code(member, "t19") == ErrorCode.NONE


@pytest.mark.parametrize("topic", ["t", "__consumer_offsets"])
def test_a_lost_request_is_repeated(cluster: DirectCluster, topic: str) -> None:
    (member, _) = cluster.brokers

    def ask() -> None:
        if topic == "t":
            code(member)
        else:
            member.call(FindCoordinatorRequest(coordinator_keys=("g",)))

    cluster.stop_controller()
    ask()
    cluster.pass_time(10_000)
    cluster.start_controller()
    cluster.pass_time(2_000)
    assert topic not in cluster.active.image.topics
    ask()
    assert topic in cluster.active.image.topics


def test_the_offsets_topic_has_its_configuration(cluster: DirectCluster) -> None:
    cluster.brokers[1].call(FindCoordinatorRequest(coordinator_keys=("g",)))
    topic = cluster.active.image.topics["__consumer_offsets"]
    assert len(topic.partitions) == 4
    assert (topic.configs["cleanup.policy"], topic.configs["segment.bytes"]) == ("compact", "104857600")
    assert cluster.brokers[0].describe("__consumer_offsets").topics[0].is_internal


def test_an_invalid_name_is_not_requested(cluster: DirectCluster) -> None:
    asked = listen_in(cluster.active, registry.CREATE_TOPICS)
    assert code(cluster.brokers[0], "bad name") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert asked == []


def test_the_offsets_topic_has_one_replica_per_broker_up_to_its_replication_factor() -> None:
    """Also on brokers that are away: with fewer it would be less safe than was asked for."""
    cluster = DirectCluster(3, {"offsets.topic.replication.factor": "3", "min.insync.replicas": "2"})
    member, *others = cluster.brokers
    for other in others:
        other.stop()
    member.call(FindCoordinatorRequest(key="g", key_type=0), version=2)
    cluster.pass_time(100)
    partitions = cluster.active.image.topics[OFFSETS_TOPIC].partitions
    assert {len(shown.replicas) for shown in partitions} == {2}
    assert {shown.isr for shown in partitions} == {(0,)}
    for other in others:
        other.start()
    cluster.pass_time(2000)
    assert {len(shown.isr) for shown in partitions} == {2}
