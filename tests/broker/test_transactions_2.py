"""Transactions of version 2: leaders add partitions, each end raises the epoch, and what is late is refused."""

from __future__ import annotations

import pytest

from raylog.controller.features import UpgradeType
from raylog.core.errors import ErrorCode
from raylog.core.ids import Offset, ProducerIdentity, TopicPartition
from raylog.metadata.features import TRANSACTION_FEATURE
from raylog.metadata.levels import FEATURES_LEVEL
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from raylog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from raylog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.reader import read_batches
from raylog.txncoord.shards import TRANSACTION_TOPIC
from tests.broker.test_transactions import READ_UNCOMMITTED, committed_offset, read
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster, DirectMember
from tests.support.transactional_client import TransactionalClient, group_coordinator

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIG = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


@pytest.fixture(params=[1, 3])
def cluster(request: pytest.FixtureRequest) -> DirectCluster:
    if request.param == 1:
        broker = DirectBroker(CONFIG)
        broker.create_topic("t", partitions=2)
        return broker.cluster
    cluster = DirectCluster(3, {**CONFIG, "offsets.topic.replication.factor": "3", "min.insync.replicas": "2"})
    cluster.create_topic("t", partitions=2, on=[[1, 2, 0], [2, 0, 1]])
    return cluster


@pytest.fixture
def client(cluster: DirectCluster) -> TransactionalClient:
    client = TransactionalClient(cluster, transaction_version=2)
    assert client.init() is ErrorCode.NONE
    group_coordinator(cluster)
    return client


def see(client: TransactionalClient, tp: TopicPartition = A, *, isolation_level: int = 1) -> list[bytes]:
    client.cluster.pass_time(1000)
    return read(client.leader(tp), tp, isolation_level=isolation_level)


def test_leaders_add_the_partitions_and_each_end_raises_the_epoch(client: TransactionalClient) -> None:
    epochs = [client.producer.producer_epoch]
    for committed, values in ((True, (b"a", b"b")), (False, (b"c", b"d")), (True, (b"e", b"f"))):
        assert client.write(A, values[0]) is ErrorCode.NONE
        assert client.write(B, values[1]) is ErrorCode.NONE
        assert client.write(B, values[1] * 2) is ErrorCode.NONE, "in the same transaction"
        shard = client.coordinator().broker.transactions._of("tx", client.cluster.now())
        assert shard.transactions.described("tx").client_version == 2
        assert client.end(committed=committed) is ErrorCode.NONE
        epochs.append(client.producer.producer_epoch)
    assert epochs == [0, 1, 2, 3]
    assert see(client) == [b"a", b"e"]
    assert see(client, B) == [b"b", b"bb", b"f", b"ff"]
    assert see(client, B, isolation_level=READ_UNCOMMITTED) == [b"b", b"bb", b"d", b"dd", b"f", b"ff"]


