"""(shell) The blocking producer, for any number of threads.

with raylog.Producer(bootstrap_servers="127.0.0.1:9092") as producer:
    delivery = producer.send("flights", key="LH400", value=b"boarding")
    print(delivery.result().offset)
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from raylog.client.chunks.fsspec_store import store_for
from raylog.client.chunks.references import ValueStore, stored_record
from raylog.client.chunks.splitting import MessageOutcome, OutgoingMessage
from raylog.client.client_config import ClientConfig
from raylog.client.errors import ClientClosedError
from raylog.client.given_config import given_config
from raylog.client.given_values import (
    check_topic_names,
    checked_function,
    checked_timeout,
    checked_timestamp,
    iterator_of,
)
from raylog.client.group_offsets import GroupMetadata, Offsets
from raylog.client.io_thread import IoThread, shared_io_thread
from raylog.client.network_loop import NetworkLoop
from raylog.client.producer.accumulator import ProducerBatch, all_delivered
from raylog.client.producer.arrow import AppendedRows, TableAppender, appended_rows, tables_by_topic
from raylog.client.producer.core import ProducerCore
from raylog.client.producer.delivery import OnDelivery, ProducerRecord, RecordMetadata
from raylog.client.producer.interceptors import Interceptors, OutgoingRecord, ProducerInterceptor
from raylog.client.producer.partitioners import Partition
from raylog.client.producer.serialization import Headers, Serializer, Serializers, check_pairs, checked_headers
from raylog.client.producer.transactions import Operation
from raylog.config.producer import PRODUCER_CONFIG, producer_settings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.transport.system_time import now

if TYPE_CHECKING:
    from raylog.client.producer.arrow import Table

log = logging.getLogger("raylog.client")
NO_PARTITION: Final = -1
PLAIN_RECORDS_MAX: Final = 1000
"""How many records of `send_plain` are appended before other threads have a turn."""


class BatchEnds(threading.Condition):
    """Notified by the thread of the connections when batches have ended."""

    def __init__(self, lock: threading.RLock, thread: IoThread) -> None:
        super().__init__(lock)
        self.thread = thread


class Delivery:
    """What becomes of one record."""

    __slots__ = ("_batch", "_ends", "_index", "_timestamp_ms")

    def __init__(self, batch: ProducerBatch, index: int, timestamp_ms: int, ends: BatchEnds) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms
        self._ends = ends

    def done(self) -> bool:
        """Whether the record is acknowledged, or has failed."""
        return self._batch.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record was appended. Raises KafkaError if it was not, TimeoutError after `timeout` seconds."""
        if not self._batch.done:
            _wait_for_end(self._ends, self.done, timeout)
        return self._batch.metadata(self._index, self._timestamp_ms)

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Why the record was not appended; None if it was. Raises as `result` if that is not known in time."""
        _wait_for_end(self._ends, self.done, timeout)
        try:
            self.result(timeout)
        except KafkaError as error:
            return error
        return None


class MessageDelivery(Delivery):
    """What becomes of a large message: its offset is that of its last chunk."""

    __slots__ = ("_outcome",)

    def __init__(self, outcome: MessageOutcome, ends: BatchEnds) -> None:
        self._outcome = outcome
        self._ends = ends

    def done(self) -> bool:
        """Whether all of it is acknowledged, or has ended with a failure."""
        return self._outcome.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the last chunk was appended. Raises as for any record, if one of the chunks was not appended."""
        _wait_for_end(self._ends, self.done, timeout)
        return self._outcome.result()


class TableDelivery:
    """What becomes of the rows of a table."""

    __slots__ = ("_batches", "_ends")

    def __init__(self, batches: Sequence[ProducerBatch], ends: BatchEnds) -> None:
        self._batches = batches
        self._ends = ends

    def done(self) -> bool:
        """Whether each row is acknowledged, or has failed."""
        return all(batch.done for batch in self._batches)

    def result(self, timeout: float | None = None) -> list[AppendedRows]:
        """Where the rows were appended, in the order in which they were sent.

        Raises the KafkaError of the first rows that were not, and TimeoutError after `timeout` seconds.
        """
        _wait_for_end(self._ends, self.done, timeout)
        return appended_rows(self._batches)


