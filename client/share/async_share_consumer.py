"""(shell) The share consumer for asyncio.

async with raylog.AsyncShareConsumer(bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
    consumer.subscribe("orders")
    async for record in consumer:
        print(record.key, record.value, record.delivery_count)
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

from raylog.client.consumer.records import Deserializer
from raylog.client.errors import ClientClosedError
from raylog.client.faces import AsyncioFace
from raylog.client.given_config import given_config
from raylog.client.given_values import checked_count, checked_seconds
from raylog.client.network_loop import NetworkLoop
from raylog.client.share.acquired import ShareRecord
from raylog.client.share.calls import CLOSE_SECONDS, ShareConsumerCalls
from raylog.client.share.core import results
from raylog.config.share_consumer import SHARE_CONSUMER_CONFIG
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from raylog.transport.system_time import now


class AsyncShareConsumer(AsyncioFace, ShareConsumerCalls):
    """Belongs to the loop in which it is made. An asynchronous context manager, which ends with `close()`.

    Its callback may be a function or a coroutine function.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        **settings: Any,
    ) -> None:
        """As `ShareConsumer`. Raises ConfigError, and RuntimeError outside of a running loop."""
        super().__init__()
        given = given_config(SHARE_CONSUMER_CONFIG, config, settings)
        self._configure(given, random.Random(), key_deserializer, value_deserializer)
        self._loop = NetworkLoop(
            self._core.network, given.dialer, self._asyncio_loop, lock=self._lock, after_event=self._after_event
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[ShareRecord]:
        """Records without end; waits for each, and in the implicit mode accepts the one before."""
        while not self._core.closed:
            for record in await self.poll(max_records=1):
                yield record

    async def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> list[ShareRecord]:
        """As `ShareConsumer.poll`."""
        count = checked_count(max_records, self._core.settings.poll_records)
        with self._returning():
            return self._deserialized(
                await self._polled(count, self._asyncio_loop.time() + max(0.0, checked_seconds(timeout)))
            )

    async def _polled(self, count: int, deadline: float) -> list[ShareRecord]:
        await self._report()
        self._begin_poll()
        idle = False
        try:
            while True:
                await self._report()  # before records are taken, which would be lost if the callback raised
                self._check_open()
                self._core.raise_error()
                idle = idle and not self._core.sessions.buffered
                if taken := self._core.take(count, now()):
                    return taken
                if not idle:  # every event runs the services, so that once is enough
                    idle = True
                    self._poke()
                try:
                    async with asyncio.timeout_at(deadline):
                        await self._event()
                except TimeoutError:
                    return []
        finally:
            self._end_poll()

    async def commit_sync(self, timeout: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """As `ShareConsumer.commit_sync`."""
        self._check_open()
        sent = self._core.commit(now(), self._timeout_ms(timeout))
        await self._until(lambda: all(each.done for each in sent), self._timeout_ms(timeout) / 1000)
        await self._report()
        return results(sent)

    def commit_async(self) -> None:
        """As `ShareConsumer.commit_async`."""
        self._check_open()
        self._core.commit(now(), self._timeout_ms(None))
        self._poke()

    async def unsubscribe(self) -> None:
        """As `ShareConsumer.unsubscribe`."""
        self._check_open()
        await self._leave("the share consumer has unsubscribed", CLOSE_SECONDS)

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """As `ShareConsumer.close`."""
        checked_seconds(timeout)
        if self._core.closed:
            return
        try:
            await self._leave("the share consumer was closed", timeout)
        finally:
            self._core.closed = True
            self._core.abandon(ClientClosedError("the share consumer was closed"))
            self._loop.close()
            self._after_event()
            await self._report()

    async def _leave(self, reason: str, timeout: float) -> None:
        deadline = self._asyncio_loop.time() + timeout
        self._core.end_sessions(now(), int(1000 * timeout))
        await self._until(lambda: self._core.sessions.closed, timeout)
        left_seconds = max(0.0, deadline - self._asyncio_loop.time())
        request = self._core.unsubscribe(reason, now(), int(1000 * left_seconds))
        await self._until(lambda: request is None or request.done, left_seconds)

    async def _report(self) -> None:
        callback = self._on_acknowledged
        while callback is not None and (each := self._next_report()) is not None:
            result = callback(each.leader.tp, each.offsets, each.error)
            if inspect.isawaitable(result):
                await result
