"""DeleteRecords (key 21), v0-2: raise the log start offset of partitions. v2 flexible.

Offset -1 is the high watermark. The response waits up to timeout_ms until all live replicas have the new log start
offset; the low watermark is the smallest of theirs. The records are unreadable on the leader at once; files are deleted
by the next retention check. A broker that is killed before log.flush.start.offset.checkpoint.interval.ms have passed
may restart with the old log start offset, as in Kafka. A topic whose cleanup.policy is compact alone is refused with
POLICY_VIOLATION; one with an empty policy is not (KIP-1161). Of a partition that a request names twice the last offset
counts, as in Kafka. Requires DELETE on each topic.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_OFFSET, Offset, TopicPartition
from raylog.metadata.topic_names import INTERNAL_TOPICS
from raylog.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from raylog.replication.partition_change import Change, PartitionChange
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

HIGH_WATERMARK: Final = -1
LIVE_BROKERS_CHANGED: Final = "live brokers changed"
"""The key of requests that wait for replicas on live brokers."""


def handle(broker: BrokerServices, exchange: Exchange, request: DeleteRecordsRequest) -> DeleteRecordsResponse | None:
    offsets = {
        TopicPartition(topic.name, wanted.partition_index): wanted.offset
        for topic in request.topics
        for wanted in topic.partitions
    }
    deletions = [_delete(broker, exchange, tp, offset) for tp, offset in offsets.items()]
    delayed = _DelayedDeletion(broker, exchange, deletions, timeout_ms=request.timeout_ms)
    if not delayed.try_complete(0):
        if request.timeout_ms > 0:
            exchange.wait_for(delayed, delayed.keys())
        else:
            delayed.complete()
    return None


@dataclass(slots=True)
class _Deletion:
    """One partition of the request."""

    topic_partition: TopicPartition
    offset: Offset
    """Where the logs must start."""
    low_watermark: Offset
    error_code: ErrorCode = ErrorCode.REQUEST_TIMED_OUT
    """REQUEST_TIMED_OUT while replicas lack the log start offset."""

    @property
    def is_pending(self) -> bool:
        return self.error_code == ErrorCode.REQUEST_TIMED_OUT

    def check(self, broker: BrokerServices) -> None:
        """End it if the live replicas have the log start offset, or another broker leads."""
        try:
            low_watermark = broker.partition(self.topic_partition).low_watermark(broker.image.is_alive)
        except KafkaError as error:
            self.low_watermark, self.error_code = NO_OFFSET, error.code
            return
        if low_watermark >= self.offset:
            self.low_watermark, self.error_code = low_watermark, ErrorCode.NONE


def _delete(broker: BrokerServices, exchange: Exchange, tp: TopicPartition, offset: int) -> _Deletion:
    try:
        broker.authorization.check(exchange, Operation.DELETE, Resource.topic(tp.topic))
        if tp.topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = broker.partition(tp)
        settings = partition.log.settings
        if settings.is_compacted and not settings.is_deleted:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        before = partition.high_watermark if offset == HIGH_WATERMARK else Offset(offset)
        partition.delete_records_before(before)
        deletion = _Deletion(tp, before, partition.low_watermark(broker.image.is_alive))
    except KafkaError as error:
        return _Deletion(tp, NO_OFFSET, NO_OFFSET, error.code)
    broker.partition_changed(tp)
    return deletion


class _DelayedDeletion:
    """A DeleteRecords that waits until all live replicas have the log start offsets (Kafka's DelayedDeleteRecords)."""

    def __init__(
        self,
        broker: BrokerServices,
        exchange: Exchange,
        deletions: Sequence[_Deletion],
        *,
        timeout_ms: int,
    ) -> None:
        self._broker = broker
        self._exchange = exchange
        self._deletions = deletions
        self._pending = [deletion for deletion in deletions if deletion.is_pending]
        self.deadline_ms = exchange.now.monotonic_ms + timeout_ms

    def keys(self) -> list[Hashable]:
        """The keys of the changes that may complete it."""
        committed = [PartitionChange(each.topic_partition, Change.COMMITTED) for each in self._pending]
        return [LIVE_BROKERS_CHANGED, *committed]

    def try_complete(self, grown_bytes: int) -> bool:
        """Check partitions only up to the first that is still pending: each follower's progress in each calls this."""
        while self._pending:
            self._pending[-1].check(self._broker)
            if self._pending[-1].is_pending:
                return False
            self._pending.pop()
        self.complete()
        return True

    def complete(self) -> None:
        for deletion in self._pending:
            deletion.check(self._broker)
        results: dict[str, list[DeleteRecordsPartitionResult]] = {}
        for deletion in self._deletions:
            topic, partition = deletion.topic_partition
            result = DeleteRecordsPartitionResult(
                partition_index=partition, low_watermark=deletion.low_watermark, error_code=deletion.error_code
            )
            results.setdefault(topic, []).append(result)
        topics = [DeleteRecordsTopicResult(name=name, partitions=tuple(found)) for name, found in results.items()]
        self._exchange.answer(DeleteRecordsResponse(topics=tuple(topics)))
