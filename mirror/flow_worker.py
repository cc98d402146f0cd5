"""(shell) Runs a flow until it is stopped: all of its shards or some of them, and in one of its workers the control."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from raylog.client.admin.async_admin_client import AsyncAdminClient
from raylog.client.admin.topics import TopicDescription
from raylog.client.backoff import backoff_ms
from raylog.client.errors import AdminError, FencedError
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID
from raylog.mirror.config import FlowConfig
from raylog.mirror.control_thread import ControlThread
from raylog.mirror.flow_checks import check_mirror_maker, passing_flow
from raylog.mirror.flow_status import FlowStatus, with_passed_on
from raylog.mirror.named_errors import name_cluster, naming
from raylog.mirror.offset_sync_writer import OffsetSyncWriter
from raylog.mirror.origin_topic import OriginTopics
from raylog.mirror.plan import Plan, plan_shards
from raylog.mirror.progress import FlowId
from raylog.mirror.progress_topic import fix_shards
from raylog.mirror.shard import PartitionStatus, ShardSettings
from raylog.mirror.shard_worker import ShardWorker
from raylog.mirror.waits import Interruptible, until_set

log = logging.getLogger("raylog.mirror")
BLOCKED_SECONDS: Final = 2.0
"""How often the target is asked for topics that it does not have yet, and clients are made again that failed."""
STOP_SECONDS: Final = 10.0
"""What a shard has sent in this time is committed; the rest is copied again."""
STOP_OTHERS_SECONDS: Final = 2.0
"""For the last offset syncs, and for the task of the control that is running: others do again what is not done."""
RESTART_MS: Final = 200
RESTART_MS_MAX: Final = 30_000
FENCED_MS: Final = 60_000
"""Another worker has the shard, and would be fenced. Should it end, this one goes on after this time."""


@dataclass(slots=True, eq=False)
class _Running:
    """A shard that has partitions."""

    plan: Plan
    worker: ShardWorker | None = None
    task: asyncio.Task[None] | None = None
    error: KafkaError | None = None
    last: list[PartitionStatus] = field(default_factory=list)


class FlowWorker:
    """Runs once, on one loop. With exactly-once several of them may have the same shard: the last one copies it."""

    def __init__(
        self,
        flow: FlowConfig,
        *,
        settings: ShardSettings | None = None,
        share: tuple[int, int] = (0, 1),
        has_control: bool = True,
        origins: OriginTopics | None = None,
        origin: str | None = None,
    ) -> None:
        """`share` (number, count) are the shards of one of so many workers. One of them has the control of the flow.

        `origin`: copy the records of this third cluster, as another worker says, which has found out the `origins`.
        """
        self._flow = flow
        self._settings = settings or ShardSettings(exactly_once=flow.exactly_once)
        self._id = FlowId(flow.source.alias, flow.target.alias, origin)
        self._origins = origins
        self._passing: dict[str, tuple[FlowWorker, asyncio.Task[None]]] = {}
        """By origin, those that pass on the records of third clusters."""
        self._share = share
        self._applied = asyncio.Event()
        self._syncs = OffsetSyncWriter(flow) if flow.emit_offset_syncs else None
        self._has_control = has_control
        self._control: ControlThread | None = None
        self._running: dict[int, _Running] = {}
        self._errors: list[str] = []
        self._asking: Interruptible[dict[int, Plan]] = Interruptible()
        self._changed = asyncio.Event()
        self._stopping = False
        self.shard_count: int | None = None
        """Known once the progress topic is."""

    async def run(self) -> None:
        """Returns after `stop`, when everything that was read is committed or undone."""
        flow = self._flow
        loop = asyncio.get_running_loop()
        if self._has_control:
            self._control = ControlThread(flow, on_topics=lambda: loop.call_soon_threadsafe(self._changed.set))
            self._control.start()
        try:
            while flow.enabled and not self._stopping:
                try:
                    await self._copy()
                except KafkaError as error:  # the clients cannot be made: other flows of this process go on
                    self._errors = [str(error)]
                    log.warning("clients not made", extra={"flow": flow.name, "reason": str(error)})
                    await self._keep_to_share()
                    await self._wait(BLOCKED_SECONDS)
            while not self._stopping:
                await self._wait(None)
        finally:
            self._stopping = True
            self._applied.set()
            if self._control is not None:
                self._control.stop()
                await asyncio.to_thread(self._control.join, STOP_OTHERS_SECONDS)

    async def _wait(self, seconds: float | None) -> None:
        """Until something changes, at most so long."""
        await until_set(self._changed, seconds)
        self._changed.clear()

    async def _copy(self) -> None:
        """Returns after `stop`. Raises KafkaError if the clients cannot be made."""
        flow = self._flow
        async with AsyncExitStack() as stack:
            with naming(flow.source.alias):
                source = await stack.enter_async_context(AsyncAdminClient(flow.source.admin))
            with naming(flow.target.alias):
                target = await stack.enter_async_context(AsyncAdminClient(flow.target.admin))
            if flow.keeps_names and self._origins is None:
                self._origins = await stack.enter_async_context(OriginTopics(flow, source, target))
                self._origins.on_origin = self._changed.set
            syncing = None
            if self._syncs is not None:
                syncing = asyncio.create_task(self._syncs.run(source if flow.offset_syncs_in_source else target))
            try:
                while not self._stopping:
                    await self._keep_to_share()
                    await self._wait(await self._refresh(source, target))
            finally:
                await self._end_all()
                if self._syncs is not None and syncing is not None:
                    self._syncs.stop()
                    await asyncio.wait([syncing], timeout=STOP_OTHERS_SECONDS)
                    syncing.cancel()
                    with suppress(asyncio.CancelledError):
                        await syncing

    def stop(self) -> None:
        self._stopping = True
        self._changed.set()
        self._asking.interrupt()
        if self._control is not None:
            self._control.stop()

    async def use_share(self, number: int, count: int) -> None:
        """Copy these shards from now on. Returns when the others have ended."""
        self._share = (number, count)
        if self._stopping or not self._flow.enabled:
            return
        self._applied.clear()
        self._changed.set()
        self._asking.interrupt()
        await self._applied.wait()
        await asyncio.gather(*(worker.use_share(number, count) for worker, _ in self._passing.values()))

    def status(self) -> FlowStatus:
        partitions: list[PartitionStatus] = []
        errors = list(self._errors)
        for number, running in sorted(self._running.items()):
            partitions += running.last if running.worker is None else running.worker.status()
            if running.error is not None and not (running.worker is not None and running.worker.is_open):
                errors.append(f"shard {number}: {running.error.message}")
        if self._syncs is not None and self._syncs.error is not None:
            errors.append(f"offset syncs: {self._syncs.error}")
        if self._origins is not None and self._id.origin is None and self._origins.error is not None:
            errors.append(f"producers: {self._origins.error}")
        own = FlowStatus(self._flow.name, tuple(sorted(self._running)), tuple(partitions), tuple(errors))
        if self._control is not None:
            own = replace(own, control=self._control.status(), checkpoints=self._control.checkpoints())
        return with_passed_on(own, [worker.status() for worker, _ in self._passing.values()])

    # --- topics

    async def _refresh(self, source: AsyncAdminClient, target: AsyncAdminClient) -> float | None:
        """Have each shard copy what it should. Returns the seconds until the next time; None: never."""
        self._errors = []
        if self._stopping or not self._applied.is_set():
            return 0.0
        try:
            plans = await self._asking.run(self._plans(source, target))
        except KafkaError as error:
            self._errors.append(str(error))
            log.warning("topics not known", extra={"flow": self._flow.name, "reason": str(error)})
            if error.code is ErrorCode.INVALID_CONFIG:  # what goes on would do so in a circle
                await self._end_all()
            return BLOCKED_SECONDS
        if plans is None:
            return 0.0
        for number in self._running.keys() - plans.keys():
            await self._end(number)
        for number, plan in plans.items():
            self._start_or_change(number, plan, target)
        refresh_ms = self._flow.refresh_topics_ms
        seconds = None if refresh_ms is None else refresh_ms / 1000
        if any(plan.blocked for plan in plans.values()) or self._errors:
            return BLOCKED_SECONDS if seconds is None else min(seconds, BLOCKED_SECONDS)
        return seconds

    async def _prepare(self, origins: OriginTopics, source: AsyncAdminClient) -> None:
        """Raises KafkaError if records could be copied in a circle."""
        flow = self._flow
        await origins.prepare()
        with naming(flow.source.alias):
            check_mirror_maker(flow, [topic.name for topic in await source.list_topics()])
        if not flow.by_origin:
            return
        await origins.refresh()
        for origin in origins.origins.passed_on.keys() - self._passing.keys():
            worker = FlowWorker(
                passing_flow(flow),
                settings=self._settings,
                share=self._share,
                has_control=False,
                origins=origins,
                origin=origin,
            )
            self._passing[origin] = worker, asyncio.create_task(worker.run())

    async def _plans(self, source: AsyncAdminClient, target: AsyncAdminClient) -> dict[int, Plan]:
        """Of the wanted shards. Raises KafkaError."""
        flow = self._flow
        if self._origins is not None and self._id.origin is None:
            await self._prepare(self._origins, source)
        if self.shard_count is None:
            with naming(flow.target.alias):
                self.shard_count = await fix_shards(
                    target, self._id, tasks=flow.tasks_max, replication_factor=flow.replication_factor
                )
        found = await self._describe(source, flow.source.alias, flow.copies_topic)
        existing = await self._describe(target, flow.target.alias, lambda topic: True)
        ids = {name: topic.topic_id for name, topic in found.items() if topic.topic_id != ZERO_TOPIC_ID}
        plans, errors = plan_shards(flow, self.shard_count, _counts(found), _counts(existing), ids)
        self._errors += errors
        own, count = self._share
        return {number: plan for number, plan in plans.items() if number % count == own}

    async def _describe(
        self, admin: AsyncAdminClient, alias: str, chosen: Callable[[str], bool]
    ) -> Mapping[str, TopicDescription]:
        with naming(alias):
            names = [topic.name for topic in await admin.list_topics() if chosen(topic.name)]
            if not names:
                return {}
            try:
                return await admin.describe_topics(names)
            except AdminError as error:
                if not error.errors:
                    raise
                # Of some of them, which are shown; the others are copied.
                name_cluster(error, alias)
                self._errors.append(error.message)
                return error.results

    # --- shards

    def _start_or_change(self, number: int, plan: Plan, target: AsyncAdminClient) -> None:
        running = self._running.get(number)
        if running is None:
            running = self._running[number] = _Running(plan)
            running.task = asyncio.create_task(self._keep(number, running, target))
        elif running.plan != plan:
            running.plan = plan
            if running.worker is not None:
                running.worker.use(plan)

    async def _keep(self, number: int, running: _Running, target: AsyncAdminClient) -> None:
        """Run a shard again and again."""
        jitter = partial(random.uniform, 0.8, 1.2)
        attempts = 0
        while not self._stopping:
            worker = running.worker = ShardWorker(
                self._flow, self._settings, number, running.plan, target, self._origins, self._id
            )
            if self._syncs is not None:
                worker.on_copied = self._syncs.copied
            try:
                with naming(self._flow.target.alias):
                    await worker.run()
                return
            except KafkaError as error:
                running.error = error
                log.warning("shard ended", extra={"flow": self._flow.name, "shard": number, "reason": str(error)})
            except Exception as error:
                running.error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
                log.exception("shard failed", extra={"flow": self._flow.name, "shard": number})
            finally:
                running.last, running.worker = worker.status(), None
                if self._syncs is not None:
                    self._syncs.forget(running.plan.targets)
            attempts = 1 if any(each.records for each in running.last) else attempts + 1
            pause_ms = backoff_ms(attempts, RESTART_MS, RESTART_MS_MAX, jitter)
            if isinstance(running.error, FencedError):
                pause_ms = FENCED_MS
            await asyncio.sleep(pause_ms / 1000)

    async def _end_all(self) -> None:
        passing, self._passing = self._passing, {}
        for worker, _ in passing.values():
            worker.stop()
        await asyncio.gather(*(self._end(number) for number in list(self._running)))
        await asyncio.gather(*(task for _, task in passing.values()))

    async def _keep_to_share(self) -> None:
        """End the shards that others have. This needs no cluster to respond."""
        share = number, count = self._share
        await asyncio.gather(*(self._end(each) for each in list(self._running) if each % count != number))
        if share == self._share:
            self._applied.set()

    async def _end(self, number: int) -> None:
        running = self._running.pop(number)
        assert running.task is not None
        if running.worker is not None and running.worker.is_open:
            running.worker.stop()
            await asyncio.wait([running.task], timeout=STOP_SECONDS)
        running.task.cancel()
        with suppress(asyncio.CancelledError):
            await running.task


def _counts(topics: Mapping[str, TopicDescription]) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in topics.items()}
