"""A partition is served by its leader only, other brokers return errors, and deletion reaches every broker."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from raylog.core.coordinator_partition import coordinator_partition
from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_BROKER_ID, ZERO_TOPIC_ID, TopicPartition
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.protocol.messages.describe_cluster import DescribeClusterRequest
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from raylog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.transport.peer_link import BETWEEN_NODES
from tests.support.direct_cluster import DirectCluster, DirectMember

OFFSETS_PARTITIONS = 4
IDEMPOTENT: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
CONFIG = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "broker.heartbeat.interval.ms": "100",
    "broker.session.timeout.ms": "1000",
}


@pytest.fixture
def cluster() -> DirectCluster:
    """Partition i of `t` is on broker i; __consumer_offsets is there."""
    cluster = DirectCluster(2, CONFIG)
    cluster.create_topic("t", partitions=2, on=[0, 1])
    cluster.brokers[0].call(FindCoordinatorRequest(coordinator_keys=("g",)))
    return cluster


def fetch(partition: int = 0, *, max_wait_ms: int = 0, leader_epoch: int = -1) -> FetchRequest:
    wanted = FetchPartition(
        partition=partition, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=leader_epoch
    )
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(name="t", partitions=[wanted])])


def produce(topic: str, sequence: int, *, topic_id: UUID | None = None) -> ProduceRequest:
    """One idempotent batch for partition 0."""
    batch = memoryview(build_batch([NewRecord(None, b"x", 0)], base_sequence=sequence, **IDEMPOTENT))
    partitions = [ProducePartition(index=0, records=batch)]
    wanted = ProduceTopic(name=topic, topic_id=topic_id or ZERO_TOPIC_ID, partitions=partitions)
    return ProduceRequest(acks=-1, timeout_ms=0, topics=[wanted])


def fetched(answer: Any) -> Any:
    return answer.responses[0].partitions[0].error_code


def delete(topic: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=(DeleteTopicState(name=topic),))


def group_on(member: DirectMember) -> str:
    """A group whose offsets this broker keeps."""
    for number in range(100):
        group = f"group-{number}"
        partition = TopicPartition("__consumer_offsets", coordinator_partition(group, OFFSETS_PARTITIONS))
        if partition in member.broker.partitions:
            return group
    raise AssertionError("no such group")


def commit(member: DirectMember, group: str, offset: int) -> Any:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = (OffsetCommitRequestTopic(name="t", partitions=(part,)),)
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)
    return member.call(request, version=9).topics[0].partitions[0].error_code


def committed(member: DirectMember, group: str) -> tuple[Any, int]:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=(0,))
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=(topic,)),))
    (found,) = member.call(request, version=9).groups
    return found.error_code, found.topics[0].partitions[0].committed_offset if found.topics else -1


class TestLeadership:
    def test_both_brokers_return_the_same_metadata(self, cluster: DirectCluster) -> None:
        shown = [member.describe("t") for member in cluster.brokers]
        assert shown[0].topics == shown[1].topics
        assert shown[0].brokers == shown[1].brokers
        assert [(broker.node_id, broker.port) for broker in shown[0].brokers] == [(0, 9092), (1, 9093)]
        assert [partition.leader_id for partition in shown[0].topics[0].partitions] == [0, 1]

    def test_a_new_topic_is_spread(self, cluster: DirectCluster) -> None:
        wanted = CreatableTopic(name="spread", num_partitions=4, replication_factor=1)
        cluster.brokers[1].call(CreateTopicsRequest(topics=(wanted,), timeout_ms=1000))
        (topic,) = cluster.brokers[0].describe("spread").topics
        assert sorted(partition.leader_id for partition in topic.partitions) == [0, 0, 1, 1]

    def test_other_brokers_return_not_leader_for_every_request(self, cluster: DirectCluster) -> None:
        other = cluster.brokers[1]
        not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert other.produce([b"x"], partition=0).error_code == not_leader
        assert fetched(other.call(fetch(0), version=12)) == not_leader
        assert fetched(other.call(fetch(0, max_wait_ms=60_000), version=12)) == not_leader
        offsets = ListOffsetsTopic(name="t", partitions=(ListOffsetsPartition(partition_index=0, timestamp=-1),))
        listed = other.call(ListOffsetsRequest(replica_id=-1, topics=(offsets,)))
        assert listed.topics[0].partitions[0].error_code == not_leader
        epoch = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
        ends = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=(OffsetForLeaderTopic(topic="t", partitions=(epoch,)),)
        )
        assert other.call(ends).topics[0].partitions[0].error_code == not_leader
        assert other.produce([b"x"], partition=1).base_offset == 0
        assert other.produce([b"x"], partition=2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_retriable_error_for_an_idempotent_batch_closes_the_connection(self, cluster: DirectCluster) -> None:
        other = cluster.brokers[1]
        other.links.held = list(other.broker.links)
        topic_id = cluster.create_topic("young", on=[1])
        for topic, code in (
            ("young", ErrorCode.UNKNOWN_TOPIC_ID),
            ("young", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("t", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ):
            by_id = code == ErrorCode.UNKNOWN_TOPIC_ID
            connection = other.connect()
            sent = [
                other.send(
                    produce(topic, sequence, topic_id=topic_id if by_id else None),
                    version=13 if by_id else 12,
                    connection=connection,
                )
                for sequence in (0, 1)
            ]
            answer = other.answer(sent[0], connection=connection)  # and none to the second
            assert answer.responses[0].partitions[0].error_code == code
            assert connection.closing
        plain = other.connect()
        assert other.produce([b"x"], topic="t", connection=plain).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not plain.closing
        other.links.held.clear()
        cluster.settle()
        assert other.produce([b"0"], topic="young", **IDEMPOTENT, base_sequence=0).base_offset == 0
        assert other.produce([b"1"], topic="young", **IDEMPOTENT, base_sequence=1).base_offset == 1

    def test_partitions_of_a_killed_broker_have_no_leader_until_it_returns(self, cluster: DirectCluster) -> None:
        first, second = cluster.brokers
        second.produce([b"x"], partition=1)
        second.stop(clean=False)
        answer = first.describe("t")
        assert [broker.node_id for broker in answer.brokers] == [0]
        assert [(p.error_code, p.leader_id, p.leader_epoch) for p in answer.topics[0].partitions] == [
            (ErrorCode.NONE, 0, 0),
            (ErrorCode.LEADER_NOT_AVAILABLE, NO_BROKER_ID, 1),
        ]
        assert [broker.broker_id for broker in first.call(DescribeClusterRequest()).brokers] == [0]
        second.start()
        (topic,) = first.describe("t").topics
        assert [(partition.leader_id, partition.leader_epoch) for partition in topic.partitions] == [(0, 0), (1, 2)]
        assert second.produce([b"y"], partition=1).base_offset == 1

    def test_a_leader_without_the_listener_of_the_client_is_not_named(self, cluster: DirectCluster) -> None:
        """As while brokers get a new listener one after another."""
        first, second = cluster.brokers
        second.stop()
        cluster.config["listeners"] = "PLAINTEXT://127.0.0.1:9093,NEW://127.0.0.1:9094"
        cluster.config["listener.security.protocol.map"] = "NEW:PLAINTEXT,PLAINTEXT:PLAINTEXT"
        second.start()
        on_new = second.connect(listener_name="NEW")
        request = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
        for version, code in ((6, ErrorCode.LISTENER_NOT_FOUND), (5, ErrorCode.LEADER_NOT_AVAILABLE)):
            answer = second.call(request, version=version, connection=on_new)
            assert [broker.node_id for broker in answer.brokers] == [1]
            assert [(each.error_code, each.leader_id) for each in answer.topics[0].partitions] == [
                (code, NO_BROKER_ID),
                (ErrorCode.NONE, 1),
            ]
        for member in (first, second):
            assert [each.leader_id for each in member.describe("t").topics[0].partitions] == [0, 1]

    def test_a_client_with_an_old_leader_epoch_is_fenced(self, cluster: DirectCluster) -> None:
        second = cluster.brokers[1]
        second.links.cut(cluster.now())
        cluster.pass_time(200)
        codes = [fetched(second.call(fetch(1, leader_epoch=epoch), version=12)) for epoch in (0, 2, 3)]
        assert codes == [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH]

    def test_a_fenced_broker_serves_nothing(self, cluster: DirectCluster) -> None:
        first, second = cluster.brokers
        group = group_on(second)
        assert commit(second, group, 1) == ErrorCode.NONE
        parked = second.send(fetch(1, max_wait_ms=60_000), version=10)
        second.links.held = [second.broker.lifecycle.link]  # its heartbeats go nowhere, the metadata reaches it
        cluster.pass_time(1500)
        assert fetched(second.answer(parked)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert second.produce([b"x"], partition=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert second.describe("t").topics[0].partitions[1].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert commit(second, group, 2) == ErrorCode.NOT_COORDINATOR
        assert committed(second, group)[0] == ErrorCode.NOT_COORDINATOR
        second.links.held.clear()
        cluster.pass_time(500)
        assert second.produce([b"x"], partition=1).error_code == ErrorCode.NONE
        assert first.describe("t").topics[0].partitions[1].leader_epoch == 2


class TestCoordinators:
    def test_a_group_has_one_coordinator_that_every_broker_returns(self, cluster: DirectCluster) -> None:
        for keeper, other in (cluster.brokers, cluster.brokers[::-1]):
            group = group_on(keeper)
            for asked in cluster.brokers:
                (found,) = asked.call(FindCoordinatorRequest(coordinator_keys=(group,))).coordinators
                assert (found.error_code, found.node_id, found.port) == (ErrorCode.NONE, keeper.broker_id, keeper.port)
            assert commit(other, group, 5) == ErrorCode.NOT_COORDINATOR
            assert committed(other, group)[0] == ErrorCode.NOT_COORDINATOR
            assert commit(keeper, group, 5) == ErrorCode.NONE
            assert committed(keeper, group) == (ErrorCode.NONE, 5)

    def test_without_its_coordinator_a_group_is_unavailable(self, cluster: DirectCluster) -> None:
        first, second = cluster.brokers
        group = group_on(second)
        commit(second, group, 7)
        second.stop(clean=False)
        (found,) = first.call(FindCoordinatorRequest(coordinator_keys=(group,))).coordinators
        assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_BROKER_ID)
        second.start()
        assert committed(second, group) == (ErrorCode.NONE, 7)

    def test_a_group_is_reloaded_under_a_new_leader_epoch(self, cluster: DirectCluster) -> None:
        keeper = cluster.brokers[1]
        group = group_on(keeper)
        commit(keeper, group, 1)
        keeper.links.cut(cluster.now())
        assert commit(keeper, group, 2) == ErrorCode.NONE  # it has not heard that it was fenced
        cluster.pass_time(BETWEEN_NODES.backoff_ms)
        partition = keeper.broker.partitions[
            TopicPartition("__consumer_offsets", coordinator_partition(group, OFFSETS_PARTITIONS))
        ]
        assert partition.leader_epoch == 2
        assert committed(keeper, group) == (ErrorCode.NONE, 2)
        assert commit(keeper, group, 3) == ErrorCode.NONE
        assert partition.log.leader_epochs.latest == 2

    def test_deleting_a_topic_deletes_its_offsets_on_every_broker(self, cluster: DirectCluster) -> None:
        groups = [(member, group_on(member)) for member in cluster.brokers]
        for keeper, group in groups:
            commit(keeper, group, 9)
        cluster.brokers[0].call(delete("t"))
        cluster.create_topic("t", partitions=2, on=[0, 1])
        for keeper, group in groups:
            assert committed(keeper, group) == (ErrorCode.NONE, -1)
            keeper.stop(clean=False)
            keeper.start()
            assert committed(keeper, group) == (ErrorCode.NONE, -1)

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_coordinator_that_was_absent_deletes_the_offsets_when_it_returns(
        self, cluster: DirectCluster, clean: bool
    ) -> None:
        first, second = cluster.brokers
        group = group_on(second)
        commit(second, group, 9)
        second.stop(clean=clean)
        first.call(delete("t"))
        second.start()
        cluster.create_topic("t", partitions=2, on=[0, 1])
        assert committed(second, group) == (ErrorCode.NONE, -1)


class TestDirectories:
    def holds(self, member: DirectMember, topic: str) -> bool:
        names = member.disk.listdir(member.log_path)
        return any(name.startswith(f"{topic}-") and not name.endswith("-delete") for name in names)

    def test_each_broker_has_its_partitions_and_a_deleted_topic_is_removed_from_both(
        self, cluster: DirectCluster
    ) -> None:
        for number, member in enumerate(cluster.brokers):
            held = [name for name in member.disk.listdir(member.log_path) if name.startswith("t-")]
            assert held == [f"t-{number}"]
        cluster.brokers[0].call(delete("t"))
        assert not any(self.holds(member, "t") for member in cluster.brokers)

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_broker_that_was_absent_removes_the_topic_when_it_returns(
        self, cluster: DirectCluster, clean: bool
    ) -> None:
        first, second = cluster.brokers
        second.produce([b"old"], partition=1)
        second.stop(clean=clean)
        first.call(delete("t"))
        assert self.holds(second, "t")
        second.start()
        assert not self.holds(second, "t")

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_recreated_topic_is_empty(self, cluster: DirectCluster, clean: bool) -> None:
        first, second = cluster.brokers
        second.produce([b"old"], partition=1)
        second.stop(clean=clean)
        first.call(delete("t"))
        made: UUID = cluster.create_topic("t", partitions=2, on=[[0, 1], [1, 0]])
        second.start()
        partition = second.broker.partitions[TopicPartition("t", 1)]
        assert (partition.topic_id, partition.log.log_end_offset) == (made, 0)
        assert first.produce([b"new"], partition=1).base_offset == 0
        cluster.pass_time(1000)
        assert partition.log.log_end_offset == 1

    def test_topics_created_during_an_absence_exist_when_the_broker_returns(self, cluster: DirectCluster) -> None:
        first, second = cluster.brokers
        second.stop()
        cluster.create_topic("u", on=[[1, 0]])
        assert first.produce([b"x"], topic="u").base_offset == 0
        second.start()
        cluster.pass_time(1000)
        assert second.broker.partitions[TopicPartition("u", 0)].log.log_end_offset == 1

    def test_a_broker_partitioned_from_the_controller_serves_what_it_leads_and_catches_up_later(
        self, cluster: DirectCluster
    ) -> None:
        first, second = cluster.brokers
        second.silent = True
        first.call(delete("t"))
        assert second.produce([b"x"], partition=1).error_code == ErrorCode.NONE
        second.silent = False
        cluster.settle()
        assert second.produce([b"x"], partition=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not self.holds(second, "t")
