"""Sends the batches of a producer to the leaders of their partitions, and decides what becomes of each. Sans-IO.

An idempotent producer numbers the records of each partition (KIP-98). A batch keeps its sequence number however often
it is sent, so that the leader recognizes it. What has to be sent again goes before what was not sent yet; those that
were sent behind it are refused with OUT_OF_ORDER_SEQUENCE_NUMBER, and sent again behind it.

If the leader refuses the sequence number of the first unfinished batch, it has lost the state of the producer, or an
earlier batch that failed was never appended. If a former attempt of this batch may have been appended, it fails. Else
neither it nor a later one is in the log: the partition begins anew, with the next epoch of the producer (KIP-360).
In a transaction the batch fails, and with it the transaction, whose abort renews the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any, Final
from uuid import UUID

from raylog.client.backoff import backoff_ms
from raylog.client.cluster_view import Node
from raylog.client.coordinators import Coordinators
from raylog.client.errors import InvalidBatchError, TransactionAbortedError
from raylog.client.given_values import check_topic_names
from raylog.client.network_client import NetworkClient
from raylog.client.producer.accumulator import SEQUENCE_LIMIT, PartitionQueue, ProducerBatch, RecordAccumulator
from raylog.client.producer.statistics import Statistics
from raylog.client.producer.transactions import PRODUCE_VERSION_MAX, State, Transactions
from raylog.config.producer import IN_FLIGHT_MAX_OF_IDEMPOTENCE, ProducerSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    ZERO_TOPIC_ID,
    TopicPartition,
    by_topic,
)
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.compression import Codec
from raylog.protocol.registry import PRODUCE
from raylog.protocol.schema import Message
from raylog.transport.peer_link import VersionFor

EPOCH_MAX: Final = 32_767
RECORD_ERRORS_TOLD: Final = 3
"""Of how many records of a batch its error tells what is wrong with them."""
NO_TIMEOUT_MS: Final = (1 << 31) - 1
"""The timeout of transactions that a producer without transactions gives."""
TOPICS_BY_ID_SINCE: Final = 13
NOT_APPENDED: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""With any other error the batch may have been appended."""
STATE_LOST: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
"""The leader does not expect this sequence number."""
REFRESHING: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
)
"""The leader may be another one by now."""


