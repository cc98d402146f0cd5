"""Coordinators that are nodes of their own: clients find them, a broker succeeds them, and they get their work back."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.controller import features
from raylog.controller.coordinators import HOLD_MS
from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId, TopicPartition
from raylog.metadata.levels import COORDINATORS_LEVEL, METADATA_FEATURE
from raylog.metadata.records import FeatureLevelChanged
from raylog.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from raylog.protocol.messages.describe_cluster import DescribeClusterRequest
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.unregister_broker import UnregisterBrokerRequest
from raylog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from raylog.protocol.schema import Message
from tests.broker.test_groups import commit, committed, heartbeat, stable_member
from tests.support.direct_cluster import DirectCluster, DirectMember
from tests.support.transactional_client import TransactionalClient

GROUP, TRANSACTION = 2000, 3000
OFFSETS = TopicPartition("__consumer_offsets", 0)
CONFIG: dict[str, Any] = {
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "min.insync.replicas": 2,
    "transaction.state.log.min.isr": 2,
    "group.initial.rebalance.delay.ms": 0,
}


class Patient:
    """Sends requests to one node, and waits for responses that depend on its followers."""

    def __init__(self, cluster: DirectCluster, node: int) -> None:
        self.member = cluster.member(node)

    def call(self, request: Message, *, version: int | None = None) -> Any:
        sent = self.member.send(request, version=version)
        for _ in range(50):
            answer = self.member.answer(sent)
            if answer is not None:
                return answer
            self.member.cluster.pass_time(20)
        raise AssertionError(f"no answer to {request}")


def at(cluster: DirectCluster, node: int) -> Any:
    return Patient(cluster, node)


@pytest.fixture
def cluster() -> DirectCluster:
    cluster = DirectCluster(3, CONFIG, coordinators=(GROUP, TRANSACTION))
    cluster.create_topic("t", on=[[0, 1]])
    return cluster


def coordinator(cluster: DirectCluster, *, asked: int = 0, key: str = "g", key_type: int = 0) -> int:
    request = FindCoordinatorRequest(coordinator_keys=(key,), key_type=key_type)
    for _ in range(50):
        [found] = cluster.member(asked).call(request).coordinators
        if found.error_code == ErrorCode.NONE:
            return int(found.node_id)
        cluster.pass_time(20)
    raise AssertionError("no coordinator")


def replicas(cluster: DirectCluster) -> tuple[int, ...]:
    shown = cluster.active.image.partition(OFFSETS)
    assert shown is not None
    return shown.replicas


def leaders(cluster: DirectCluster) -> set[int]:
    return {each.leader for each in cluster.active.image.topics[OFFSETS.topic].partitions}


def test_groups_are_coordinated_by_one_and_transactions_by_the_other(cluster: DirectCluster) -> None:
    assert coordinator(cluster) == GROUP
    group = at(cluster, GROUP)
    member = stable_member(group)
    assert (heartbeat(group, member), commit(group, 7, member_id=member, generation_id_or_member_epoch=1)) == (0, 0)
    assert len(replicas(cluster)) == 4
    client = TransactionalClient(cluster)
    assert client.init() == ErrorCode.NONE
    assert client.coordinator().broker_id == TRANSACTION
    assert client.write(TopicPartition("t", 0), b"a") == ErrorCode.NONE
    assert client.end(committed=True) == ErrorCode.NONE


def test_clients_see_coordinators_in_metadata_and_tools_only_brokers(cluster: DirectCluster) -> None:
    everyone = [0, 1, 2, GROUP, TRANSACTION]
    for asked in everyone:
        described = cluster.member(asked).describe("t")
        assert [each.node_id for each in described.brokers] == everyone
        assert described.controller_id == (asked if asked < 1000 else 0)
        for fenced in (False, True):
            shown = cluster.member(asked).call(DescribeClusterRequest(include_fenced_brokers=fenced))
            assert [each.broker_id for each in shown.brokers] == [0, 1, 2]
            assert shown.controller_id == described.controller_id


def test_a_coordinator_forwards_requests_and_none_is_assigned_a_topic(cluster: DirectCluster) -> None:
    on_coordinator = CreatableTopic(
        name="u",
        num_partitions=-1,
        replication_factor=-1,
        assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(GROUP,)),),
    )
    too_many = CreatableTopic(name="v", num_partitions=1, replication_factor=4)
    created = cluster.member(GROUP).call(CreateTopicsRequest(topics=(on_coordinator, too_many), timeout_ms=1000))
    assert [each.error_code for each in created.topics] == [
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    ]


@pytest.mark.parametrize("clean", [True, False])
def test_when_it_is_lost_a_broker_coordinates_at_once_and_it_returns_after_its_time(
    cluster: DirectCluster, clean: bool
) -> None:
    coordinator(cluster)
    group = at(cluster, GROUP)
    member = stable_member(group)
    commit(group, 7, member_id=member, generation_id_or_member_epoch=1)
    group.member.stop(clean=clean)
    broker = at(cluster, coordinator(cluster))
    assert broker.member.broker_id in (0, 1, 2)
    assert heartbeat(broker, member) == ErrorCode.NONE
    assert committed(broker) == {("t", 0): 7}
    assert commit(broker, 8, member_id=member, generation_id_or_member_epoch=1) == ErrorCode.NONE
    group.member.start()
    cluster.pass_time(HOLD_MS - 1000)
    assert GROUP not in leaders(cluster)
    assert heartbeat(broker, member) == ErrorCode.NONE
    cluster.pass_time(3000)
    assert leaders(cluster) == {GROUP}
    assert (coordinator(cluster), heartbeat(group, member), committed(group)) == (GROUP, 0, {("t", 0): 8})


def test_after_a_second_crash_it_waits_twice_as_long(cluster: DirectCluster) -> None:
    coordinator(cluster)
    group = cluster.member(GROUP)
    for _ in range(2):
        group.stop(clean=False)
        group.start()
    cluster.pass_time(HOLD_MS + 3000)
    assert GROUP not in leaders(cluster)
    cluster.pass_time(HOLD_MS)
    assert leaders(cluster) == {GROUP}


def test_the_loss_of_a_coordinator_refuses_no_write_and_it_replaces_no_broker(cluster: DirectCluster) -> None:
    cluster.member(2).stop()
    assert coordinator(cluster) == GROUP
    group = at(cluster, GROUP)
    member = stable_member(group)
    assert commit(group, 1, member_id=member, generation_id_or_member_epoch=1) == ErrorCode.NONE
    cluster.member(1).stop()
    assert set(replicas(cluster)) >= {GROUP, 0, 1}
    assert commit(group, 2, member_id=member, generation_id_or_member_epoch=1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.member(1).start()
    cluster.pass_time(1000)
    assert commit(group, 3, member_id=member, generation_id_or_member_epoch=1) == ErrorCode.NONE
    group.member.stop(clean=False)
    broker = at(cluster, coordinator(cluster))
    assert commit(broker, 4, member_id=member, generation_id_or_member_epoch=1) == ErrorCode.NONE


def test_an_existing_cluster_moves_over_when_its_level_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "NEW_CLUSTER", (FeatureLevelChanged(METADATA_FEATURE, 5),))
    cluster = DirectCluster(3, CONFIG)
    cluster.create_topic("t", on=[[0, 1]])
    broker = at(cluster, coordinator(cluster))
    member = stable_member(broker, session_timeout_ms=60_000)
    commit(broker, 7, member_id=member, generation_id_or_member_epoch=1)
    cluster.brokers.append(DirectMember(cluster, BrokerId(GROUP)))
    group = at(cluster, GROUP)
    group.member.start(accepting=False)
    cluster.pass_time(5000)
    assert GROUP not in cluster.active.image.brokers
    key = FeatureUpdateKey(feature=METADATA_FEATURE, max_version_level=COORDINATORS_LEVEL)
    assert cluster.member(0).call(UpdateFeaturesRequest(feature_updates=(key,))).error_code == ErrorCode.NONE
    cluster.pass_time(HOLD_MS + 5000)
    assert len(replicas(cluster)) == 4
    assert leaders(cluster) == {GROUP}
    assert (coordinator(cluster), heartbeat(group, member), committed(group)) == (GROUP, 0, {("t", 0): 7})


def test_several_share_the_partitions_and_a_removed_one_leaves_them_to_the_others() -> None:
    cluster = DirectCluster(3, CONFIG, coordinators=(GROUP, GROUP + 1))
    coordinator(cluster)
    assert leaders(cluster) == {GROUP, GROUP + 1}
    cluster.member(GROUP + 1).shut_down()
    request = UnregisterBrokerRequest(broker_id=GROUP + 1)
    assert cluster.member(0).call(request).error_code == ErrorCode.NONE
    cluster.pass_time(HOLD_MS + 5000)
    assert leaders(cluster) == {GROUP}
    assert GROUP + 1 not in cluster.active.image.brokers