def _wait_for_end(ends: BatchEnds, done: Callable[[], bool], timeout: float | None) -> None:
    """Raises TimeoutError, and KafkaError in the thread of the connections, which would wait for itself."""
    if not done():
        timeout = checked_timeout(timeout)
        ends.thread.check_process()
    with ends:
        if not done() and timeout != 0 and ends.thread.is_current:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "result() would wait for the callback that calls it")
        if not ends.wait_for(done, timeout):
            raise TimeoutError(f"not acknowledged within {timeout} s")


class Producer:
    """Sends records to topics.

    Open from `__init__` to `close`; a context manager, which ends with `close()`.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partition | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        value_store: ValueStore | None = None,
        **settings: Any,
    ) -> None:
        """`config` has Kafka's keys of a producer; `settings` are the same keys with underscores in place of dots.

        `partitioner(topic, key, value, partition_count)` chooses the partition of records that name none; key and value
        are bytes or None. `interceptors` see each record before it is sent, and its end. `value_store` keeps large
        values in place of large.message.store.url. Nothing is sent yet, so brokers that cannot be reached are no error
        here. Raises ConfigError.
        """
        given = given_config(PRODUCER_CONFIG, config, settings)
        self._serializers = Serializers(key_serializer, value_serializer)
        self._interceptors = Interceptors(interceptors) if interceptors else None
        self._core = ProducerCore(
            given.servers,
            producer_settings(given.configs),
            random.Random(),
            partitioner=checked_function("partitioner", partitioner),
        )
        self._store = store_for(self._core.settings.large, value_store)
        self._is_plain = not interceptors and key_serializer is value_serializer is None
        """Whether records are taken as they are given."""
        self._thread = shared_io_thread()
        self._lock = threading.RLock()
        self._changed = BatchEnds(self._lock, self._thread)
        """Held while the core is used; notified when something has become possible."""
        self._quick_send = self._core.open_batches.quick_send(Delivery, self._changed, time_ns, self._lock)
        self._telling: list[ProducerBatch] = []
        """Those whose callbacks are being called."""
        self._waiting = 0
        """How many callers wait for metadata or memory."""
        self._loop = NetworkLoop(
            self._core.network, given.dialer, self._thread.loop, lock=self._changed, after_event=self._after_event
        )
        self._core.poke = self._loop.poke_threadsafe

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """The number of records that are not acknowledged yet."""
        with self._changed:
            return sum(batch.builder.count for batch in self._core.sender.unfinished)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Have the record sent. Waits only for the topic's metadata and for memory, at most max.block.ms.

        `on_delivery(error, metadata)` is called by the thread of the connections, in which nothing may take long.
        Raises KafkaError: of the topic, REQUEST_TIMED_OUT, MESSAGE_TOO_LARGE, SerializationError, ClientClosedError.
        """
        if self._is_plain and partition is timestamp_ms is None and not headers:
            delivery = self._quick_send(topic, value, key, on_delivery)
            if delivery is not None:
                return delivery
        stamp = time_ns() // 1_000_000 if timestamp_ms is None else checked_timestamp(timestamp_ms)
        if (
            self._is_plain
            and partition is None
            and (value is None or type(value) is bytes)
            and (key is None or type(key) is bytes)
        ):
            headers = checked_headers(headers) if headers else ()
            with self._lock:
                batch = self._core.open_batches.append(topic, value, key, stamp, headers, on_delivery)
                if batch is not None:
                    return Delivery(batch, batch.builder.count - 1, stamp, self._changed)
        interceptors = self._interceptors
        if interceptors is None:
            return self._send(topic, value, key, headers, partition, stamp, on_delivery)
        record = interceptors.on_send(OutgoingRecord(topic, value, key, headers, partition, stamp))
        try:
            return self._send(*record, interceptors.before(record.topic, record.headers, on_delivery))
        except KafkaError as error:
            interceptors.on_acknowledgement(record.topic, record.headers, error, None)
            raise

    def _send(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers,
        partition: int | None,
        stamp: int,
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        stamp = checked_timestamp(stamp)  # it may be that of an interceptor
        headers = checked_headers(headers) if headers else ()
        large = self._core.settings.large
        record, source = self._serializers.record(
            topic,
            value,
            key,
            headers=headers,
            partition=partition,
            timestamp_ms=stamp,
            on_delivery=on_delivery,
            value_bytes_max=None if large is None else large.segment_bytes,
        )
        if source is not None and self._store is not None:
            record = stored_record(record, source, self._store, uuid4().hex.encode())
        elif large is not None and (source is not None or large.indexes_max is not None):
            message_id = uuid4().hex.encode()
            return self._send_message(OutgoingMessage(record, source, large, message_id, self._notify))
        with self._changed:
            batch = self._appended(record, now())
            return Delivery(batch, batch.builder.count - 1, stamp, self._changed)

    def _appended(self, record: ProducerRecord, moment: Now) -> ProducerBatch:
        self._thread.check_process()
        appended = self._core.try_append(record, moment)
        if appended is None:
            appended = self._append_later(record)
        batch, fresh = appended
        if fresh:
            self._loop.poke_threadsafe()
        return batch

    def _send_message(self, message: OutgoingMessage) -> Delivery:
        """Append its records as memory admits them."""
        begun = False
        with self._changed:
            self._begin_message(message)
        try:
            for record in message.records():
                with self._changed:
                    message.partition = self._appended(record, now()).tp.partition
                begun = True
        except BaseException as error:
            with self._changed:
                if begun:
                    self._core.message_failed(error)
            raise
        finally:
            with self._changed:
                self._core.end_message(message)
                self._changed.notify_all()
        return MessageDelivery(message.outcome, self._changed)

    def _begin_message(self, message: OutgoingMessage) -> None:
        """Wait until no other thread sends one that must not be mixed with it. Raises KafkaError."""
        if not self._core.begin_message(message):
            seconds = 0.0 if self._thread.is_current else self._core.settings.block_ms_max / 1000
            if not self._wait(lambda: self._core.begin_message(message), seconds):
                raise self._core.message_not_begun(message)

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = NO_PARTITION,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Headers | None = None,
    ) -> None:
        """`send` with the signature of confluent-kafka's producer."""
        self.send(
            topic,
            value,
            key,
            headers=headers or (),
            partition=None if partition == NO_PARTITION else partition,
            timestamp_ms=timestamp or None,
            on_delivery=on_delivery,
        )

    def send_plain(
        self,
        topic: str,
        records: Iterable[tuple[bytes | None, bytes | None]],
        *,
        headers: Headers = (),
        partition: int | None = None,
    ) -> TableDelivery:
        """Have records with these keys and values sent, quicker than by a call for each.

        Serializers, interceptors and the splitting of large values are not used. Waits and raises KafkaError as `send`;
        records before the one in error may have been sent.
        """
        pairs = checked_headers(headers)
        quick = partition is None and not pairs
        batches: dict[ProducerBatch, None] = {}
        append = self._core.open_batches.append
        rest = iterator_of("records", records)
        at_once = PLAIN_RECORDS_MAX if isinstance(records, Sequence) else 1  # what is yielded is sent as it comes
        while taken := list(islice(rest, at_once)):
            stamp = now().wall_ms
            try:
                with self._changed:
                    for key, value in taken:
                        batch = append(topic, value, key, stamp) if quick else None
                        if batch is None:
                            record = ProducerRecord(topic, key, value, pairs, partition, stamp, None)
                            batch = self._appended(record, now())
                        batches[batch] = None
            except (TypeError, ValueError):
                check_pairs(taken)
                raise
        return TableDelivery(list(batches), self._changed)

    def send_arrow(self, topic: str | None, table: Table) -> TableDelivery:
        """Have each row sent as a record. Waits for the topic's metadata and for memory, each at most max.block.ms.

        The columns, each of which may be missing: `key` and `value`, binary or string of any Arrow form; `timestamp`,
        milliseconds or Arrow timestamps, by default the present; `headers`, a map or a list of (name, value);
        `partition`; `topic`, which is required, and used, only without the argument `topic`. Rows without a partition
        go to that of their key's hash, and without a key to one partition for a batch. Rows for one partition keep
        their order. Serializers, interceptors and partitioners of the program are not used. Raises KafkaError as
        `send`, INVALID_RECORD for the columns, UNKNOWN_TOPIC_OR_PARTITION; rows before the one in error may have been
        sent.
        """
        batches = [batch for name, rows in tables_by_topic(topic, table) for batch in self._send_rows(name, rows)]
        return TableDelivery(batches, self._changed)

    def _send_rows(self, topic: str, table: Table) -> list[ProducerBatch]:
        appender: TableAppender | None = None

        def known() -> bool:
            nonlocal appender
            appender = self._core.table_appender(topic, table, now())
            return appender is not None

        self._thread.check_process()
        with self._changed:
            self._until(known, topic)
        assert appender is not None
        made = appender
        made.encode_next(now().wall_ms)
        while not made.finished:
            with self._changed:
                self._until(lambda: self._core.append_table(topic, made, now()), topic)
                self._loop.poke_threadsafe()
            made.encode_next(now().wall_ms)
        return made.batches

    def metrics(self) -> dict[str, float]:
        """What the producer has done and holds, under the names of Kafka's producer metrics; times in milliseconds."""
        with self._changed:
            return self._core.metrics() | {"waiting-threads": self._waiting}

    def partitions_for(self, topic: str) -> Sequence[int]:
        """The partitions of the topic. Waits for its metadata, at most max.block.ms. Raises KafkaError."""
        check_topic_names([topic])
        count: int | None = None

        def known() -> bool:
            nonlocal count
            count = self._core.partition_count(topic, now())
            return count is not None

        self._thread.check_process()
        with self._changed:
            self._until(known, topic)
        assert count is not None
        return range(count)

    def flush(self, timeout: float | None = None) -> int:
        """Send everything now, and wait until all that was sent before is acknowledged or has failed.

        The callbacks of these records have been called then. Returns how many of the records are unfinished after
        `timeout` seconds, as confluent-kafka's does. Raises KafkaError.
        """
        timeout = checked_timeout(timeout)
        self._thread.check_process()
        if self._thread.is_current:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "flush() would wait for the callback that calls it")
        with self._changed:
            sender = self._core.sender
            batches = deque((*self._telling, *sender.completed, *sender.unfinished))
            sender.flushes += 1
            self._loop.poke_threadsafe()
            try:
                self._changed.wait_for(lambda: all_delivered(batches), timeout)
            finally:
                sender.flushes -= 1
            return sum(batch.builder.count for batch in batches if not batch.delivered)

    def init_transactions(self, timeout: float | None = None) -> None:
        """Get the producer id of transactional.id: former producers with it are fenced, and their transactions ended.

        Waits at most `timeout` seconds, by default max.block.ms; after REQUEST_TIMED_OUT call again to go on waiting.
        This holds for the other calls about transactions as well. Raises KafkaError; FencedError if another producer
        with this transactional.id is active.
        """
        self._transact(lambda: self._core.transactions.init(), timeout)

    def begin_transaction(self) -> None:
        """Records sent from now on belong to a transaction. Raises KafkaError."""
        with self._changed:
            self._core.transactions.begin()

    def send_offsets_to_transaction(
        self, offsets: Offsets, group: str | GroupMetadata, timeout: float | None = None
    ) -> None:
        """Commit the offsets of a consumer group with the transaction, as by the member that `group` describes.

        Raises KafkaError; AbortableError if the member is no longer in the group.
        """
        self._transact(lambda: self._core.transactions.commit_offsets(offsets, group), timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Send all records of the transaction, and commit it.

        Raises AbortableError if a record was not appended: abort then. Raises KafkaError.
        """
        self._transact(lambda: self._core.transactions.commit(), timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort; records that were not sent yet fail with TransactionAbortedError. Raises KafkaError."""
        self._transact(lambda: self._core.transactions.abort(), timeout)

    def _transact(self, start: Callable[[], Operation], timeout: float | None) -> None:
        timeout = checked_timeout(timeout)
        self._thread.check_process()
        if self._thread.is_current:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a callback cannot wait for its own thread")
        with self._changed:
            operation = start()
            self._loop.poke_threadsafe()
            seconds = self._core.settings.block_ms_max / 1000 if timeout is None else timeout
            try:
                if not self._wait(lambda: operation.done or self._core.closed, seconds):
                    raise self._core.transactions.timed_out(operation, seconds)
            except BaseException:
                self._core.leave(operation)
                raise
            if operation.error is not None:
                raise operation.error
            if not operation.done:
                raise ClientClosedError(f"the producer was closed during {operation.name}()")

    def close(self, timeout: float | None = None) -> None:
        """Take no more records, wait for what was sent, and close the connections. Can be called twice.

        A transaction that is open is aborted. What is not acknowledged after `timeout` seconds fails. `close(0)` sends
        nothing more, and may be called by a callback.
        """
        timeout = checked_timeout(timeout)
        self._thread.check_process()
        waits = timeout != 0 and not self._thread.is_current
        with self._changed:
            first = self._core.close()
            self._changed.notify_all()
        if not first:
            return
        if waits:
            deadline = None if timeout is None else monotonic() + timeout
            self._abort_before_close(timeout)
            self.flush(None if deadline is None else max(0.0, deadline - monotonic()))
        with self._changed:
            self._core.sender.abandon(ClientClosedError("the producer was closed before the record was acknowledged"))
        if self._thread.is_current:
            self._end()
        else:
            ended = threading.Event()
            self._thread.loop.call_soon_threadsafe(self._end, ended.set)
            ended.wait()
        if self._interceptors is not None:
            self._interceptors.close()

    def _abort_before_close(self, timeout: float | None) -> None:
        with self._changed:
            operation = self._core.abort_before_close()
            if operation is not None:
                self._loop.poke_threadsafe()
                seconds = self._core.settings.block_ms_max / 1000 if timeout is None else timeout
                self._wait(lambda: operation.done, seconds)

    def _end(self, then: Callable[[], None] = lambda: None) -> None:
        self._loop.close()
        self._after_event()
        then()

    def _append_later(self, record: ProducerRecord) -> tuple[ProducerBatch, bool]:
        """Wait until the record can be appended."""
        appended: tuple[ProducerBatch, bool] | None = None

        def try_again() -> bool:
            nonlocal appended
            appended = self._core.try_append(record, now())
            return appended is not None

        self._until(try_again, record.topic)
        assert appended is not None
        return appended

    def _until(self, possible: Callable[[], bool], topic: str) -> None:
        """Wait until it is true, at most max.block.ms. Raises KafkaError."""
        if possible():
            return
        if self._thread.is_current:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "a callback cannot wait for metadata or memory")
        self._core.sender.flushes += 1  # batches that linger hold memory
        self._loop.poke_threadsafe()
        try:
            if not self._wait(possible, self._core.settings.block_ms_max / 1000):
                raise self._core.timed_out(topic, self._core.settings.block_ms_max)
        finally:
            self._core.sender.flushes -= 1

    def _wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Wait until it is true, checking after each event of the connections."""
        self._waiting += 1
        try:
            return self._changed.wait_for(until, seconds)
        finally:
            self._waiting -= 1

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _after_event(self) -> None:
        """In the thread of the connections: tell about the batches that have ended, and wake who waits."""
        with self._changed:
            completed, self._core.sender.completed = self._core.sender.completed, []
            self._telling += completed
        for batch in completed:
            call_callbacks(batch)
        if completed or self._waiting:
            with self._changed:
                self._telling = [batch for batch in self._telling if not batch.delivered]
                self._changed.notify_all()


def call_callbacks(batch: ProducerBatch) -> None:
    """Tell who wants to be told, once the batch is done. An error in a callback is logged, and ends nothing."""
    for index, timestamp_ms, on_delivery in batch.callbacks:
        try:
            if batch.error is not None:
                on_delivery(batch.record_errors.get(index, batch.error), None)
            else:
                on_delivery(None, batch.metadata(index, timestamp_ms))
        except (Exception, SystemExit):  # which would end a connection, and no program
            log.exception("error in a delivery callback", extra={"tp": str(batch.tp)})
    batch.callbacks.clear()
    batch.mark_delivered()


def producer_of(config: ClientConfig, **settings: Any) -> Producer:
    """A producer for the cluster of these properties; those that a producer does not have are ignored.

    `settings` are keys with underscores in place of dots. Raises ConfigError.
    """
    return Producer(config.keys_of(PRODUCER_CONFIG), **settings)
