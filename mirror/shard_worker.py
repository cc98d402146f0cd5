"""(shell) Copies the partitions of one shard: a consumer of the source, a producer of the target, and a `Shard`."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from raylog.client.admin.async_admin_client import AsyncAdminClient
from raylog.client.consumer.async_consumer import AsyncConsumer
from raylog.client.consumer.fetched import FetchedBatches
from raylog.client.errors import AbortableError, FencedError
from raylog.client.producer.async_producer import AsyncProducer, AsyncTableDelivery
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID, TopicPartition
from raylog.mirror.batches import OutgoingBatch, outgoing_batches, producer_ids
from raylog.mirror.config import FlowConfig
from raylog.mirror.copied import Copied, copied_runs
from raylog.mirror.named_errors import name_cluster, naming
from raylog.mirror.origin_topic import OriginTopics
from raylog.mirror.plan import Plan
from raylog.mirror.progress import FlowId, Progress, encode_progress
from raylog.mirror.progress_topic import read_progress
from raylog.mirror.shard import PartitionStatus, Shard, ShardSettings
from raylog.mirror.waits import Interruptible
from raylog.transport.system_time import now

log = logging.getLogger("raylog.mirror")
POLL_MS_MIN: Final = 10
CLOSE_SECONDS: Final = 2.0
"""For the end of an open transaction, after an error or a stop that took too long."""
DELIVERY_TIMEOUT_MS: Final = 30_000
"""A batch that the target does not acknowledge for so long is an error that is shown, and is sent again."""
REQUEST_TIMEOUT_MS: Final = 10_000
BUFFER_BYTES_MIN: Final = 128 << 20
"""The largest batch of a source must fit in."""
FETCH_BYTES: Final = 4 << 20


class ShardWorker:
    """Runs once, on one loop."""

    def __init__(
        self,
        flow: FlowConfig,
        settings: ShardSettings,
        shard: int,
        plan: Plan,
        target_admin: AsyncAdminClient,
        origins: OriginTopics | None = None,
        flow_id: FlowId | None = None,
    ) -> None:
        """`origins`, if the names of copies do not tell their source."""
        self._flow = flow
        self._id = flow_id or FlowId(flow.source.alias, flow.target.alias)
        self._origins = origins
        self._registering: set[asyncio.Task[None]] = set()
        self._settings = settings
        self._shard = Shard(shard, settings, partial(random.uniform, 0.8, 1.2))
        self._plan: Plan | None = plan
        """A new one, which is not in use yet."""
        self._admin = target_admin
        self.on_copied: Callable[[Sequence[Copied]], None] = lambda _: None
        """Called with what is committed, in the order of the source for each partition.

        First with the last record of which its progress tells: the former owner may have been killed before it called.
        """
        self._deliveries: dict[TopicPartition, list[tuple[OutgoingBatch, AsyncTableDelivery]]] = {}
        self._in_transaction = False
        self._stopping = False
        self._polling: Interruptible[FetchedBatches | None] = Interruptible()
        self.is_open = False
        """Whether it is copying."""

    async def run(self) -> None:
        """Returns after `stop`, when everything that was read is committed or undone.

        Raises KafkaError: why it cannot go on; FencedError if another worker has the shard.
        """
        number, flow, settings = self._shard.number, self._flow, self._settings
        self._producer = AsyncProducer(_producer_config(flow, settings, self._id, number))
        if self._origins is not None:
            self._producer.hold_producer_ids(partial(self._register, self._origins))
        try:
            if settings.exactly_once:
                await _until_done(self._producer.init_transactions)
            self._shard.progress_read(await read_progress(self._admin, flow.target.consumer, self._id, number))
            with naming(flow.source.alias):
                consumer = AsyncConsumer(_consumer_config(flow, settings))
            async with consumer as self._consumer:
                self.is_open = True
                while not self._stopping:
                    await self._step()
                if self._shard.is_dirty:
                    await self._commit()
        finally:
            self.is_open = False
            await self._producer.close(CLOSE_SECONDS)
            for task in self._registering:
                task.cancel()

    def stop(self) -> None:
        self._stopping = True
        self._polling.interrupt()

    def use(self, plan: Plan) -> None:
        """Copy these partitions from the next commit on."""
        self._plan = plan
        self._polling.interrupt()

    def status(self) -> list[PartitionStatus]:
        return self._shard.status(now())

    def _register(self, origins: OriginTopics, producer_id: int) -> None:
        """Let the producer use its id once others can tell whose records it writes."""

        async def register() -> None:
            await origins.register(producer_id, origins.origin_of(self._id.origin))
            self._producer.admit_producer_id(producer_id)

        task = asyncio.create_task(register())
        self._registering.add(task)
        task.add_done_callback(self._registering.discard)

    async def _step(self) -> None:
        shard = self._shard
        if shard.commit_due(now(), ending=self._plan is not None):
            await self._commit()
        if self._plan is not None:
            plan, self._plan = self._plan, None
            if shard.assign(plan.targets, plan.blocked, plan.topic_ids):
                self._consumer.assign(plan.targets)
        self.on_copied(shard.take_found())
        for tp in shard.partitions:
            if (position := self._consumer.known_position(tp)) is not None:
                shard.positioned(tp, position)
                if (lag := self._consumer.lag(tp)) is not None:
                    shard.source_ends(tp, position + lag)
        moment = now()
        for tp, offset in shard.take_seeks(moment).items():
            self._consumer.seek(tp, offset)
        paused = shard.paused(moment)
        self._consumer.pause(*paused - self._consumer.paused())
        self._consumer.resume(*self._consumer.paused() - paused)
        wait_seconds = shard.wait_ms(moment, max(POLL_MS_MIN, self._flow.consumer_poll_timeout_ms)) / 1000
        if not shard.partitions:
            await asyncio.sleep(wait_seconds)
            return
        try:
            fetched = await self._poll(wait_seconds)
        except KafkaError as error:
            shard.source_failed(error)  # before the message begins with the cluster: it may begin with a partition
            name_cluster(error, self._flow.source.alias)
            log.warning("poll failed", extra={"flow": self._flow.name, "reason": str(error)})
            return
        if fetched is not None:
            await self._send(fetched)

    async def _poll(self, wait_seconds: float) -> FetchedBatches | None:
        """None also if it was woken."""
        return await self._polling.run(self._consumer.poll_batches(wait_seconds))

    async def _send(self, fetched: FetchedBatches) -> None:
        shard, tp, start = self._shard, fetched.tp, fetched.position
        if not shard.fetched(tp, start, None if fetched.topic_id == ZERO_TOPIC_ID else fetched.topic_id):
            return
        target = shard.partitions[tp].target
        try:
            batches = outgoing_batches(
                fetched.records,
                start=start,
                aborted=fetched.aborted,
                check_crcs=fetched.check_crcs,
                is_wanted=await self._wanted(fetched),
            )
            self._begin_transaction()
            for batch in batches:
                with naming(self._flow.target.alias):
                    delivery = await self._producer.send_copied(target, batch.batch)
                self._deliveries.setdefault(tp, []).append((batch, delivery))
                if not shard.sent(tp, batch, now()):
                    return
        except KafkaError as error:
            if isinstance(error, FencedError):
                raise
            log.warning("records not sent", extra={"tp": str(tp), "reason": str(error)})
            shard.stopped_at(tp, error, now())
        else:
            shard.passed(tp, fetched.next_offset, now())

    async def _wanted(self, fetched: FetchedBatches) -> Callable[[int], bool]:
        """Which producers' batches are to be copied. Raises KafkaError."""
        if self._origins is None:
            return lambda _: True
        await self._origins.look_for(producer_ids(fetched.records))
        return partial(self._origins.origins.copies, origin=self._id.origin)

    def _begin_transaction(self) -> None:
        if self._settings.exactly_once and not self._in_transaction:
            self._producer.begin_transaction()
            self._in_transaction = True

    async def _commit(self) -> None:
        """Raises KafkaError if the shard must be opened anew."""
        shard = self._shard
        await self._producer.flush()
        deliveries, self._deliveries = self._deliveries, {}
        errors = {tp: [self._error(delivery) for _, delivery in each] for tp, each in deliveries.items()}
        copied = self._copied(deliveries)
        try:
            with naming(self._flow.target.alias):
                if not shard.ended(errors, now()):
                    await self._abort(None)
                    return
                shard.appended(copied)
                await self._write_progress(shard.progress())
                if self._in_transaction:
                    await _until_done(self._producer.commit_transaction)
                    self._in_transaction = False
        except AbortableError as error:
            await self._abort(error)
        except KafkaError as error:
            if self._settings.exactly_once or not error.code.retriable:
                raise
            log.warning("progress not written", extra={"flow": self._flow.name, "reason": str(error)})
            shard.not_committed(error, now())
        else:
            shard.committed(now())
            self.on_copied(copied)

    def _copied(
        self, deliveries: Mapping[TopicPartition, list[tuple[OutgoingBatch, AsyncTableDelivery]]]
    ) -> list[Copied]:
        copied: list[Copied] = []
        for tp, each in deliveries.items():
            for batch, delivery in each:
                if self._error(delivery) is None:
                    appended = [(rows.base_offset, rows.record_count) for rows in delivery.result()]
                    copied += copied_runs(tp, batch, appended)
        return copied

    def _error(self, delivery: AsyncTableDelivery) -> KafkaError | None:
        try:
            with naming(self._flow.target.alias):
                delivery.result()
        except KafkaError as error:
            return error
        return None

    async def _write_progress(self, progress: Mapping[TopicPartition, Progress]) -> None:
        if progress:
            self._begin_transaction()
        topic = self._id.progress_topic
        sent = []
        for tp, each in progress.items():
            key, value = encode_progress(self._id, tp, each)
            sent.append(await self._producer.send(topic, value, key, partition=self._shard.number))
        await self._producer.flush()
        for delivery in sent:
            delivery.result()

    async def _abort(self, error: KafkaError | None) -> None:
        await _until_done(self._producer.abort_transaction)
        self._in_transaction = False
        self._shard.undone(error, now())


