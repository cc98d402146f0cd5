"""Transactions over partitions and offsets are atomic whichever node fails, and every request gets a response."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.config.table import broker_configs
from raylog.config.transactions import transaction_settings
from raylog.core.coordinator_partition import coordinator_partition
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, LeaderEpoch, ProducerId, ProducerIdentity, TopicPartition
from raylog.core.outcome import Outcome
from raylog.groupcoord.shards import OFFSETS_TOPIC
from raylog.metadata.records import LeaderChanged
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raylog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
)
from raylog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from raylog.protocol.messages.end_txn import EndTxnRequest
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest
from raylog.protocol.messages.list_transactions import ListTransactionsRequest
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from raylog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from raylog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.txncoord.shards import TRANSACTION_TOPIC
from raylog.txncoord.verification import Verification
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster, DirectMember
from tests.support.transaction_view import committed_records
from tests.support.transactional_client import TIMEOUT_MS, TransactionalClient, group_coordinator

READ_COMMITTED, READ_UNCOMMITTED = 1, 0


def read(member: DirectMember, tp: TopicPartition, *, isolation_level: int = READ_COMMITTED) -> list[bytes]:
    """As a consumer shows it: what was aborted is left out."""
    wanted = FetchPartition(partition=tp.partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        topics=[FetchTopic(name=tp.topic, partitions=[wanted])],
    )
    found = member.call(request, version=12, connection=member.connect()).responses[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    shown = committed_records(b"".join(found.records or ()), found.aborted_transactions or ())
    return [record.value or b"" for record in shown]


def committed_offset(cluster: DirectCluster, tp: TopicPartition, *, require_stable: bool, group: str = "g") -> Any:
    topic = OffsetFetchRequestTopics(name=tp.topic, partition_indexes=(tp.partition,))
    request = OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id=group, topics=(topic,)),), require_stable=require_stable
    )
    member = group_coordinator(cluster, group)
    answer = member.call(request, version=9, connection=member.connect())
    found = answer.groups[0].topics[0].partitions[0]
    return found.error_code or found.committed_offset


A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> DirectCluster:
    broker = DirectBroker({"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"})
    broker.create_topic("t", partitions=2)
    return broker.cluster


@pytest.fixture
def client(cluster: DirectCluster) -> TransactionalClient:
    client = TransactionalClient(cluster)
    assert client.init() is ErrorCode.NONE
    group_coordinator(cluster)
    return client


class TestOneBroker:
    def see(
        self, cluster: DirectCluster, tp: TopicPartition = A, *, isolation_level: int = READ_COMMITTED
    ) -> list[bytes]:
        cluster.pass_time(100)
        return read(cluster.brokers[0], tp, isolation_level=isolation_level)

    def test_committed_records_are_visible_and_aborted_ones_are_not(
        self, cluster: DirectCluster, client: TransactionalClient
    ) -> None:
        for committed, values in ((True, (b"a", b"b")), (False, (b"c", b"d")), (True, (b"e", b"f"))):
            client.write(A, values[0])
            client.write(B, values[1])
            assert values[0] not in self.see(cluster)
            assert values[0] in self.see(cluster, isolation_level=READ_UNCOMMITTED)
            assert client.end(committed=committed) is ErrorCode.NONE
        assert self.see(cluster) == [b"a", b"e"]
        assert self.see(cluster, B) == [b"b", b"f"]
        assert self.see(cluster, B, isolation_level=READ_UNCOMMITTED) == [b"b", b"d", b"f"]

    def test_a_zombie_can_neither_write_nor_commit(self, cluster: DirectCluster, client: TransactionalClient) -> None:
        client.write(A, b"zombie")
        new = TransactionalClient(cluster)
        assert new.init() is ErrorCode.NONE
        assert client.write(A, b"late", add=False) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert client.end(committed=True) is ErrorCode.PRODUCER_FENCED
        assert client.end(committed=True, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert client.add(A) == [ErrorCode.PRODUCER_FENCED]
        assert client.add(A, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        new.write(A, b"new")
        new.end(committed=True)
        assert self.see(cluster) == [b"new"]

    def test_offsets_of_the_first_group_of_a_cluster_are_sent_at_once(self, cluster: DirectCluster) -> None:
        """kafkajs does not repeat AddOffsetsToTxn after COORDINATOR_NOT_AVAILABLE."""
        client = TransactionalClient(cluster)
        assert client.init() is ErrorCode.NONE
        assert OFFSETS_TOPIC not in cluster.brokers[0].broker.image.topics
        assert client.send_offset(A, 5) is ErrorCode.NONE
        assert client.end(committed=True) is ErrorCode.NONE
        cluster.pass_time(100)
        assert committed_offset(cluster, A, require_stable=True) == 5

    def test_offsets_sent_to_a_coordinator_that_is_not_ready_are_refused_like_those_of_another_one(
        self, cluster: DirectCluster
    ) -> None:
        """So that the client asks for the coordinator again, as it does for those of another one."""
        client = TransactionalClient(cluster)
        assert client.init() is ErrorCode.NONE
        position = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=client.producer.producer_id,
            producer_epoch=client.producer.producer_epoch,
            topics=(TxnOffsetCommitRequestTopic(name="t", partitions=(position,)),),
        )
        answer = client.ask(cluster.brokers[0], request, version=1)
        assert answer.topics[0].partitions[0].error_code is ErrorCode.NOT_COORDINATOR

    def test_a_transaction_whose_group_has_no_topic_yet_is_ended(self, cluster: DirectCluster) -> None:
        client = TransactionalClient(cluster)
        assert client.init() is ErrorCode.NONE
        producer_id, producer_epoch = client.producer
        request = AddOffsetsToTxnRequest(
            transactional_id="tx", producer_id=producer_id, producer_epoch=producer_epoch, group_id="g"
        )
        assert client.ask(client.coordinator(), request).error_code is ErrorCode.NONE
        assert client.end(committed=True) is ErrorCode.NONE
        assert client.init() is ErrorCode.NONE

    def test_a_transaction_is_aborted_after_its_timeout(self, cluster: DirectCluster) -> None:
        client = TransactionalClient(cluster)
        client.init(timeout_ms=5000)
        client.write(A, b"left alone")
        cluster.pass_time(30_000)
        assert cluster.brokers[0].produce([b"plain"], version=12).error_code == ErrorCode.NONE
        assert self.see(cluster) == [b"plain"]
        assert client.end(committed=True) is ErrorCode.PRODUCER_FENCED
        assert client.init(had=client.producer) is ErrorCode.PRODUCER_FENCED
        assert client.init() is ErrorCode.NONE

    @pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
    def test_an_invalid_timeout_is_refused(self, cluster: DirectCluster, timeout_ms: int) -> None:
        assert TransactionalClient(cluster).init(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT

    def test_an_empty_transactional_id_is_refused(self, cluster: DirectCluster, client: TransactionalClient) -> None:
        refused = client.ask(
            cluster.brokers[0], InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
        )
        assert refused.error_code == ErrorCode.INVALID_REQUEST

    def test_an_unknown_partition_refuses_the_whole_request(self, client: TransactionalClient) -> None:
        nowhere = TopicPartition("nowhere", 0)
        assert client.add(A, nowhere) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert client.end(committed=True) is ErrorCode.INVALID_TXN_STATE

    def test_a_batch_for_a_partition_outside_the_transaction_is_refused(
        self, cluster: DirectCluster, client: TransactionalClient
    ) -> None:
        assert client.write(A, b"x", add=False) is ErrorCode.TRANSACTION_ABORTABLE
        assert client.write(A, b"x", add=False, version=10) is ErrorCode.INVALID_TXN_STATE
        client.write(A, b"a")
        assert client.end(committed=True) is ErrorCode.NONE
        assert self.see(cluster) == [b"a"]
        assert client.write(A, b"late", add=False) is ErrorCode.TRANSACTION_ABORTABLE
        assert cluster.brokers[0].produce([b"plain"], version=12).error_code == ErrorCode.NONE
        assert self.see(cluster) == [b"a", b"plain"], "nothing hangs"

    @pytest.mark.parametrize("magic", [0, 1, 2, 9])
    def test_a_malformed_transactional_batch_is_refused(
        self, cluster: DirectCluster, client: TransactionalClient, magic: int
    ) -> None:
        bytes_of_no_batch = bytearray(60)
        bytes_of_no_batch[16], bytes_of_no_batch[22] = magic, 0x10
        part = ProducePartition(index=0, records=memoryview(bytes_of_no_batch))
        topic = ProduceTopic(name="t", partitions=[part])
        request = ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=1000, topics=[topic])
        answer = client.ask(cluster.brokers[0], request, version=12)
        refused = {ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.CORRUPT_MESSAGE}
        assert answer.responses[0].partitions[0].error_code in refused

    def test_a_transactional_batch_requires_the_transactional_id(
        self, cluster: DirectCluster, client: TransactionalClient
    ) -> None:
        client.add(A)
        producer_id, producer_epoch = client.producer
        batch: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": producer_epoch, "base_sequence": 0}
        refused = cluster.brokers[0].produce([b"x"], transactional=True, version=12, **batch)
        assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert client.write(A, b"x", add=False, acks=1) is ErrorCode.INVALID_REQUIRED_ACKS

    def test_a_deleted_topic_does_not_block_a_transaction(
        self, cluster: DirectCluster, client: TransactionalClient
    ) -> None:
        cluster.create_topic("gone")
        client.write(TopicPartition("gone", 0), b"x")
        client.write(A, b"a")
        cluster.delete_topic("gone")
        assert client.end(committed=True) is ErrorCode.NONE
        assert self.see(cluster) == [b"a"]
        assert client.write(A, b"b") is ErrorCode.NONE

    def test_a_topic_with_its_own_compression_type(self, cluster: DirectCluster, client: TransactionalClient) -> None:
        cluster.create_topic("dense", configs={"compression.type": "zstd", "max.message.bytes": "300"})
        tp = TopicPartition("dense", 0)
        client.write(tp, b"x" * 100)
        client.end(committed=True)
        assert self.see(cluster, tp) == [b"x" * 100]

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_transaction_survives_its_coordinator(
        self, cluster: DirectCluster, client: TransactionalClient, *, clean: bool
    ) -> None:
        client.write(A, b"before")
        member = cluster.brokers[0]
        assert isinstance(member, DirectBroker)
        member.restart(clean=clean)
        client.write(A, b"after")
        assert client.end(committed=True) is ErrorCode.NONE
        assert self.see(cluster) == [b"before", b"after"]

    def test_a_decision_is_completed_after_a_restart(self, cluster: DirectCluster, client: TransactionalClient) -> None:
        client.write(A, b"a")
        member = cluster.brokers[0]
        assert isinstance(member, DirectBroker)
        member.send(
            EndTxnRequest(
                transactional_id="tx",
                producer_id=client.producer.producer_id,
                producer_epoch=client.producer.producer_epoch,
                committed=True,
            ),
            connection=member.connect(),
        )
        member.restart(clean=False)
        assert self.see(cluster) == [b"a"]

    def test_admin_requests_show_it(self, cluster: DirectCluster, client: TransactionalClient) -> None:
        other = TransactionalClient(cluster, "other")
        other.init()
        client.write(B, b"b")
        client.add(A)
        member = cluster.brokers[0]
        found, unknown = member.call(DescribeTransactionsRequest(transactional_ids=("tx", "nobody"))).transaction_states
        assert (found.transaction_state, found.transaction_timeout_ms, found.producer_id) == (
            "Ongoing",
            TIMEOUT_MS,
            client.producer.producer_id,
        )
        assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", (0, 1))]
        assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

        def listed(**filters: Any) -> dict[str, str]:
            answer = member.call(ListTransactionsRequest(**filters))
            return {each.transactional_id: each.transaction_state for each in answer.transaction_states}

        assert listed() == {"tx": "Ongoing", "other": "Empty"}
        assert listed(state_filters=("Empty",)) == {"other": "Empty"}
        assert listed(producer_id_filters=(client.producer.producer_id,)) == {"tx": "Ongoing"}
        cluster.pass_time(2000)
        assert listed(duration_filter=1000) == {"tx": "Ongoing"}
        assert listed(duration_filter=5000) == {}
        for pattern, names in (("t.", {"tx"}), ("t", set()), ("tx|o.*", {"tx", "other"}), ("", {"tx", "other"})):
            assert listed(transactional_id_pattern=pattern).keys() == names, "the whole name, or no filter"
        for pattern in ("(", "(?=x)", "a{1001}", "(a{1000}){1000}"):
            refused = member.call(ListTransactionsRequest(transactional_id_pattern=pattern))
            assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert listed(transactional_id_pattern="(x*)*" * 1000 + "y") == {}, "in linear time"
        assert member.call(ListTransactionsRequest(state_filters=("Odd",))).unknown_state_filters == ("Odd",)

    def test_an_admin_can_abort_a_hanging_transaction(
        self, cluster: DirectCluster, client: TransactionalClient
    ) -> None:
        """As `kafka-transactions abort` does, by itself."""
        client.write(A, b"hangs")
        producer_id, producer_epoch = client.producer
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=(WritableTxnMarkerTopic(name="t", partition_indexes=(0, 9)),),
            coordinator_epoch=0,
        )
        answer = cluster.brokers[0].call(WriteTxnMarkersRequest(markers=(marker,)))
        codes = [result.error_code for result in answer.markers[0].topics[0].partitions]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        cluster.brokers[0].produce([b"plain"], version=12)
        assert self.see(cluster) == [b"plain"]


class TestOffsets:
    @pytest.mark.parametrize(("committed", "after"), [(True, 7), (False, -1)])
    def test_they_are_visible_once_the_transaction_is_committed(
        self, cluster: DirectCluster, client: TransactionalClient, after: int, *, committed: bool
    ) -> None:
        assert client.send_offset(A, 7) is ErrorCode.NONE
        assert committed_offset(cluster, A, require_stable=False) == -1
        assert committed_offset(cluster, A, require_stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert committed_offset(cluster, B, require_stable=True) == -1
        client.end(committed=committed)
        cluster.pass_time(100)
        assert committed_offset(cluster, A, require_stable=True) == after

    @pytest.mark.parametrize("ended", [True, False])
    def test_they_survive_their_coordinator(
        self, cluster: DirectCluster, client: TransactionalClient, *, ended: bool
    ) -> None:
        client.send_offset(A, 7)
        if ended:
            client.end(committed=True)
            cluster.pass_time(100)
        member = cluster.brokers[0]
        assert isinstance(member, DirectBroker)
        member.restart(clean=False)
        cluster.pass_time(100)
        if not ended:
            assert committed_offset(cluster, A, require_stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
            client.end(committed=True)
            cluster.pass_time(100)
        assert committed_offset(cluster, A, require_stable=True) == 7

    def test_those_of_a_zombie_are_refused(self, cluster: DirectCluster, client: TransactionalClient) -> None:
        client.send_offset(A, 7)
        new = TransactionalClient(cluster)
        assert new.init() is ErrorCode.NONE
        position = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=9)
        late = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=client.producer.producer_id,
            producer_epoch=client.producer.producer_epoch,
            topics=(TxnOffsetCommitRequestTopic(name="t", partitions=(position,)),),
        )
        answer = client.ask(group_coordinator(cluster), late)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert committed_offset(cluster, A, require_stable=True) == -1

    def commit_alone(self, cluster: DirectCluster, client: TransactionalClient, **more: Any) -> ErrorCode:
        """Without a word to the transaction's coordinator."""
        producer_id, producer_epoch = client.producer
        named = {"producer_id": producer_id, "producer_epoch": producer_epoch, **more}
        position = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=9)
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            topics=(TxnOffsetCommitRequestTopic(name="t", partitions=(position,)),),
            **named,
        )
        answer = client.ask(group_coordinator(cluster), request, version=4)
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code

    def test_late_ones_do_not_stay_pending(self, cluster: DirectCluster, client: TransactionalClient) -> None:
        assert self.commit_alone(cluster, client) is ErrorCode.TRANSACTION_ABORTABLE
        client.send_offset(A, 7)
        client.end(committed=False)
        cluster.pass_time(100)
        assert self.commit_alone(cluster, client) is ErrorCode.TRANSACTION_ABORTABLE
        assert committed_offset(cluster, A, require_stable=True) == -1

    @pytest.mark.parametrize("nobody", [{"producer_id": -1}, {"producer_epoch": -1}])
    def test_those_of_an_unknown_member_are_refused(
        self, cluster: DirectCluster, client: TransactionalClient, nobody: dict[str, int]
    ) -> None:
        assert self.commit_alone(cluster, client, **nobody) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert committed_offset(cluster, A, require_stable=True) == -1

    def test_two_commits_of_equal_size_are_not_duplicates(
        self, cluster: DirectCluster, client: TransactionalClient
    ) -> None:
        client.send_offset(A, 7)
        client.send_offset(A, 8)
        client.end(committed=True)
        cluster.pass_time(100)
        assert committed_offset(cluster, A, require_stable=True) == 8

    def test_a_later_plain_commit_takes_precedence(self, cluster: DirectCluster, client: TransactionalClient) -> None:
        client.send_offset(A, 7)
        position = OffsetCommitRequestPartition(partition_index=0, committed_offset=9, committed_metadata="")
        plain = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            topics=(OffsetCommitRequestTopic(name="t", partitions=(position,)),),
        )
        answer = client.ask(group_coordinator(cluster), plain, version=8)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        client.end(committed=True)
        cluster.pass_time(100)
        assert committed_offset(cluster, A, require_stable=True) == 9


