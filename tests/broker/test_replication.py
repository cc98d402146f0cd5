"""Records of all in-sync replicas are acknowledged and read, and survive the loss of all replicas but one."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from raylog.broker import isr_changes, replica_fetchers
from raylog.broker.handlers import fetch as fetch_handler
from raylog.core.coordinator_partition import coordinator_partition
from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId, Offset, TopicPartition
from raylog.logstore.log import FetchSlice, Log
from raylog.protocol import registry
from raylog.protocol.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.reader import read_batches
from raylog.replication.partition import Partition
from tests.broker.test_lifecycle import listen_in
from tests.support.direct_cluster import DirectCluster, DirectMember
from tests.support.exchanges import Answers, exchange_on

TP = TopicPartition("t", 0)
LAG_MS = 10_000


@pytest.fixture
def cluster() -> DirectCluster:
    """Three brokers with one partition, led by broker 0, of which two replicas must be in sync."""
    cluster = DirectCluster(3, {"min.insync.replicas": "2", "replica.lag.time.max.ms": str(LAG_MS)})
    cluster.create_topic("t", on=[[0, 1, 2]])
    cluster.pass_time(100)
    return cluster


def partition(member: DirectMember) -> Partition:
    return member.broker.partitions[TP]


def isr(cluster: DirectCluster) -> tuple[int, ...]:
    return cluster.active.image.topics["t"].partitions[0].isr


def send(member: DirectMember, *values: bytes, acks: int = -1, timeout_ms: int = 60_000, **more: Any) -> Any:
    """Produce on a connection of its own; what `member.answer` wants to know."""
    connection = member.connect()
    records = build_batch([NewRecord(None, value, member.cluster.now().wall_ms) for value in values], **more)
    part = ProducePartition(index=0, records=memoryview(records))
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topics=[ProduceTopic(name="t", partitions=[part])])
    return connection, member.send(request, version=9, connection=connection)


def answer(member: DirectMember, sent: Any) -> Any:
    connection, waiting = sent
    answered = member.answer(waiting, connection=connection)
    return None if answered is None else answered.responses[0].partitions[0]


def fetch(member: DirectMember, offset: int = 0) -> list[bytes | None] | ErrorCode:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(name="t", partitions=[wanted])])
    result = member.call(request, version=12, connection=member.connect()).responses[0].partitions[0]
    if result.error_code != ErrorCode.NONE:
        code: ErrorCode = result.error_code
        return code
    return [record.value for record in read_batches(b"".join(result.records or ()))]


def test_acks_all_waits_for_all_in_sync_replicas(cluster: DirectCluster) -> None:
    leader, one, two = cluster.brokers
    two.silent = True
    sent = send(leader, b"a")
    assert answer(leader, sent) is None
    assert partition(one).log.log_end_offset == 1
    assert fetch(leader) == [], "not everybody has it"
    two.silent = False
    cluster.settle()
    answered = answer(leader, sent)
    assert (answered.error_code, answered.base_offset) == (ErrorCode.NONE, 0)
    assert fetch(leader) == [b"a"]
    cluster.pass_time(1000)
    assert [partition(member).high_watermark for member in cluster.brokers] == [1, 1, 1]


def test_acks_1_does_not_wait(cluster: DirectCluster) -> None:
    leader, *others = cluster.brokers
    for member in others:
        member.silent = True
    assert answer(leader, send(leader, b"a", acks=1)).error_code == ErrorCode.NONE
    assert fetch(leader) == []


def test_another_in_sync_replica_takes_over_from_a_killed_leader(cluster: DirectCluster) -> None:
    leader, one, two = cluster.brokers
    assert answer(leader, send(leader, b"a", b"b")).error_code == ErrorCode.NONE
    leader.stop(clean=False, power_cut=True)
    cluster.pass_time(100)
    assert cluster.active.image.topics["t"].partitions[0].leader == 1
    assert isr(cluster) == (1, 2)
    assert answer(one, send(one, b"c")).error_code == ErrorCode.NONE
    assert fetch(one) == [b"a", b"b", b"c"]
    assert answer(two, send(two, b"d")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.start()
    cluster.pass_time(2000)
    assert isr(cluster) == (0, 1, 2), "it has come back, and caught up"
    assert partition(leader).log.log_end_offset == 3


def test_unacknowledged_records_are_truncated_after_a_failover(cluster: DirectCluster) -> None:
    leader, one, two = cluster.brokers
    assert answer(leader, send(leader, b"a")).error_code == ErrorCode.NONE
    one.silent = two.silent = True
    sent = send(leader, b"lost", b"lost too")
    assert answer(leader, sent) is None
    leader.stop(clean=False, noticed=True)
    one.silent = two.silent = False
    cluster.pass_time(100)
    assert answer(one, send(one, b"b")).error_code == ErrorCode.NONE
    leader.start()
    cluster.pass_time(2000)
    assert fetch(one) == [b"a", b"b"]
    for member in cluster.brokers:
        log = partition(member).log
        assert (log.log_end_offset, log.leader_epochs.entries) == (2, [(0, 0), (1, 1)])


def test_a_follower_truncates_where_the_logs_diverge_not_at_its_high_watermark(cluster: DirectCluster) -> None:
    """Others may know of a later one, and it is in sync with them."""
    leader, one, _ = cluster.brokers
    for value in (b"a", b"b", b"c"):
        assert answer(leader, send(leader, value)).error_code == ErrorCode.NONE
    follower = partition(one)
    follower._high_watermark = Offset(1)
    told = FetchPartitionResponse(partition_index=0, diverging_epoch=EpochEndOffset(epoch=0, end_offset=2))
    copy = replica_fetchers._Copy(follower, one.broker.fetchers._hooks, cluster.now())
    assert copy.apply(told, cluster.now())
    assert follower.log.log_end_offset == 2


def test_a_silent_follower_leaves_the_isr_and_no_longer_delays_commits(cluster: DirectCluster) -> None:
    leader, _, two = cluster.brokers
    two.silent = True
    sent = send(leader, b"a")
    cluster.pass_time(2 * LAG_MS)
    assert isr(cluster) == (0, 1)
    assert answer(leader, sent).error_code == ErrorCode.NONE


def test_changes_of_many_isrs_are_divided_into_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller decides one request in one event, which must not take long."""
    monkeypatch.setattr(isr_changes, "PROPOSALS_MAX", 2)
    cluster = DirectCluster(2, {"replica.lag.time.max.ms": str(LAG_MS)})
    cluster.create_topic("t", on=[[0, 1]] * 5)
    cluster.brokers[1].stop()
    cluster.pass_time(100)
    asked = listen_in(cluster.active, registry.ALTER_PARTITION)
    cluster.brokers[1].start()
    cluster.pass_time(2000)
    assert {partition.isr for partition in cluster.active.image.topics["t"].partitions} == {(0, 1)}
    assert [len(request.topics) for request in asked] == [1, 2, 2], "the first for the first partition in sync"


