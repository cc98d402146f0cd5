"""(shell) What one session has of the cluster: clients with the rights of its identity, and what they have seen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Final, TypeVar

from raylog.client.admin.async_admin_client import AsyncAdminClient
from raylog.client.admin.topics import TopicDescription
from raylog.client.client_config import ClientConfig
from raylog.client.consumer.async_consumer import AsyncConsumer
from raylog.client.errors import AdminError
from raylog.client.producer.async_producer import AsyncProducer
from raylog.config.admin import ADMIN_CONFIG
from raylog.config.consumer import CONSUMER_CONFIG
from raylog.config.producer import PRODUCER_CONFIG
from raylog.console.series import Bounded, Series
from raylog.console.throughput import Throughput
from raylog.core.errors import KafkaError
from raylog.transport.system_time import now

K = TypeVar("K")
V = TypeVar("V")
CLIENT_ID: Final = "raylog-console"
API_TIMEOUT_MS: Final = 10_000
DETAIL_SECONDS: Final = 3.0
"""For what a page can do without, such as sizes: a broker that has just died is not waited for longer."""
SEEN_MS_MAX: Final = 2_000
"""How long the descriptions of all topics are used again."""
READERS_MAX: Final = 4
"""Consumers of one session at a time; a further request waits."""
SERIES_MAX: Final = 50


class Visitor:
    """Open until `close`. Belongs to the loop in which it is made."""

    def __init__(self, config: ClientConfig, user: str) -> None:
        """Raises ConfigError."""
        self.user = user
        """Empty without a login."""
        self.admin = AsyncAdminClient(
            {
                **config.keys_of(ADMIN_CONFIG),
                "client.id": CLIENT_ID,
                "default.api.timeout.ms": API_TIMEOUT_MS,
                "request.timeout.ms": API_TIMEOUT_MS,
            },
            waits_for_brokers=False,
        )
        self.readers = asyncio.Semaphore(READERS_MAX)
        self.throughput = Throughput()
        self.lags: Bounded[Series] = Bounded(SERIES_MAX)
        self._config = config
        self._producer: AsyncProducer | None = None
        self._topics: dict[str, TopicDescription] = {}
        self._seen_ms: int | None = None
        self._looking = asyncio.Lock()

    async def topics(self) -> Mapping[str, TopicDescription]:
        """All topics that this identity may see, as of the last two seconds."""
        async with self._looking:
            now_ms = now().monotonic_ms
            if self._seen_ms is None or now_ms - self._seen_ms >= SEEN_MS_MAX:
                self._topics, _ = await what_succeeded(self.admin.describe_topics())
                self._seen_ms = now().monotonic_ms
            return self._topics

    def forget(self) -> None:
        """After a change: look again the next time."""
        self._seen_ms = None

    def consumer(self, **settings: Any) -> AsyncConsumer:
        """One without a group, whose files are not mapped; the caller closes it."""
        given = {
            **self._config.keys_of(CONSUMER_CONFIG),
            "client.id": CLIENT_ID,
            "enable.auto.commit": "false",
            "default.api.timeout.ms": API_TIMEOUT_MS,
            **settings,
        }
        return AsyncConsumer(given, mapped=False)

    def producer(self) -> AsyncProducer:
        """One for the whole session."""
        if self._producer is None:
            given = {
                **self._config.keys_of(PRODUCER_CONFIG),
                "client.id": CLIENT_ID,
                "enable.idempotence": "false",  # needs no right of its own
                "acks": "all",
                "max.block.ms": API_TIMEOUT_MS,
                "delivery.timeout.ms": API_TIMEOUT_MS,
                "request.timeout.ms": API_TIMEOUT_MS,
                "linger.ms": 0,
            }
            self._producer = AsyncProducer(given)
        return self._producer

    async def close(self) -> None:
        await self.admin.close()
        if self._producer is not None:
            await self._producer.close()


async def what_succeeded(asked: Awaitable[dict[K, V]]) -> tuple[dict[K, V], KafkaError | None]:
    """The results of an operation of the admin client, and its error where some of them are missing.

    Raises an error that has no results, such as a missing right on the whole.
    """
    try:
        return await asked, None
    except AdminError as error:
        if not error.errors:
            raise
        return error.results, error


async def if_permitted(asked: Awaitable[V]) -> V | None:
    """None if it has failed: for what a page can do without."""
    try:
        return await asked
    except KafkaError:
        return None
