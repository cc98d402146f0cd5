"""The mistakes of transaction coordinators, and of leaders towards them (see `tests.sim.planting`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from raylog.broker.handlers import produce
from raylog.coordination.shards import CoordinatorShards
from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_OFFSET
from raylog.core.outcome import Outcome
from raylog.groupcoord.offsets import GroupOffsets
from raylog.groupcoord.records import OffsetPending
from raylog.logstore.producer_state import ProducerState
from raylog.txncoord import transactions
from raylog.txncoord.marker_sender import MarkerSender
from raylog.txncoord.records import TransactionUpdated
from raylog.txncoord.shards import TransactionShards
from raylog.txncoord.transactions import Transactions
from raylog.txncoord.verification import Verification
from tests.sim.planting import Planted, Replacement


def _unverified() -> list[Replacement]:
    return [(produce, "_unverified", lambda broker, context, request: {})]


def _word_outlives_marker() -> list[Replacement]:
    return [(Verification, "marker_written", lambda self, producer_id: None)]


def _sent_uncommitted() -> list[Replacement]:
    right = TransactionShards._mark_when_committed

    def mark_at_once(self: Any, shard: Any, decisions: Any) -> None:
        commit_point, shard.commit_point = shard.commit_point, lambda: None
        try:
            right(self, shard, decisions)
        finally:
            shard.commit_point = commit_point

    return [(TransactionShards, "_mark_when_committed", mark_at_once)]


def _zombies_write_on() -> list[Replacement]:
    right: Callable[[TransactionUpdated, int], TransactionUpdated] = transactions._aborted

    def aborted(ongoing: TransactionUpdated, now_ms: int) -> TransactionUpdated:
        return replace(right(ongoing, now_ms), producer=ongoing.producer)

    return [(transactions, "_aborted", aborted)]


def _markers_of_any_epoch() -> list[Replacement]:
    return [(ProducerState, "check_marker", lambda self, header, marker: None)]


def _told_once() -> list[Replacement]:
    right = MarkerSender._settle

    def settle(self: Any, leader: Any, asked: Any, code_of: Any, now: Any) -> None:
        right(self, leader, asked, lambda key: ErrorCode.NONE, now)

    return [(MarkerSender, "_settle", settle)]


def _decisions_not_loaded() -> list[Replacement]:
    return [(Transactions, "decided", lambda self: iter(()))]


def _loaded_when_asked() -> list[Replacement]:
    right = CoordinatorShards.leadership_changed

    def leadership_changed(self: Any, tp: Any, now: Any) -> Any:
        load, self._load = self._load, lambda number, partition, now: None
        try:
            return right(self, tp, now)
        finally:
            self._load = load

    return [(CoordinatorShards, "leadership_changed", leadership_changed)]


def _pending_counts() -> list[Replacement]:
    right = GroupOffsets.replay

    def replay(self: GroupOffsets, record: Any) -> None:
        right(self, record.committed if isinstance(record, OffsetPending) else record)

    return [(GroupOffsets, "replay", replay)]


def _offsets_forgotten() -> list[Replacement]:
    right = GroupOffsets.replay

    def replay(self: GroupOffsets, record: Any) -> None:
        if not isinstance(record, OffsetPending):
            right(self, record)

    return [(GroupOffsets, "replay", replay)]


def _never_timed_out() -> list[Replacement]:
    return [(Transactions, "time_out", lambda self, *, now_ms: [])]


def _epoch_not_raised() -> list[Replacement]:
    right = Transactions.end_2

    def end_2(self: Transactions, transactional_id: str, identity: Any, **wanted: Any) -> Any:
        outcome = right(self, transactional_id, identity, **wanted)
        records = [
            replace(each, producer=identity) if isinstance(each, TransactionUpdated) else each
            for each in outcome.records
        ]
        return Outcome(identity, records)

    return [(Transactions, "end_2", end_2)]


def _add_forgotten() -> list[Replacement]:
    right = Verification._ask

    def ask(self: Any, question: Any, now: Any) -> None:
        if question.adds:
            question.refuse(ErrorCode.NONE)
        else:
            right(self, question, now)

    return [(Verification, "_ask", ask)]


def _any_epoch_is_open() -> list[Replacement]:
    right = Verification.is_needed

    def is_needed(self: Any, partition: Any, producer: Any, *, adds: bool) -> bool:
        if not right(self, partition, producer, adds=adds):
            return False
        return bool(partition.log.producers.open_transaction(producer.producer_id) == NO_OFFSET)

    return [(Verification, "is_needed", is_needed)]


TRANSACTION_FAULTS: Final = (
    Planted(
        "unverified",
        "A leader appends a transactional batch without verifying that its transaction is open.",
        _unverified,
        1,
        "a transaction is still open",
    ),
    Planted(
        "stale-verification",
        "A verification is used although a marker was written after the coordinator's response.",
        _word_outlives_marker,
        None,
    ),
    Planted(
        "sent-uncommitted", "Markers are sent before the coordinator's decision is committed.", _sent_uncommitted, None
    ),
    Planted(
        "abort-without-epoch-bump",
        "A transaction that times out or is fenced is aborted without raising the producer epoch.",
        _zombies_write_on,
        None,
    ),
    Planted(
        "markers-of-any-epoch",
        "A leader writes a marker without checking its producer epoch and coordinator epoch.",
        _markers_of_any_epoch,
        None,
    ),
    Planted(
        "marker-not-retried",
        "A coordinator does not retry a marker that a partition leader refused.",
        _told_once,
        715,
        "was not committed, but consumers see",
    ),
    Planted(
        "decisions-not-loaded",
        "A new coordinator does not complete transactions that its predecessor decided.",
        _decisions_not_loaded,
        13,
        "did not finish",
    ),
    Planted(
        "loaded-on-request",
        "A new coordinator loads its transactions only on the first request.",
        _loaded_when_asked,
        None,
    ),
    Planted(
        "pending-counts",
        "An offset is visible before its transaction is committed.",
        _pending_counts,
        22,
        "is committed, but the last transaction committed",
    ),
    Planted(
        "offsets-forgotten",
        "An offset committed in a transaction is not stored.",
        _offsets_forgotten,
        1,
        "is committed, but the last transaction committed",
    ),
    Planted(
        "producer-epoch-not-raised",
        "The end of a transaction of version 2 does not raise the producer epoch.",
        _epoch_not_raised,
        1,
        "did not finish",
    ),
    Planted(
        "add-forgotten",
        "A leader appends the first batch of version 2 without adding the partition to the transaction.",
        _add_forgotten,
        1,
        "did not finish",
    ),
    Planted(
        "joins-the-transaction-before",
        "A batch of the next transaction is appended to the one before, whose marker is missing.",
        _any_epoch_is_open,
        115,
        "did not finish",
    ),
    Planted("never-timed-out", "Transactions are never aborted by timeout.", _never_timed_out, None),
)
