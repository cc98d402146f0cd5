"""What a transactional producer asks its coordinators, in which order, and how it goes on after each error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raylog.client.coordinators import Coordinators, KeyType
from raylog.client.errors import AbortableError, FencedError
from raylog.client.network_client import NetworkClient
from raylog.client.producer.transactions import State, Transactions
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from raylog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from raylog.protocol.messages.end_txn import EndTxnResponse
from raylog.protocol.messages.init_producer_id import InitProducerIdResponse
from raylog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.client.test_network_client import SETTINGS, NoChance, shown

TP = TopicPartition("t", 0)


class Bench:
    """A producer with a transaction coordinator that answers from a list of errors, then well."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        network = NetworkClient([("h", 1)], SETTINGS, NoChance())
        network.metadata.answered(shown([1]), Now(0, 0))
        coordinators = Coordinators(network)
        monkeypatch.setattr(coordinators, "node_id", lambda key_type, key: 1)
        monkeypatch.setattr(network, "ask", self._ask)
        self.moved: list[tuple[KeyType, str, ErrorCode]] = []
        monkeypatch.setattr(coordinators, "refused", lambda *given: self.moved.append(given))
        self.clock_ms = 0
        self.unfinished = False
        self.errors: list[ErrorCode] = []
        self.asked: list[str] = []
        self.identities: list[tuple[int, int]] = []
        self.transactions = Transactions(
            network,
            coordinators,
            "id",
            timeout_ms=1000,
            has_unfinished=lambda: self.unfinished,
            on_identity=lambda *identity: self.identities.append(identity),
        )
        self._pending: list[Callable[[Now], None]] = []

    def _ask(self, node_id: int, request: Any, on_answer: Any, on_failure: Any, now: Now, **options: Any) -> None:
        self.asked.append(type(request).__name__.removesuffix("Request"))
        code = self.errors.pop(0) if self.errors else ErrorCode.NONE
        if code is ErrorCode.NETWORK_EXCEPTION:
            self._pending.append(lambda now: on_failure(KafkaError(code), now))
        else:
            self._pending.append(lambda now: on_answer(self._answer(self.asked[-1], code), now))

    def _answer(self, name: str, code: ErrorCode) -> Any:
        if name == "InitProducerId":
            return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=len(self.identities))
        if name == "EndTxn":
            following = self.transactions._producer[1] + 1
            return EndTxnResponse(error_code=code, producer_id=7, producer_epoch=following)
        if name == "TxnOffsetCommit":
            result = TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
            topics = (TxnOffsetCommitResponseTopic(name="t", partitions=(result,)),)
            return TxnOffsetCommitResponse(topics=topics)
        if name == "AddOffsetsToTxn":
            return AddOffsetsToTxnResponse(error_code=code)
        added = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
        topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=(added,))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(topic,))

    def run(self, ms: int = 0) -> list[str]:
        """What was asked until nothing more happens."""
        before = len(self.asked)
        self.clock_ms += ms
        while True:
            self.transactions.run(Now(self.clock_ms, 0))
            if not self._pending:
                return self.asked[before:]
            self._pending.pop(0)(Now(self.clock_ms, 0))

    def ready(self) -> Transactions:
        operation = self.transactions.init()
        assert self.run() == ["InitProducerId"]
        assert (operation.done, operation.error) == (True, None)
        return self.transactions

    def begun(self) -> Transactions:
        transactions = self.ready()
        transactions.begin()
        transactions.add(TP)
        return transactions


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_commit(bench: Bench) -> None:
    """A partition is added before it gets batches, and the end waits for all of them."""
    transactions = bench.begun()
    assert not transactions.sends_to(TP)
    assert bench.run() == ["AddPartitionsToTxn"]
    assert transactions.sends_to(TP)
    assert not transactions.add(TP)
    bench.unfinished = True
    operation = transactions.commit()
    assert transactions.commit() is operation
    assert bench.run() == []
    bench.unfinished = False
    assert bench.run() == ["EndTxn"]
    assert (operation.done, transactions.state) == (True, State.READY)
    assert not transactions.sends_to(TP)


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_transaction_without_records_asks_nothing(bench: Bench, end: str) -> None:
    transactions = bench.ready()
    transactions.begin()
    operation = getattr(transactions, end)()
    assert (bench.run(), operation.done, transactions.state) == ([], True, State.READY)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE])
def test_a_call_that_was_left_gets_its_outcome_when_it_is_made_again(bench: Bench, code: ErrorCode) -> None:
    """Without it a program could not tell that its transaction was committed, and would send everything again."""
    transactions = bench.begun()
    bench.run()
    bench.errors = [code]
    operation = transactions.commit()
    transactions.leave(operation)
    bench.run()
    assert operation.done
    if code is ErrorCode.NONE:
        for other in (transactions.begin, transactions.abort):
            with pytest.raises(KafkaError, match=r"the last call of commit_transaction\(\) did not wait for its end"):
                other()
    assert transactions.commit() is operation
    if code is ErrorCode.NONE:
        transactions.begin()
        assert transactions.commit() is not operation
    else:
        assert transactions.abort() is not operation


def test_after_a_failure_that_was_left_the_transaction_can_be_aborted(bench: Bench) -> None:
    transactions = bench.begun()
    bench.run()
    bench.errors = [ErrorCode.TRANSACTION_ABORTABLE]
    transactions.leave(transactions.commit())
    bench.run()
    ended = transactions.abort()
    bench.run()
    assert (ended.done, ended.error, transactions.state) == (True, None, State.READY)


