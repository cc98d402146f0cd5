"""A broker that restarts with an empty directory does not lead a partition of which another replica has more."""

from __future__ import annotations

from raylog.core.errors import ErrorCode
from raylog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.broker.test_unclean_elections import cluster_without_a_leader, fetch, leader
from tests.support.direct_cluster import DirectCluster, DirectMember


def lose_disk(cluster: DirectCluster, broker_id: int) -> None:
    """Of a broker that is away."""
    member = cluster.brokers[broker_id]
    assert not member.running
    member.disk.rmtree(member.log_path)


def elect(member: DirectMember) -> None:
    """An unclean election."""
    wanted = TopicPartitions(topic="t", partitions=(0,))
    answer = member.call(ElectLeadersRequest(election_type=1, topic_partitions=(wanted,)))
    [result] = answer.replica_election_results[0].partition_result
    assert result.error_code == ErrorCode.NONE


def test_a_replica_that_has_less_leads_after_an_unclean_election() -> None:
    """Broker 0 alone was in sync, and its disk is gone with what only it had; broker 1 has less, but not nothing."""
    cluster = cluster_without_a_leader()
    first, second = cluster.brokers
    assert leader(second) == (-1, (0,))
    lose_disk(cluster, 0)
    first.start()
    cluster.pass_time(2000)
    assert leader(first) == leader(second) == (-1, ())
    elect(second)
    cluster.pass_time(2000)
    assert leader(first)[0] == 1
    assert set(leader(first)[1]) == {0, 1}
    assert fetch(second) == [b"a"]
    assert second.produce([b"c"]).error_code == ErrorCode.NONE
    cluster.pass_time(100)
    assert [partition.log.log_end_offset for partition in first.broker.partitions.values()] == [2]


def test_the_empty_replica_leads_after_an_unclean_election_without_another() -> None:
    cluster = cluster_without_a_leader()
    first, second = cluster.brokers
    second.stop()
    lose_disk(cluster, 0)
    first.start()
    assert leader(first) == (-1, ())
    elect(first)
    assert leader(first) == (0, (0,))
    assert fetch(first) == []


def test_an_in_sync_replica_catches_up() -> None:
    cluster = DirectCluster(3)
    cluster.create_topic("t", on=[[0, 1, 2]])
    cluster.pass_time(100)
    assert cluster.brokers[0].produce([b"a"]).error_code == ErrorCode.NONE
    cluster.brokers[0].stop(clean=False)
    lose_disk(cluster, 0)
    cluster.brokers[0].start()
    cluster.pass_time(2000)
    assert fetch(cluster.brokers[1]) == [b"a"]
    assert set(leader(cluster.brokers[1])[1]) == {0, 1, 2}


def test_partitions_with_a_single_replica_wait_for_an_unclean_election() -> None:
    cluster = DirectCluster(2)
    cluster.create_topic("t", on=[0])
    only = cluster.brokers[0]
    assert only.produce([b"gone"]).error_code == ErrorCode.NONE
    only.stop(clean=False)
    lose_disk(cluster, 0)
    only.start()
    cluster.pass_time(100)
    assert leader(only) == (-1, ())
    elect(only)
    assert leader(only) == (0, (0,))
    assert fetch(only) == []


def test_an_unchanged_directory_is_not_treated_as_lost() -> None:
    cluster = cluster_without_a_leader()
    first, second = cluster.brokers
    first.start()
    cluster.pass_time(2000)
    assert fetch(first) == [b"a", b"b"]
    assert leader(second)[0] == 0