def test_below_min_insync_replicas_writes_are_refused_and_reads_continue(cluster: DirectCluster) -> None:
    leader, one, two = cluster.brokers
    assert answer(leader, send(leader, b"a")).error_code == ErrorCode.NONE
    one.stop()
    two.stop()
    cluster.pass_time(100)
    assert isr(cluster) == (0,)
    assert answer(leader, send(leader, b"b")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert fetch(leader) == [b"a"]
    assert answer(leader, send(leader, b"c", acks=1)).error_code == ErrorCode.NONE
    one.start()
    cluster.pass_time(2000)
    assert answer(leader, send(leader, b"d")).error_code == ErrorCode.NONE
    assert fetch(leader) == [b"a", b"c", b"d"]


def test_below_min_insync_replicas_after_the_append_is_an_error(cluster: DirectCluster) -> None:
    leader, one, two = cluster.brokers
    one.silent = two.silent = True
    sent = send(leader, b"a")
    one.stop(clean=False)
    two.stop(clean=False)
    cluster.pass_time(100)
    assert isr(cluster) == (0,)
    assert answer(leader, sent).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_batch_not_replicated_in_time_is_an_error(cluster: DirectCluster) -> None:
    leader, one, two = cluster.brokers
    one.silent = two.silent = True
    sent = send(leader, b"a", timeout_ms=500)
    cluster.pass_time(499)
    assert answer(leader, sent) is None
    cluster.pass_time(2)
    assert answer(leader, sent).error_code == ErrorCode.REQUEST_TIMED_OUT


def test_only_the_last_in_sync_replica_may_lead(cluster: DirectCluster) -> None:
    leader, one, two = cluster.brokers
    assert answer(leader, send(leader, b"a")).error_code == ErrorCode.NONE
    one.stop()
    two.stop()
    cluster.pass_time(100)
    assert answer(leader, send(leader, b"b", acks=1)).error_code == ErrorCode.NONE
    leader.stop()
    one.start()
    two.start()
    cluster.pass_time(1000)
    assert cluster.active.image.topics["t"].partitions[0].leader == -1
    assert answer(one, send(one, b"c", acks=1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.start()
    cluster.pass_time(2000)
    assert isr(cluster) == (0, 1, 2)
    assert fetch(leader) == [b"a", b"b"]


def test_an_idempotent_retry_after_a_leader_change_is_appended_once(cluster: DirectCluster) -> None:
    leader, one, _ = cluster.brokers
    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    assert answer(leader, send(leader, b"a", **producer)).error_code == ErrorCode.NONE
    leader.stop(clean=False)
    cluster.pass_time(100)
    assert answer(one, send(one, b"a", **producer)).base_offset == 0
    assert fetch(one) == [b"a"]


def test_a_follower_restarts_its_log_if_the_leader_has_deleted_its_next_offset(cluster: DirectCluster) -> None:
    leader, _, two = cluster.brokers
    two.stop()
    cluster.pass_time(100)
    for value in (b"a", b"b", b"c"):
        assert answer(leader, send(leader, value)).error_code == ErrorCode.NONE
    partition(leader).delete_records_before(partition(leader).high_watermark)
    assert answer(leader, send(leader, b"d")).error_code == ErrorCode.NONE
    two.start()
    cluster.pass_time(2000)
    assert isr(cluster) == (0, 1, 2)
    log = partition(two).log
    assert (log.log_start_offset, log.log_end_offset) == (3, 4)


def test_a_follower_restarts_its_log_within_a_batch(cluster: DirectCluster) -> None:
    """DeleteRecords moves the log start offset into a batch, which Fetch returns as a whole."""
    leader, _, two = cluster.brokers
    two.stop()
    cluster.pass_time(100)
    assert answer(leader, send(leader, b"a", b"b", b"c")).error_code == ErrorCode.NONE
    partition(leader).delete_records_before(Offset(2))
    two.start()
    cluster.pass_time(2000)
    assert isr(cluster) == (0, 1, 2)
    log = partition(two).log
    assert (log.log_start_offset, log.log_end_offset) == (2, 3)
    assert partition(two).high_watermark == 3


def test_without_a_controller_replication_continues(cluster: DirectCluster) -> None:
    leader, *_ = cluster.brokers
    cluster.stop_controller()
    assert answer(leader, send(leader, b"a")).error_code == ErrorCode.NONE
    assert fetch(leader) == [b"a"]


class TestGroups:
    """What a coordinator has answered is kept by its followers, one of whom takes over."""

    @pytest.fixture
    def cluster(self) -> DirectCluster:
        config = {"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "1"}
        cluster = DirectCluster(3, config)
        cluster.create_topic("t")
        find = FindCoordinatorRequest(key="g", key_type=0)
        cluster.brokers[0].call(find, version=2)
        cluster.pass_time(1000)
        return cluster

    def test_a_commit_waits_for_all_in_sync_replicas(self, cluster: DirectCluster) -> None:
        leader, *others = coordinator_first(cluster)
        for member in others:
            member.silent = True
        sent = send_commit(leader, 7)
        assert group_answer(leader, sent) is None
        asking = send_committed(leader)
        assert group_answer(leader, asking) is None, "the answer would tell of it"
        for member in others:
            member.silent = False
        cluster.settle()
        assert group_answer(leader, sent) is not None
        assert committed_offset(group_answer(leader, asking)) == 7

    def test_the_next_coordinator_has_all_acknowledged_commits(self, cluster: DirectCluster) -> None:
        leader, *others = coordinator_first(cluster)
        assert group_answer(leader, send_commit(leader, 7)) is not None
        leader.stop(clean=False, power_cut=True)
        cluster.pass_time(100)
        keeper = coordinator_first(cluster)[0]
        assert keeper in others
        assert committed_offset(group_answer(keeper, send_committed(keeper))) == 7

    def test_a_commit_fails_with_not_coordinator_when_leadership_is_lost(self, cluster: DirectCluster) -> None:
        leader, *others = coordinator_first(cluster)
        for member in others:
            member.silent = True
        sent = send_commit(leader, 7)
        leader.links.cut(cluster.now())
        for member in others:
            member.silent = False
        cluster.pass_time(3000)
        assert coordinator_first(cluster)[0] is not leader
        assert commit_codes(group_answer(leader, sent)) == [ErrorCode.NOT_COORDINATOR]
        assert not sent[0].closing

    def test_a_commit_that_waits_too_long_fails_with_a_retriable_error(self, cluster: DirectCluster) -> None:
        leader, *others = coordinator_first(cluster)
        for member in others:
            member.silent = True
        sent, asking = send_commit(leader, 7), send_committed(leader)
        cluster.pass_time(6000)
        assert commit_codes(group_answer(leader, sent)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert group_answer(leader, asking).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not sent[0].closing


def test_a_hung_follower_of_one_partition_delays_only_its_own_groups() -> None:
    """All other groups of the coordinator go on: commits, rebalances and questions."""
    config = {"offsets.topic.replication.factor": "2", "offsets.topic.num.partitions": "8"}
    cluster = DirectCluster(3, config)
    cluster.create_topic("t")
    cluster.brokers[0].call(FindCoordinatorRequest(key="g", key_type=0), version=2)
    cluster.pass_time(1000)
    shown = cluster.active.image.topics["__consumer_offsets"].partitions
    hung = cluster.brokers[2]
    groups = {coordinator_partition(name, 8): name for name in map(str, range(200))}
    led = [(number, each) for number, each in enumerate(shown) if each.leader == 0]
    slow = next(groups[number] for number, each in led if 2 in each.replicas)
    quick = next(groups[number] for number, each in led if 2 not in each.replicas)
    leader = cluster.brokers[0]
    hung.silent = True
    waiting = send_commit(leader, 7, group=slow)
    assert group_answer(leader, waiting) is None
    assert commit_codes(group_answer(leader, send_commit(leader, 8, group=quick))) == [ErrorCode.NONE]
    assert committed_offset(group_answer(leader, send_committed(leader, group=quick))) == 8
    joining = leader.connect()
    join = JoinGroupRequest(
        group_id=quick,
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
        group_instance_id="i",
    )
    sent = joining, leader.send(join, connection=joining)
    cluster.pass_time(3500)
    assert group_answer(leader, sent).error_code == ErrorCode.NONE
    assert group_answer(leader, waiting) is None
    hung.silent = False
    cluster.settle()
    assert commit_codes(group_answer(leader, waiting)) == [ErrorCode.NONE]


def coordinator_first(cluster: DirectCluster) -> list[DirectMember]:
    leader = cluster.active.image.topics["__consumer_offsets"].partitions[0].leader
    return sorted(cluster.brokers, key=lambda member: member.broker_id != leader)


def send_commit(member: DirectMember, offset: int, *, group: str = "g") -> Any:
    partitions = (OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None),)
    topics = (OffsetCommitRequestTopic(name="t", partitions=partitions),)
    connection = member.connect()
    return connection, member.send(OffsetCommitRequest(group_id=group, topics=topics), version=8, connection=connection)


def send_committed(member: DirectMember, *, group: str = "g") -> Any:
    topics = (OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),)
    connection = member.connect()
    return connection, member.send(OffsetFetchRequest(group_id=group, topics=topics), version=7, connection=connection)


def group_answer(member: DirectMember, sent: Any) -> Any:
    connection, waiting = sent
    return member.answer(waiting, connection=connection)


def commit_codes(answered: Any) -> list[ErrorCode]:
    return [each.error_code for topic in answered.topics for each in topic.partitions]


def committed_offset(answered: Any) -> int:
    offset: int = answered.topics[0].partitions[0].committed_offset
    return offset


class TestMetadataDuringFailover:
    """A client that requests metadata right after a failure gets the new leader, not the old one."""

    def ask(self, member: DirectMember) -> Any:
        connection = member.connect()
        request = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
        return connection, member.send(request, version=12, connection=connection)

    def leader_told(self, member: DirectMember, sent: Any) -> int | None:
        connection, waiting = sent
        answered = member.answer(waiting, connection=connection)
        return None if answered is None else answered.topics[0].partitions[0].leader_id

    def test_it_waits_for_the_election(self, cluster: DirectCluster) -> None:
        leader, one, two = cluster.brokers
        leader.silent = one.silent = two.silent = True
        one.links.cut(cluster.now(), server=leader.broker)
        sent = self.ask(one)
        assert self.leader_told(one, sent) is None
        assert self.leader_told(two, self.ask(two)) == 0, "it has noticed nothing"
        one.silent = two.silent = False
        leader.stop(clean=False)
        assert self.leader_told(one, sent) == 1

    def test_it_waits_for_a_short_time_only(self, cluster: DirectCluster) -> None:
        leader, one, _ = cluster.brokers
        leader.silent = True
        one.links.cut(cluster.now(), server=leader.broker)
        sent = self.ask(one)
        assert self.leader_told(one, sent) is None
        cluster.pass_time(101)
        assert self.leader_told(one, sent) == 0
        assert self.leader_told(one, self.ask(one)) == 0


class TestFetchSessions:
    """A follower names what has changed, and its leader answers with what is new."""

    @pytest.fixture
    def cluster(self) -> DirectCluster:
        cluster = DirectCluster(2, {"replica.fetch.wait.max.ms": "500"})
        cluster.create_topic("t", on=[[0, 1]] * 20)
        cluster.pass_time(3000)
        return cluster

    def followed(self, cluster: DirectCluster) -> list[Any]:
        """The fetches that the leader gets from now on."""
        return listen_in(cluster.brokers[0].broker, registry.FETCH)

    def named(self, request: Any) -> list[int]:
        return [wanted.partition for topic in request.topics for wanted in topic.partitions]

    def test_idle_partitions_are_not_sent(self, cluster: DirectCluster) -> None:
        asked = self.followed(cluster)
        cluster.pass_time(5000)
        assert 9 <= len(asked) <= 11, "one poll at a time"
        assert [self.named(request) for request in asked] == [[]] * len(asked)
        assert {request.session_id for request in asked} != {0}

    def test_idle_partitions_are_not_read(self, cluster: DirectCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        reads: list[int] = []
        right = Log.read

        def read(self: Log, *args: Any, **more: Any) -> FetchSlice:
            if self.topic_partition.topic == "t":
                reads.append(self.topic_partition.partition)
            return right(self, *args, **more)

        monkeypatch.setattr(Log, "read", read)
        cluster.pass_time(2000)
        assert reads == []
        assert cluster.brokers[0].produce([b"x"], partition=7).error_code == ErrorCode.NONE
        assert set(reads) == {7}
        cluster.create_topic("u", on=[[0]])
        cluster.pass_time(1000)
        assert set(reads) == set(range(20)), "the metadata has changed"

    def test_an_idle_follower_is_in_sync_when_records_come(self) -> None:
        """It was idle for longer than replica.lag.time.max.ms, in which none of its requests named the partition."""
        cluster = DirectCluster(2, {"replica.fetch.wait.max.ms": "500", "replica.lag.time.max.ms": "2000"})
        cluster.create_topic("t", on=[[0, 1]])
        cluster.pass_time(60_000)
        leader, follower = cluster.brokers
        follower.silent = True
        send(leader, b"a")
        leader.broker.isr_changes.check_all(cluster.now())
        cluster.pass_time(1000)
        leader.broker.isr_changes.check_all(cluster.now())
        assert isr(cluster) == (0, 1)
        cluster.pass_time(1001)
        leader.broker.isr_changes.check_all(cluster.now())
        cluster.settle()
        assert isr(cluster) == (0,)

    def test_a_partition_with_records_has_the_busy_lane_until_it_is_quiet(self, cluster: DirectCluster) -> None:
        leader, follower = cluster.brokers
        asked = self.followed(cluster)
        cluster.pass_time(1000)
        [quiet] = {request.session_id for request in asked}
        asked.clear()
        for number in range(10):
            assert leader.produce([b"%d" % number], partition=7).error_code == ErrorCode.NONE
        assert follower.broker.partitions[TopicPartition("t", 7)].log.log_end_offset == 10
        assert [self.named(request) for request in asked if request.session_id != quiet] == [[7]] * 10
        assert [self.named(request) for request in asked if request.session_id == quiet] == [[]]
        cluster.pass_time(3000)
        asked.clear()
        cluster.pass_time(5000)
        assert {request.session_id for request in asked} == {quiet}, "it is back among the others"

    @pytest.mark.parametrize(
        "code",
        [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR],
    )
    def test_a_refused_session_is_replaced(self, cluster: DirectCluster, code: ErrorCode) -> None:
        leader, follower = cluster.brokers
        refusals = [code]
        asked = listen_in(
            leader.broker, registry.FETCH, lambda _: FetchResponse(error_code=refusals.pop()) if refusals else None
        )
        cluster.pass_time(1000)
        assert refusals == []
        assert (asked[0].session_epoch > 0, self.named(asked[0])) == (True, [])
        assert asked[1].session_epoch == 0
        assert sorted(self.named(asked[1])) == list(range(20))
        assert leader.produce([b"x"], partition=3).error_code == ErrorCode.NONE
        assert follower.broker.partitions[TopicPartition("t", 3)].log.log_end_offset == 1

    def test_a_lost_request_is_repeated_in_full(self, cluster: DirectCluster) -> None:
        leader, follower = cluster.brokers
        follower.links.held = [link for link in follower.broker.links if link.peer == "broker-0"]
        cluster.create_topic("u", on=[[0, 1]])
        follower.links.cut(cluster.now(), server=leader.broker)
        follower.links.held = []
        cluster.pass_time(1000)
        assert leader.produce([b"x"], topic="u").error_code == ErrorCode.NONE
        cluster.pass_time(1000)
        assert follower.broker.partitions[TopicPartition("u", 0)].log.log_end_offset == 1

    def test_the_first_request_to_a_new_leader_names_all_partitions(self) -> None:
        """One long poll for each partition would delay the others, and each would iterate over all that wait."""
        cluster = DirectCluster(3, {"replica.fetch.wait.max.ms": "500"})
        cluster.create_topic("t", on=[[0, 1, 2]] * 20)
        cluster.pass_time(3000)
        old, new, _ = cluster.brokers
        asked = listen_in(new.broker, registry.FETCH)
        old.stop(clean=False)
        cluster.pass_time(100)
        assert {partition.leader for partition in cluster.active.image.topics["t"].partitions} == {new.broker_id}
        assert sorted(self.named(asked[0])) == list(range(20))

    def test_followers_get_sessions_before_consumers(self) -> None:
        cluster = DirectCluster(2, {"max.incremental.fetch.session.cache.slots": "2"})
        cluster.create_topic("t", on=[[0, 1]] * 3)
        leader, _ = cluster.brokers
        cluster.brokers[1].stop()
        for _ in range(3):
            wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
            topic = FetchTopic(name="t", partitions=[wanted])
            fetch = FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, topics=[topic])
            leader.call(fetch, version=12, connection=leader.connect())
        cluster.brokers[1].start()
        cluster.pass_time(2000)
        asked = self.followed(cluster)
        cluster.pass_time(2000)
        assert asked
        assert [self.named(request) for request in asked] == [[]] * len(asked)

    def test_an_offline_partition_is_not_fetched(self, cluster: DirectCluster) -> None:
        leader, follower = cluster.brokers
        tp = TopicPartition("t", 5)
        follower.disk.fail_next("pwrite", errno.EIO)
        assert leader.produce([b"x"], partition=5, acks=1).error_code == ErrorCode.NONE
        assert follower.broker.partitions[tp].log.offline_reason is not None
        cluster.pass_time(60_000)
        assert cluster.active.image.topics["t"].partitions[5].isr == (0,)
        assert cluster.active.image.topics["t"].partitions[4].isr == (0, 1)


def test_a_diverging_followers_fetch_offset_is_not_counted(cluster: DirectCluster) -> None:
    """Its last record is of an epoch that ended before that: what it holds there is another one."""
    former, leader, _ = cluster.brokers
    assert answer(former, send(former, b"a")).error_code == ErrorCode.NONE
    former.stop(clean=False)
    cluster.pass_time(100)
    for value in (b"b", b"c"):
        assert answer(leader, send(leader, value)).error_code == ErrorCode.NONE
    led = partition(leader)
    assert led.replicas is not None
    registered = cluster.active.image.brokers[BrokerId(0)].registration
    for last_fetched_epoch, believed in ((0, False), (1, True)):
        wanted = FetchPartition(
            partition=0,
            current_leader_epoch=led.leader_epoch,
            fetch_offset=2,
            last_fetched_epoch=last_fetched_epoch,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            replica_id=0,
            replica_state=ReplicaState(replica_id=0, replica_epoch=registered.broker_epoch),
            max_wait_ms=0,
            min_bytes=1,
            topics=[FetchTopic(topic_id=led.topic_id, partitions=[wanted])],
        )
        connection = leader.connect(internal=True)
        exchange = Answers(exchange_on(leader.broker, connection, registry.FETCH, 17, cluster.now()), _never)
        fetch_handler.handle(leader.broker, exchange, request)
        assert (led.replicas.followers[BrokerId(0)].log_end_offset == 2) is believed


def _never(_: object) -> None:
    raise AssertionError("it is answered at once")
