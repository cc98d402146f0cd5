"""(shell) What one session has of the cluster: clients with the rights of its identity, and what they have seen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from raylog.client.admin.async_admin_client import AsyncAdminClient
from raylog.client.admin.cluster import LogDirDescription
from raylog.client.admin.partitions import OffsetSpec
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
from raylog.core.ids import TopicPartition
from raylog.transport.system_time import now

K = TypeVar("K")
V = TypeVar("V")
CLIENT_ID: Final = "raylog-console"
API_TIMEOUT_MS: Final = 10_000
DETAIL_SECONDS: Final = 3.0
"""For what a page can do without, such as sizes: a broker that has just died is not waited for longer."""
SEEN_MS_MAX: Final = 2_000
"""How long the descriptions of all topics are used again."""
SLOW_MS: Final = 200
"""A look at all topics that takes as long is made in the background, while those of the last one are shown."""
OLD_MS_MAX: Final = 15_000
READERS_MAX: Final = 4
"""Consumers of one session at a time; a further request waits."""
SERIES_MAX: Final = 50


class Visitor:
    """The clients of one session of the console. Open until `close`. Belongs to the loop in which it is made."""

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
        self._topics: dict[str, TopicDescription] = {}
        self._seen_ms: int | None = None
        self._age_ms_max = SEEN_MS_MAX
        self._changes = 0
        self._lock = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None

    async def topics(self) -> Mapping[str, TopicDescription]:
        """All topics that this identity may see, as of the last two seconds.

        With very many, they may be a few seconds old: a request does not wait for the next refresh.
        """
        while self._seen_ms is None or now().monotonic_ms - self._seen_ms >= self._age_ms_max:
            await self._look()
        if now().monotonic_ms - self._seen_ms >= SEEN_MS_MAX and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look_again())
        return self._topics

    async def _look(self) -> None:
        async with self._lock:
            began_ms, changes = now().monotonic_ms, self._changes
            if self._seen_ms is not None and began_ms - self._seen_ms < SEEN_MS_MAX:
                return  # another request has looked meanwhile
            found, _ = await what_succeeded(self.admin.describe_topics())
            if changes == self._changes:
                self._topics, self._seen_ms = found, now().monotonic_ms
                is_slow = self._seen_ms - began_ms >= SLOW_MS
                self._age_ms_max = OLD_MS_MAX if is_slow else SEEN_MS_MAX

    async def _look_again(self) -> None:
        with suppress(KafkaError):  # the next request waits for a look of its own
            await self._look()

    async def bounds(
        self, partitions: Iterable[TopicPartition], *, committed: bool = False, timeout: float | None = None
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The first offset and the end of the partitions that answer; `committed`: up to the first open transaction."""
        wanted = list(partitions)
        if not wanted:
            return {}
        earliest, latest = (dict.fromkeys(wanted, spec) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST))
        first, _ = await what_succeeded(self.admin.list_offsets(earliest, timeout=timeout))
        ends, _ = await what_succeeded(self.admin.list_offsets(latest, read_committed=committed, timeout=timeout))
        return {tp: (first[tp].offset, ends[tp].offset) for tp in wanted if tp in first and tp in ends}

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of the partitions that answer soon."""
        latest = dict.fromkeys(partitions, OffsetSpec.LATEST)
        if not latest:
            return {}
        found, _ = await what_succeeded(self.admin.list_offsets(latest, timeout=DETAIL_SECONDS))
        return {tp: each.offset for tp, each in found.items()}

    async def log_dirs(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[int, dict[str, LogDirDescription]] | None:
        """Those of the brokers that answer soon; None if the identity may not see them, or none answers."""
        brokers = [each.node_id for each in (await self.admin.describe_cluster()).nodes]
        asked = self.admin.describe_log_dirs(brokers, partitions, timeout=DETAIL_SECONDS)
        found = await if_permitted(what_succeeded(asked))
        return None if found is None or not any(found[0].values()) else found[0]

    def forget(self) -> None:
        """After a change: look again the next time."""
        self._seen_ms = None
        self._changes += 1

    def consumer(self, **settings: Any) -> AsyncConsumer:
        """One without a group, whose files are not mapped; the caller closes it."""
        given = {
            **self._config.keys_of(CONSUMER_CONFIG),
            "client.id": CLIENT_ID,
            "enable.auto.commit": "false",
            "default.api.timeout.ms": API_TIMEOUT_MS,
            "allow.auto.create.topics": "false",  # one that was deleted while the page shows it must not come back
            **settings,
        }
        return AsyncConsumer(given, mapped=False)

    def producer(self) -> AsyncProducer:
        """One for a single write; the caller closes it.

        An open producer refreshes the metadata of the topics that it has written to, which recreates deleted ones.
        """
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
        return AsyncProducer(given)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        await self.admin.close()


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


async def of_those_that_answer(asked: Awaitable[list[V]]) -> list[V]:
    """A list that each broker has a part of, without the parts of those that do not answer.

    Raises the error if none does.
    """
    try:
        return await asked
    except AdminError as error:
        if not error.results:
            raise
        return [each for part in error.results.values() for each in part]


async def if_permitted(asked: Awaitable[V]) -> V | None:
    """None if it has failed: for what a page can do without."""
    try:
        return await asked
    except KafkaError:
        return None
