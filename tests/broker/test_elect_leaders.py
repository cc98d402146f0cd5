"""ElectLeaders on any broker is decided by the controller, with a result for each partition."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.broker.handlers.forwarded import FORWARD_MS_MAX
from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId, LeaderEpoch, TopicPartition
from raylog.core.outcome import Outcome
from raylog.metadata.records import MetadataRecord, PartitionCreated
from raylog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.support.direct_cluster import DirectCluster, DirectMember

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def cluster() -> DirectCluster:
    """Partition i of t is on broker i alone; partition 2, on both, is led by the one that is not preferred."""
    cluster = DirectCluster(2)
    topic_id = cluster.create_topic("t", partitions=2, on=[0, 1])
    replicated: MetadataRecord = PartitionCreated(topic_id, 2, (BrokerId(0), BrokerId(1)), BrokerId(1), LeaderEpoch(0))
    cluster.active.decide(Outcome(None, [replicated]), cluster.now())
    cluster.active.run(cluster.now())
    cluster.settle()
    return cluster


def asking(*topics: tuple[str, tuple[int, ...]] | None, kind: int = PREFERRED) -> ElectLeadersRequest:
    """Of these topics and partitions; of everything for a single None."""
    wanted = tuple(TopicPartitions(topic=each[0], partitions=each[1]) for each in topics if each is not None)
    return ElectLeadersRequest(topic_partitions=None if topics == (None,) else wanted, election_type=kind)


def results(answer: Any) -> list[tuple[str, int, ErrorCode]]:
    found = []
    for topic in answer.replica_election_results:
        for each in topic.partition_result:
            assert bool(each.error_message) == (each.error_code != ErrorCode.NONE)
            found.append((topic.topic, each.partition_id, each.error_code))
    return found


def elect(
    member: DirectMember, *topics: Any, kind: int = PREFERRED, version: int = 2
) -> list[tuple[str, int, ErrorCode]]:
    answer = member.call(asking(*topics, kind=kind), version=version)
    assert answer.error_code == ErrorCode.NONE
    return results(answer)


def leaders(member: DirectMember) -> list[tuple[int, int]]:
    """(leader, leader epoch) of the partitions of t."""
    return [(each.leader_id, each.leader_epoch) for each in member.describe("t").topics[0].partitions]


class TestPreferred:
    @pytest.mark.parametrize("version", range(3))
    @pytest.mark.parametrize("asked", [0, 1])
    def test_the_preferred_replica_leads_when_the_response_arrives(
        self, cluster: DirectCluster, asked: int, version: int
    ) -> None:
        member = cluster.brokers[asked]
        assert leaders(member) == [(0, 0), (1, 0), (1, 0)]
        assert elect(member, ("t", (2, 0)), version=version) == [
            ("t", 2, ErrorCode.NONE),
            ("t", 0, ErrorCode.ELECTION_NOT_NEEDED),
        ]
        assert leaders(member) == [(0, 0), (1, 0), (0, 1)]
        first, second = cluster.brokers
        assert first.produce([b"x"], partition=2, acks=1).error_code == ErrorCode.NONE
        assert second.produce([b"x"], partition=2).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_an_absent_preferred_replica_is_an_error(self, cluster: DirectCluster) -> None:
        first, second = cluster.brokers
        first.stop()
        assert elect(second, ("t", (0, 1, 2))) == [
            ("t", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
            ("t", 1, ErrorCode.ELECTION_NOT_NEEDED),
            ("t", 2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        ]
        assert leaders(second)[1:] == [(1, 0), (1, 0)]

    @pytest.mark.parametrize("version", range(3))
    def test_all_partitions_returns_only_those_that_needed_an_election(
        self, cluster: DirectCluster, version: int
    ) -> None:
        cluster.create_topic("u")
        member = cluster.brokers[0]
        assert elect(member, None, version=version) == [("t", 2, ErrorCode.NONE)]
        assert elect(member, None, version=version) == []

    def test_no_partitions_returns_no_results(self, cluster: DirectCluster) -> None:
        member = cluster.brokers[0]
        assert elect(member) == []
        assert leaders(member)[2] == (1, 0)

    @pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
    def test_unknown_partitions_are_an_error(self, cluster: DirectCluster, kind: int) -> None:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        asked = [("none", (0,)), ("t", (3, -1))]
        assert elect(cluster.brokers[0], *asked, kind=kind) == [
            ("none", 0, unknown),
            ("t", 3, unknown),
            ("t", -1, unknown),
        ]

    def test_a_duplicate_partition_has_two_results_and_one_election(self, cluster: DirectCluster) -> None:
        member = cluster.brokers[0]
        assert elect(member, ("t", (2, 2)), ("t", (2,))) == [("t", 2, ErrorCode.NONE)] * 3
        assert leaders(member)[2] == (0, 1)


class TestUnclean:
    @pytest.mark.parametrize("version", [1, 2])
    def test_a_partition_with_a_leader_needs_no_election(self, cluster: DirectCluster, version: int) -> None:
        member = cluster.brokers[0]
        wanted = [("t", (0, 1, 2))]
        assert elect(member, *wanted, kind=UNCLEAN, version=version) == [
            ("t", number, ErrorCode.ELECTION_NOT_NEEDED) for number in range(3)
        ]
        assert leaders(member)[2] == (1, 0)

    @pytest.mark.parametrize("version", [1, 2])
    def test_a_replica_that_is_not_in_sync_is_elected_if_no_other_is_alive(
        self, cluster: DirectCluster, version: int
    ) -> None:
        first, second = cluster.brokers
        first.stop()
        second.stop()
        first.start()
        assert leaders(first)[2][0] == -1
        assert elect(first, ("t", (2,)), version=version) == [("t", 2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
        assert elect(first, ("t", (2,)), kind=UNCLEAN, version=version) == [("t", 2, ErrorCode.NONE)]
        elected = first.describe("t").topics[0].partitions[2]
        assert (elected.leader_id, elected.isr_nodes) == (0, (0,))
        assert first.produce([b"x"], partition=2).error_code == ErrorCode.NONE

    @pytest.mark.parametrize("version", [1, 2])
    def test_a_partition_without_a_live_replica_has_no_eligible_leader(
        self, cluster: DirectCluster, version: int
    ) -> None:
        first, second = cluster.brokers
        first.stop()
        assert elect(second, None, kind=UNCLEAN, version=version) == [
            ("t", 0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        ]


class TestErrors:
    @pytest.mark.parametrize("version", [1, 2])
    def test_an_unknown_election_type_is_refused(self, cluster: DirectCluster, version: int) -> None:
        member = cluster.brokers[0]
        answer = member.call(asking(("t", (2, 0)), kind=2), version=version)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert results(answer) == [("t", 2, ErrorCode.INVALID_REQUEST), ("t", 0, ErrorCode.INVALID_REQUEST)]
        assert member.call(asking(None, kind=-1), version=version).error_code == ErrorCode.INVALID_REQUEST
        assert leaders(member)[2] == (1, 0)

    def test_an_election_that_cannot_be_written_is_not_held(self, cluster: DirectCluster) -> None:
        member = cluster.brokers[0]
        cluster.controller_disk.capacity_bytes = cluster.controller_disk.used_bytes()
        answer = member.call(asking(("t", (2,))))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert results(answer) == [("t", 2, ErrorCode.KAFKA_STORAGE_ERROR)]
        cluster.controller_disk.capacity_bytes = None
        assert leaders(member)[2] == (1, 0)
        assert elect(member, ("t", (2,))) == [("t", 2, ErrorCode.NONE)]

    @pytest.mark.parametrize("version", range(3))
    def test_without_a_controller_each_partition_times_out(self, cluster: DirectCluster, version: int) -> None:
        member = cluster.brokers[0]
        cluster.stop_controller()
        sent = member.send(asking(("t", (0, 1))), version=version)
        cluster.pass_time(FORWARD_MS_MAX)
        answer = member.answer(sent)
        assert answer.error_code == (ErrorCode.REQUEST_TIMED_OUT if version >= 1 else ErrorCode.NONE)
        assert results(answer) == [("t", 0, ErrorCode.REQUEST_TIMED_OUT), ("t", 1, ErrorCode.REQUEST_TIMED_OUT)]
        assert cluster.controller is None

    def test_an_election_survives_a_controller_restart(self, cluster: DirectCluster) -> None:
        elect(cluster.brokers[0], ("t", (2,)))
        cluster.stop_controller(clean=False, power_cut=True)
        cluster.start_controller()
        elected = cluster.active.image.partition(TopicPartition("t", 2))
        assert elected is not None
        assert elected.leader_epoch >= 1
        cluster.pass_time(20_000)
        assert leaders(cluster.brokers[0])[2][0] == 0


class TestAutomaticElections:
    """Preferred leaders come back without anybody's asking, where that is not forbidden."""

    @pytest.mark.parametrize(("enabled", "interval_s"), [("true", 300), ("true", 7), ("false", 7)])
    def test_preferred_leaders_are_elected_at_the_check_interval(self, enabled: str, interval_s: int) -> None:
        config = {
            "auto.leader.rebalance.enable": enabled,
            "leader.imbalance.check.interval.seconds": str(interval_s),
            "replica.lag.time.max.ms": "1000",
        }
        cluster = DirectCluster(2, config)
        cluster.create_topic("t", on=[[0, 1]])
        cluster.pass_time(500)
        first, second = cluster.brokers
        first.stop()
        cluster.pass_time(500)
        first.start()
        cluster.pass_time(4000)
        assert leaders(second) == [(1, 1)], "not before it is looked at"
        cluster.pass_time(interval_s * 1000)
        assert leaders(second) == ([(0, 2)] if enabled == "true" else [(1, 1)])

    def test_a_full_disk_delays_them(self) -> None:
        cluster = DirectCluster(2, {"leader.imbalance.check.interval.seconds": "7", "replica.lag.time.max.ms": "1000"})
        cluster.create_topic("t", on=[[0, 1]])
        first, second = cluster.brokers
        first.stop()
        first.start()
        cluster.pass_time(4000)
        cluster.controller_disk.capacity_bytes = cluster.controller_disk.used_bytes()
        cluster.pass_time(7000)
        assert leaders(second) == [(1, 1)]
        cluster.controller_disk.capacity_bytes = None
        cluster.pass_time(7000)
        assert leaders(second) == [(0, 2)]

    def test_unclean_elections_are_held_after_a_start_that_allows_them(self) -> None:
        cluster = DirectCluster(2, {"leader.imbalance.check.interval.seconds": "7"})
        cluster.create_topic("t", on=[[0, 1]])
        first, second = cluster.brokers
        second.stop()
        first.stop()
        second.start()
        cluster.stop_controller()
        cluster.config["unclean.leader.election.enable"] = "true"
        cluster.start_controller()
        cluster.pass_time(3000)
        assert leaders(second) == [(-1, 1)]
        cluster.pass_time(7000)
        assert leaders(second) == [(1, 2)]
