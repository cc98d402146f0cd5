"""Partitions are reassigned while in use: acknowledged records are kept, and old replicas are deleted."""

from __future__ import annotations

import random
from typing import Any

import pytest

from raylog.broker.handlers.forwarded import FORWARD_MS_MAX
from raylog.controller.controller import Controller
from raylog.controller.handlers import alter_partition_reassignments
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.core.outcome import Outcome
from raylog.logstore.log_dir import LogDir
from raylog.logstore.settings import LogSettings
from raylog.metadata.image import PartitionImage
from raylog.metadata.records import MetadataRecord, ReplicasChanged
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from raylog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.reader import read_batches
from raylog.transport.accepted_connection import AcceptedConnection
from tests.support.direct_cluster import CLUSTER_ID, DirectCluster, DirectMember
from tests.support.forms import by_form

TP = TopicPartition("t", 0)
LAG_MS = 10_000
DELETE_DELAY_MS = 30_000


@pytest.fixture
def cluster() -> DirectCluster:
    """Four brokers, and t-0 on 0 and 1."""
    config = {"replica.lag.time.max.ms": str(LAG_MS), "log.segment.delete.delay.ms": str(DELETE_DELAY_MS)}
    config["offsets.topic.num.partitions"] = "2"
    cluster = DirectCluster(4, config)
    cluster.create_topic("t", on=[[0, 1]])
    cluster.pass_time(100)
    return cluster


def altering(*wanted: tuple[str, int, tuple[int, ...] | None], **more: bool) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(
        topics=tuple(
            ReassignableTopic(
                name=topic, partitions=(ReassignablePartition(partition_index=number, replicas=replicas),)
            )
            for topic, number, replicas in wanted
        ),
        **more,
    )


def codes(answer: Any) -> list[ErrorCode]:
    found = [each for topic in answer.responses for each in topic.partitions]
    for each in found:
        assert bool(each.error_message) == (each.error_code != ErrorCode.NONE)
    return [each.error_code for each in found]


def reassign(member: DirectMember, *replicas: int) -> None:
    answer = member.call(altering(("t", 0, replicas)))
    assert (answer.error_code, codes(answer)) == (ErrorCode.NONE, [ErrorCode.NONE])


def cancel(member: DirectMember) -> ErrorCode:
    [code] = codes(member.call(altering(("t", 0, None))))
    return code


def shown(cluster: DirectCluster) -> PartitionImage:
    return cluster.active.image.topics["t"].partitions[0]


def leader(cluster: DirectCluster) -> DirectMember:
    return cluster.brokers[shown(cluster).leader]


def produce(cluster: DirectCluster, *values: bytes) -> None:
    """Acknowledged by all in sync, within a moment."""
    member = leader(cluster)
    connection = member.connect()
    records = build_batch([NewRecord(None, value, cluster.now().wall_ms) for value in values])
    part = ProducePartition(index=0, records=memoryview(records))
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topics=[ProduceTopic(name="t", partitions=[part])])
    sent = member.send(request, version=9, connection=connection)
    answer = member.answer(sent, connection=connection)
    if answer is None:
        cluster.pass_time(600)
        answer = member.answer(sent, connection=connection)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE


def fetch(cluster: DirectCluster) -> list[bytes | None]:
    member = leader(cluster)
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(name="t", partitions=[wanted])])
    result = member.call(request, version=12, connection=member.connect()).responses[0].partitions[0]
    assert result.error_code == ErrorCode.NONE
    return [record.value for record in read_batches(b"".join(result.records or ()))]


def on_disk(member: DirectMember) -> list[str]:
    """The directories of t-0, with what is to be deleted."""
    return [name for name in member.disk.listdir(member.log_path) if name.startswith("t-0")]


def held(cluster: DirectCluster) -> list[int]:
    """The brokers that have t-0 open."""
    return [member.broker_id for member in cluster.brokers if member.running and TP in member.broker.partitions]