async def _until_done(call: Callable[[], Awaitable[None]]) -> None:
    """A call about transactions, which goes on when it is called again after its timeout. Raises KafkaError."""
    while True:
        try:
            await call()
            return
        except KafkaError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT or isinstance(error, AbortableError):
                raise
            log.warning("transaction not completed yet", extra={"reason": str(error)})


def _producer_config(flow: FlowConfig, settings: ShardSettings, flow_id: FlowId, shard: int) -> dict[str, Any]:
    own = {
        "client.id": f"raylog-mirror-{flow.name}-{shard}",
        "buffer.memory": max(2 * settings.commit_bytes, BUFFER_BYTES_MIN),
        "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
        "max.block.ms": DELIVERY_TIMEOUT_MS,
        "request.timeout.ms": REQUEST_TIMEOUT_MS,
        "linger.ms": 0,
    }
    fixed: dict[str, Any] = {"enable.idempotence": True, "acks": "all"}
    if settings.exactly_once:
        fixed["transactional.id"] = flow_id.transactional_id(shard)
    return {**own, **flow.target.producer, **fixed}


def _consumer_config(flow: FlowConfig, settings: ShardSettings) -> dict[str, Any]:
    own = {
        "client.id": f"raylog-mirror-{flow.name}",
        "isolation.level": "read_committed" if settings.exactly_once else "read_uncommitted",
        "allow.auto.create.topics": False,
        "max.partition.fetch.bytes": FETCH_BYTES,
    }
    return {**own, **flow.source.consumer, "enable.auto.commit": False, "group.id": ""}
