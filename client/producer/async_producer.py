"""(shell) The producer for asyncio.

async with raylog.AsyncProducer(bootstrap_servers="127.0.0.1:9092") as producer:
    metadata = await producer.send_and_wait("flights", key="LH400", value=b"boarding")
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Self

from raylog.client.errors import ClientClosedError
from raylog.client.given_config import given_config
from raylog.client.group_offsets import GroupMetadata, Offsets
from raylog.client.network_loop import NetworkLoop
from raylog.client.producer.accumulator import ProducerBatch
from raylog.client.producer.core import ProducerCore
from raylog.client.producer.delivery import OnDelivery, ProducerRecord, RecordMetadata
from raylog.client.producer.interceptors import Interceptors, OutgoingRecord, ProducerInterceptor
from raylog.client.producer.partitioners import Partition
from raylog.client.producer.producer import call_callbacks
from raylog.client.producer.serialization import Headers, Serializer, Serializers
from raylog.client.producer.transactions import Operation
from raylog.config.producer import PRODUCER_CONFIG, producer_settings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.transport.system_time import now


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
            partitioner=partitioner,
        )
        self._waiters: list[asyncio.Future[None]] = []
        self._asyncio_loop = asyncio.get_running_loop()
        self._loop = NetworkLoop(
            self._core.network, given.dialer, self._asyncio_loop, lock=nullcontext(), after_event=self._after_event
        )

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
    ) -> asyncio.Future[RecordMetadata]:
        """Have the record sent; the future ends with where it was appended, or with the KafkaError.

        Waits only for the topic's metadata and for memory, at most max.block.ms. Raises KafkaError as `Producer.send`.
        """
        moment = now()
        stamp = moment.wall_ms if timestamp_ms is None else timestamp_ms
        interceptors = self._interceptors
        if interceptors is None:
            return await self._send(topic, value, key, headers, partition, stamp, None, moment)
        record = interceptors.on_send(OutgoingRecord(topic, value, key, headers, partition, stamp))
        try:
            return await self._send(*record, interceptors.on_acknowledgement, moment)
        except KafkaError as error:
            interceptors.on_acknowledgement(error, None)
            raise

    async def _send(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers,
        partition: int | None,
        stamp: int,
        before: OnDelivery | None,
        moment: Now,
    ) -> asyncio.Future[RecordMetadata]:
        future: asyncio.Future[RecordMetadata] = self._asyncio_loop.create_future()

        def told(error: KafkaError | None, metadata: RecordMetadata | None) -> None:
            if before is not None:
                before(error, metadata)
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
                future.exception()  # a record that nobody waits for may fail in silence, as with other clients
            elif metadata is not None:
                future.set_result(metadata)

        record = self._serializers.record(
            topic,
            value,
            key,
            headers=headers,
            partition=partition,
            timestamp_ms=stamp,
            on_delivery=told,
        )
        appended = self._core.try_append(record, moment)
        if appended is None:
            appended = await self._append_later(record)
        if appended[1]:
            self._poke()
        return future

    async def send_and_wait(self, topic: str, value: Any = None, key: Any = None, **options: Any) -> RecordMetadata:
        """`send`, and wait for the acknowledgement."""
        return await (await self.send(topic, value, key, **options))

    def metrics(self) -> dict[str, float]:
        """As `Producer.metrics`."""
        return self._core.metrics()

    async def flush(self) -> None:
        """Send everything now, and wait until all that was sent before is acknowledged or has failed."""
        batches = list(self._core.sender.unfinished)
        self._core.sender.flushes += 1
        self._poke()
        try:
            await self._wait(lambda: all(batch.delivered for batch in batches))
        finally:
            self._core.sender.flushes -= 1

    async def init_transactions(self, timeout: float | None = None) -> None:
        """As `Producer.init_transactions`."""
        await self._transact(self._core.transactions.init(), timeout)

    def begin_transaction(self) -> None:
        """Records sent from now on belong to a transaction. Raises KafkaError."""
        self._core.transactions.begin()

    async def send_offsets_to_transaction(
        self, offsets: Offsets, group: str | GroupMetadata, timeout: float | None = None
    ) -> None:
        """As `Producer.send_offsets_to_transaction`."""
        await self._transact(self._core.transactions.commit_offsets(offsets, group), timeout)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """As `Producer.commit_transaction`."""
        await self._transact(self._core.transactions.commit(), timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """As `Producer.abort_transaction`."""
        await self._transact(self._core.transactions.abort(), timeout)

    async def _transact(self, operation: Operation, timeout: float | None) -> None:
        self._poke()
        seconds = self._core.settings.block_ms_max / 1000 if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                await self._wait(lambda: operation.done or self._core.closed)
        except TimeoutError:
            text = f"{operation.name}() did not end within {seconds} s"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from None
        if operation.error is not None:
            raise operation.error
        if not operation.done:
            raise ClientClosedError(f"the producer was closed during {operation.name}()")

    async def close(self, timeout: float | None = None) -> None:
        """Take no more records, wait for what was sent, and close the connections. Can be called twice.

        A transaction that is open is aborted. What is not acknowledged after `timeout` seconds fails; `close(0)` sends
        nothing more.
        """
        first, self._core.closed = not self._core.closed, True
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

    def _poke(self) -> None:
        self._loop.poke_threadsafe()

    async def _append_later(self, record: ProducerRecord) -> tuple[ProducerBatch, bool]:
        appended: tuple[ProducerBatch, bool] | None = None

        def try_again() -> bool:
            nonlocal appended
            appended = self._core.try_append(record, now())
            return appended is not None

        block_ms_max = self._core.settings.block_ms_max
        self._core.sender.flushes += 1  # batches that linger hold memory
        self._poke()
        try:
            async with asyncio.timeout(block_ms_max / 1000):
                await self._wait(try_again)
        except TimeoutError:
            raise self._core.timed_out(record.topic, block_ms_max) from None
        finally:
            self._core.sender.flushes -= 1
        assert appended is not None
        return appended

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
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
