"""A consumer fetches from a replica on its own rack, and reads there what the leader has committed (KIP-392)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raylog.config.replication import LEADER_SELECTOR, RACK_AWARE_REPLICA_SELECTOR
from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.records.reader import read_batches
from tests.logstore.batches import NOW, batch, marker
from tests.support.direct_cluster import DirectCluster, DirectMember

TP = TopicPartition("t", 0)
VERSION = 12
RACKS = ("here", "there", "yonder")


def make_cluster(selector: str = RACK_AWARE_REPLICA_SELECTOR, racks: tuple[str, ...] = RACKS) -> DirectCluster:
    cluster = DirectCluster(len(racks), {"replica.selector.class": selector}, racks=racks)
    cluster.create_topic("t", on=[list(range(len(racks)))])
    cluster.pass_time(100)
    return cluster


@pytest.fixture
def cluster() -> DirectCluster:
    """Three brokers on as many racks, with one partition, led by broker 0, which is `here`."""
    return make_cluster()


def request(
    offset: int = 0, *, rack: str = "", max_wait_ms: int = 0, epoch: int = -1, committed: bool = False, **more: Any
) -> FetchRequest:
    wanted = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch, **more
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        topics=[FetchTopic(name="t", partitions=[wanted])],
        rack_id=rack,
        isolation_level=int(committed),
    )


def fetch(member: DirectMember, offset: int = 0, *, version: int = VERSION, **more: Any) -> Any:
    """The partition's result."""
    answer = member.call(request(offset, **more), version=version, connection=member.connect())
    return answer.responses[0].partitions[0]


def values(result: Any) -> list[bytes | None]:
    assert result.error_code == ErrorCode.NONE
    return [record.value for record in read_batches(b"".join(result.records or ()))]


def produce(member: DirectMember, *given: bytes) -> None:
    assert member.produce(list(given)).error_code == ErrorCode.NONE


class TestTheLeader:
    """It says who is closer."""

    def test_sends_the_consumer_to_a_replica_on_its_rack(self, cluster: DirectCluster) -> None:
        leader, *_ = cluster.brokers
        produce(leader, b"a")
        result = fetch(leader, rack="there")
        assert (result.preferred_read_replica, values(result)) == (1, [])
        assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (1, 1, 0)
        assert fetch(leader, rack="yonder").preferred_read_replica == 2

    @pytest.mark.parametrize("rack", ["", "here", "nowhere"])
    def test_serves_a_consumer_that_no_other_replica_is_closer_to(self, cluster: DirectCluster, rack: str) -> None:
        leader, *_ = cluster.brokers
        produce(leader, b"a")
        result = fetch(leader, rack=rack)
        assert (result.preferred_read_replica, values(result)) == (-1, [b"a"])

    def test_serves_all_consumers_without_the_selector(self) -> None:
        leader, *_ = make_cluster(LEADER_SELECTOR).brokers
        produce(leader, b"a")
        assert values(fetch(leader, rack="there")) == [b"a"]

    def test_redirects_without_waiting_for_data(self, cluster: DirectCluster) -> None:
        leader, *_ = cluster.brokers
        assert fetch(leader, rack="there", max_wait_ms=60_000).preferred_read_replica == 1

    def test_returns_the_preferred_replica_in_every_response_of_a_session(self, cluster: DirectCluster) -> None:
        leader, *_ = cluster.brokers
        first = leader.call(replace(request(rack="there"), session_id=0, session_epoch=0), version=VERSION)
        again = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=first.session_id, session_epoch=1, rack_id="there")
        assert leader.call(again, version=VERSION).responses[0].partitions[0].preferred_read_replica == 1

    def test_prefers_no_replica_that_is_fenced_or_out_of_sync(self, cluster: DirectCluster) -> None:
        leader, one, _ = cluster.brokers
        one.stop()
        produce(leader, b"a")
        assert values(fetch(leader, rack="there")) == [b"a"]

    def test_prefers_no_replica_that_lags(self, cluster: DirectCluster) -> None:
        leader, one, _ = cluster.brokers
        produce(leader, b"a")
        one.links.held = [link for link in one.broker.links if link.peer == "broker-0"]
        assert leader.produce([b"b"], acks=1).error_code == ErrorCode.NONE
        cluster.pass_time(60_000)
        assert cluster.active.image.is_alive(one.broker_id)
        assert values(fetch(leader, rack="there")) == [b"a", b"b"]

    def test_prefers_no_replica_without_the_fetch_offset(self, cluster: DirectCluster) -> None:
        leader, one, _ = cluster.brokers
        one.silent = True
        assert leader.produce([b"a"], acks=1).error_code == ErrorCode.NONE
        assert fetch(leader, 1, rack="there").preferred_read_replica == -1
        assert fetch(leader, 0, rack="there").preferred_read_replica == 1
        one.silent = False
        cluster.settle()
        produce(leader, b"b")
        partition = one.broker.partitions[TP]
        partition.delete_records_before(partition.high_watermark)
        one.broker.fetchers.leaders_changed([TP], cluster.now())  # as retention has it told
        cluster.pass_time(1000)
        assert values(fetch(leader, 0, rack="there")) == [b"a", b"b"]

    def test_prefers_the_replica_with_the_most_records(self) -> None:
        cluster = make_cluster(racks=("here", "there", "there"))
        leader, one, two = cluster.brokers
        for lagging, other in ((one, two), (two, one)):
            lagging.silent = True
            assert leader.produce([b"a"], acks=1).error_code == ErrorCode.NONE
            assert fetch(leader, rack="there").preferred_read_replica == other.broker_id
            lagging.silent = False
            cluster.pass_time(1000)


