"""Asks the coordinator of a transaction whether a partition is in it, before its first batch is taken (KIP-890).

A batch that arrives late, when its transaction is over, would open another one that nobody ever ends: read_committed
would stand still before it for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_OFFSET, BrokerId, ProducerIdentity, TopicPartition, by_topic
from raylog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from raylog.replication.partition import Partition
from raylog.transport.peer_link import PeerLink
from raylog.txncoord.shards import TransactionShards

ANSWER_MS_MAX = 2000

Codes = Mapping[TopicPartition, ErrorCode]
OnCodes = Callable[[Codes], None]

BEFORE_ABORTABLE = {ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE}
"""For clients that do not know the former."""

_COME_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)
_SEEN_BY_PRODUCERS = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    **dict.fromkeys(_COME_AGAIN, ErrorCode.NOT_ENOUGH_REPLICAS),
}
"""What a Produce is answered, as in Kafka: NOT_ENOUGH_REPLICAS is what producers try again."""


class Verification:
    """All questions of this broker that are under way. A code of NONE lets the batch in; the others are for Produce."""

    def __init__(
        self,
        broker_id: BrokerId,
        transactions: TransactionShards,
        coordinator: Callable[[str], BrokerId],
        link_to: Callable[[BrokerId], PeerLink],
        enabled: Callable[[], bool],
    ) -> None:
        """`coordinator` gives that of a transactional id, or raises KafkaError."""
        self._broker_id = broker_id
        self._transactions = transactions
        self._coordinator = coordinator
        self._link_to = link_to
        self._enabled = enabled
        self._overtaken: dict[int, bool] = {}
        """By producer id, while its coordinator is asked: whether a marker of it was written since then."""

    def is_needed(self, partition: Partition | None, producer_id: int) -> bool:
        """Whether the producer's next batch there would begin a transaction, where this broker leads."""
        return (
            partition is not None
            and partition.is_leader
            and self._enabled()
            and partition.log.producers.open_transaction(producer_id) == NO_OFFSET
        )

    def ask(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        on_codes: OnCodes,
        now: Now,
    ) -> None:
        """`on_codes` is called once, now or later."""
        try:
            coordinator = self._coordinator(transactional_id)
            if coordinator == self._broker_id:
                on_codes(_seen_by_producers(self._transactions.verify(transactional_id, producer, partitions, now)))
                return
        except KafkaError as error:
            on_codes(_seen_by_producers(dict.fromkeys(partitions, error.code)))
            return
        self._overtaken[producer.producer_id] = False
        asked = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            verify_only=True,
            topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in by_topic(partitions)
            ),
        )

        def answered(response: AddPartitionsToTxnResponse, now: Now) -> None:
            if self._overtaken.pop(producer.producer_id, True):
                self.ask(transactional_id, producer, partitions, on_codes, now)
                return
            codes = dict.fromkeys(partitions, response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
            for transaction in response.results_by_transaction:
                for topic in transaction.topic_results:
                    for result in topic.results_by_partition:
                        codes[TopicPartition(topic.name, result.partition_index)] = result.partition_error_code
            on_codes(_seen_by_producers(codes))

        def failed(error: KafkaError, now: Now) -> None:
            self._overtaken.pop(producer.producer_id, None)
            on_codes(_seen_by_producers(dict.fromkeys(partitions, error.code)))

        request = AddPartitionsToTxnRequest(transactions=(asked,))
        self._link_to(coordinator).request(request, answered, failed, now=now, timeout_ms=ANSWER_MS_MAX)

    def marker_written(self, producer_id: int) -> None:
        """What its coordinator has said before may be true no more."""
        if producer_id in self._overtaken:
            self._overtaken[producer_id] = True


def _seen_by_producers(codes: Codes) -> Codes:
    return {tp: _SEEN_BY_PRODUCERS.get(code, code) for tp, code in codes.items()}
