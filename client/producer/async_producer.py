"""(shell) The producer for asyncio.

async with raylog.AsyncProducer(bootstrap_servers="127.0.0.1:9092") as producer:
    metadata = await producer.send_and_wait("flights", key="LH400", value=b"boarding")
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import nullcontext
from time import time_ns
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from raylog.client.chunks.fsspec_store import store_for
from raylog.client.chunks.references import ValueStore, stored_record
from raylog.client.chunks.splitting import MessageOutcome, OutgoingMessage
from raylog.client.errors import ClientClosedError
from raylog.client.given_config import given_config
from raylog.client.given_values import checked_function, checked_seconds, checked_timeout, checked_timestamp
from raylog.client.group_offsets import GroupMetadata, Offsets
from raylog.client.network_loop import NetworkLoop
from raylog.client.producer.accumulator import ProducerBatch, all_delivered
from raylog.client.producer.arrow import AppendedRows, TableAppender, appended_rows, tables_by_topic
from raylog.client.producer.core import ProducerCore
from raylog.client.producer.delivery import OnDelivery, ProducerRecord, RecordMetadata
from raylog.client.producer.interceptors import Interceptors, OutgoingRecord, ProducerInterceptor
from raylog.client.producer.partitioners import Partition
from raylog.client.producer.producer import call_callbacks
from raylog.client.producer.serialization import Headers, Serializer, Serializers, checked_headers
from raylog.client.producer.transactions import Operation
from raylog.config.producer import PRODUCER_CONFIG, producer_settings
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.copied import CopiedBatch
from raylog.transport.system_time import now

if TYPE_CHECKING:
    from raylog.client.producer.arrow import Table


class AsyncDelivery:
    """What becomes of one record: await it, or ask once it is `done`."""

    __slots__ = ("_batch", "_ends", "_index", "_timestamp_ms")

    def __init__(
        self, batch: ProducerBatch, index: int, timestamp_ms: int, ends: dict[ProducerBatch, asyncio.Future[None]]
    ) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms
        self._ends = ends

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        yield from _ended(self._batch, self._ends).__await__()
        return self.result()

    def done(self) -> bool:
        """Whether the record is acknowledged, or has failed."""
        return self._batch.done

    def result(self) -> RecordMetadata:
        """Where the record was appended. Raises KafkaError if it was not, InvalidStateError before it is `done`."""
        if not self._batch.done:
            raise asyncio.InvalidStateError("the record is not acknowledged yet")
        return self._batch.metadata(self._index, self._timestamp_ms)

    def exception(self) -> KafkaError | None:
        """Why the record was not appended; None if it was. Raises InvalidStateError before it is `done`."""
        try:
            self.result()
        except KafkaError as error:
            return error
        return None


class AsyncMessageDelivery(AsyncDelivery):
    """What becomes of a large message: its offset is that of its last chunk."""

    __slots__ = ("_ended", "_outcome")

    def __init__(self, outcome: MessageOutcome, ended: asyncio.Event) -> None:
        self._outcome = outcome
        self._ended = ended

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        yield from self._ended.wait().__await__()
        return self.result()

    def done(self) -> bool:
        """Whether all of it is acknowledged, or has ended with a failure."""
        return self._outcome.done

    def result(self) -> RecordMetadata:
        """Where the last chunk was appended. Raises as for any record, if one of the chunks was not appended."""
        if not self._outcome.done:
            raise asyncio.InvalidStateError("the message is not acknowledged yet")
        return self._outcome.result()


class AsyncTableDelivery:
    """What becomes of batches: await it for where their records were appended, or the first KafkaError."""

    __slots__ = ("_batches", "_ends")

    def __init__(self, batches: Sequence[ProducerBatch], ends: dict[ProducerBatch, asyncio.Future[None]]) -> None:
        self._batches = batches
        self._ends = ends

    def __await__(self) -> Generator[Any, None, list[AppendedRows]]:
        for batch in self._batches:
            yield from _ended(batch, self._ends).__await__()
        return appended_rows(self._batches)

    def done(self) -> bool:
        """Whether each record is acknowledged, or has failed."""
        return all(batch.done for batch in self._batches)

    def result(self) -> list[AppendedRows]:
        """Where the records were appended. Raises the first KafkaError, and InvalidStateError before it is `done`."""
        if not self.done():
            raise asyncio.InvalidStateError("not every record is acknowledged yet")
        return appended_rows(self._batches)


async def _ended(batch: ProducerBatch, ends: dict[ProducerBatch, asyncio.Future[None]]) -> None:
    if not batch.done:
        end = ends.get(batch)
        if end is None:
            end = ends[batch] = asyncio.get_running_loop().create_future()
        await asyncio.shield(end)


class AsyncProducer:
    """Belongs to the loop in which it is made. An asynchronous context manager, which ends with `close()`."""

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
        """As `Producer`. Raises ConfigError, and RuntimeError outside of a running loop."""
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
        self._waiters: list[asyncio.Future[None]] = []
        self._ends: dict[ProducerBatch, asyncio.Future[None]] = {}
        """Of the batches whose records are awaited."""
        self._quick_send = self._core.open_batches.quick_send(AsyncDelivery, self._ends, time_ns)
        self._asyncio_loop = asyncio.get_running_loop()
        self._loop = NetworkLoop(
            self._core.network, given.dialer, self._asyncio_loop, lock=nullcontext(), after_event=self._after_event
        )
        self._core.poke = self._poke

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __len__(self) -> int:
        """The number of records that are not acknowledged yet."""
        return sum(batch.builder.count for batch in self._core.sender.unfinished)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> AsyncDelivery:
        """Have the record sent; what is returned can be awaited for where it was appended, or the KafkaError.

        Waits only for the topic's metadata and for memory, at most max.block.ms. Raises KafkaError as `Producer.send`.
        """
        if self._is_plain and partition is timestamp_ms is None and not headers:
            delivery = self._quick_send(topic, value, key, None)
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
            batch = self._core.open_batches.append(topic, value, key, stamp, headers, None)
            if batch is not None:
                return AsyncDelivery(batch, batch.builder.count - 1, stamp, self._ends)
        interceptors = self._interceptors
        if interceptors is None:
            return await self._send(topic, value, key, headers, partition, stamp, None)
        record = interceptors.on_send(OutgoingRecord(topic, value, key, headers, partition, stamp))
        try:
            return await self._send(*record, interceptors.before(record.topic, record.headers, None))
        except KafkaError as error:
            interceptors.on_acknowledgement(record.topic, record.headers, error, None)
            raise

    async def _send(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers,
        partition: int | None,
        stamp: int,
        on_delivery: OnDelivery | None,
    ) -> AsyncDelivery:
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
            record = await asyncio.to_thread(stored_record, record, source, self._store, uuid4().hex.encode())
        elif large is not None and (source is not None or large.indexes_max is not None):
            ended = asyncio.Event()
            message_id = uuid4().hex.encode()
            return await self._send_message(OutgoingMessage(record, source, large, message_id, ended.set), ended)
        batch, fresh = await self._appended(record)
        delivery = AsyncDelivery(batch, batch.builder.count - 1, stamp, self._ends)
        if fresh:
            await asyncio.sleep(0)  # a loop that only sends lets the connections work
        return delivery

    async def _appended(self, record: ProducerRecord) -> tuple[ProducerBatch, bool]:
        """The batch that the record is in, and whether the connections have something new to do."""
        appended = self._core.try_append(record, now())
        if appended is None:
            appended = await self._append_later(record)
        if appended[1]:
            self._poke()
        return appended

    async def _send_message(self, message: OutgoingMessage, ended: asyncio.Event) -> AsyncDelivery:
        """Append its records as memory admits them."""
        begun = False
        await self._begin_message(message)
        try:
            for record in message.records():
                batch, fresh = await self._appended(record)
                message.partition = batch.tp.partition
                begun = True
                if fresh:
                    await asyncio.sleep(0)
        except BaseException as error:
            if begun:
                self._core.message_failed(error)
            raise
        finally:
            self._core.end_message(message)
            self._wake()
        return AsyncMessageDelivery(message.outcome, ended)

    async def _begin_message(self, message: OutgoingMessage) -> None:
        """Wait until no other task sends one that must not be mixed with it. Raises KafkaError."""
        if not self._core.begin_message(message):
            try:
                async with asyncio.timeout(self._core.settings.block_ms_max / 1000):
                    await self._wait(lambda: self._core.begin_message(message))
            except TimeoutError:
                raise self._core.message_not_begun(message) from None

    async def send_and_wait(self, topic: str, value: Any = None, key: Any = None, **options: Any) -> RecordMetadata:
        """`send`, and wait for the acknowledgement."""
        return await (await self.send(topic, value, key, **options))

    async def send_arrow(self, topic: str | None, table: Table) -> AsyncTableDelivery:
        """As `Producer.send_arrow`; await what is returned for where the rows were appended."""
        batches: list[ProducerBatch] = []
        for name, rows in tables_by_topic(topic, table):
            batches += await self._send_rows(name, rows)
        return AsyncTableDelivery(batches, self._ends)

    async def _send_rows(self, topic: str, table: Table) -> list[ProducerBatch]:
        appender: TableAppender | None = None

        def known() -> bool:
            nonlocal appender
            appender = self._core.table_appender(topic, table, now())
            return appender is not None

        await self._until(known, topic)
        assert appender is not None
        made = appender
        made.encode_next(now().wall_ms)
        while not made.finished:
            await self._until(lambda: self._core.append_table(topic, made, now()), topic)
            self._poke()
            await asyncio.sleep(0)
            made.encode_next(now().wall_ms)
        return made.batches

    async def send_copied(self, tp: TopicPartition, batch: CopiedBatch) -> AsyncTableDelivery:
        """Have a batch of another log sent as it is; otherwise as `send_arrow`. A batch that the target finds too large
        is sent in parts.
        """
        sent: ProducerBatch | None = None

        def appended() -> bool:
            nonlocal sent
            sent = self._core.append_copied(tp, batch, now())
            return sent is not None

        try:
            await self._until(appended, tp.topic)
        finally:
            self._poke()  # also to ask for the metadata of a topic that has grown
        assert sent is not None
        return AsyncTableDelivery([sent], self._ends)

    def hold_producer_ids(self, on_producer_id: Callable[[int], object]) -> None:
        """Send nothing under a producer id before `admit_producer_id`, for which `on_producer_id` is called first.

        With enable.idempotence only. Records that wait for it fail after delivery.timeout.ms.
        """
        self._core.sender.on_producer_id = on_producer_id

    def admit_producer_id(self, producer_id: int) -> None:
        self._core.sender.admit(producer_id)
        self._poke()

    def metrics(self) -> dict[str, float]:
        """As `Producer.metrics`."""
        return self._core.metrics()

    async def flush(self) -> None:
        """Send everything now, and wait until all that was sent before is acknowledged or has failed."""
        batches = deque(self._core.sender.unfinished)
        self._core.sender.flushes += 1
        self._poke()
        try:
            await self._wait(lambda: all_delivered(batches))
        finally:
            self._core.sender.flushes -= 1

    async def init_transactions(self, timeout: float | None = None) -> None:
        """As `Producer.init_transactions`."""
        await self._transact(lambda: self._core.transactions.init(), timeout)

    def begin_transaction(self) -> None:
        """Records sent from now on belong to a transaction. Raises KafkaError."""
        self._core.transactions.begin()

    async def send_offsets_to_transaction(
        self, offsets: Offsets, group: str | GroupMetadata, timeout: float | None = None
    ) -> None:
        """As `Producer.send_offsets_to_transaction`."""
        await self._transact(lambda: self._core.transactions.commit_offsets(offsets, group), timeout)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """As `Producer.commit_transaction`."""
        await self._transact(lambda: self._core.transactions.commit(), timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """As `Producer.abort_transaction`."""
        await self._transact(lambda: self._core.transactions.abort(), timeout)

    async def _transact(self, start: Callable[[], Operation], timeout: float | None) -> None:
        seconds = self._core.settings.block_ms_max / 1000 if timeout is None else checked_seconds(timeout)
        operation = start()
        self._poke()
        try:
            async with asyncio.timeout(seconds):
                await self._wait(lambda: operation.done or self._core.closed)
        except BaseException as error:
            self._core.leave(operation)
            if not isinstance(error, TimeoutError):
                raise
            raise self._core.transactions.timed_out(operation, seconds) from None
        if operation.error is not None:
            raise operation.error
        if not operation.done:
            raise ClientClosedError(f"the producer was closed during {operation.name}()")

    async def close(self, timeout: float | None = None) -> None:
        """Take no more records, wait for what was sent, and close the connections. Can be called twice.

        A transaction that is open is aborted. What is not acknowledged after `timeout` seconds fails; `close(0)` sends
        nothing more.
        """
        timeout = checked_timeout(timeout)
        first = self._core.close()
        if not first:
            return
        try:
            if timeout != 0:
                async with asyncio.timeout(timeout):
                    operation = self._core.abort_before_close()
                    if operation is not None:
                        self._poke()
                        async with asyncio.timeout(self._core.settings.block_ms_max / 1000):
                            await self._wait(lambda: operation.done)
                    await self.flush()
        except TimeoutError:
            pass
        finally:
            self._core.sender.abandon(ClientClosedError("the producer was closed before the record was acknowledged"))
            self._loop.close()
            self._after_event()
            if self._interceptors is not None:
                await asyncio.to_thread(self._interceptors.close)

    def _poke(self) -> None:
        self._loop.poke_soon()

    async def _append_later(self, record: ProducerRecord) -> tuple[ProducerBatch, bool]:
        appended: tuple[ProducerBatch, bool] | None = None

        def try_again() -> bool:
            nonlocal appended
            appended = self._core.try_append(record, now())
            return appended is not None

        await self._until(try_again, record.topic)
        assert appended is not None
        return appended

    async def _until(self, possible: Callable[[], bool], topic: str) -> None:
        """Wait until it is true, at most max.block.ms. Raises KafkaError."""
        if possible():
            return
        block_ms_max = self._core.settings.block_ms_max
        self._core.sender.flushes += 1  # batches that linger hold memory
        self._poke()
        try:
            async with asyncio.timeout(block_ms_max / 1000):
                await self._wait(possible)
        except TimeoutError:
            raise self._core.timed_out(topic, block_ms_max) from None
        finally:
            self._core.sender.flushes -= 1

    async def _wait(self, until: Callable[[], bool]) -> None:
        """Wait until it is true, checking after each event of the connections."""
        while not until():
            waiter = self._asyncio_loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def _after_event(self) -> None:
        completed, self._core.sender.completed = self._core.sender.completed, []
        for batch in completed:
            call_callbacks(batch)
            ended: ProducerBatch | None = batch
            while ended is not None and ended.done:
                end = self._ends.pop(ended, None)
                if end is not None and not end.done():
                    end.set_result(None)
                ended = ended.parent
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
