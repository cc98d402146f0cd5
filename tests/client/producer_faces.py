"""The blocking and the asyncio producer behind the same calls, for suites that run over both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from inspect import isawaitable
from itertools import repeat
from typing import Any, Protocol

from raylog.client.producer.async_producer import AsyncDelivery, AsyncProducer
from raylog.client.producer.delivery import RecordMetadata
from raylog.client.producer.producer import Producer
from raylog.core.errors import KafkaError

Outcome = RecordMetadata | KafkaError
NO_KEYS = repeat(None)


class Face(Protocol):
    """A producer whose calls block."""

    def send_all(self, topic: str, values: list[Any], keys: Iterable[Any] = NO_KEYS, **options: Any) -> list[Outcome]:
        """Send the values, flush, and return what became of each. Raises what `send` raises."""

    def send(self, topic: str, value: Any = None, key: Any = None, **options: Any) -> None: ...

    def flush(self) -> None: ...

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the method of the producer; `send_arrow_and_wait` waits for the rows as well."""

    def gather(self, then: Callable[[], object], topic: str, values: list[Any]) -> list[Outcome]:
        """Send the values, call `then`, and return what became of each value."""

    def close(self, timeout: float | None = None) -> None: ...


class BlockingFace:
    def __init__(self, **settings: Any) -> None:
        self.producer = Producer(**settings)

    def send_all(self, topic: str, values: list[Any], keys: Iterable[Any] = NO_KEYS, **options: Any) -> list[Outcome]:
        pairs = zip(values, keys, strict=False)
        deliveries = [self.producer.send(topic, value, **{"key": key, **options}) for value, key in pairs]
        self.producer.flush()
        return [delivery.exception() or delivery.result() for delivery in deliveries]

    def send(self, topic: str, value: Any = None, key: Any = None, **options: Any) -> None:
        self.producer.send(topic, value, key, **options)

    def flush(self) -> None:
        self.producer.flush()

    def call(self, name: str, *arguments: Any) -> Any:
        if name == "send_arrow_and_wait":
            return self.producer.send_arrow(*arguments).result()
        return getattr(self.producer, name)(*arguments)

    def gather(self, then: Callable[[], object], topic: str, values: list[Any]) -> list[Outcome]:
        deliveries = [self.producer.send(topic, value) for value in values]
        then()
        return [delivery.exception() or delivery.result() for delivery in deliveries]

    def close(self, timeout: float | None = None) -> None:
        self.producer.close(timeout)


class AsyncFace:
    def __init__(self, **settings: Any) -> None:
        self._runner = asyncio.Runner()
        self._closed = False

        async def made() -> AsyncProducer:
            return AsyncProducer(**settings)

        self.producer = self._runner.run(made())

    def send_all(self, topic: str, values: list[Any], keys: Iterable[Any] = NO_KEYS, **options: Any) -> list[Outcome]:
        async def sent() -> list[Outcome]:
            pairs = zip(values, keys, strict=False)
            futures = [await self.producer.send(topic, value, **{"key": key, **options}) for value, key in pairs]
            await self.producer.flush()
            return [future.exception() or future.result() for future in futures]

        return self._runner.run(sent())

    def send(self, topic: str, value: Any = None, key: Any = None, **options: Any) -> None:
        self._runner.run(self.producer.send(topic, value, key, **options))

    def flush(self) -> None:
        self._runner.run(self.producer.flush())

    def call(self, name: str, *arguments: Any) -> Any:
        async def called() -> Any:
            if name == "send_arrow_and_wait":
                return await (await self.producer.send_arrow(*arguments))
            result = getattr(self.producer, name)(*arguments)
            return await result if isawaitable(result) else result

        return self._runner.run(called())

    def gather(self, then: Callable[[], object], topic: str, values: list[Any]) -> list[Outcome]:
        async def sent() -> list[AsyncDelivery]:
            return [await self.producer.send(topic, value) for value in values]

        futures = self._runner.run(sent())
        then()
        return [future.exception() or future.result() for future in futures]

    def close(self, timeout: float | None = None) -> None:
        if self._closed:
            self._runner.close()
        else:
            self._closed = True
            self._runner.run(self.producer.close(timeout))


FACES = (BlockingFace, AsyncFace)