class Sender:
    """A service of the network."""

    def __init__(self, network: NetworkClient, accumulator: RecordAccumulator, settings: ProducerSettings) -> None:
        self.completed: list[ProducerBatch] = []
        """Batches that have ended since the owner took them; it tells their deliveries."""
        self.failure: KafkaError | None = None
        """Why the producer cannot go on at all."""
        self.statistics = Statistics()
        self.flushes = 0
        """While there are callers who wait for it, everything is sent at once, without lingering."""
        self._network = network
        self._accumulator = accumulator
        self._settings = settings
        self._codec = Codec[settings.codec.upper()]
        self._producer_id: int = NO_PRODUCER_ID
        self._epoch = NO_PRODUCER_EPOCH
        self._asking_id = False
        self.on_producer_id: Callable[[int], object] | None = None
        """Called with each new producer id. Nothing is sent under it before `admit`."""
        self._announced_id: int = NO_PRODUCER_ID
        self._admitted_id: int = NO_PRODUCER_ID
        self._id_due_ms = 0
        self._id_attempts = 0
        self._turn = 0
        self._ran_ms = 0
        """When `run` was last called."""
        self.transactions: Transactions | None = None
        if settings.transactional_id is not None:
            coordinators = Coordinators(network)
            network.services += [self, coordinators]
            self.transactions = Transactions(
                network,
                coordinators,
                settings.transactional_id,
                timeout_ms=settings.transaction_timeout_ms,
                has_unfinished=lambda: any(True for _ in self.unfinished),
                on_identity=self._set_identity,
            )
        else:
            network.services.append(self)

    @property
    def unfinished(self) -> Iterable[ProducerBatch]:
        """The batches that are neither acknowledged nor failed."""
        for queue in self._accumulator.active.values():
            yield from queue.in_flight
            yield from queue.waiting

    def uses(self, topic: str, now: Now) -> None:
        """Keep metadata of the topic until it has been idle for metadata.max.idle.ms. Raises KafkaError."""
        try:
            self._network.metadata.want([topic], until_ms=now.monotonic_ms + self._settings.metadata_idle_ms_max)
        except TypeError:  # it cannot be hashed
            check_topic_names([topic])
            raise

    def admit(self, producer_id: int) -> None:
        self._admitted_id = producer_id

    def abandon(self, error: KafkaError) -> None:
        """Fail everything that is not acknowledged, and send nothing more."""
        self.failure = self.failure or error
        for batch in list(self.unfinished):
            self._complete(batch, error)

    # --- events

    def run(self, now: Now) -> None:
        self._ran_ms = now.monotonic_ms
        self._expire(now)
        if self.transactions is not None:
            self._run_transactions(self.transactions, now)
        if self.failure is not None:
            return
        if self._settings.idempotent and self._producer_id == NO_PRODUCER_ID:
            self._ask_for_id(now)
            return
        if self.on_producer_id is not None and self._producer_id != self._admitted_id:
            if self._producer_id != self._announced_id:
                self._announced_id = self._producer_id
                self.on_producer_id(self._producer_id)
            return
        by_node: dict[int, list[PartitionQueue]] = {}
        for queue in self._accumulator.active.values():
            if queue.waiting and self._is_ready(queue, now):
                leader = self._network.metadata.leader(queue.tp)
                if leader is None:
                    self.uses(queue.tp.topic, now)
                    self._network.metadata.expire()
                else:
                    by_node.setdefault(leader.broker_id, []).append(queue)
        for node_id, queues in by_node.items():
            self._send_to(self._network.metadata.nodes[node_id], queues, now)

    def next_deadline_ms(self) -> int | None:
        """What is due and was not done in the last `run` waits for something else than time."""
        due: list[int] = []
        for queue in self._accumulator.active.values():
            if queue.waiting:
                first = queue.waiting[0]
                due.append(first.created_ms + self._settings.delivery_timeout_ms)
                due.append(queue.backoff_until_ms)
                due.append(self._lingers_until_ms(queue))
            due += [batch.created_ms + self._settings.delivery_timeout_ms for batch in queue.in_flight]
        if due and self._settings.idempotent and self._producer_id == NO_PRODUCER_ID:
            due.append(self._id_due_ms)
        if self.transactions is not None:
            due.append(self.transactions.next_deadline_ms())
        return min((ms for ms in due if ms > self._ran_ms), default=None)

    # --- which batches are sent

    def _lingers_until_ms(self, queue: PartitionQueue) -> int:
        first = queue.waiting[0]
        at_once = bool(self.flushes) or first.closed or len(queue.waiting) > 1
        at_once = at_once or (self.transactions is not None and self.transactions.completes)
        return first.created_ms if at_once else first.created_ms + self._settings.linger_ms

    def _is_ready(self, queue: PartitionQueue, now: Now) -> bool:
        if now.monotonic_ms < queue.backoff_until_ms or (queue.begins_anew and queue.in_flight):
            return False
        if self.transactions is not None and not self.transactions.sends_to(queue.tp):
            return False
        if self._settings.in_flight_max == 1 and queue.in_flight:  # also at a former leader: records stay in order
            return False
        if self._settings.idempotent and len(queue.in_flight) >= (
            IN_FLIGHT_MAX_OF_IDEMPOTENCE if queue.acknowledged else 1
        ):
            return False
        first = queue.waiting[0]
        if not first.attempts:
            return now.monotonic_ms >= self._lingers_until_ms(queue)
        return not self._settings.idempotent or all(other.number > first.number for other in queue.in_flight)

    def _send_to(self, node: Node, queues: list[PartitionQueue], now: Now) -> None:
        """One batch of each partition in a request, as long as the link takes requests."""
        link = self._network.link(node.broker_id)
        self._turn += 1
        start = self._turn % len(queues)
        waiting = queues[start:] + queues[:start]  # each partition is the first one in its turn
        while waiting and link.has_room:
            batches: list[ProducerBatch] = []
            size_bytes = 0
            for queue in waiting:
                batch = queue.waiting[0]
                size_bytes += batch.size_bytes
                if batches and size_bytes > self._settings.request_bytes_max:
                    break
                self._begin(queue, batch)
                batches.append(batch)
            self._send(node, batches, now)
            waiting = [queue for queue in waiting if queue.waiting and self._is_ready(queue, now)]

    def _begin(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """The batch goes out now, under the next sequence number of its partition."""
        batch.closed = True
        batch.attempts += 1
        queue.begins_anew = False
        queue.waiting.popleft()
        if self._settings.idempotent and batch.base_sequence == NO_SEQUENCE:
            if queue.producer_id == NO_PRODUCER_ID:
                queue.producer_id, queue.epoch, queue.next_sequence = self._producer_id, self._epoch, 0
                queue.acknowledged = False
            batch.set_sequence(queue.producer_id, queue.epoch, queue.next_sequence)
            queue.next_sequence = (queue.next_sequence + batch.builder.count) % SEQUENCE_LIMIT
        queue.in_flight.append(batch)

    def _send(self, node: Node, batches: Sequence[ProducerBatch], now: Now) -> None:
        settings = self._settings
        by_tp = {batch.tp: batch for batch in batches}
        ids = {tp.topic: self._network.metadata.topics[tp.topic].topic_id for tp in by_tp}
        transactional_id = settings.transactional_id
        version_2 = self.transactions is None or self.transactions.version_2
        version_max = None if version_2 else PRODUCE_VERSION_MAX

        def request(version_for: VersionFor) -> Message:
            by_id = version_max is None and version_for(PRODUCE) >= TOPICS_BY_ID_SINCE
            topics = []
            for topic, indexes in by_topic(by_tp):
                partitions = []
                for index in indexes:
                    batch = by_tp[TopicPartition(topic, index)]
                    records = memoryview(batch.encode(self._codec, transactional=transactional_id is not None))
                    self.statistics.encoded(batch, len(records))
                    partitions.append(ProducePartition(index=index, records=records))
                name, topic_id = ("", ids[topic]) if by_id else (topic, ZERO_TOPIC_ID)
                topics.append(ProduceTopic(name=name, topic_id=topic_id, partitions=partitions))
            return ProduceRequest(
                transactional_id=transactional_id,
                acks=settings.acks,
                timeout_ms=settings.network.request_timeout_ms,
                topics=topics,
            )

        self.statistics.sent(batches, now.monotonic_ms)
        names = {topic_id: topic for topic, topic_id in ids.items()}

        def answered(response: Any, later: Now) -> None:
            self.statistics.answered(later.monotonic_ms - now.monotonic_ms)
            self._answered(by_tp, names, response, later)

        def failed(error: KafkaError, later: Now) -> None:
            self.statistics.requests_in_flight -= 1
            self._failed(by_tp, error, later)

        self._network.ask(
            node.broker_id,
            request,
            answered,
            failed,
            now,
            answered=settings.acks != 0,
            version_max=version_max,
        )

    # --- what becomes of them

    def _answered(
        self, batches: dict[TopicPartition, ProducerBatch], names: dict[UUID, str], response: Any, now: Now
    ) -> None:
        if response is None:  # acks=0
            for batch in batches.values():
                self._complete(batch, None)
            return
        left = dict(batches)
        for topic in response.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for result in topic.partitions:
                tp = TopicPartition(name, result.index)
                if tp in left:
                    self._answered_batch(left.pop(tp), result, now)
        missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response does not contain the partition")
        self._failed(left, missing, now)

    def _answered_batch(self, batch: ProducerBatch, result: Any, now: Now) -> None:
        code = result.error_code
        if code is ErrorCode.NONE:
            batch.base_offset, batch.append_time_ms = result.base_offset, result.log_append_time_ms
            self._accumulator.queues[batch.tp].acknowledged = True
            self._complete(batch, None)
        elif code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._complete(batch, None)
        else:
            why = result.error_message or code.sentence
            told = {each.batch_index: each.batch_index_error_message or why for each in result.record_errors}
            for number in sorted(told)[:RECORD_ERRORS_TOLD]:
                why += f" (record {number}: {told[number]})"
            error = KafkaError(code, f"{batch.tp}: {why}")
            if told and batch.builder.count > 1:
                batch.record_errors = {index: KafkaError(code, f"{batch.tp}: {told[index]}") for index in told}
                error = InvalidBatchError(code, f"{batch.tp}: other records of the batch are refused: {why}")
            self._rejected(batch, error, now)

    def _failed(self, batches: dict[TopicPartition, ProducerBatch], error: KafkaError, now: Now) -> None:
        """There is no response: the batches may have been appended."""
        for batch in batches.values():
            self._rejected(batch, error, now)

    def _rejected(self, batch: ProducerBatch, error: KafkaError, now: Now) -> None:
        if batch.done:
            return
        queue = self._accumulator.queues[batch.tp]
        code = error.code
        if code in REFRESHING:
            self._network.metadata.expire()
        if self.transactions is not None and code is ErrorCode.INVALID_PRODUCER_EPOCH:
            self._complete(batch, error)
        elif code is ErrorCode.MESSAGE_TOO_LARGE and batch.builder.count > 1:
            self._accumulator.split(batch)
            self.statistics.batches_split += 1
        elif self._settings.idempotent and code in STATE_LOST:
            self._sequence_refused(queue, batch, error)
        else:
            batch.unknown = batch.unknown or code not in NOT_APPENDED
            if code.retriable and batch.attempts <= self._settings.retries:
                batch.refusal = error
                queue.put_back(batch)
                queue.backoff_until_ms = now.monotonic_ms + self._backoff_ms(batch.attempts)
            else:
                self._complete(batch, error)

    def _sequence_refused(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> None:
        if not queue.is_first(batch) or batch.base_sequence == NO_SEQUENCE:
            queue.put_back(batch)
            return
        if batch.unknown or self.transactions is not None:
            self._complete(batch, error)
        else:
            self._begin_anew(queue)
            queue.put_back(batch)

    def _begin_anew(self, queue: PartitionQueue) -> None:
        """The next batch of the partition is the first one of a new epoch, or of a new producer id."""
        if self._epoch < EPOCH_MAX:
            self._epoch += 1
        else:
            self._producer_id = NO_PRODUCER_ID
        queue.producer_id = NO_PRODUCER_ID  # it takes the present one, which another partition may have got
        queue.begins_anew = True
        queue.acknowledged = False
        for batch in (*queue.in_flight, *queue.waiting):
            batch.base_sequence = NO_SEQUENCE
            batch.unknown = False

    def _backoff_ms(self, attempt: int) -> int:
        pause = self._settings.network
        return backoff_ms(attempt, pause.retry_backoff_ms, pause.retry_backoff_ms_max, self._network.jitter)

    def _expire(self, now: Now) -> None:
        timeout_ms = self._settings.delivery_timeout_ms
        limit = now.monotonic_ms - timeout_ms
        for queue in list(self._accumulator.active.values()):
            expired = [batch for batch in queue.in_flight if batch.created_ms <= limit]
            expired += takewhile(lambda batch: batch.created_ms <= limit, queue.waiting)
            for batch in expired:
                failure = batch.refusal or self._network.metadata.failure
                reason = "" if failure is None else f": {failure}"
                what = f"{batch.tp}: not acknowledged within delivery.timeout.ms ({timeout_ms} ms)"
                text = f"{what} after {batch.attempts} attempts{reason}"
                self._complete(batch, KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))

    def _complete(self, batch: ProducerBatch, error: KafkaError | None) -> None:
        if batch.done:
            return
        self._accumulator.removed(batch)
        batch.closed = True
        batch.error = error
        batch.finish()
        self.completed.append(batch)
        if error is None:
            self._accumulator.recycle(batch)
            return
        self.statistics.records_failed += batch.builder.count
        if self.transactions is not None:
            self.transactions.batch_failed(error, sent=batch.base_sequence != NO_SEQUENCE)

    # --- transactions

    def _run_transactions(self, transactions: Transactions, now: Now) -> None:
        if transactions.drops:
            aborted = TransactionAbortedError("the transaction was aborted before the record was sent")
            why = transactions.failure or aborted
            for batch in [batch for batch in self.unfinished if batch.base_sequence == NO_SEQUENCE]:
                self._complete(batch, why)
        transactions.run(now)
        if transactions.state is State.FATAL_ERROR and self.failure is None:
            assert transactions.failure is not None
            self.abandon(transactions.failure)

    def _set_identity(self, producer_id: int, producer_epoch: int) -> None:
        self._producer_id, self._epoch = producer_id, producer_epoch
        for queue in self._accumulator.queues.values():
            queue.producer_id = NO_PRODUCER_ID

    # --- the producer id

    def _ask_for_id(self, now: Now) -> None:
        if self._asking_id or now.monotonic_ms < self._id_due_ms or not any(True for _ in self.unfinished):
            return
        self._asking_id = True
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TIMEOUT_MS)
        self._network.ask_any(request, self._got_id, self._got_no_id, now)

    def _got_id(self, response: Any, now: Now) -> None:
        if response.error_code is not ErrorCode.NONE:
            self._got_no_id(KafkaError(response.error_code, f"no producer id: {response.error_code.sentence}"), now)
            return
        if response.producer_id < 0 or response.producer_epoch < 0:
            text = f"the broker gives producer id {response.producer_id}, epoch {response.producer_epoch}"
            self._got_no_id(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text), now)
            return
        self._asking_id = False
        self._id_attempts = 0
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch

    def _got_no_id(self, error: KafkaError, now: Now) -> None:
        self._asking_id = False
        self._id_attempts += 1
        self._id_due_ms = now.monotonic_ms + self._backoff_ms(self._id_attempts)
        if not error.code.retriable:
            self.abandon(error)
