"""(shell) The origins of producers: read from the topic of a flow's source, and written to that of its target."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from raylog.client.admin.async_admin_client import AsyncAdminClient
from raylog.client.admin.partitions import OffsetSpec
from raylog.client.backoff import backoff_ms
from raylog.client.consumer.async_consumer import AsyncConsumer
from raylog.client.consumer.fetched import ConsumerRecord
from raylog.client.producer.async_producer import AsyncProducer
from raylog.config.consumer import DEFAULT_API_TIMEOUT_MS
from raylog.config.producer import TRANSACTIONAL_ID
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.mirror.config import FlowConfig
from raylog.mirror.named_errors import naming
from raylog.mirror.origins import ORIGINS_TOPIC, Origin, Origins, decode_origin, encode_origin, is_cluster_id
from raylog.mirror.progress_topic import create_compacted, partition_count

log = logging.getLogger("raylog.mirror")
READ_SECONDS: Final = 60.0
LEARN_MS: Final = 3_000
RETRY_MS: Final = 200
RETRY_MS_MAX: Final = 10_000
_PARTITION: Final = TopicPartition(ORIGINS_TOPIC, 0)


class OriginTopics:
    """Of one flow. An asynchronous context manager, for one loop."""

    def __init__(self, flow: FlowConfig, source: AsyncAdminClient, target: AsyncAdminClient) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._origins: Origins | None = None
        self._open = AsyncExitStack()
        self._consumer: AsyncConsumer | None = None
        self._producer: AsyncProducer | None = None
        self._reading = asyncio.Lock()
        self._writing = asyncio.Lock()
        self.on_origin: Callable[[], object] = lambda: None
        """Called when there are records from a cluster that was not known."""
        self.error: KafkaError | None = None
        """Why a producer cannot be used yet."""

    async def __aenter__(self) -> OriginTopics:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    @property
    def origins(self) -> Origins:
        """After `prepare`."""
        assert self._origins is not None
        return self._origins

    async def prepare(self) -> None:
        """Find out which clusters these are, and create the topic in the target. Raises KafkaError."""
        if self._origins is None:
            source_id = await cluster_id(self._source, self._flow.source.alias)
            target_id = await cluster_id(self._target, self._flow.target.alias)
            if source_id == target_id:
                text = f"source and target are the same cluster, {source_id}: its records would be copied to themselves"
                raise KafkaError(ErrorCode.INVALID_CONFIG, text)
            with naming(self._flow.target.alias):
                await create_compacted(self._target, ORIGINS_TOPIC, 1, self._flow.replication_factor)
            others = {end.alias: passes for end, passes in self._flow.others}
            self._origins = Origins(source_id, target_id, others)
        await self._learn(self._origins)

    async def _learn(self, origins: Origins) -> None:
        """Ask the other clusters of the loop for their ids, as far as they respond."""
        unknown = origins.not_learned
        for end in [end for end, _ in self._flow.others if end.alias in unknown]:
            try:
                async with AsyncAdminClient({**end.admin, DEFAULT_API_TIMEOUT_MS.name: LEARN_MS}) as admin:
                    origins.learned(end.alias, await cluster_id(admin, end.alias))
            except KafkaError as error:
                log.warning("cluster id not known", extra={"cluster": end.alias, "reason": str(error)})

    def origin_of(self, passed_on: str | None) -> Origin:
        """Of the records that are copied: those of a third cluster, by its id, or of the source."""
        if passed_on is None:
            return Origin(self.origins.source_id, self._flow.source.alias)
        return Origin(passed_on, self.origins.passed_on[passed_on])

    async def look_for(self, producer_ids: Iterable[int]) -> None:
        """Learn of all of these ids, of batches that were read, whether they belong to flows. Raises KafkaError."""
        if not self.origins.unknown(producer_ids):
            return
        async with self._reading:
            if unknown := self.origins.unknown(producer_ids):
                with naming(self._flow.source.alias):
                    await self._read()
                self.origins.looked_for(unknown)

    async def refresh(self) -> None:
        """Raises KafkaError."""
        async with self._reading:
            with naming(self._flow.source.alias):
                await self._read()

    async def _read(self) -> None:
        """To the end that the topic of the source has now."""
        if await partition_count(self._source, ORIGINS_TOPIC) is None:
            return
        end = (await self._source.list_offsets({_PARTITION: OffsetSpec.LATEST}))[_PARTITION].offset
        if self._consumer is None:
            own = {"isolation.level": "read_uncommitted", "auto.offset.reset": "earliest"}
            fixed = {"enable.auto.commit": False, "group.id": ""}
            self._consumer = await self._open.enter_async_context(
                AsyncConsumer({**self._flow.source.consumer, **own, **fixed})
            )
            self._consumer.assign([_PARTITION])
        known = self.origins.passed_on
        try:
            async with asyncio.timeout(READ_SECONDS):
                if await self._consumer.position(_PARTITION) > end:
                    self._consumer.seek_to_beginning(_PARTITION)  # it was created anew
                while await self._consumer.position(_PARTITION) < end:
                    self._take(self._consumer, await self._consumer.poll(0.2))
        except TimeoutError:
            text = f"{ORIGINS_TOPIC} was not read to its end, offset {end}, within {READ_SECONDS} s"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from None
        if self.origins.passed_on != known:
            self.on_origin()

    def _take(self, consumer: AsyncConsumer, records: Iterable[ConsumerRecord]) -> None:
        """Raises KafkaError at a record that cannot be read; it is read again next time, and those behind it."""
        for record in records:
            try:
                if record.value is not None:
                    self.origins.registered(*decode_origin(record.key, record.value))
            except KafkaError:
                consumer.seek(_PARTITION, record.offset)
                raise

    async def register(self, producer_id: int, origin: Origin) -> None:
        """Returns once the target has durably what the producer writes: tried until then."""
        attempts = 0
        while True:
            try:
                async with self._writing:
                    with naming(self._flow.target.alias):
                        await self._write(producer_id, origin)
                self.error = None
                return
            except KafkaError as error:
                attempts += 1
                self.error = error
                log.warning("origin not written", extra={"flow": self._flow.name, "reason": str(error)})
            pause_ms = backoff_ms(attempts, RETRY_MS, RETRY_MS_MAX, partial(random.uniform, 0.8, 1.2))
            await asyncio.sleep(pause_ms / 1000)

    async def _write(self, producer_id: int, origin: Origin) -> None:
        if self._producer is None:
            given = {name: text for name, text in self._flow.target.producer.items() if name != TRANSACTIONAL_ID.name}
            self._producer = AsyncProducer({**given, "enable.idempotence": True, "acks": "all", "linger.ms": 0})
            self._open.push_async_callback(self._producer.close, 0)  # what is not acknowledged is not used
        key, value = encode_origin(producer_id, origin)
        await self._producer.send_and_wait(ORIGINS_TOPIC, value, key, partition=0)


async def cluster_id(admin: AsyncAdminClient, alias: str) -> str:
    """Of Apache Kafka before 2.8, which cannot be asked, something made of the alias. Raises KafkaError."""
    try:
        with naming(alias):
            found = (await admin.describe_cluster()).cluster_id
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        found = f"alias-{alias.replace('.', '_')}"
    if not is_cluster_id(found):
        text = f"the cluster id {found!r} cannot be a part of a topic's name, as this flow's names require"
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    return found