class TestMoving:
    def test_the_data_moves_and_old_replicas_are_deleted(self, cluster: DirectCluster) -> None:
        produce(cluster, b"a", b"b")
        reassign(cluster.brokers[3], 2, 3)
        cluster.pass_time(2000)
        after = shown(cluster)
        assert (after.replicas, set(after.isr), after.leader, after.leader_epoch) == ((2, 3), {2, 3}, 2, 1)
        assert held(cluster) == [2, 3]
        assert fetch(cluster) == [b"a", b"b"]
        produce(cluster, b"c")
        for member in cluster.brokers:
            [told] = member.describe("t").topics[0].partitions
            assert (told.leader_id, told.leader_epoch, told.replica_nodes) == (2, 1, (2, 3))
        assert cluster.brokers[0].produce([b"x"]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [len(on_disk(member)) for member in cluster.brokers] == [1, 1, 1, 1], "for file.delete.delay.ms"
        cluster.pass_time(DELETE_DELAY_MS + 5000)
        assert [on_disk(member) for member in cluster.brokers] == [[], [], ["t-0"], ["t-0"]]
        cluster.brokers[2].stop(clean=False)
        cluster.pass_time(1000)
        assert fetch(cluster) == [b"a", b"b", b"c"]

    def test_metadata_contains_all_replicas_during_the_reassignment(self, cluster: DirectCluster) -> None:
        cluster.brokers[3].stop()
        asked = cluster.brokers[1]
        reassign(asked, 3, 1)
        [told] = asked.describe("t").topics[0].partitions
        assert (told.replica_nodes, told.isr_nodes, told.offline_replicas) == ((3, 1, 0), (0, 1), (3,))
        described = asked.call(DescribeTopicPartitionsRequest(topics=(TopicRequest(name="t"),)))
        assert described.topics[0].partitions[0].replica_nodes == (3, 1, 0)
        named = ListPartitionReassignmentsTopics(name="t", partition_indexes=(0, 1))
        others = ListPartitionReassignmentsTopics(name="none", partition_indexes=(0,))
        for topics in (None, (named, others)):
            answer = asked.call(ListPartitionReassignmentsRequest(topics=topics))
            [topic] = answer.topics
            [moving] = topic.partitions
            assert (answer.error_code, topic.name, moving.partition_index) == (ErrorCode.NONE, "t", 0)
            assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ((3, 1, 0), (3,), (0,))
        assert asked.call(ListPartitionReassignmentsRequest(topics=(others,))).topics == ()
        cluster.brokers[3].start()
        cluster.pass_time(2000)
        assert asked.call(ListPartitionReassignmentsRequest(topics=None)).topics == ()
        assert held(cluster) == [1, 3]

    def test_every_step_of_a_round_trip_keeps_acknowledged_records(self, cluster: DirectCluster) -> None:
        written = []
        for replicas in ((2,), (3, 0), (0, 1, 2, 3), (1,), (0, 1)):
            for pause_ms in (0, 50, 500, 2000):
                if pause_ms == 50:
                    reassign(cluster.brokers[1], *replicas)
                value = f"{replicas}-{pause_ms}".encode()
                produce(cluster, value)
                written.append(value)
                cluster.pass_time(pause_ms)
            assert (shown(cluster).replicas, shown(cluster).is_reassigning) == (replicas, False)
            assert fetch(cluster) == written
        assert held(cluster) == [0, 1]

    def test_a_write_that_waits_on_a_replaced_leader_gets_a_response(self, cluster: DirectCluster) -> None:
        old, one, *_ = cluster.brokers
        one.silent = True
        connection = old.connect()
        records = build_batch([NewRecord(None, b"x", 0)])
        part = ProducePartition(index=0, records=memoryview(records))
        request = ProduceRequest(acks=-1, timeout_ms=60_000, topics=[ProduceTopic(name="t", partitions=[part])])
        sent = old.send(request, version=9, connection=connection)
        assert old.answer(sent, connection=connection) is None
        reassign(old, 1, 2)
        cluster.pass_time(1000)
        assert (shown(cluster).replicas, shown(cluster).leader) == ((1, 2), 1)
        answer = old.answer(sent, connection=connection)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestFailures:
    def test_the_new_replica_is_killed(self, cluster: DirectCluster) -> None:
        produce(cluster, b"a")
        cluster.brokers[2].silent = True
        reassign(cluster.brokers[0], 2)
        cluster.brokers[2].silent = False
        cluster.brokers[2].stop(clean=False, power_cut=True)
        cluster.pass_time(1000)
        produce(cluster, b"b")
        assert shown(cluster).is_reassigning
        cluster.brokers[2].start()
        cluster.pass_time(3000)
        assert (shown(cluster).replicas, shown(cluster).leader) == ((2,), 2)
        assert fetch(cluster) == [b"a", b"b"]

    def test_the_leader_is_killed(self, cluster: DirectCluster) -> None:
        produce(cluster, b"a")
        cluster.brokers[2].silent = True
        reassign(cluster.brokers[1], 2)
        produce(cluster, b"b")
        cluster.brokers[0].stop(clean=False, power_cut=True)
        cluster.pass_time(1000)
        assert shown(cluster).leader == 1
        produce(cluster, b"c")
        cluster.brokers[2].silent = False
        cluster.pass_time(3000)
        assert (shown(cluster).replicas, shown(cluster).leader) == ((2,), 2)
        assert fetch(cluster) == [b"a", b"b", b"c"]
        cluster.brokers[0].start()
        assert held(cluster) == [2]

    def test_the_controller_is_killed(self, cluster: DirectCluster) -> None:
        produce(cluster, b"a")
        cluster.brokers[2].silent = True
        reassign(cluster.brokers[1], 2)
        cluster.stop_controller(clean=False, power_cut=True)
        cluster.brokers[2].silent = False
        cluster.pass_time(1000)
        cluster.start_controller()
        cluster.pass_time(20_000)
        assert (shown(cluster).replicas, shown(cluster).is_reassigning) == ((2,), False)
        assert fetch(cluster) == [b"a"]

    def test_a_cancelled_reassignment_leaves_nothing_behind(self, cluster: DirectCluster) -> None:
        assert cancel(cluster.brokers[1]) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        produce(cluster, b"a")
        cluster.brokers[3].stop()
        reassign(cluster.brokers[1], 2, 3)
        cluster.pass_time(1000)
        assert held(cluster) == [0, 1, 2]
        assert cancel(cluster.brokers[1]) is ErrorCode.NONE
        cluster.brokers[3].start()
        cluster.pass_time(DELETE_DELAY_MS + 5000)
        assert held(cluster) == [0, 1]
        assert (on_disk(cluster.brokers[2]), on_disk(cluster.brokers[3])) == ([], [])
        produce(cluster, b"b")
        assert fetch(cluster) == [b"a", b"b"]

    def test_each_partition_has_its_own_result(self, cluster: DirectCluster) -> None:
        wanted = [("t", 0, (2,)), ("t", 1, (2,)), ("none", 0, (2,)), ("none", 0, None), ("t", 0, (7,)), ("t", 0, ())]
        unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REPLICA_ASSIGNMENT
        answer = cluster.brokers[1].call(altering(*wanted))
        assert codes(answer) == [ErrorCode.NONE, unknown, unknown, unknown, invalid, invalid]

    def test_many_partitions_are_written_together(
        self, cluster: DirectCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One by one, a request for all partitions of a large cluster would hold up the controller for seconds."""
        monkeypatch.setattr(alter_partition_reassignments, "DECIDED_TOGETHER_MAX", 3)
        cluster.create_topic("u", on=[[0, 1]] * 5)
        decide = Controller.decide
        written: list[list[int]] = []

        def noted(self: Controller, outcome: Outcome[Any, MetadataRecord], now: Now) -> Any:
            written.append([record.partition for record in outcome.records if isinstance(record, ReplicasChanged)])
            return decide(self, outcome, now)

        monkeypatch.setattr(Controller, "decide", noted)
        wanted = [("u", number, (2, 3)) for number in (0, 1, 9, 2, 3, 4)]
        answer = cluster.brokers[1].call(altering(*wanted))
        assert [code == ErrorCode.NONE for code in codes(answer)] == [True, True, False, True, True, True]
        assert [numbers for numbers in written if numbers][:2] == [[0, 1, 2], [3, 4]]

    def test_a_duplicate_partition_is_decided_twice(self, cluster: DirectCluster) -> None:
        answer = cluster.brokers[1].call(altering(("t", 0, (2,)), ("t", 0, (3,)), ("t", 0, None)))
        assert codes(answer) == [ErrorCode.NONE] * 3
        cluster.pass_time(1000)
        assert set(shown(cluster).replicas) == {0, 1}

    @pytest.mark.parametrize("version", [0, 1])
    def test_the_request_may_forbid_a_change_of_the_replication_factor(
        self, cluster: DirectCluster, version: int
    ) -> None:
        insisting = altering(("t", 0, (2,)), allow_replication_factor_change=version == 0)
        answer = cluster.brokers[1].call(insisting, version=version)
        assert codes(answer) == [ErrorCode.NONE if version == 0 else ErrorCode.INVALID_REPLICATION_FACTOR]
        assert answer.allow_replication_factor_change == (version == 0)

    def test_without_a_controller_each_partition_times_out(self, cluster: DirectCluster) -> None:
        member = cluster.brokers[0]
        cluster.stop_controller()
        sent = member.send(altering(("t", 0, (2,)), ("t", 1, None)))
        cluster.pass_time(FORWARD_MS_MAX)
        answer = member.answer(sent)
        assert (answer.error_code, codes(answer)) == (
            ErrorCode.REQUEST_TIMED_OUT,
            [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT],
        )
        sent = member.send(ListPartitionReassignmentsRequest())
        cluster.pass_time(FORWARD_MS_MAX)
        assert member.answer(sent).error_code == ErrorCode.REQUEST_TIMED_OUT


class TestAbsentBrokers:
    """What a broker has missed it makes up for when it knows the cluster, and not before."""

    @pytest.fixture
    def away(self, cluster: DirectCluster) -> DirectMember:
        """Broker 0, which has held t-0 when it stopped, and does not any more."""
        produce(cluster, b"a")
        member = cluster.brokers[0]
        member.stop()
        reassign(cluster.brokers[1], 1, 2)
        cluster.pass_time(2000)
        assert (shown(cluster).replicas, shown(cluster).is_reassigning) == ((1, 2), False)
        return member

    def test_the_directory_is_deleted_when_the_broker_returns(self, cluster: DirectCluster, away: DirectMember) -> None:
        assert on_disk(away) == ["t-0"]
        away.start()
        cluster.pass_time(DELETE_DELAY_MS + 5000)
        assert (on_disk(away), held(cluster)) == ([], [1, 2])
        assert fetch(cluster) == [b"a"]

    def test_nothing_is_deleted_before_the_broker_has_caught_up(
        self, cluster: DirectCluster, away: DirectMember
    ) -> None:
        cluster.stop_controller()
        away.start(accepting=False)
        cluster.pass_time(DELETE_DELAY_MS + 5000)
        assert on_disk(away) == ["t-0"]
        cluster.start_controller()
        cluster.pass_time(DELETE_DELAY_MS + 10_000)
        assert on_disk(away) == []

    def test_a_replica_reassigned_back_meanwhile_is_kept(self, cluster: DirectCluster, away: DirectMember) -> None:
        reassign(cluster.brokers[1], 0, 1)
        cluster.pass_time(1000)
        away.start()
        assert on_disk(away) == ["t-0"]
        cluster.pass_time(2000)
        assert held(cluster) == [0, 1]
        produce(cluster, b"b")
        assert fetch(cluster) == [b"a", b"b"]

    def test_an_unknown_directory_is_kept(self, cluster: DirectCluster) -> None:
        member = cluster.brokers[3]
        member.stop()
        stray = LogDir.open(
            member.disk,
            member.log_path,
            cluster_id=CLUSTER_ID,
            broker_id=member.broker_id,
            settings_for=lambda _: LogSettings(),
            now_ms=0,
            new_id=cluster.new_id,
        )
        stray.create_log(TP, cluster.active.image.topics["t"].topic_id, 0)
        stray.close()
        member.start()
        cluster.pass_time(DELETE_DELAY_MS + 5000)
        assert on_disk(member) == ["t-0"], "the metadata log does not say why"

    def test_a_failed_deletion_is_completed_by_the_next_start(self, cluster: DirectCluster) -> None:
        member = cluster.brokers[0]
        member.disk.fail_next("rename", 5)
        reassign(member, 1, 2)
        cluster.pass_time(1000)
        assert held(cluster) == [1, 2]
        cluster.pass_time(DELETE_DELAY_MS + 5000)
        member.stop(clean=False)
        member.start()
        cluster.pass_time(DELETE_DELAY_MS + 5000)
        assert on_disk(member) == []


class TestAnySequence:
    """Whatever happens on the way, each acknowledged record is where it was written when everybody is back."""

    @pytest.mark.parametrize("seed", range(by_form(12, quick=3, long=500)))
    def test_reassignments_during_crashes(self, seed: int) -> None:
        rng = random.Random(seed)
        config = {"replica.lag.time.max.ms": "1000", "leader.imbalance.check.interval.seconds": "3"}
        cluster = DirectCluster(4, config, seed=seed)
        cluster.create_topic("t", on=[rng.sample(range(4), 2)])
        acknowledged: dict[int, bytes] = {}
        for number in range(60):
            step = rng.randrange(8)
            running = [member for member in cluster.brokers if member.running]
            if step == 0 and running:
                wanted = tuple(rng.sample(range(4), rng.randint(1, 3)))
                asked = rng.choice(running)
                asked.send(altering(("t", 0, rng.choice((wanted, wanted, None)))), connection=asked.connect())
            elif step == 1 and running:
                rng.choice(running).stop(clean=rng.random() < 0.5)
            elif step == 2 and len(running) < 4:
                rng.choice([member for member in cluster.brokers if not member.running]).start(accepting=False)
            elif step == 3 and rng.random() < 0.3:
                cluster.stop_controller(clean=rng.random() < 0.5)
                cluster.pass_time(rng.randint(0, 2000))
                cluster.start_controller()
            elif shown(cluster).leader >= 0 and leader(cluster).running:
                member, value = leader(cluster), str(number).encode()
                sent, connection = self.send(member, value)
                cluster.pass_time(rng.randint(0, 1000))
                answer = member.answer(sent, connection=connection) if member.running else None
                result = None if answer is None else answer.responses[0].partitions[0]
                if result is not None and result.error_code == ErrorCode.NONE:
                    acknowledged[result.base_offset] = value
            cluster.pass_time(rng.choice((0, 0, 10, 300, 3000)))
        for member in cluster.brokers:
            if not member.running:
                member.start(accepting=False)
        cluster.pass_time(130_000)  # longer than file.delete.delay.ms
        after = shown(cluster)
        assert (set(after.isr), after.is_reassigning) == (set(after.replicas), False)
        assert set(held(cluster)) == set(after.replicas)
        kept = fetch(cluster)
        assert acknowledged
        for offset, value in acknowledged.items():
            assert kept[offset] == value
        assert [on_disk(member) == ["t-0"] for member in cluster.brokers] == [
            member.broker_id in after.replicas for member in cluster.brokers
        ]

    @staticmethod
    def send(member: DirectMember, value: bytes) -> tuple[tuple[int, int], AcceptedConnection]:
        connection = member.connect()
        part = ProducePartition(index=0, records=memoryview(build_batch([NewRecord(None, value, 0)])))
        request = ProduceRequest(acks=-1, timeout_ms=60_000, topics=[ProduceTopic(name="t", partitions=[part])])
        return member.send(request, version=9, connection=connection), connection


def test_a_group_is_coordinated_by_the_new_leader_of_its_offsets(cluster: DirectCluster) -> None:
    offsets = "__consumer_offsets"
    asked = cluster.brokers[0]
    asked.call(FindCoordinatorRequest(key="g", key_type=0), version=2)
    cluster.pass_time(1000)

    def coordinator() -> DirectMember:
        found: int = asked.call(FindCoordinatorRequest(key="g", key_type=0), version=2).node_id
        return cluster.brokers[found]

    before = coordinator()
    wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    commit = OffsetCommitRequest(group_id="g", topics=(OffsetCommitRequestTopic(name="t", partitions=(wanted,)),))
    assert before.call(commit, version=7).topics[0].partitions[0].error_code == ErrorCode.NONE
    target = (before.broker_id + 1) % 4
    count = len(cluster.active.image.topics[offsets].partitions)
    answer = asked.call(altering(*((offsets, number, (target,)) for number in range(count))))
    assert codes(answer) == [ErrorCode.NONE] * count
    cluster.pass_time(3000)
    assert coordinator() is cluster.brokers[target]
    asking = OffsetFetchRequest(group_id="g", topics=(OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),))
    found = cluster.brokers[target].call(asking, version=5)
    assert found.topics[0].partitions[0].committed_offset == 7
    refused = before.call(asking, version=5, connection=before.connect())
    assert refused.error_code == ErrorCode.NOT_COORDINATOR
