"""The coordinator of a group shows how far it is behind, in records and seconds, wherever the partitions are led."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.broker import consumer_lag
from raylog.broker.consumer_lag import SAMPLES_MAX, EndOffsets, Lag
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.test_metrics import commit, of_broker
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster, DirectMember

TP = TopicPartition("t", 0)


def ends(*samples: tuple[int, int]) -> EndOffsets:
    """Of (offset, time)."""
    found = EndOffsets()
    for offset, now_ms in samples:
        found.add(offset, now_ms)
    return found


class TestAge:
    def test_nothing_is_missing_at_the_end(self) -> None:
        assert ends((100, 0)).age_ms(100, 5000) == 0
        assert ends((100, 0)).age_ms(101, 5000) == 0

    def test_between_two_ends_it_is_interpolated(self) -> None:
        known = ends((0, 0), (100, 10_000), (200, 11_000))
        assert known.age_ms(50, 11_000) == 6000
        assert known.age_ms(150, 11_000) == 500
        assert known.age_ms(100, 11_000) == 1000

    def test_a_pause_of_the_producer_counts_from_its_end(self) -> None:
        known = ends((0, 0), (100, 1000), (100, 2000), (100, 60_000), (110, 61_000))
        assert known.age_ms(100, 61_000) == 1000, "the record at 100 was written after the pause"
        assert known.age_ms(50, 61_000) == 60_500

    def test_what_was_there_at_first_is_at_least_as_old(self) -> None:
        assert ends((1000, 0), (1001, 100)).age_ms(5, 30_000) == 30_000

    def test_a_truncated_log_begins_anew(self) -> None:
        known = ends((1000, 0), (2000, 1000), (1500, 2000))
        assert len(known) == 1
        assert known.age_ms(0, 3000) == 1000

    @given(st.lists(st.integers(0, 1000), min_size=1, max_size=300))
    def test_memory_is_bounded_and_the_age_never_negative_nor_above_the_first_sample(self, grown: list[int]) -> None:
        known, offset = EndOffsets(), 0
        for number, growth in enumerate(grown):
            offset += growth
            known.add(offset, number * 1000)
        now_ms = len(grown) * 1000
        assert len(known) <= SAMPLES_MAX
        ages = [known.age_ms(each, now_ms) for each in range(0, offset + 1, max(offset // 20, 1))]
        assert ages == sorted(ages, reverse=True)
        assert all(0 <= age <= now_ms for age in ages)


def lags_of(member: DirectMember) -> list[Lag]:
    done: list[bool] = []
    member.broker.prepare_scrape(member.cluster.now(), lambda: done.append(True))
    member.cluster.settle()
    member.cluster.pass_time(1)
    assert done == [True]
    return list(member.broker.consumer_lag.lags(member.cluster.now()))


def test_a_group_is_as_far_behind_as_its_commits_are() -> None:
    broker = DirectBroker()
    broker.create_topic("t")
    broker.produce([b"a"] * 10)
    commit(broker, "g", "t", 0, 4)
    [lag] = lags_of(broker)
    assert lag[:4] == ("g", TP, 4, 6)
    broker.pass_time(5000)
    [lag] = lags_of(broker)
    assert lag.age_ms is not None
    assert 5000 <= lag.age_ms <= 5010
    commit(broker, "g", "t", 0, 10)
    [lag] = lags_of(broker)
    assert lag[3:] == (0, 0)
    found = of_broker(broker)
    where = {"consumergroup": "g", "topic": "t", "partition": "0"}
    assert found("kafka_consumergroup_lag", **where) == 0
    assert found("kafka_consumergroup_current_offset", **where) == 10


class TestOtherLeaders:
    @pytest.fixture
    def cluster(self) -> DirectCluster:
        """Its brokers authorize every request."""
        authorizer = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        return DirectCluster(2, {**authorizer, "offsets.topic.num.partitions": "1"})

    def coordinator_and_leader(self, cluster: DirectCluster) -> tuple[DirectMember, DirectMember]:
        """The coordinator of all groups, and the other broker, which leads the only partition of `far`."""
        cluster.brokers[0].call(FindCoordinatorRequest(key="g"), version=2)
        cluster.settle()
        shown = cluster.active.image.topics["__consumer_offsets"].partitions[0]
        coordinator = cluster.brokers[shown.leader]
        [other] = [member for member in cluster.brokers if member is not coordinator]
        cluster.create_topic("far", on=[[int(other.broker_id)]])
        return coordinator, other

    def test_the_end_is_asked_of_the_leader(self, cluster: DirectCluster) -> None:
        coordinator, leader = self.coordinator_and_leader(cluster)
        leader.produce([b"a"] * 7, topic="far")
        commit(coordinator, "g", "far", 0, 5)
        [lag] = [each for each in lags_of(coordinator) if each.group == "g"]
        assert (lag.committed_offset, lag.records) == (5, 2)

    def test_a_leader_that_hangs_has_no_lag_shown_and_is_not_asked_again(self, cluster: DirectCluster) -> None:
        coordinator, leader = self.coordinator_and_leader(cluster)
        leader.produce([b"a"] * 7, topic="far")
        commit(coordinator, "g", "far", 0, 5)
        lags_of(coordinator)
        coordinator.silent = True
        cluster.pass_time(3000)
        link = coordinator.broker._coordination_link(leader.broker_id)
        ended: list[int] = []
        for number in range(5):
            coordinator.broker.prepare_scrape(cluster.now(), partial(ended.append, number))
        assert ended == [1, 2, 3, 4], "the first one waits for the leader"
        assert link.load == 1
        [lag] = coordinator.broker.consumer_lag.lags(cluster.now())
        assert lag.records is None
        assert of_broker(coordinator)("kafka_consumergroup_lag", consumergroup="g", topic="far", partition="0") is None
        coordinator.silent = False
        cluster.settle()
        assert ended == [1, 2, 3, 4, 0]
        [lag] = lags_of(coordinator)
        assert lag.records == 2


def test_clients_cannot_make_the_series_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_lag, "SERIES_MAX", 3)
    broker = DirectBroker()
    broker.create_topic("t", partitions=2)
    for number in range(5):
        commit(broker, f"g{number}", "t", 0, 0)
    assert len(lags_of(broker)) == 3


def test_commits_for_partitions_that_do_not_exist_have_no_lag() -> None:
    broker = DirectBroker()
    broker.create_topic("t")
    commit(broker, "g", "t", 0, 0)
    broker.cluster.delete_topic("t")
    assert lags_of(broker) == []
