"""A broker stops once other replicas lead its partitions and every broker has the new metadata."""

from __future__ import annotations

from pathlib import Path

import pytest

from raylog.broker.lifecycle import SHUTDOWN_MS_MAX, SILENT_CONTROLLER_MS_MAX
from raylog.core.errors import ErrorCode
from raylog.protocol import registry
from tests.broker.test_lifecycle import listen_in
from tests.broker.test_replication import answer, fetch, isr, partition, send
from tests.support.cluster_thread import cluster_thread
from tests.support.direct_cluster import DirectCluster, DirectMember

SESSION_MS = 1000
CONFIG = {
    "min.insync.replicas": "2",
    "broker.heartbeat.interval.ms": "100",
    "broker.session.timeout.ms": str(SESSION_MS),
}


@pytest.fixture
def cluster() -> DirectCluster:
    """Three brokers with one partition, led by broker 0."""
    cluster = DirectCluster(3, CONFIG)
    cluster.create_topic("t", on=[[0, 1, 2]])
    cluster.pass_time(100)
    return cluster


def leader_of(cluster: DirectCluster, topic: str = "t") -> int:
    return cluster.active.image.topics[topic].partitions[0].leader


def begin(member: DirectMember) -> None:
    member.broker.begin_shutdown(member.cluster.now())
    member.cluster.settle()


def hold_metadata(member: DirectMember) -> None:
    """It continues to run, but gets no new metadata."""
    follower_link = member.broker.links[0]
    assert follower_link is not member.broker.lifecycle.link
    member.links.held = [follower_link]


