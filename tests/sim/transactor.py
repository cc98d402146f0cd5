"""A transactional producer: it writes to all partitions, commits an offset, and aborts on errors.

One of version 2 leaves it to leaders to add partitions, and has another identity in each transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId, TopicPartition
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
from tests.sim.broker_host import BrokerHost
from tests.sim.client import SimClient
from tests.sim.transfer_ledger import Transfer, TransferLedger
from tests.sim.world import World

FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
ABORTED = (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE)
"""Errors of a batch whose transaction has timed out."""
REFUSED = frozenset({*FENCED, *ABORTED, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_TOPIC_ID})
AGAIN_MS_MAX = 2000
"""How long a fenced producer waits: two producers with the same id would otherwise fence each other all the time."""
PAUSE_MS_MAX = 300
VERSIONS_MAX_OF_1: Mapping[type, int] = {
    AddPartitionsToTxnRequest: 3,
    EndTxnRequest: 4,
    ProduceRequest: 11,
    TxnOffsetCommitRequest: 4,
}
"""The versions of clients that add partitions themselves."""


class Transactor(SimClient):
    """Runs one transaction after another until `end_trouble`, and then until one more is committed."""

    def __init__(
        self, world: World, hosts: list[BrokerHost], ledger: TransferLedger, *, transactional_id: str, name: str
    ) -> None:
        super().__init__(world, hosts, name)
        self._ledger = ledger
        self._transactional_id = transactional_id
        self._version_2 = world.rng.random() < 0.5
        if not self._version_2:
            self.versions_max = VERSIONS_MAX_OF_1
        self._timeout_ms = world.rng.choice((500, 3000, 60_000))
        self._last = False
        self._coordinator = BrokerId(-1)
        self._group_coordinator = BrokerId(-1)
        self._topic_id: UUID | None = None
        self._leaders: dict[TopicPartition, BrokerId] = {}
        self._producer: tuple[int, int] = (-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._transfer: Transfer

    def end_trouble(self) -> None:
        self._last = True
        self._timeout_ms = 60_000

    # --- a new producer, at first and after every error

    def begin(self) -> None:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=(self._transactional_id,))
        self.ask(self.any_broker(), request, self._coordinator_found)

    def _coordinator_found(self, answer: Any) -> None:
        (found,) = answer.coordinators
        if self._may_go_on(found.error_code):
            self._coordinator = found.node_id
            request = FindCoordinatorRequest(coordinator_keys=(self.name,))
            self.ask(self.any_broker(), request, self._group_coordinator_found)

    def _group_coordinator_found(self, answer: Any) -> None:
        (found,) = answer.coordinators
        if self._may_go_on(found.error_code):
            self._group_coordinator = found.node_id
            self.describe(self._ledger.topic, self._described, create=True)

    def _described(self, topic: Any) -> None:
        if topic.error_code != ErrorCode.NONE or any(each.error_code for each in topic.partitions):
            self.restart()
            return
        self._topic_id = topic.topic_id
        self._leaders = {tp: topic.partitions[tp.partition].leader_id for tp in self._ledger.partitions}
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=self._timeout_ms
        )
        self.ask(self._coordinator, request, self._initialised)

    def _initialised(self, answer: Any) -> None:
        if self._may_go_on(answer.error_code):
            producer = answer.producer_id, answer.producer_epoch
            assert producer != self._producer, f"{self.name} got {producer} twice"
            self._producer = producer
            self._sequences = dict.fromkeys(self._ledger.partitions, 0)
            self._begin_transfer()

    # --- one transaction

    def _begin_transfer(self) -> None:
        self._transfer = self._ledger.begin(self.name)
        if self._version_2:
            self._write_somewhat()
            return
        producer_id, producer_epoch = self._producer
        numbers = tuple(tp.partition for tp in self._ledger.partitions)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=self._ledger.topic, partitions=numbers),),
        )
        self.ask(self._coordinator, request, self._added)

    def _added(self, answer: Any) -> None:
        code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            self.world.marks["transaction before is still being ended"] += 1
            self.later(50, self._begin_transfer)
        elif self._may_go_on(code):
            self._write_somewhat()

    def _write_somewhat(self) -> None:
        self._write([tp for tp in self._ledger.partitions for _ in range(self.world.rng.choice((1, 1, 2)))])

    def _write(self, batches: list[TopicPartition]) -> None:
        if not batches:
            self._move_offset()
            return
        tp, *left = batches
        transfer = self._transfer
        count = self.world.rng.choice((1, 1, 3))
        values = [b"%d/%d" % (transfer.number, self._sequences[tp] + number) for number in range(count)]
        producer_id, producer_epoch = self._producer
        records = build_batch(
            [NewRecord(None, value, self.world.now().wall_ms) for value in values],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=self._sequences[tp],
            transactional=True,
        )
        assert self._topic_id is not None
        part = ProducePartition(index=tp.partition, records=memoryview(records))
        topic = ProduceTopic(name=tp.topic, partitions=[part])
        if self._version_2:
            topic = ProduceTopic(topic_id=self._topic_id, partitions=[part])
        request = ProduceRequest(transactional_id=self._transactional_id, acks=-1, timeout_ms=1000, topics=[topic])
        if not self._last and self.world.rng.random() < 0.1:
            self.world.marks["transaction aborted with a batch under way"] += 1
            self.ask(self._leaders[tp], request, lambda answer: None, lambda: None)
            self._end(committed=False, then=self.restart)  # the outcome of the batch is unknown
            return
        self.ask(self._leaders[tp], request, partial(self._written, tp, values, left))

    def _written(self, tp: TopicPartition, values: list[bytes], left: list[TopicPartition], answer: Any) -> None:
        code = answer.responses[0].partitions[0].error_code
        self.world.marks["batch refused by its transaction's coordinator"] += code in ABORTED
        if self._may_go_on(code):
            self._transfer.written.setdefault(tp, []).extend(values)
            self._sequences[tp] += len(values)
            self._write(left)

    def _move_offset(self) -> None:
        if self.world.rng.random() < 0.5:
            self._end_somehow()
            return
        if self._version_2:
            self._commit_offset()
            return
        producer_id, producer_epoch = self._producer
        request = AddOffsetsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            group_id=self.name,
        )
        self.ask(self._coordinator, request, self._offsets_added)

    def _offsets_added(self, answer: Any) -> None:
        if self._may_go_on(answer.error_code):
            self._commit_offset()

    def _commit_offset(self) -> None:
        producer_id, producer_epoch = self._producer
        position = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=self._transfer.number, committed_metadata=""
        )
        topic = TxnOffsetCommitRequestTopic(name=self._ledger.topic, partitions=(position,))
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=self.name,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=(topic,),
        )
        self.ask(self._group_coordinator, request, self._offset_moved)

    def _offset_moved(self, answer: Any) -> None:
        if self._may_go_on(answer.topics[0].partitions[0].error_code):
            self._transfer.moves_offset = True
            self._end_somehow()

    def _end_somehow(self) -> None:
        committed = self._last or self.world.rng.random() < 0.8
        self._end(committed=committed, then=partial(self.later, PAUSE_MS_MAX, self._begin_transfer))

    def _end(self, *, committed: bool, then: Callable[[], None]) -> None:
        self._transfer.commit_asked = committed
        producer_id, producer_epoch = self._producer
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=committed,
        )
        self.ask(self._coordinator, request, partial(self._ended, committed=committed, then=then))

    def _ended(self, answer: Any, *, committed: bool, then: Callable[[], None]) -> None:
        if not self._may_go_on(answer.error_code):
            return
        self._transfer.committed = committed
        if self._version_2:
            self.world.marks["transaction of version 2 ended"] += 1
            self._producer = answer.producer_id, answer.producer_epoch
            self._sequences = dict.fromkeys(self._ledger.partitions, 0)
        if self._last and committed:
            self.finished = True
        else:
            then()

    def _may_go_on(self, code: ErrorCode) -> bool:
        """Whether the transaction may continue. Otherwise the client restarts, which aborts an open transaction."""
        if code == ErrorCode.NONE:
            return True
        assert code.retriable or code in REFUSED, code.name
        self.world.marks[f"transactor met {code.name}"] += 1
        self.restart(within_ms=AGAIN_MS_MAX if code in FENCED else 200)
        return False