def test_offsets_are_committed_with_it(client: TransactionalClient) -> None:
    for number, committed in enumerate((True, False, True)):
        assert client.send_offset(A, number) is ErrorCode.NONE
        assert committed_offset(client.cluster, A, require_stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert client.end(committed=committed) is ErrorCode.NONE
        client.cluster.pass_time(1000)
        assert committed_offset(client.cluster, A, require_stable=True) == (number if committed else number - 1)


def test_a_late_batch_and_a_zombie_are_refused(client: TransactionalClient) -> None:
    late = TransactionalClient(client.cluster, transaction_version=2)
    late.producer = client.producer
    assert client.write(A, b"a") is ErrorCode.NONE
    assert client.end(committed=True) is ErrorCode.NONE
    client.cluster.pass_time(1000)
    for tp in (A, B):
        assert late.write(tp, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert late.send_offset(A, 5) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.write(A, b"b") is ErrorCode.NONE
    assert late.end(committed=True) is ErrorCode.PRODUCER_FENCED
    assert client.end(committed=True) is ErrorCode.NONE
    assert see(client) == [b"a", b"b"]
    assert see(client, B) == []


def test_the_lost_answer_of_an_end_is_given_again(client: TransactionalClient) -> None:
    before = client.producer
    assert client.write(A, b"a") is ErrorCode.NONE
    assert client.end(committed=True) is ErrorCode.NONE
    following, client.producer = client.producer, before
    client.cluster.pass_time(1000)
    assert client.end(committed=True) is ErrorCode.NONE
    assert client.producer == following
    client.producer = before
    assert client.end(committed=False) is ErrorCode.INVALID_TXN_STATE


def test_what_was_begun_without_a_batch_can_be_aborted_only(client: TransactionalClient) -> None:
    assert client.end(committed=True) is ErrorCode.INVALID_TXN_STATE
    assert client.end(committed=False) is ErrorCode.NONE
    assert client.producer.producer_epoch == 1
    assert client.write(A, b"a") is ErrorCode.NONE


def test_after_its_timeout_it_is_aborted_and_the_producer_fenced(client: TransactionalClient) -> None:
    assert client.init(timeout_ms=5000) is ErrorCode.NONE
    assert client.write(A, b"left alone") is ErrorCode.NONE
    client.cluster.pass_time(30_000)
    assert client.end(committed=False) is ErrorCode.PRODUCER_FENCED
    assert client.write(A, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.init() is ErrorCode.NONE
    assert see(client) == []


def test_a_delayed_marker_does_not_end_the_next_transaction(client: TransactionalClient) -> None:
    before = client.producer
    assert client.write(A, b"a") is ErrorCode.NONE
    assert client.end(committed=True) is ErrorCode.NONE
    assert client.write(A, b"b") is ErrorCode.NONE

    def marker(producer: ProducerIdentity, *, version: int) -> ErrorCode:
        topic = WritableTxnMarkerTopic(name=A.topic, partition_indexes=(0,))
        one = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=True,
            topics=(topic,),
            coordinator_epoch=100,
            transaction_version=version,
        )
        answer = client.ask(client.leader(A), WriteTxnMarkersRequest(markers=(one,)), version=2)
        code: ErrorCode = answer.markers[0].topics[0].partitions[0].error_code
        return code

    for version in (1, 2):
        assert marker(before, version=version) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert marker(client.producer, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert see(client) == [b"a"], "the second one is open"
    assert marker(client.producer, version=0) is ErrorCode.NONE, "as tools send it"
    assert see(client) == [b"a", b"b"]


def test_a_batch_of_the_next_transaction_waits_for_the_markers(cluster: DirectCluster) -> None:
    """Else it would be appended to the transaction before, which is still open in the partition."""
    client = TransactionalClient(cluster, transaction_version=2)
    client.init()
    assert client.write(A, b"a") is ErrorCode.NONE
    coordinator = client.coordinator()
    markers = coordinator.broker.transactions._markers
    markers.send, send = lambda *args: waiting.append(args), markers.send  # type: ignore[method-assign]
    waiting: list[tuple[object, ...]] = []
    assert client.end(committed=True) is ErrorCode.NONE
    assert client.write(A, b"b") is ErrorCode.NOT_ENOUGH_REPLICAS, "after add.partitions.to.txn.retry.backoff.max.ms"
    markers.send = send  # type: ignore[method-assign]
    send(*waiting[0])  # type: ignore[arg-type]
    assert client.write(A, b"b") is ErrorCode.NONE
    assert client.end(committed=False) is ErrorCode.NONE
    assert see(client) == [b"a"]


def test_a_batch_is_appended_once_the_record_of_its_partition_is_committed() -> None:
    """Else it would hang if the leader, which is the coordinator as well, was lost with the record."""
    cluster = DirectCluster(3, {**CONFIG, "transaction.state.log.replication.factor": "3"})
    client = TransactionalClient(cluster, transaction_version=2)
    client.init()
    leader = client.coordinator()
    others = [member for member in cluster.brokers if member is not leader]
    tp = TopicPartition("own", 0)
    cluster.create_topic("own", on=[[int(leader.broker_id)]])
    for member in others:
        member.silent = True
    batch = build_batch(
        [NewRecord(None, b"a", 5)],
        producer_id=client.producer.producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    part = ProducePartition(index=0, records=memoryview(batch))
    topic = ProduceTopic(topic_id=cluster.active.image.topics["own"].topic_id, partitions=[part])
    request = ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=1000, topics=[topic])
    connection = leader.connect()
    sent = leader.send(request, version=13, connection=connection)
    cluster.pass_time(300)
    assert leader.broker.partitions[tp].log.log_end_offset == 0
    for member in others:
        member.silent = False
    cluster.pass_time(1000)
    answer = leader.answer(sent, connection=connection)
    assert answer is not None
    assert answer.responses[0].partitions[0].error_code is ErrorCode.NONE
    assert leader.broker.partitions[tp].log.log_end_offset == 1


def test_its_coordinator_may_be_lost_between_any_two_requests() -> None:
    cluster = DirectCluster(3, {**CONFIG, "transaction.state.log.replication.factor": "3"})
    cluster.create_topic("t", partitions=2, on=[[1, 2, 0], [2, 0, 1]])
    client = TransactionalClient(cluster, transaction_version=2)
    client.init()

    def lose() -> DirectMember:
        lost = client.coordinator()
        lost.stop(clean=False)
        cluster.pass_time(3000)
        return lost

    for number in range(3):
        value = b"%d" % number
        assert client.write(A, value) is ErrorCode.NONE
        lost = lose()
        before = client.producer
        assert client.end(committed=True) is ErrorCode.NONE
        lost.start()
        cluster.pass_time(3000)
        following, client.producer = client.producer, before
        lose().start()
        assert client.end(committed=True) is ErrorCode.NONE, "the answer was lost with the coordinator"
        assert client.producer == following
        cluster.pass_time(3000)
    assert see(client) == [b"0", b"1", b"2"]


def test_clients_learn_the_level_and_its_records_are_flexible(cluster: DirectCluster) -> None:
    member = cluster.brokers[0]

    def finalized() -> int:
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        found = member.call(request, version=3).finalized_features
        return next((int(each.max_version_level) for each in found if each.name == TRANSACTION_FEATURE), 0)

    def newest_record() -> bytes:
        client = TransactionalClient(cluster, transaction_version=1)
        assert client.init() is ErrorCode.NONE
        tp = TopicPartition(TRANSACTION_TOPIC, 0)
        log = client.leader(tp).broker.partitions[tp].log
        data = log.read(Offset(0), max_bytes=1 << 20, upto=log.log_end_offset).records
        *_, newest = read_batches(data, from_offset=Offset(0))
        return bytes(newest.value or b"")

    assert finalized() == 2
    assert newest_record()[:2] == b"\x00\x01"
    key = FeatureUpdateKey(feature=TRANSACTION_FEATURE, max_version_level=0, upgrade_type=UpgradeType.SAFE_DOWNGRADE)
    assert member.call(UpdateFeaturesRequest(feature_updates=(key,)), version=2).error_code is ErrorCode.NONE
    assert finalized() == 0
    assert newest_record()[:2] == b"\x00\x00"


def test_below_its_metadata_level_requests_of_its_versions_are_those_of_version_1(cluster: DirectCluster) -> None:
    """Coordinators of the version before would not know its records."""
    client = TransactionalClient(cluster, transaction_version=2)
    client.init()
    for member in cluster.brokers:
        member.broker.image.metadata_level = FEATURES_LEVEL - 1
    assert client.write(A, b"x") is ErrorCode.TRANSACTION_ABORTABLE
    assert client.add(A) == [ErrorCode.NONE]
    assert client.write(A, b"a") is ErrorCode.NONE
    before = client.producer
    assert client.end(committed=True) is ErrorCode.NONE
    assert client.producer == before
    described = client.ask(client.coordinator(), DescribeTransactionsRequest(transactional_ids=("tx",)))
    assert described.transaction_states[0].producer_epoch == before.producer_epoch
    assert see(client) == [b"a"]