def test_an_abort_waits_for_batches_in_flight(bench: Bench) -> None:
    transactions = bench.begun()
    bench.run()
    bench.unfinished = True
    operation = transactions.abort()
    assert transactions.drops
    assert bench.run() == []
    bench.unfinished = False
    assert bench.run() == ["EndTxn"]
    assert (operation.done, bench.identities) == (True, [(7, 0)])


def test_a_failed_batch_renews_the_epoch(bench: Bench) -> None:
    transactions = bench.begun()
    bench.run()
    bench.unfinished = True
    operation = transactions.commit()
    transactions.batch_failed(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "late"), sent=True)
    assert isinstance(operation.error, AbortableError)
    with pytest.raises(AbortableError, match="late"):
        transactions.commit()
    bench.unfinished = False
    transactions.abort()
    assert bench.run() == ["EndTxn", "InitProducerId"]
    assert bench.identities == [(7, 0), (7, 1)]
    assert transactions.state is State.READY


def test_errors_that_pass_are_retried_with_pauses(bench: Bench) -> None:
    transactions = bench.begun()
    bench.errors = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, ErrorCode.NETWORK_EXCEPTION]
    assert [len(bench.run(ms)) for ms in (0, 19, 1, 199, 1, 399, 1)] == [1, 0, 1, 0, 1, 0, 1]
    assert bench.moved[1:] == [
        (KeyType.TRANSACTION, "id", ErrorCode.NOT_COORDINATOR),
        (KeyType.TRANSACTION, "id", ErrorCode.NETWORK_EXCEPTION),
    ]
    assert transactions.sends_to(TP)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_can_do_nothing_more(bench: Bench, code: ErrorCode) -> None:
    transactions = bench.begun()
    bench.run()
    bench.errors = [code]
    operation = transactions.commit()
    bench.run()
    assert isinstance(operation.error, FencedError)
    for call in (transactions.init, transactions.begin, transactions.commit, transactions.abort):
        with pytest.raises(FencedError):
            call()


def test_no_authorization_for_the_topic_can_be_aborted(bench: Bench) -> None:
    transactions = bench.begun()
    bench.errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    bench.run()
    with pytest.raises(AbortableError) as raised:
        transactions.check_send()
    assert raised.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    transactions.abort()
    assert bench.run() == ["EndTxn"]
    assert transactions.state is State.READY


def test_no_authorization_for_the_id_is_fatal(bench: Bench) -> None:
    bench.errors = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    operation = bench.transactions.init()
    bench.run()
    assert operation.error is not None
    assert operation.error.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert bench.transactions.state is State.FATAL_ERROR


def test_an_abort_of_what_never_reached_the_coordinator(bench: Bench) -> None:
    transactions = bench.begun()
    bench.errors = [ErrorCode.NETWORK_EXCEPTION, ErrorCode.INVALID_TXN_STATE]
    bench.run()
    operation = transactions.abort()
    assert bench.run() == ["EndTxn"]
    assert (operation.done, operation.error, transactions.state) == (True, None, State.READY)


def test_offsets_of_a_group_are_added_first(bench: Bench) -> None:
    transactions = bench.begun()
    bench.run()
    assert transactions.commit_offsets({}, "g").done
    bench.errors = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    operation = transactions.commit_offsets({TP: 5}, "g")
    assert bench.run() == ["AddOffsetsToTxn"]
    assert isinstance(operation.error, AbortableError)


@pytest.fixture
def bench_2(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """In a cluster with transactions of version 2."""
    monkeypatch.setattr(bench.transactions._network, "feature_level", {"transaction.version": 2}.get)
    return bench


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_in_version_2_brokers_add_partitions_and_each_end_gives_an_identity(bench_2: Bench, end: str) -> None:
    transactions = bench_2.begun()
    assert transactions.sends_to(TP)
    assert bench_2.run() == []
    operation = getattr(transactions, end)()
    bench_2.errors = [ErrorCode.NETWORK_EXCEPTION, ErrorCode.CONCURRENT_TRANSACTIONS]
    bench_2.run()
    bench_2.run(2000)
    assert bench_2.run(2000) == ["EndTxn"]
    assert (operation.done, operation.error, transactions.state) == (True, None, State.READY)
    assert bench_2.identities == [(7, 0), (7, 1)]
    transactions.begin()
    assert not transactions.sends_to(TP)


def test_in_version_2_an_abort_needs_no_other_epoch(bench_2: Bench) -> None:
    transactions = bench_2.begun()
    transactions.batch_failed(KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), sent=True)
    operation = transactions.abort()
    assert bench_2.run() == ["EndTxn"]
    assert (operation.done, transactions.state, bench_2.identities[-1]) == (True, State.READY, (7, 1))


def test_in_version_2_offsets_are_committed_without_adding_the_group(bench_2: Bench) -> None:
    transactions = bench_2.ready()
    transactions.begin()
    operation = transactions.commit_offsets({TP: 5}, "g")
    assert bench_2.run() == ["TxnOffsetCommit"]
    assert (operation.done, operation.error) == (True, None)
    transactions.commit()
    assert bench_2.run() == ["EndTxn"]


def test_the_version_is_that_of_the_cluster_when_a_transaction_begins(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = bench.begun()
    monkeypatch.setattr(transactions._network, "feature_level", {"transaction.version": 2}.get)
    transactions.commit()
    assert bench.run() == ["AddPartitionsToTxn", "EndTxn"]
    assert bench.identities == [(7, 0)], "version 1 keeps its epoch"
    transactions.begin()
    transactions.add(TP)
    transactions.commit()
    assert bench.run() == ["EndTxn"]
    assert bench.identities == [(7, 0), (7, 1)]
