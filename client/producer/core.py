"""What the blocking and the asyncio producer have in common: from a record to its batch. Sans-IO, for one caller at a
time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raylog.client.cluster_view import parse_servers
from raylog.client.errors import BufferExhaustedError, ClientClosedError
from raylog.client.network_client import NetworkClient, Random
from raylog.client.producer.accumulator import ProducerBatch, RecordAccumulator
from raylog.client.producer.delivery import ProducerRecord
from raylog.client.producer.partitioners import DefaultPartitioner, Partition, RoundRobinPartitioner
from raylog.client.producer.sender import Sender
from raylog.client.producer.transactions import Operation, State, Transactions
from raylog.config.producer import ProducerSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.batch import HEADER_SIZE

LASTING: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)
"""Errors of a topic in the metadata that waiting does not mend."""


class ProducerCore:
    """Not thread-safe. The faces wait where `try_append` cannot go on."""

    def __init__(
        self,
        servers: str,
        settings: ProducerSettings,
        random: Random,
        *,
        partitioner: Partition | None = None,
    ) -> None:
        """Raises ConfigError."""
        self.settings = settings
        self.network = NetworkClient(
            parse_servers(servers), settings.network, random, in_flight_max=settings.in_flight_max, create_topics=True
        )
        self.accumulator = RecordAccumulator(batch_bytes=settings.batch_bytes, buffer_bytes=settings.buffer_bytes)
        self.sender = Sender(self.network, self.accumulator, settings)
        self.closed = False
        self._partitioner = partitioner
        if settings.round_robin:
            self._spread: DefaultPartitioner | RoundRobinPartitioner = RoundRobinPartitioner(random.randrange)
        else:
            self._spread = DefaultPartitioner(
                random.randrange, settings.batch_bytes, ignore_keys=settings.ignore_keys, waiting=self._waiting
            )

    def try_append(self, record: ProducerRecord, now: Now) -> tuple[ProducerBatch, bool] | None:
        """The batch that the record is in, and whether the sender has something new to do.

        None if the topic's metadata or memory is missing. Raises KafkaError where waiting would not help.
        """
        if self.closed:
            raise ClientClosedError("the producer is closed")
        if self.sender.failure is not None:
            raise self.sender.failure
        transactions = self.sender.transactions
        if transactions is not None:
            transactions.check_send()
        topic, partition, record_bytes = record.topic, record.partition, record.bytes_max
        self._check_size(record_bytes)
        known = self.network.metadata.topic(topic)
        if known is None or not known.usable:
            self._check_topic(topic, known.error_code if known is not None else ErrorCode.NONE)
            self.network.metadata.want([topic])
            return None
        if not self.accumulator.has_room(record_bytes):
            return None
        count = len(known.partitions)
        if partition is None:
            partition = self._partition(record, record_bytes, count)
        if not 0 <= partition < count:
            text = f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        tp = TopicPartition(topic, partition)
        batch, fresh = self.accumulator.append(tp, record, now.monotonic_ms)
        if transactions is not None and transactions.add(tp):
            fresh = True
        return batch, fresh

    @property
    def transactions(self) -> Transactions:
        """Raises KafkaError for a producer without them, and for one that is closed."""
        if self.closed:
            raise ClientClosedError("the producer is closed")
        if self.sender.transactions is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the producer has no transactional.id")
        return self.sender.transactions

    def metrics(self) -> dict[str, float]:
        return self.sender.statistics.shown() | {
            "buffer-total-bytes": self.settings.buffer_bytes,
            "buffer-available-bytes": self.settings.buffer_bytes - self.accumulator.used_bytes,
            "connection-count": self.network.connection_count,
        }

    def abort_before_close(self) -> Operation | None:
        """Abort the transaction, if one is open."""
        transactions = self.sender.transactions
        if transactions is None or not transactions.is_open or transactions.state is State.COMMITTING:
            return None
        return transactions.abort()

    def timed_out(self, topic: str, waited_ms: int) -> KafkaError:
        """Why `try_append` could not go on until now."""
        metadata = self.network.metadata
        known = metadata.topic(topic)
        if known is not None and known.usable:
            size = self.settings.buffer_bytes
            return BufferExhaustedError(f"buffer.memory ({size} bytes) was in use for all of {waited_ms} ms")
        code = ErrorCode.REQUEST_TIMED_OUT
        if metadata.failure is not None:
            code, reason = metadata.failure.code, metadata.failure.message
        elif known is not None:
            code, reason = known.error_code, known.error_code.sentence
        else:
            reason = "no broker has answered yet"
        return KafkaError(code, f"no metadata of topic {topic!r} within {waited_ms} ms: {reason}")

    def _check_size(self, record_bytes: int) -> None:
        for key, limit in (
            ("max.request.size", self.settings.request_bytes_max),
            ("buffer.memory", self.settings.buffer_bytes),
        ):
            if record_bytes + HEADER_SIZE > limit:
                text = f"the record needs up to {record_bytes + HEADER_SIZE} bytes, more than {key} ({limit})"
                raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)

    def _check_topic(self, topic: str, code: ErrorCode) -> None:
        failure = self.network.metadata.failure
        if failure is not None and not failure.code.retriable:
            raise failure
        if code in LASTING:
            raise KafkaError(code, f"topic {topic!r}: {code.sentence}")

    def _partition(self, record: ProducerRecord, record_bytes: int, count: int) -> int:
        if self._partitioner is not None:
            return self._partitioner(record.topic, record.key, record.value, count)
        return self._spread.partition(record.topic, record.key, record_bytes, count)

    def _waiting(self, topic: str, partition_count: int) -> Sequence[int]:
        if not self.settings.adaptive:
            return ()
        queues = self.accumulator.queues
        found = (queues.get(TopicPartition(topic, index)) for index in range(partition_count))
        return [0 if queue is None else len(queue.waiting) for queue in found]
