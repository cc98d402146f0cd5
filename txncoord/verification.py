"""Asks the transaction coordinator before the first batch of a transaction in a partition is appended (KIP-890).

A batch that arrives after the end of its transaction would open a hanging transaction, which blocks read_committed
consumers forever. In version 1 the producer has added the partition to the transaction, and the leader verifies that.
In version 2 the leader adds it; until the transaction before is completed it asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from raylog.config.transactions import TransactionSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, ProducerIdentity, TopicPartition, by_topic
from raylog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from raylog.replication.partition import Partition
from raylog.transport.delayed import DelayedOperations
from raylog.transport.peer_link import PeerLink
from raylog.txncoord.shards import Completion, TransactionShards

ANSWER_MS_MAX = 2000

Codes = Mapping[TopicPartition, ErrorCode]
OnCodes = Callable[[Codes], None]

CODES_BEFORE_ABORTABLE = {ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE}
"""For clients that do not know TRANSACTION_ABORTABLE."""

_RETRIABLE_CODES = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)
_PRODUCER_CODES = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    **dict.fromkeys(_RETRIABLE_CODES, ErrorCode.NOT_ENOUGH_REPLICAS),
}
"""The codes in Produce responses, as in Kafka: producers retry NOT_ENOUGH_REPLICAS."""


class _Question(NamedTuple):
    """Whether batches of a producer belong to a transaction; `on_codes` is called once."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: Sequence[TopicPartition]
    adds: bool
    """Whether the partitions are added to the transaction; else it is verified that they were."""
    deadline_ms: int
    """Until when it is asked again during the completion of the transaction before (monotonic)."""
    on_codes: OnCodes

    def refuse(self, code: ErrorCode) -> None:
        self.answer(dict.fromkeys(self.partitions, code))

    def answer(self, codes: Codes) -> None:
        self.on_codes({tp: _PRODUCER_CODES.get(code, code) for tp, code in codes.items()})


class Verification:
    """The verifications of this broker. With a code of NONE the batch is appended; others go into the response."""

    def __init__(
        self,
        broker_id: BrokerId,
        transactions: TransactionShards,
        coordinator: Callable[[str], BrokerId],
        link_to: Callable[[BrokerId], PeerLink],
        *,
        delayed: DelayedOperations,
        settings: Callable[[], TransactionSettings],
        supports_2: Callable[[], bool],
        clock: Callable[[], Now],
    ) -> None:
        """`coordinator` returns the coordinator of a transactional id, or raises KafkaError. `supports_2`: whether
        all brokers know transactions of version 2."""
        self._broker_id = broker_id
        self._transactions = transactions
        self._coordinator = coordinator
        self._link_to = link_to
        self._delayed = delayed
        self._settings = settings
        self._supports_2 = supports_2
        self._clock = clock
        self._tickets = count()
        self._in_flight: dict[int, set[int]] = {}
        """For each producer id the requests in flight, without those during which a marker of it was written."""

    def is_needed(self, partition: Partition | None, producer: ProducerIdentity, *, adds: bool) -> bool:
        """Whether this broker leads the partition and the producer's next batch would begin a transaction there.

        `adds`: the request is of a version with which producers do not add partitions themselves.
        """
        return (
            partition is not None
            and partition.is_leader
            and (self._settings().verification or (adds and self._supports_2()))
            and not partition.log.producers.has_open_transaction(producer)
        )

    def ask(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        on_codes: OnCodes,
        now: Now,
        *,
        adds: bool,
    ) -> None:
        """Add or verify the partitions. `on_codes` is called once, now or later."""
        adds = adds and self._supports_2()
        deadline_ms = now.monotonic_ms + (self._settings().completion_ms_max if adds else 0)
        self._ask(_Question(transactional_id, producer, partitions, adds, deadline_ms, on_codes), now)

    def _ask(self, question: _Question, now: Now) -> None:
        try:
            coordinator = self._coordinator(question.transactional_id)
            if coordinator == self._broker_id:
                self._decide(question, now)
                return
        except KafkaError as error:
            self._refused(question, error.code, now, [Completion(question.transactional_id)], question.deadline_ms)
            return
        producer_id = question.producer.producer_id
        ticket = next(self._tickets)
        self._in_flight.setdefault(producer_id, set()).add(ticket)

        def answered(response: AddPartitionsToTxnResponse, now: Now) -> None:
            if not self._ended(producer_id, ticket):
                self._ask(question, now)
                return
            codes = dict.fromkeys(question.partitions, response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
            for transaction in response.results_by_transaction:
                for topic in transaction.topic_results:
                    for result in topic.results_by_partition:
                        codes[TopicPartition(topic.name, result.partition_index)] = result.partition_error_code
            if ErrorCode.CONCURRENT_TRANSACTIONS in codes.values():
                retry_ms = min(now.monotonic_ms + self._settings().retry_ms, question.deadline_ms)
                self._refused(question, ErrorCode.CONCURRENT_TRANSACTIONS, now, (), retry_ms)
            else:
                question.answer(codes)

        def failed(error: KafkaError, now: Now) -> None:
            self._ended(producer_id, ticket)
            question.refuse(error.code)

        request = AddPartitionsToTxnRequest(transactions=(_transaction(question),))
        self._link_to(coordinator).request(request, answered, failed, now=now, timeout_ms=ANSWER_MS_MAX)

    def _decide(self, question: _Question, now: Now) -> None:
        """As the coordinator. Raises KafkaError."""
        asked = question.transactional_id, question.producer, question.partitions, now
        if question.adds:
            self._transactions.add_as_leader(*asked, question.refuse)
        else:
            question.answer(self._transactions.verify(*asked))

    def _refused(self, question: _Question, code: ErrorCode, now: Now, keys: Iterable[Hashable], retry_ms: int) -> None:
        """Ask again when one of `keys` changes or at `retry_ms`, if the transaction before is being completed."""
        if code == ErrorCode.CONCURRENT_TRANSACTIONS and now.monotonic_ms < question.deadline_ms:
            self._delayed.park(_AskedAgain(self._ask, question, retry_ms, self._clock), keys)
        else:
            question.refuse(code)

    def _ended(self, producer_id: int, ticket: int) -> bool:
        """A request is no longer in flight. Returns whether no marker was written meanwhile."""
        tickets = self._in_flight.get(producer_id, set())
        is_valid = ticket in tickets
        tickets.discard(ticket)
        if not tickets:
            self._in_flight.pop(producer_id, None)
        return is_valid

    def marker_written(self, producer_id: int) -> None:
        """A marker makes the verifications in flight stale: they are repeated."""
        self._in_flight.pop(producer_id, None)


class _AskedAgain:
    """A question that waits for the completion of the transaction before."""

    def __init__(
        self, ask: Callable[[_Question, Now], None], question: _Question, deadline_ms: int, clock: Callable[[], Now]
    ) -> None:
        self._ask = ask
        self._question = question
        self.deadline_ms = deadline_ms
        self._clock = clock

    def try_complete(self, grown_bytes: int) -> bool:
        self.complete()
        return True

    def complete(self) -> None:
        self._ask(self._question, self._clock())


def _transaction(question: _Question) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer.producer_id,
        producer_epoch=question.producer.producer_epoch,
        verify_only=not question.adds,
        topics=tuple(
            AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in by_topic(question.partitions)
        ),
    )
