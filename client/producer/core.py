"""What the blocking and the asyncio producer have in common: from a record to its batch. Sans-IO, for one caller at a
time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from raylog.client.chunks.splitting import OutgoingMessage
from raylog.client.cluster_metadata import TopicMetadata
from raylog.client.cluster_view import parse_servers
from raylog.client.errors import BufferExhaustedError, ClientClosedError, UnknownPartitionError
from raylog.client.given_values import shown, whole_number
from raylog.client.network_client import NetworkClient, Random
from raylog.client.producer.accumulator import ProducerBatch, RecordAccumulator
from raylog.client.producer.appending import OpenBatches
from raylog.client.producer.arrow import TableAppender
from raylog.client.producer.delivery import ProducerRecord
from raylog.client.producer.partitioners import DefaultPartitioner, Partition, RoundRobinPartitioner, StickyTopic
from raylog.client.producer.sender import Sender
from raylog.client.producer.transactions import Operation, State, Transactions
from raylog.config.producer import ProducerSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.batch import HEADER_SIZE
from raylog.protocol.records.builder import BatchBuilder
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.copied import CopiedBatch

if TYPE_CHECKING:
    from raylog.client.producer.arrow import Table

LASTING: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)
"""Errors of a topic in the metadata that waiting does not mend."""


class ProducerCore:
    """The producer without sockets, threads and clock.

    Not thread-safe. The faces wait where `try_append` cannot go on.
    """

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
        self._choose = random.randrange
        self._partitioner = partitioner
        self.poke: Callable[[], None] = lambda: None
        """Has the network run; set by the owner."""
        self._missing: dict[TopicPartition, int] = {}
        """Partitions that records name and the metadata lack: the number of the first response that lacked them."""
        self._messages: dict[tuple[str, bytes | None], OutgoingMessage] = {}
        """Those of which a part may be appended, by their places."""
        open_bytes_max = min(settings.batch_bytes, settings.request_bytes_max)
        if settings.large is not None:
            open_bytes_max = min(open_bytes_max, settings.large.segment_bytes)
        self.open_batches = OpenBatches(self.accumulator, open_bytes_max)
        if settings.round_robin:
            self._spread: DefaultPartitioner | RoundRobinPartitioner = RoundRobinPartitioner(random.randrange)
        else:
            self._spread = DefaultPartitioner(
                random.randrange,
                settings.batch_bytes - HEADER_SIZE,
                ignore_keys=settings.ignore_keys,
                waiting=self._waiting,
                fits=self.accumulator.fits,
            )

    def close(self) -> bool:
        """Take no more records; False if it was closed before."""
        first, self.closed = not self.closed, True
        self.open_batches.close()
        return first

    def try_append(self, record: ProducerRecord, now: Now) -> tuple[ProducerBatch, bool] | None:
        """The batch that the record is in, and whether the sender has something new to do.

        None if the topic's metadata or memory is missing. Raises KafkaError where waiting would not help.
        """
        self._check_send()
        transactions = self.sender.transactions
        topic, partition, record_bytes = record.topic, record.partition, record.bytes_max
        self._check_size(record_bytes)
        known = self._known(topic, now)
        if known is None:
            return None
        if not self.accumulator.has_room(record_bytes):
            return None
        count = len(known.partitions)
        is_given = partition is not None
        if partition is None:
            partition = self._partition(record, record_bytes, count)
        if type(partition) is not int:
            partition = whole_number("partition", partition)
        tp = TopicPartition(topic, partition)
        if is_given and partition >= count and self._may_have_grown(tp):
            return None
        self._check_partition(tp, count)
        self._missing.pop(tp, None)
        batch, fresh = self.accumulator.append(tp, record, now.monotonic_ms)
        if isinstance(self._spread, DefaultPartitioner) and self._partitioner is None and transactions is None:
            hashes_keys = not self.settings.ignore_keys
            self.open_batches.keep(batch, self._spread.sticky(topic), count, hashes_keys=hashes_keys)
        if transactions is not None and transactions.add(tp):
            fresh = True
        return batch, fresh

    def _may_have_grown(self, tp: TopicPartition) -> bool:
        """Whether metadata newer than the first that lacked the partition are still missing; they are asked for."""
        updates = self.network.metadata.updates
        if tp not in self._missing:
            self._missing[tp] = updates
            self._refresh()
        if self._missing[tp] == updates:
            return True
        del self._missing[tp]
        return False

    def _refresh(self) -> None:
        self.network.metadata.expire()
        self.poke()

    def table_appender(self, topic: str, table: Table, now: Now) -> TableAppender | None:
        """None while the topic's metadata is missing. Raises KafkaError as `try_append`."""
        self._check_send()
        known = self._known(topic, now)
        if known is None:
            return None
        count, settings = len(known.partitions), self.settings
        waiting = partial(self._waiting, topic, count)
        sticky = StickyTopic(self._choose, settings.batch_bytes)
        return TableAppender(
            table,
            partition_count=count,
            batch_bytes=min(settings.batch_bytes, settings.request_bytes_max),
            record_bytes_max=min(settings.request_bytes_max, settings.buffer_bytes),
            choose=lambda size_bytes: sticky.partition(size_bytes, count, waiting),
            new_builder=self.accumulator.new_builder,
        )

    def append_table(self, topic: str, appender: TableAppender, now: Now) -> bool:
        """Append its encoded batch; False if there is no memory for it. Raises KafkaError as `try_append`."""
        self._check_send()

        def append(partition: int, builder: BatchBuilder) -> ProducerBatch:
            return self._append_batch(TopicPartition(topic, partition), builder, now)

        return appender.append(append, self.accumulator.has_room)

    def append_copied(self, tp: TopicPartition, batch: CopiedBatch, now: Now) -> ProducerBatch | None:
        """Append a batch of another log; None while metadata or memory is missing.

        Raises KafkaError as `try_append`.
        """
        self._check_send()
        if batch.size_bytes > self.settings.buffer_bytes:
            text = f"the batch has {batch.size_bytes} bytes, more than buffer.memory ({self.settings.buffer_bytes})"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
        known = self._known(tp.topic, now)
        if known is None or not self.accumulator.has_room(batch.size_bytes):
            return None
        self._check_partition(tp, len(known.partitions))
        return self._append_batch(tp, batch, now, batch.codec)

    def _append_batch(
        self, tp: TopicPartition, builder: BatchBuilder, now: Now, codec: Codec | None = None
    ) -> ProducerBatch:
        if self.sender.transactions is not None:
            self.sender.transactions.add(tp)
        return self.accumulator.append_batch(tp, builder, now.monotonic_ms, codec=codec)

    def begin_message(self, message: OutgoingMessage) -> bool:
        """Whether its records may be appended now: not while those of another one in its place are. `end_message`
        follows.
        """
        return message.place is None or self._messages.setdefault(message.place, message) is message

    def end_message(self, message: OutgoingMessage) -> None:
        """All of its records were appended, or no more will be."""
        if message.place is not None:
            del self._messages[message.place]

    def message_not_begun(self, message: OutgoingMessage) -> KafkaError:
        """Why `begin_message` was false until now."""
        text = f"another value of key {message.place and message.place[1]!r} is still being sent"
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)

    def message_failed(self, error: BaseException) -> None:
        """Only some records of a message were appended: a transaction with them must not be committed."""
        if self.sender.transactions is not None and self.sender.transactions.state is State.IN_TRANSACTION:
            if not isinstance(error, KafkaError):
                text = f"send() of a large message was interrupted: {error!r}"
                error = KafkaError(ErrorCode.TRANSACTION_ABORTABLE, text)
            self.sender.transactions.batch_failed(error, sent=False)

    def partition_count(self, topic: str, now: Now) -> int | None:
        """None while the topic's metadata is missing. Raises KafkaError as `try_append`; needs no transaction."""
        self._check_open()
        known = self._known(topic, now)
        return None if known is None else len(known.partitions)

    def _check_open(self) -> None:
        if self.closed:
            raise ClientClosedError("the producer is closed")
        if self.sender.failure is not None:
            raise self.sender.failure

    def _check_send(self) -> None:
        self._check_open()
        if self.sender.transactions is not None:
            self.sender.transactions.check_send()

    def _known(self, topic: str, now: Now) -> TopicMetadata | None:
        """The topic's metadata, which are asked for if they are missing. Raises KafkaError."""
        self.sender.uses(topic, now)
        known = self.network.metadata.topic(topic)
        if known is not None and known.usable:
            return known
        self._check_topic(topic, known.error_code if known is not None else ErrorCode.NONE)
        return None

    @property
    def transactions(self) -> Transactions:
        """Raises KafkaError for a producer without them, and for one that is closed."""
        if self.closed:
            raise ClientClosedError("the producer is closed")
        if self.sender.transactions is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the producer has no transactional.id")
        return self.sender.transactions

    def leave(self, operation: Operation) -> None:
        """The caller of a call about transactions does not wait for its end any more."""
        if self.sender.transactions is not None:
            self.sender.transactions.leave(operation)

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
        if known is not None and known.usable and all(tp.topic != topic for tp in self._missing):
            size = self.settings.buffer_bytes
            return BufferExhaustedError(f"buffer.memory ({size} bytes) was in use for all of {waited_ms} ms")
        code = ErrorCode.REQUEST_TIMED_OUT
        if metadata.failure is not None:
            code, reason = metadata.failure.code, metadata.failure.message
        elif known is not None and not known.usable:
            code, reason = known.error_code, known.error_code.sentence
        else:
            reason = "no broker has answered yet"
        return KafkaError(code, f"no metadata of topic {shown(topic)} within {waited_ms} ms: {reason}")

    def _check_size(self, record_bytes: int) -> None:
        for key, limit in (
            ("max.request.size", self.settings.request_bytes_max),
            ("buffer.memory", self.settings.buffer_bytes),
        ):
            if record_bytes + HEADER_SIZE > limit:
                text = f"the record needs up to {record_bytes + HEADER_SIZE} bytes, more than {key} ({limit})"
                raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)

    def _check_partition(self, tp: TopicPartition, count: int) -> None:
        if not 0 <= tp.partition < count:
            text = f"topic {tp.topic!r} has partitions 0 to {count - 1}, not {tp.partition}"
            self._refresh()  # the topic may have grown; the caller may try again
            raise UnknownPartitionError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)

    def _check_topic(self, topic: str, code: ErrorCode) -> None:
        failure = self.network.metadata.failure
        if failure is not None and not failure.code.retriable:
            raise failure
        if code in LASTING:
            raise KafkaError(code, f"topic {shown(topic)}: {code.sentence}")

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
