"""A transactional id has one producer and one transaction at a time, and a decision is final."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ProducerIdentity, TopicPartition
from raylog.txncoord import records, transactions
from raylog.txncoord.records import NO_IDENTITY, TransactionState, TransactionUpdated
from raylog.txncoord.transactions import PRODUCER_EPOCH_MAX, VERSION_2, Transactions
from tests.support.forms import by_form
from tests.txncoord.coordinator import TIMEOUT_MS, A, B, Coordinator, refusal


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


class TestOneTransaction:
    @pytest.mark.parametrize("committed", [True, False])
    def test_it_begins_with_a_partition_and_ends_once(self, coordinator: Coordinator, *, committed: bool) -> None:
        producer = coordinator.producer()
        assert coordinator.state() is TransactionState.EMPTY
        coordinator.add(producer, A)
        coordinator.now_ms += 5
        coordinator.add(producer, B)
        ongoing = coordinator.machine.described("tx")
        assert ongoing.partitions == {A, B}
        assert ongoing.start_timestamp_ms == 10_000
        coordinator.end(producer, committed=committed)
        [decided] = coordinator.machine.decided()
        assert decided.partitions == {A, B}
        assert refusal(lambda: coordinator.end(producer, committed=committed)) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert refusal(lambda: coordinator.end(producer, committed=not committed)) is ErrorCode.INVALID_TXN_STATE
        assert refusal(lambda: coordinator.add(producer, A)) is ErrorCode.CONCURRENT_TRANSACTIONS
        coordinator.complete()
        coordinator.end(producer, committed=committed)  # its answer was lost
        assert refusal(lambda: coordinator.end(producer, committed=not committed)) is ErrorCode.INVALID_TXN_STATE
        coordinator.add(producer, B)
        assert coordinator.machine.described("tx").partitions == {B}

    def test_a_partition_already_in_it_is_not_recorded_again(self, coordinator: Coordinator) -> None:
        producer = coordinator.producer()
        coordinator.add(producer, A, B)
        before = len(coordinator.log)
        coordinator.add(producer, B)
        assert len(coordinator.log) == before

    def test_an_id_without_a_transaction_has_nothing_to_end(self, coordinator: Coordinator) -> None:
        producer = coordinator.producer()
        assert refusal(lambda: coordinator.end(producer, committed=True)) is ErrorCode.INVALID_TXN_STATE

    def test_completing_another_decision_changes_nothing(self, coordinator: Coordinator) -> None:
        producer = coordinator.producer()
        coordinator.add(producer, A)
        coordinator.end(producer, committed=True)
        [decided] = coordinator.machine.decided()
        coordinator.complete()
        coordinator.add(producer, A)
        coordinator.now_ms += 1
        coordinator.end(producer, committed=False)
        coordinator.true(coordinator.machine.complete(decided, now_ms=coordinator.now_ms))
        assert coordinator.state() is TransactionState.PREPARE_ABORT

    def test_a_leader_verifies_its_partitions(self, coordinator: Coordinator) -> None:
        producer = coordinator.producer()
        verify = coordinator.machine.verify
        assert verify("tx", producer, [A]) == {A: ErrorCode.TRANSACTION_ABORTABLE}
        coordinator.add(producer, A)
        assert verify("tx", producer, [A, B]) == {A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE}
        coordinator.end(producer, committed=True)
        assert refusal(lambda: verify("tx", producer, [A])) is ErrorCode.CONCURRENT_TRANSACTIONS
        coordinator.complete()
        assert verify("tx", producer, [A]) == {A: ErrorCode.TRANSACTION_ABORTABLE}


class TestProducers:
    def test_a_new_producer_fences_the_previous_one(self, coordinator: Coordinator) -> None:
        zombie = coordinator.producer()
        producer = coordinator.producer()
        assert producer == ProducerIdentity(zombie.producer_id, zombie.producer_epoch + 1)
        assert refusal(lambda: coordinator.add(zombie, A)) is ErrorCode.PRODUCER_FENCED
        assert refusal(lambda: coordinator.init(zombie)) is ErrorCode.PRODUCER_FENCED
        coordinator.add(producer, A)
        assert refusal(lambda: coordinator.end(zombie, committed=True)) is ErrorCode.PRODUCER_FENCED

    def test_a_new_producer_waits_until_the_open_transaction_is_aborted(self, coordinator: Coordinator) -> None:
        zombie = coordinator.producer()
        coordinator.add(zombie, A)
        assert coordinator.init() is None
        [decided] = coordinator.machine.decided()
        assert decided.state is TransactionState.PREPARE_ABORT
        assert decided.producer.producer_epoch == zombie.producer_epoch + 1, "so that the zombie can write no more"
        before = len(coordinator.log)
        assert coordinator.init() is None
        assert len(coordinator.log) == before
        coordinator.complete()
        assert coordinator.init() == ProducerIdentity(zombie.producer_id, zombie.producer_epoch + 2)

    def test_a_producer_that_returns_with_its_id_and_epoch_gets_the_next_epoch_once(
        self, coordinator: Coordinator
    ) -> None:
        first = coordinator.producer()
        second = coordinator.init(first)
        assert second == ProducerIdentity(first.producer_id, first.producer_epoch + 1)
        assert coordinator.init(first) == second, "the answer was lost, and it asks again"
        assert coordinator.init(second) == ProducerIdentity(first.producer_id, first.producer_epoch + 2)
        assert refusal(lambda: coordinator.init(first)) is ErrorCode.PRODUCER_FENCED

    def test_a_repeated_request_does_not_abort_a_later_transaction(self, coordinator: Coordinator) -> None:
        first = coordinator.producer()
        second = coordinator.init(first)
        assert second is not None
        coordinator.add(second, A)
        assert refusal(lambda: coordinator.init(first)) is ErrorCode.PRODUCER_FENCED
        assert coordinator.state() is TransactionState.ONGOING

    def test_the_last_epoch_is_not_assigned(self, coordinator: Coordinator) -> None:
        first = coordinator.producer()
        last = ProducerIdentity(first.producer_id, PRODUCER_EPOCH_MAX - 1)
        coordinator.append(
            TransactionUpdated("tx", last, TIMEOUT_MS, TransactionState.EMPTY, frozenset(), coordinator.now_ms, -1)
        )
        coordinator.add(last, A)
        assert coordinator.init() is None
        assert coordinator.machine.described("tx").producer.producer_epoch == PRODUCER_EPOCH_MAX
        coordinator.complete()
        after = coordinator.init()
        assert after is not None
        assert (after.producer_epoch, after.producer_id != first.producer_id) == (0, True)
        assert refusal(lambda: coordinator.add(last, A)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def test_transactional_ids_are_independent(self, coordinator: Coordinator) -> None:
        one, other = coordinator.producer(), coordinator.producer(name="other")
        assert one.producer_id != other.producer_id
        assert refusal(lambda: coordinator.add(one, A, name="other")) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert refusal(lambda: coordinator.add(one, A, name="third")) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


class TestTime:
    def test_a_transaction_is_aborted_after_its_timeout(self, coordinator: Coordinator) -> None:
        producer = coordinator.producer()
        coordinator.add(producer, A)
        coordinator.now_ms += TIMEOUT_MS
        assert coordinator.machine.time_out(now_ms=coordinator.now_ms) == []
        [aborted] = coordinator.machine.time_out(now_ms=coordinator.now_ms + 1)
        coordinator.append(aborted)
        assert coordinator.state() is TransactionState.PREPARE_ABORT
        assert refusal(lambda: coordinator.end(producer, committed=True)) is ErrorCode.PRODUCER_FENCED
        assert coordinator.machine.time_out(now_ms=coordinator.now_ms * 2) == []

    def test_an_unused_id_expires_unless_in_a_transaction(self, coordinator: Coordinator) -> None:
        producer = coordinator.producer()
        coordinator.producer(name="idle")
        coordinator.add(producer, A)

        def expired(after_ms: int) -> list[str]:
            found = coordinator.machine.expire(expiration_ms=100, now_ms=coordinator.now_ms + after_ms)
            return [record.transactional_id for record in found]

        assert expired(99) == []
        assert expired(100) == ["idle"]
        coordinator.end(producer, committed=True)
        assert expired(100) == ["idle"]
        coordinator.complete()
        assert expired(100) == ["tx", "idle"]
        for record in coordinator.machine.expire(expiration_ms=100, now_ms=coordinator.now_ms + 100):
            coordinator.append(record)
        assert refusal(lambda: coordinator.machine.described("tx")) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class RandomTransactions(RuleBasedStateMachine):
    """Whatever comes in whatever order: a log that is replayed gives the same state, and outcomes stand.

    A producer id has few epochs, so that they are exhausted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(transactions, "PRODUCER_EPOCH_MAX", 6)
        self.coordinator = Coordinator()
        self.seen = [NO_IDENTITY]

    def teardown(self) -> None:
        self.patch.undo()

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except KafkaError:
            return None

    @rule(again=st.booleans(), at=st.integers(0, 20))
    def init(self, *, again: bool, at: int) -> None:
        expected = self.seen[at % len(self.seen)] if again else NO_IDENTITY
        given = self._try(lambda: self.coordinator.init(expected))
        if given is not None:
            self.seen.append(given)

    @rule(at=st.integers(0, 20), partition=st.sampled_from([A, B]))
    def add(self, at: int, partition: TopicPartition) -> None:
        self._try(lambda: self.coordinator.add(self.seen[at % len(self.seen)], partition))

    @rule(at=st.integers(0, 20), committed=st.booleans())
    def end(self, at: int, *, committed: bool) -> None:
        self._try(lambda: self.coordinator.end(self.seen[at % len(self.seen)], committed=committed))

    @rule(at=st.integers(0, 20), partition=st.sampled_from([A, B]))
    def add_2(self, at: int, partition: TopicPartition) -> None:
        self._try(lambda: self.coordinator.add_2(self.seen[at % len(self.seen)], partition))

    @rule(at=st.integers(0, 20), committed=st.booleans())
    def end_2(self, at: int, *, committed: bool) -> None:
        given = self._try(lambda: self.coordinator.end_2(self.seen[at % len(self.seen)], committed=committed))
        if given is not None:
            self.seen.append(given)
            now = self.coordinator.machine.described("tx")
            assert now.given == given, "the producer goes on with it"

    @rule()
    def complete(self) -> None:
        self.coordinator.complete()

    @rule(ms=st.integers(0, 2 * TIMEOUT_MS))
    def time_passes(self, ms: int) -> None:
        self.coordinator.now_ms += ms
        for record in self.coordinator.machine.time_out(now_ms=self.coordinator.now_ms):
            self.coordinator.append(record)

    @invariant()
    def the_log_says_it_all(self) -> None:
        replayed = Transactions()
        for record in self.coordinator.log:
            decoded = records.decode(*records.encode(record))
            assert decoded is not None
            replayed.replay(decoded)
        assert replayed.by_id == self.coordinator.machine.by_id

    @invariant()
    def what_is_decided_stands(self) -> None:
        before: TransactionUpdated | None = None
        for record in self.coordinator.log:
            assert isinstance(record, TransactionUpdated)
            if before is not None:
                assert record.producer >= before.producer, "an identity came back"
                if before.state.is_decided:
                    assert record.state.name == before.state.name.replace("PREPARE", "COMPLETE")
                    assert record.producer == before.given
            if record.state.is_decided:
                assert before is not None
                assert record.partitions == before.partitions
                if record.client_version == VERSION_2:
                    assert record.producer > before.producer, "the next transaction has the same epoch"
                else:
                    assert before.state is TransactionState.ONGOING
            before = record

    @invariant()
    def an_epoch_of_version_2_has_one_transaction(self) -> None:
        ended = [
            record.producer
            for record in self.coordinator.log
            if isinstance(record, TransactionUpdated) and record.state.is_decided and record.client_version == VERSION_2
        ]
        assert len(ended) == len(set(ended))


TestRandomTransactions = RandomTransactions.TestCase
TestRandomTransactions.settings = settings(max_examples=by_form(60, long=3000), stateful_step_count=30, deadline=None)
