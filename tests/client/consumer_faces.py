"""The blocking and the asyncio consumer behind the same calls, for suites that run over both."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from raylog.client.consumer.async_consumer import AsyncConsumer
from raylog.client.consumer.consumer import Consumer
from raylog.client.share.async_share_consumer import AsyncShareConsumer
from raylog.client.share.share_consumer import ShareConsumer


class AsyncFace:
    """Each call runs the loop until it is done."""

    consumer_class: Any = AsyncConsumer

    def __init__(self, **settings: Any) -> None:
        self._runner = asyncio.Runner()

        async def made() -> Any:
            return self.consumer_class(**settings)

        self.consumer = self._runner.run(made())
        self._closed = False

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            result = getattr(self.consumer, name)(*arguments, **options)
            return self._runner.run(result) if inspect.iscoroutine(result) else result

        return call

    def close(self, timeout: float = 30.0) -> None:
        if not self._closed:
            self._closed = True
            with self._runner:
                self._runner.run(self.consumer.close(timeout))


class AsyncShareFace(AsyncFace):
    """The same of a share consumer."""

    consumer_class = AsyncShareConsumer


FACES = (Consumer, AsyncFace)
SHARE_FACES = (ShareConsumer, AsyncShareFace)
