"""A cluster grows by new brokers, and shrinks by brokers that hold no replicas and are unregistered."""

from __future__ import annotations

import pytest

from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId, TopicPartition
from raylog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from raylog.protocol.messages.describe_cluster import DescribeClusterRequest
from raylog.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.support.direct_cluster import DirectCluster, DirectMember

TP = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> DirectCluster:
    cluster = DirectCluster(3)
    cluster.create_topic("t", on=[[0, 1]])
    cluster.pass_time(100)
    return cluster


def unregister(member: DirectMember, broker_id: int) -> ErrorCode:
    answer = member.call(UnregisterBrokerRequest(broker_id=broker_id))
    assert bool(answer.error_message) == (answer.error_code != ErrorCode.NONE)
    code: ErrorCode = answer.error_code
    return code


def move(cluster: DirectCluster, *replicas: int) -> None:
    wanted = ReassignablePartition(partition_index=0, replicas=replicas)
    topic = ReassignableTopic(name="t", partitions=(wanted,))
    answer = cluster.brokers[1].call(AlterPartitionReassignmentsRequest(topics=(topic,)))
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    cluster.pass_time(2000)
    assert cluster.active.image.topics["t"].partitions[0].replicas == replicas


def known(member: DirectMember, *, fenced: bool = True) -> list[tuple[int, bool]]:
    """(id, whether it is fenced)."""
    answer = member.call(DescribeClusterRequest(include_fenced_brokers=fenced))
    return [(broker.broker_id, broker.is_fenced) for broker in answer.brokers]


def test_a_broker_without_replicas_is_unregistered_for_good(cluster: DirectCluster) -> None:
    first, second, third = cluster.brokers
    assert second.produce([b"a"], acks=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert first.produce([b"a"]).error_code == ErrorCode.NONE
    move(cluster, 1, 2)
    first.stop()
    assert known(second) == [(0, True), (1, False), (2, False)]
    assert known(second, fenced=False) == [(1, False), (2, False)]
    assert unregister(second, 0) is ErrorCode.NONE
    assert known(second) == known(third) == [(1, False), (2, False)]
    assert unregister(third, 0) is ErrorCode.BROKER_ID_NOT_REGISTERED
    cluster.stop_controller(clean=False, power_cut=True)
    cluster.start_controller()
    cluster.pass_time(20_000)
    assert known(second) == [(1, False), (2, False)]
    assert second.produce([b"b"]).base_offset == 1


def test_a_live_broker_is_refused(cluster: DirectCluster) -> None:
    for member in cluster.brokers:
        assert unregister(member, 0) is ErrorCode.INVALID_REQUEST
    assert known(cluster.brokers[1]) == [(number, False) for number in range(3)]


def test_a_broker_that_was_unreachable_registers_again_and_catches_up(cluster: DirectCluster) -> None:
    first, second, _ = cluster.brokers
    first.silent = True
    cluster.pass_time(15_000)
    assert unregister(second, 0) is ErrorCode.NONE
    assert second.produce([b"a"]).error_code == ErrorCode.NONE
    first.silent = False
    cluster.pass_time(5000)
    assert known(second) == [(0, False), (1, False), (2, False)]
    assert first.broker.partitions[TP].log.log_end_offset == 1
    assert cluster.active.image.topics["t"].partitions[0].isr == (0, 1)


def test_a_single_replica_waits_for_its_broker(cluster: DirectCluster) -> None:
    """As in Kafka nothing keeps it from being forgotten."""
    first, second, _ = cluster.brokers
    cluster.create_topic("alone", on=[0])
    assert first.produce([b"a"], topic="alone").error_code == ErrorCode.NONE
    first.stop()
    assert unregister(second, 0) is ErrorCode.NONE
    assert second.describe("alone").topics[0].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    first.start()
    assert first.produce([b"b"], topic="alone").base_offset == 1


def test_a_new_broker_gets_partitions_by_reassignment(cluster: DirectCluster) -> None:
    cluster.brokers.append(DirectMember(cluster, BrokerId(3)))
    cluster.brokers[3].start()
    assert known(cluster.brokers[0]) == [(number, False) for number in range(4)]
    move(cluster, 3, 1)
    assert cluster.brokers[3].broker.partitions[TP].log.topic_id == cluster.active.image.topics["t"].topic_id


def test_an_unknown_broker_is_refused(cluster: DirectCluster) -> None:
    assert unregister(cluster.brokers[0], 7) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert unregister(cluster.brokers[0], -1) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_without_a_controller_nothing_is_unregistered(cluster: DirectCluster) -> None:
    member = cluster.brokers[0]
    cluster.stop_controller()
    sent = member.send(UnregisterBrokerRequest(broker_id=2))
    cluster.pass_time(20_000)
    assert member.answer(sent).error_code == ErrorCode.REQUEST_TIMED_OUT
