"""A transactional producer without sockets: one request after another, as the test calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raylog.core.errors import ErrorCode
from raylog.core.ids import ProducerId, ProducerIdentity, TopicPartition
from raylog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raylog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from raylog.protocol.messages.end_txn import EndTxnRequest
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest
from raylog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.transport.accepted_connection import AcceptedConnection
from tests.support.direct_cluster import DirectCluster, DirectMember

TIMEOUT_MS = 60_000


class TransactionalClient:
    """Sends the requests of a transactional producer one after another, and repeats retriable ones."""

    def __init__(
        self,
        cluster: DirectCluster,
        name: str = "tx",
        *,
        connect: Callable[[DirectMember], AcceptedConnection] = DirectMember.connect,
        transaction_version: int = 1,
    ) -> None:
        self.cluster = cluster
        self.version_2 = transaction_version == 2
        """Whether it leaves it to leaders to add partitions, and goes on with the identity that the end returns."""
        self.name = name
        self.producer = ProducerIdentity(ProducerId(-1), -1)
        self._connect = connect
        self._sequences: dict[TopicPartition, int] = {}

    @property
    def running(self) -> DirectMember:
        return next(member for member in self.cluster.brokers if member.running)

    def coordinator(self) -> DirectMember:
        for _ in range(10):
            found = self.running.call(
                FindCoordinatorRequest(key=self.name, key_type=1), version=3, connection=self._connect(self.running)
            )
            if found.error_code == ErrorCode.NONE:
                return self.cluster.member(found.node_id)
            self.cluster.pass_time(100)
        raise AssertionError("no coordinator")

    def leader(self, tp: TopicPartition) -> DirectMember:
        shown = self.running.broker.image.partition(tp)
        assert shown is not None
        return self.cluster.member(shown.leader)

    def init(self, *, timeout_ms: int = TIMEOUT_MS, had: ProducerIdentity | None = None) -> ErrorCode:
        """Initialize the producer id. Retries while the previous transaction is being completed."""
        known = had or ProducerIdentity(ProducerId(-1), -1)
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
        )
        answer = self.ask(self.coordinator(), request)
        while answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            self.cluster.pass_time(100)
            answer = self.ask(self.coordinator(), request)
        if answer.error_code == ErrorCode.NONE:
            self.producer = ProducerIdentity(answer.producer_id, answer.producer_epoch)
            self._sequences.clear()
        code: ErrorCode = answer.error_code
        return code

    def add(self, *partitions: TopicPartition, version: int = 3) -> list[ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.producer_epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=tp.topic, partitions=(tp.partition,)) for tp in partitions
            ),
        )
        codes = [ErrorCode.CONCURRENT_TRANSACTIONS]
        while codes[0] is ErrorCode.CONCURRENT_TRANSACTIONS:
            answer = self.ask(self.coordinator(), request, version=version)
            topics = answer.results_by_topic_v3_and_below
            codes = [topic.results_by_partition[0].partition_error_code for topic in topics]
            self.cluster.pass_time(20)
        return codes

    def write(
        self, tp: TopicPartition, *values: bytes, add: bool = True, acks: int = -1, version: int | None = None
    ) -> ErrorCode:
        version = version or (12 if self.version_2 else 11)
        if add and not self.version_2:
            assert self.add(tp) == [ErrorCode.NONE]
        sequence = self._sequences.get(tp, 0)
        batch = build_batch(
            [NewRecord(None, value, self.cluster.now().wall_ms) for value in values],
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        part = ProducePartition(index=tp.partition, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=self.name,
            acks=acks,
            timeout_ms=1000,
            topics=[ProduceTopic(name=tp.topic, partitions=[part])],
        )
        answer = self.ask(self.leader(tp), request, version=version)
        code: ErrorCode = answer.responses[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            self._sequences[tp] = sequence + len(values)
        return code

    def send_offset(self, tp: TopicPartition, offset: int, *, group: str = "g") -> ErrorCode:
        producer_id, producer_epoch = self.producer
        if not self.version_2:
            added = self.ask(
                self.coordinator(),
                AddOffsetsToTxnRequest(
                    transactional_id=self.name, producer_id=producer_id, producer_epoch=producer_epoch, group_id=group
                ),
            )
            assert added.error_code == ErrorCode.NONE
        position = TxnOffsetCommitRequestPartition(
            partition_index=tp.partition, committed_offset=offset, committed_metadata=""
        )
        answer = self.ask(
            group_coordinator(self.cluster, group),
            TxnOffsetCommitRequest(
                transactional_id=self.name,
                group_id=group,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                topics=(TxnOffsetCommitRequestTopic(name=tp.topic, partitions=(position,)),),
            ),
            version=5 if self.version_2 else 4,
        )
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code

    def end(self, *, committed: bool, version: int | None = None) -> ErrorCode:
        producer_id, producer_epoch = self.producer
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=producer_epoch, committed=committed
        )
        answer = self.ask(self.coordinator(), request, version=version or (5 if self.version_2 else 4))
        code: ErrorCode = answer.error_code
        if self.version_2 and code == ErrorCode.NONE:
            self.producer = ProducerIdentity(answer.producer_id, answer.producer_epoch)
            self._sequences.clear()
        return code

    def ask(self, member: DirectMember, request: Any, *, version: int | None = None) -> Any:
        """The response, which may take some time to arrive."""
        connection = self._connect(member)
        sent = member.send(request, version=version, connection=connection)
        for _ in range(50):
            answer = member.answer(sent, connection=connection)
            if answer is not None:
                return answer
            self.cluster.pass_time(20)
        raise AssertionError(f"no answer: {connection.close_reason or 'parked'}")


def group_coordinator(cluster: DirectCluster, group: str = "g") -> DirectMember:
    member = next(member for member in cluster.brokers if member.running)
    for _ in range(10):
        found = member.call(FindCoordinatorRequest(key=group), version=3)
        if found.error_code == ErrorCode.NONE:
            return cluster.brokers[int(found.node_id)]
        cluster.pass_time(100)
    raise AssertionError("no coordinator")