class TestAFollower:
    """It serves what it knows to be committed."""

    def test_serves_up_to_its_high_watermark(self, cluster: DirectCluster) -> None:
        leader, one, two = cluster.brokers
        produce(leader, b"a")
        two.silent = True
        assert leader.produce([b"b"], acks=1).error_code == ErrorCode.NONE
        result = fetch(one)
        assert (values(result), result.high_watermark) == ([b"a"], 1)
        assert values(fetch(one, 1)) == [], "it has it, and it is not committed"
        two.silent = False
        cluster.settle()
        assert values(fetch(one, 1)) == [b"b"]

    def test_completes_a_waiting_fetch_when_its_high_watermark_advances(self, cluster: DirectCluster) -> None:
        leader, one, _ = cluster.brokers
        connection = one.connect()
        waiting = one.send(request(max_wait_ms=60_000), version=VERSION, connection=connection)
        assert one.answer(waiting, connection=connection) is None
        produce(leader, b"a")
        cluster.settle()
        assert values(one.answer(waiting, connection=connection).responses[0].partitions[0]) == [b"a"]

    def test_learns_the_high_watermark_with_the_next_fetch_before_v18(self) -> None:
        cluster = make_cluster(LEADER_SELECTOR)
        leader, one, _ = cluster.brokers
        connection = one.connect()
        waiting = one.send(request(max_wait_ms=60_000), version=VERSION, connection=connection)
        produce(leader, b"a")
        assert one.answer(waiting, connection=connection) is None
        cluster.pass_time(500)
        assert values(one.answer(waiting, connection=connection).responses[0].partitions[0]) == [b"a"]

    def test_returns_offset_not_available_beyond_its_log_and_out_of_range_before_it(
        self, cluster: DirectCluster
    ) -> None:
        leader, one, _ = cluster.brokers
        produce(leader, b"a")
        produce(leader, b"b")
        cluster.settle()
        assert fetch(one, 3).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert fetch(one, 3, last_fetched_epoch=0).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert fetch(leader, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        one.broker.partitions[TP].delete_records_before(one.broker.partitions[TP].high_watermark)
        assert fetch(one, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_checks_the_leader_epoch_of_the_consumer(self, cluster: DirectCluster) -> None:
        leader, one, two = cluster.brokers
        produce(leader, b"a")
        cluster.settle()
        assert values(fetch(two, epoch=0)) == [b"a"]
        assert fetch(two, epoch=1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        connection = two.connect()
        waiting = two.send(request(1, epoch=0, max_wait_ms=60_000), version=VERSION, connection=connection)
        leader.stop()
        cluster.pass_time(100)
        answered = two.answer(waiting, connection=connection).responses[0].partitions[0]
        assert answered.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert values(fetch(two, epoch=1)) == [b"a"]
        assert values(fetch(one, epoch=1)) == [b"a"]

    def test_redirects_consumers_without_a_rack_to_the_leader(self, cluster: DirectCluster) -> None:
        _, one, _ = cluster.brokers
        assert fetch(one, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert fetch(one, version=11).error_code == ErrorCode.NONE

    def test_ends_read_committed_fetches_at_the_last_stable_offset(self, cluster: DirectCluster) -> None:
        leader, one, _ = cluster.brokers

        def append(record_set: bytearray) -> None:
            leader.broker.partition(TP).append_as_leader(memoryview(record_set), now_ms=NOW, from_client=False)
            leader.broker.partition_appended(TP, len(record_set))
            cluster.pass_time(1000)

        produce(leader, b"a")
        append(batch(b"aborted", producer=(7, 0, 0), transactional=True))
        result = fetch(one, committed=True)
        assert (values(result), result.last_stable_offset, result.high_watermark) == ([b"a"], 1, 2)
        assert values(fetch(one)) == [b"a", b"aborted"]
        connection = one.connect()
        waiting = one.send(request(1, committed=True, max_wait_ms=60_000), version=VERSION, connection=connection)
        append(marker(7, committed=False))
        result = one.answer(waiting, connection=connection).responses[0].partitions[0]
        assert [(each.producer_id, each.first_offset) for each in result.aborted_transactions] == [(7, 1)]
        at_leader = fetch(leader, 1, committed=True)
        assert (result.last_stable_offset, result.aborted_transactions) == (3, at_leader.aborted_transactions)
