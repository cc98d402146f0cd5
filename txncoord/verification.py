"""Asks the transaction coordinator whether a partition is in a transaction, before appending its first batch (KIP-890).

A batch that arrives after the end of its transaction would open a hanging transaction, which blocks read_committed
consumers forever.
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


class Verification:
    """The verifications of this broker. With a code of NONE the batch is appended; others go into the response."""

    def __init__(
        self,
        broker_id: BrokerId,
        transactions: TransactionShards,
        coordinator: Callable[[str], BrokerId],
        link_to: Callable[[BrokerId], PeerLink],
        enabled: Callable[[], bool],
    ) -> None:
        """`coordinator` returns the coordinator of a transactional id, or raises KafkaError."""
        self._broker_id = broker_id
        self._transactions = transactions
        self._coordinator = coordinator
        self._link_to = link_to
        self._enabled = enabled
        self._marker_written: dict[int, bool] = {}
        """For each producer id with a request in flight: whether a marker of it was written meanwhile."""

    def is_needed(self, partition: Partition | None, producer_id: int) -> bool:
        """Whether this broker leads the partition and the producer's next batch would begin a transaction there."""
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
        """Verify the partitions. `on_codes` is called once, now or later."""
        try:
            coordinator = self._coordinator(transactional_id)
            if coordinator == self._broker_id:
                on_codes(_codes_for_producers(self._transactions.verify(transactional_id, producer, partitions, now)))
                return
        except KafkaError as error:
            on_codes(_codes_for_producers(dict.fromkeys(partitions, error.code)))
            return
        self._marker_written[producer.producer_id] = False
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
            if self._marker_written.pop(producer.producer_id, True):
                self.ask(transactional_id, producer, partitions, on_codes, now)
                return
            codes = dict.fromkeys(partitions, response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
            for transaction in response.results_by_transaction:
                for topic in transaction.topic_results:
                    for result in topic.results_by_partition:
                        codes[TopicPartition(topic.name, result.partition_index)] = result.partition_error_code
            on_codes(_codes_for_producers(codes))

        def failed(error: KafkaError, now: Now) -> None:
            self._marker_written.pop(producer.producer_id, None)
            on_codes(_codes_for_producers(dict.fromkeys(partitions, error.code)))

        request = AddPartitionsToTxnRequest(transactions=(asked,))
        self._link_to(coordinator).request(request, answered, failed, now=now, timeout_ms=ANSWER_MS_MAX)

    def marker_written(self, producer_id: int) -> None:
        """A marker makes a verification in flight stale: it is repeated."""
        if producer_id in self._marker_written:
            self._marker_written[producer_id] = True


def _codes_for_producers(codes: Codes) -> Codes:
    return {tp: _PRODUCER_CODES.get(code, code) for tp, code in codes.items()}