class TestThreeBrokers:
    """The coordinator is broker 0 and the partitions are elsewhere, or the other way round."""

    @pytest.fixture
    def cluster(self) -> DirectCluster:
        cluster = DirectCluster(
            3,
            {
                "transaction.state.log.num.partitions": "3",
                "offsets.topic.num.partitions": "3",
                "offsets.topic.replication.factor": "3",
                "min.insync.replicas": "2",
            },
        )
        cluster.create_topic("t", partitions=2, on=[[1, 2, 0], [2, 0, 1]])
        return cluster

    def coordinating(self, cluster: DirectCluster, name: str = "tx") -> int:
        shown = cluster.active.image.topics[TRANSACTION_TOPIC].partitions[coordinator_partition(name, 3)]
        return shown.leader

    def see(self, cluster: DirectCluster, tp: TopicPartition) -> list[bytes]:
        cluster.pass_time(1000)
        shown = cluster.active.image.partition(tp)
        assert shown is not None
        return read(cluster.brokers[shown.leader], tp)

    def test_the_transaction_log_has_its_replication_settings(
        self, cluster: DirectCluster, client: TransactionalClient
    ) -> None:
        topic = cluster.active.image.topics[TRANSACTION_TOPIC]
        assert {len(shown.replicas) for shown in topic.partitions} == {3}
        assert topic.configs["min.insync.replicas"] == "2"

    @pytest.mark.parametrize("committed", [True, False])
    def test_a_commit_reaches_all_partitions_or_none(
        self, cluster: DirectCluster, client: TransactionalClient, *, committed: bool
    ) -> None:
        for tp in (A, B):
            assert client.write(tp, b"x") is ErrorCode.NONE
        assert client.end(committed=committed) is ErrorCode.NONE
        seen = [b"x"] if committed else []
        assert [self.see(cluster, tp) for tp in (A, B)] == [seen, seen]

    def commit_alone(self, cluster: DirectCluster, client: TransactionalClient) -> DirectMember:
        """The coordinator that has just decided, before any follower has fetched the decision."""
        member = cluster.brokers[self.coordinating(cluster)]
        for other in cluster.brokers:
            other.silent = other is not member
        producer_id, producer_epoch = client.producer
        end = EndTxnRequest(
            transactional_id="tx", producer_id=producer_id, producer_epoch=producer_epoch, committed=True
        )
        member.send(end, connection=member.connect())
        return member

    def test_no_marker_is_sent_before_the_decision_is_committed(
        self, cluster: DirectCluster, client: TransactionalClient
    ) -> None:
        client.write(A, b"a")
        client.write(B, b"b")
        cluster.pass_time(100)
        coordinator = self.commit_alone(cluster, client)
        cluster.pass_time(100)
        others = [tp for tp in (A, B) if client.leader(tp) is not coordinator]
        assert others
        for tp in others:
            assert client.leader(tp).broker.partitions[tp].log.log_end_offset == 1, "the batch, and no marker"
        for member in cluster.brokers:
            member.silent = False
        assert [self.see(cluster, tp) for tp in (A, B)] == [[b"a"], [b"b"]]

    @pytest.mark.parametrize("is_copied", [True, False])
    def test_the_next_coordinator_completes_it(
        self, cluster: DirectCluster, client: TransactionalClient, *, is_copied: bool
    ) -> None:
        client.write(A, b"a")
        coordinator = self.commit_alone(cluster, client)
        for member in cluster.brokers:
            member.silent = False
        if is_copied:
            cluster.settle()
        coordinator.stop(clean=False)
        cluster.pass_time(3000)
        assert self.coordinating(cluster) != coordinator.broker_id
        assert client.init() is ErrorCode.NONE, "whatever became of it, it is at its end"
        assert self.see(cluster, A) == ([b"a"] if is_copied else [])
        assert client.write(A, b"next") is ErrorCode.NONE
        assert client.end(committed=True) is ErrorCode.NONE
        assert self.see(cluster, A)[-1] == b"next"

    def test_an_absent_leader_gets_its_marker_when_it_returns(
        self, cluster: DirectCluster, client: TransactionalClient
    ) -> None:
        client.write(A, b"a")
        client.write(B, b"b")
        away = next(number for number in (1, 2) if number != self.coordinating(cluster))
        cluster.brokers[away].stop(clean=False)
        assert client.end(committed=True) is ErrorCode.NONE
        cluster.pass_time(1000)
        cluster.brokers[away].start()
        cluster.pass_time(3000)
        assert [self.see(cluster, tp) for tp in (A, B)] == [[b"a"], [b"b"]]

    def commit_with_a_refused_marker(
        self, cluster: DirectCluster, client: TransactionalClient
    ) -> tuple[TopicPartition, DirectMember]:
        """A partition with a batch of the transaction, and the broker without which its leader refuses the marker."""
        tp = TopicPartition("careful", 0)
        coordinator = self.coordinating(cluster)
        leader, away = (number for number in range(3) if number != coordinator)
        cluster.create_topic("careful", on=[[leader, coordinator, away]], configs={"min.insync.replicas": "3"})
        assert client.write(tp, b"x") is ErrorCode.NONE
        cluster.brokers[away].stop(clean=False)
        cluster.pass_time(100)
        assert client.end(committed=True) is ErrorCode.NONE
        return tp, cluster.brokers[away]

    def test_a_marker_that_a_leader_refused_is_sent_again(
        self, cluster: DirectCluster, client: TransactionalClient
    ) -> None:
        tp, away = self.commit_with_a_refused_marker(cluster, client)
        assert self.see(cluster, tp) == [], "two in sync are too few for the marker"
        away.start()
        assert self.see(cluster, tp) == [b"x"]

    def test_a_coordinator_that_is_elected_again_completes_its_own_decision(
        self, cluster: DirectCluster, client: TransactionalClient
    ) -> None:
        tp, away = self.commit_with_a_refused_marker(cluster, client)
        cluster.pass_time(100)
        topic = cluster.active.image.topics[TRANSACTION_TOPIC]
        number = coordinator_partition("tx", 3)
        epoch = LeaderEpoch(topic.partitions[number].leader_epoch + 1)
        coordinator = self.coordinating(cluster)
        elected = LeaderChanged(topic.topic_id, number, BrokerId(coordinator), epoch)
        cluster.active.decide(Outcome(None, [elected]), cluster.now())
        cluster.pass_time(100)
        assert self.coordinating(cluster) == coordinator
        away.start()
        assert self.see(cluster, tp) == [b"x"]

    def test_below_min_insync_replicas_nothing_is_decided_until_enough_are_in_sync(
        self, cluster: DirectCluster, client: TransactionalClient
    ) -> None:
        client.write(A, b"a")
        coordinator = self.coordinating(cluster)
        others = [member for member in cluster.brokers if member.broker_id != coordinator]
        for member in others:
            member.stop(clean=False)
        cluster.pass_time(100)
        assert client.end(committed=True) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        for member in others:
            member.start()
        cluster.pass_time(3000)
        assert client.end(committed=True) is ErrorCode.NONE
        assert self.see(cluster, A) == [b"a"]

    def test_a_late_batch_is_verified_with_a_remote_coordinator(
        self, cluster: DirectCluster, client: TransactionalClient
    ) -> None:
        for tp in (A, B):
            assert client.write(tp, b"x", add=False) is ErrorCode.TRANSACTION_ABORTABLE
            assert client.write(tp, b"x") is ErrorCode.NONE
        client.end(committed=True)
        assert self.see(cluster, A) == [b"x"]

    def test_offsets_are_committed_with_it(self, cluster: DirectCluster, client: TransactionalClient) -> None:
        group_coordinator(cluster)
        client.write(A, b"a")
        assert client.send_offset(B, 5) is ErrorCode.NONE
        client.end(committed=True)
        cluster.pass_time(1000)
        assert committed_offset(cluster, B, require_stable=True) == 5
        assert self.see(cluster, A) == [b"a"]


