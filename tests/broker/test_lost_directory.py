"""A broker whose log directory is gone acknowledges nothing more, and other brokers lead its partitions."""

from __future__ import annotations

import pytest

from raylog.core.errors import ErrorCode, InvariantViolation
from raylog.core.ids import TopicPartition
from tests.logstore.batches import contents
from tests.support.direct_cluster import DirectCluster, DirectMember

TP = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> DirectCluster:
    """t-0 is on brokers 0 and 1, and led by broker 0; "alone" is on broker 0 only."""
    cluster = DirectCluster(2)
    cluster.create_topic("t", on=[[0, 1]])
    cluster.create_topic("alone", on=[0])
    cluster.pass_time(500)
    return cluster


def leader(member: DirectMember, topic: str = "t") -> int:
    return int(member.describe(topic).topics[0].partitions[0].leader_id)


def test_another_in_sync_replica_leads_within_seconds(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    assert first.produce([b"before"], acks=-1).error_code == ErrorCode.NONE
    first.disk.rmtree(first.log_path)
    cluster.pass_time(2000)
    assert (leader(second), leader(second, "alone")) == (1, -1)
    assert second.produce([b"after"], acks=-1).error_code == ErrorCode.NONE
    for topic in ("t", "alone"):
        assert first.produce([b"lost"], topic=topic).error_code != ErrorCode.NONE
    cluster.pass_time(20_000)
    assert leader(second) == 1, "it stays fenced while its directory is gone"


def test_it_stops_cleanly_and_a_new_incarnation_copies_everything(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    assert first.produce([b"before"], acks=-1).error_code == ErrorCode.NONE
    first.disk.rmtree(first.log_path)
    cluster.pass_time(2000)
    first.shut_down()
    first.start()
    cluster.pass_time(5000)
    assert contents(first.broker.partitions[TP].log) == [(0, b"before")]
    assert set(second.describe("t").topics[0].partitions[0].isr_nodes) == {0, 1}


def test_one_deleted_partition_does_not_affect_the_others(cluster: DirectCluster) -> None:
    first, _ = cluster.brokers
    first.disk.rmtree(f"{first.log_path}/alone-0")
    cluster.pass_time(2000)
    assert first.produce([b"x"], topic="alone").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert first.produce([b"x"], acks=-1).error_code == ErrorCode.NONE


def test_another_replica_leads_a_partition_whose_leader_cannot_use_it(cluster: DirectCluster) -> None:
    """Only a whole broker can give up its leaderships, so it is fenced, as in Kafka, where a directory fails as a
    whole."""
    first, second = cluster.brokers
    assert first.produce([b"before"], acks=-1).error_code == ErrorCode.NONE
    first.disk.rmtree(f"{first.log_path}/t-0")
    cluster.pass_time(3000)
    assert leader(second) == 1
    assert second.produce([b"after"], acks=-1).error_code == ErrorCode.NONE
    assert first.broker.table.offline_reason is not None


def test_a_follower_that_cannot_use_its_replica_leads_its_other_partitions(cluster: DirectCluster) -> None:
    first, second = cluster.brokers
    second.disk.rmtree(f"{second.log_path}/t-0")
    assert first.produce([b"x"], acks=1).error_code == ErrorCode.NONE
    cluster.pass_time(60_000)
    assert second.broker.table.offline_reason is None
    assert first.produce([b"x"], acks=-1).error_code == ErrorCode.NONE, "it has left the ISR"


def test_a_controller_without_its_files_stops(cluster: DirectCluster) -> None:
    cluster.controller_disk.rmtree("/controller")
    with pytest.raises(InvariantViolation, match="the metadata log is offline: check of its files failed"):
        cluster.pass_time(2000)