def test_another_replica_leads_before_the_broker_closes(cluster: DirectCluster) -> None:
    leader, one, two = cluster.brokers
    assert answer(leader, send(leader, b"a")).error_code == ErrorCode.NONE
    begin(leader)
    assert not leader.broker.can_close
    assert (leader_of(cluster), isr(cluster)) == (1, (1, 2))
    assert answer(leader, send(leader, b"b")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.describe("t").topics[0].partitions[0].leader_id == 1
    assert answer(one, send(one, b"c")).error_code == ErrorCode.NONE
    cluster.pass_time(20)
    assert leader.broker.can_close
    leader.stop()
    assert cluster.active.image.alive == {1, 2}
    assert fetch(one) == [b"a", b"c"]
    leader.start()
    cluster.pass_time(1000)
    assert isr(cluster) == (0, 1, 2)
    assert [partition(member).log.log_end_offset for member in (leader, one, two)] == [2, 2, 2]


def test_producers_that_wait_for_acks_get_not_leader(cluster: DirectCluster) -> None:
    leader, one, two = cluster.brokers
    behind = [link for link in two.broker.links if link.peer == "broker-0"]
    two.links.held = behind
    sent = send(leader, b"a")
    assert answer(leader, sent) is None
    begin(leader)
    assert answer(leader, sent).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    two.links.held = []
    cluster.pass_time(20)
    assert leader.broker.can_close
    leader.stop()
    cluster.pass_time(100)
    assert fetch(one) in ([b"a"], [])
    assert partition(two).log.log_end_offset == partition(one).log.log_end_offset


def test_it_waits_until_all_other_brokers_have_the_metadata(cluster: DirectCluster) -> None:
    leader, _, two = cluster.brokers
    hold_metadata(two)
    begin(leader)
    cluster.pass_time(500)
    assert leader_of(cluster) == 1
    assert not leader.broker.can_close
    two.links.held = []
    cluster.settle()
    cluster.pass_time(20)
    assert leader.broker.can_close


def test_it_waits_until_it_has_the_metadata_itself(cluster: DirectCluster) -> None:
    leader, *_ = cluster.brokers
    hold_metadata(leader)
    sent = send(leader, b"a", acks=1)
    begin(leader)
    cluster.pass_time(500)
    assert not leader.broker.can_close
    leader.links.held = []
    cluster.pass_time(40)
    assert leader.broker.can_close
    assert answer(leader, sent).error_code == ErrorCode.NONE


def test_a_broker_that_hangs_does_not_delay_it(cluster: DirectCluster) -> None:
    leader, _, two = cluster.brokers
    two.silent = True
    begin(leader)
    cluster.pass_time(SESSION_MS + 100)
    assert leader.broker.can_close


def test_it_leads_partitions_without_other_in_sync_replicas_until_the_end(cluster: DirectCluster) -> None:
    leader, *_ = cluster.brokers
    cluster.create_topic("u", on=[0])
    begin(leader)
    cluster.pass_time(20)
    assert leader.broker.can_close
    assert leader.produce([b"x"], topic="u", acks=1).error_code == ErrorCode.NONE
    leader.stop()
    assert leader_of(cluster, "u") == -1
    assert cluster.active.image.topics["u"].partitions[0].isr == (0,)
    leader.start()
    cluster.pass_time(100)
    assert leader_of(cluster, "u") == 0


def test_it_is_not_proposed_for_the_isr_while_it_follows(cluster: DirectCluster) -> None:
    leader, one, two = cluster.brokers
    hold_metadata(two)  # so that it takes a while
    begin(leader)
    asked = listen_in(cluster.active, registry.ALTER_PARTITION)
    cluster.pass_time(700)
    assert partition(leader).log.log_end_offset == partition(one).log.log_end_offset
    assert asked == []


def test_a_new_controller_completes_it(cluster: DirectCluster) -> None:
    leader, _, two = cluster.brokers
    hold_metadata(two)
    begin(leader)
    cluster.stop_controller(clean=False)
    two.links.held = []
    cluster.start_controller()
    cluster.pass_time(2000)
    assert leader.broker.can_close
    assert cluster.active.image.alive == {1, 2}


def test_brokers_that_stop_at_once_do_not_wait_for_each_other(cluster: DirectCluster) -> None:
    assert answer(cluster.brokers[0], send(cluster.brokers[0], b"a")).error_code == ErrorCode.NONE
    for member in cluster.brokers:
        begin(member)
    cluster.pass_time(60)
    assert [member.broker.can_close for member in cluster.brokers] == [True, True, True]
    for member in cluster.brokers:
        member.stop()
    for member in cluster.brokers:
        member.start(accepting=False)
    cluster.pass_time(2000)
    assert isr(cluster) == (0, 1, 2)
    last = next(member for member in cluster.brokers if member.broker_id == leader_of(cluster))
    assert fetch(last) == [b"a"]


def test_a_single_broker_stops_within_two_heartbeats() -> None:
    cluster = DirectCluster(1, CONFIG)
    cluster.create_topic("t", partitions=50)
    cluster.brokers[0].shut_down(within_ms=20)


class TestWithoutAResponse:
    def test_an_absent_controller_is_waited_for_briefly(self, cluster: DirectCluster) -> None:
        cluster.stop_controller()
        (member, *_) = cluster.brokers
        begin(member)
        cluster.pass_time(SILENT_CONTROLLER_MS_MAX - 1)
        assert not member.broker.can_close
        assert answer(member, send(member, b"a")).error_code == ErrorCode.NONE, "until then it serves"
        cluster.pass_time(1)
        assert member.broker.can_close

    def test_a_controller_that_never_agrees_is_waited_for_until_the_time_limit(self, cluster: DirectCluster) -> None:
        leader, _, two = cluster.brokers
        hold_metadata(two)
        begin(leader)
        cluster.pass_time(SHUTDOWN_MS_MAX - 1)
        assert not leader.broker.can_close
        cluster.pass_time(1)
        assert leader.broker.can_close

    def test_an_unregistered_broker_stops_at_once(self, cluster: DirectCluster) -> None:
        (member, *_) = cluster.brokers
        member.stop()
        cluster.stop_controller()
        member.start(accepting=False)
        begin(member)
        assert member.broker.can_close

    def test_a_broker_without_controlled_shutdown_stops_at_once(self) -> None:
        cluster = DirectCluster(2, {**CONFIG, "controlled.shutdown.enable": "false"})
        cluster.create_topic("t", on=[[0, 1]])
        begin(cluster.brokers[0])
        assert cluster.brokers[0].broker.can_close
        assert leader_of(cluster) == 0

    def test_a_second_stop_request_stops_at_once(self, cluster: DirectCluster) -> None:
        leader, _, two = cluster.brokers
        hold_metadata(two)
        begin(leader)
        assert not leader.broker.can_close
        begin(leader)
        assert leader.broker.can_close


def test_the_server_waits_for_its_broker(tmp_path: Path) -> None:
    """Broker 1 stops first, and broker 0 has the change before the sockets are closed."""
    with cluster_thread({}, tmp_path / "log", brokers=2) as running:
        survivor = running.brokers[0]
        assert survivor.image.active == {0, 1}
    assert survivor.image.brokers[running.brokers[1].identity.node_id].shutdown_offset is not None
    assert survivor.can_close