class TestMarkerDuringAVerification:
    """The verification is repeated: else the batch would be taken into a transaction that is over, and hang."""

    @pytest.fixture(autouse=True)
    def _verification(self) -> None:
        self.asked: list[tuple[Any, Any]] = []
        """The functions for the response and for the failure of each request."""
        self.codes: list[Any] = []
        self.cluster = DirectCluster(0)
        make: Any = Verification
        self.verification = make(
            0,
            None,
            lambda name: 1,
            lambda _: self,
            delayed=None,
            settings=lambda: transaction_settings(broker_configs({})),
            supports_2=lambda: True,
            clock=self.cluster.now,
        )

    def request(self, message: Any, on_answer: Any, on_failure: Any, *, now: Any, timeout_ms: int) -> None:
        self.asked.append((on_answer, on_failure))

    def ask(self) -> None:
        producer = ProducerIdentity(ProducerId(7), 0)
        self.verification.ask("tx", producer, [A], self.codes.append, self.cluster.now(), adds=False)

    def answer(self, number: int) -> None:
        response = AddPartitionsToTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)
        self.asked[number][0](response, self.cluster.now())

    def test_it_is_repeated(self) -> None:
        self.ask()
        self.verification.marker_written(6)
        self.verification.marker_written(7)
        self.answer(0)
        assert (len(self.asked), self.codes) == (2, [])
        self.answer(1)
        assert self.codes == [{A: ErrorCode.NOT_ENOUGH_REPLICAS}]

    def test_only_those_before_the_marker_are_repeated(self) -> None:
        self.ask()
        self.verification.marker_written(7)
        self.ask()
        self.answer(0)
        assert (len(self.asked), self.codes) == (3, [])
        self.answer(1)
        self.answer(2)
        assert (len(self.asked), len(self.codes)) == (3, 2)

    @pytest.mark.parametrize("fails", [False, True])
    def test_it_is_repeated_if_another_has_ended_meanwhile(self, *, fails: bool) -> None:
        self.ask()
        self.ask()
        if fails:
            self.asked[0][1](KafkaError(ErrorCode.NETWORK_EXCEPTION), self.cluster.now())
        else:
            self.answer(0)
        assert (len(self.asked), len(self.codes)) == (2, 1)
        self.verification.marker_written(7)
        self.answer(1)
        assert (len(self.asked), len(self.codes)) == (3, 1)
        self.answer(2)
        assert (len(self.asked), len(self.codes)) == (3, 2)

    def test_without_a_marker_several_are_asked_once(self) -> None:
        self.ask()
        self.ask()
        self.answer(1)
        self.answer(0)
        assert (len(self.asked), len(self.codes)) == (2, 2)
