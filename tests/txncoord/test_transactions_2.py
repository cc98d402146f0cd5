"""In transactions of version 2 an epoch belongs to one transaction, and a repeated end of it gets the same answer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_PRODUCER_ID, ProducerIdentity
from raylog.txncoord.records import TransactionState
from raylog.txncoord.transactions import PRODUCER_EPOCH_MAX, VERSION_2
from tests.txncoord.coordinator import TIMEOUT_MS, A, B, Coordinator, refusal

BOTH = pytest.mark.parametrize("committed", [True, False])


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def bumped(producer: ProducerIdentity, by: int = 1) -> ProducerIdentity:
    return ProducerIdentity(producer.producer_id, producer.producer_epoch + by)


@BOTH
def test_the_end_raises_the_epoch(coordinator: Coordinator, *, committed: bool) -> None:
    producer = coordinator.producer()
    coordinator.add_2(producer, A, B)
    following = coordinator.end_2(producer, committed=committed)
    assert following == bumped(producer)
    [decided] = coordinator.machine.decided()
    assert (decided.producer, decided.partitions) == (following, frozenset({A, B})), "markers have the raised epoch"
    assert (decided.client_version, decided.previous_producer_id) == (VERSION_2, producer.producer_id)
    assert refusal(lambda: coordinator.add_2(following, A)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refusal(lambda: coordinator.end_2(following, committed=committed)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refusal(lambda: coordinator.add_2(producer, A)) is ErrorCode.PRODUCER_FENCED, "a late batch"
    coordinator.complete()
    assert refusal(lambda: coordinator.add_2(producer, A)) is ErrorCode.PRODUCER_FENCED
    coordinator.add_2(following, B)
    assert coordinator.machine.described("tx").partitions == {B}
    assert coordinator.end_2(following, committed=True) == bumped(producer, 2)


@BOTH
def test_a_repeated_end_gets_the_same_answer(coordinator: Coordinator, *, committed: bool) -> None:
    producer = coordinator.producer()
    coordinator.add_2(producer, A)
    following = coordinator.end_2(producer, committed=committed)
    assert refusal(lambda: coordinator.end_2(producer, committed=committed)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refusal(lambda: coordinator.end_2(producer, committed=not committed)) is ErrorCode.INVALID_TXN_STATE
    coordinator.complete()
    before = len(coordinator.log)
    assert coordinator.end_2(producer, committed=committed) == following
    assert refusal(lambda: coordinator.end_2(producer, committed=not committed)) is ErrorCode.INVALID_TXN_STATE
    assert len(coordinator.log) == before
    coordinator.add_2(following, A)
    assert refusal(lambda: coordinator.end_2(producer, committed=committed)) is ErrorCode.PRODUCER_FENCED


def test_what_has_no_partitions_can_be_aborted_but_not_committed(coordinator: Coordinator) -> None:
    producer = coordinator.producer()
    assert refusal(lambda: coordinator.end_2(producer, committed=True)) is ErrorCode.INVALID_TXN_STATE
    for _ in range(2):  # once without a transaction before, once after one
        following = coordinator.end_2(producer, committed=False)
        [decided] = coordinator.machine.decided()
        assert (following, decided.partitions) == (bumped(producer), frozenset())
        assert decided.start_timestamp_ms == coordinator.now_ms
        coordinator.complete()
        commit = partial(coordinator.end_2, following, committed=True)
        assert refusal(commit) is ErrorCode.INVALID_TXN_STATE
        assert coordinator.end_2(producer, committed=False) == following
        producer = following


@pytest.mark.parametrize("by", ["timeout", "another producer"])
def test_the_coordinators_abort_is_not_taken_for_the_producers(coordinator: Coordinator, by: str) -> None:
    """The producer of before has ended nothing: to it, its abort must not seem to be done."""
    producer = coordinator.producer()
    coordinator.add_2(producer, A)
    if by == "timeout":
        [aborted] = coordinator.machine.time_out(now_ms=coordinator.now_ms + TIMEOUT_MS + 1)
        coordinator.append(aborted)
    else:
        assert coordinator.init() is None
    assert coordinator.machine.described("tx").producer == bumped(producer, 2)
    for _ in range(2):
        for committed in (True, False):
            end = partial(coordinator.end_2, producer, committed=committed)
            assert refusal(end) is ErrorCode.PRODUCER_FENCED
        coordinator.complete()
    assert coordinator.init() == bumped(producer, 3)


@BOTH
def test_exhausted_epochs_give_a_new_producer_id(coordinator: Coordinator, *, committed: bool) -> None:
    producer = coordinator.producer()
    last = ProducerIdentity(producer.producer_id, PRODUCER_EPOCH_MAX - 1)
    coordinator.append(replace(coordinator.machine.described("tx"), producer=last))
    coordinator.add_2(last, A)
    following = coordinator.end_2(last, committed=committed)
    assert (following.producer_epoch, following.producer_id != producer.producer_id) == (0, True)
    [decided] = coordinator.machine.decided()
    assert decided.producer == bumped(last), "markers have the last epoch, which no producer has"
    assert refusal(lambda: coordinator.end_2(last, committed=committed)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refusal(lambda: coordinator.add_2(following, A)) is ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.complete()
    completed = coordinator.machine.described("tx")
    assert (completed.producer, completed.next_producer_id) == (following, NO_PRODUCER_ID)
    assert coordinator.end_2(last, committed=committed) == following, "a retry"
    assert refusal(lambda: coordinator.add_2(last, A)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    coordinator.add_2(following, A)
    assert refusal(lambda: coordinator.end_2(last, committed=committed)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_fenced_producer_with_the_last_epoch_stays_fenced(coordinator: Coordinator) -> None:
    producer = coordinator.producer()
    last = ProducerIdentity(producer.producer_id, PRODUCER_EPOCH_MAX - 1)
    coordinator.append(replace(coordinator.machine.described("tx"), producer=last))
    coordinator.add_2(last, A)
    assert coordinator.init() is None
    assert coordinator.machine.described("tx").producer == bumped(last)
    for _ in range(2):
        assert refusal(lambda: coordinator.end_2(last, committed=False)) is ErrorCode.PRODUCER_FENCED
        coordinator.complete()
    after = coordinator.init()
    assert after is not None
    assert (after.producer_epoch, after.producer_id != producer.producer_id) == (0, True)


def test_producers_of_both_versions_may_follow_each_other(coordinator: Coordinator) -> None:
    producer = coordinator.producer()
    coordinator.add_2(producer, A)
    following = coordinator.end_2(producer, committed=True)
    coordinator.complete()
    coordinator.add(following, A)
    coordinator.end(following, committed=True)
    coordinator.complete()
    assert coordinator.machine.described("tx").producer == following, "version 1 keeps the epoch"
    assert refusal(lambda: coordinator.end_2(producer, committed=True)) is ErrorCode.PRODUCER_FENCED
    coordinator.add_2(following, A)
    assert coordinator.end_2(following, committed=False) == bumped(following)
    coordinator.complete()
    assert coordinator.state() is TransactionState.COMPLETE_ABORT
