"""A transaction coordinator without a broker: the machine, and a list for its log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ProducerId, ProducerIdentity, TopicPartition
from raylog.core.outcome import Outcome
from raylog.txncoord.records import NO_IDENTITY, TransactionRecord, TransactionState
from raylog.txncoord.transactions import VERSION_2, Transactions

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_MS = 1000
Answer = TypeVar("Answer")


class Coordinator:
    """The machine, with a list for its log."""

    def __init__(self) -> None:
        self.machine = Transactions()
        self.log: list[TransactionRecord] = []
        self.now_ms = 10_000
        self._next_id = 0

    def true(self, outcome: Outcome[Answer, TransactionRecord]) -> Answer:
        for record in outcome.records:
            self.append(record)
        return outcome.response

    def append(self, record: TransactionRecord) -> None:
        self.log.append(record)
        self.machine.replay(record)

    def init(self, expected: ProducerIdentity = NO_IDENTITY, *, name: str = "tx") -> ProducerIdentity | None:
        return self.true(
            self.machine.init_producer(
                name,
                timeout_ms=TIMEOUT_MS,
                expected=expected,
                new_producer_id=self.new_producer_id,
                now_ms=self.now_ms,
            )
        )

    def producer(self, *, name: str = "tx") -> ProducerIdentity:
        given = self.init(name=name)
        assert given is not None
        return given

    def add(self, producer: ProducerIdentity, *partitions: TopicPartition, name: str = "tx") -> None:
        self.true(self.machine.add_partitions(name, producer, partitions, now_ms=self.now_ms))

    def end(self, producer: ProducerIdentity, *, committed: bool, name: str = "tx") -> None:
        self.true(self.machine.end(name, producer, committed=committed, now_ms=self.now_ms))

    def add_2(self, producer: ProducerIdentity, *partitions: TopicPartition) -> None:
        """As a leader adds partitions when a batch arrives."""
        add = self.machine.add_partitions
        self.true(add("tx", producer, partitions, client_version=VERSION_2, now_ms=self.now_ms))

    def end_2(self, producer: ProducerIdentity, *, committed: bool) -> ProducerIdentity:
        outcome = self.machine.end_2(
            "tx", producer, committed=committed, new_producer_id=self.new_producer_id, now_ms=self.now_ms
        )
        return self.true(outcome)

    def complete(self) -> None:
        for decided in list(self.machine.decided()):
            self.true(self.machine.complete(decided, now_ms=self.now_ms))

    def state(self, name: str = "tx") -> TransactionState:
        return self.machine.described(name).state

    def new_producer_id(self) -> ProducerId:
        self._next_id += 1
        return ProducerId(self._next_id)


def refusal(call: Callable[[], Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code
