"""Flows of the tests, each in a thread of its own, and what stock clients see in both clusters."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.topics import NewTopic
from raylog.mirror.config import FlowConfig, mirror_config
from raylog.mirror.flow_checks import check_built
from raylog.mirror.flow_status import ControlStatus, FlowStatus
from raylog.mirror.flow_worker import FlowWorker
from raylog.mirror.shard import PartitionStatus, ShardSettings
from tests.client.served import Target
from tests.support.hang import HANG_SECONDS

Seen = tuple[Any, ...]
QUICK = ("refresh.topics", "refresh.groups", "sync.topic.configs", "sync.group.offsets", "emit.checkpoints")


def flow_between(
    source: Target, target: Target, *, topics: str, aliases: tuple[str, str] = ("A", "B"), **given: str
) -> FlowConfig:
    """The flow A->B; `given` are keys of mm2.properties with underscores."""
    entries = {
        "clusters": ", ".join(aliases),
        f"{aliases[0]}.bootstrap.servers": source.plain,
        f"{aliases[1]}.bootstrap.servers": target.plain,
        f"{'->'.join(aliases)}.enabled": "true",
        "topics": topics,
        "emit.heartbeats.enabled": "false",
        **{f"{topic}replication.factor": "1" for topic in ("", "offset-syncs.topic.", "checkpoints.topic.")},
        **{f"{task}.interval.seconds": "1" for task in QUICK},
    }
    entries |= {name.replace("_", "."): text for name, text in given.items()}
    (flow,) = mirror_config(entries).flows
    return flow


def flows_among(clusters: dict[str, Target], *edges: str, **given: str) -> tuple[FlowConfig, ...]:
    """The flows of one file, such as A->B."""
    config = mirror_config(entries_among(clusters, *edges, **given))
    check_built(config.flows)
    return config.flows


def entries_among(clusters: dict[str, Target], *edges: str, **given: str) -> dict[str, str]:
    """The file."""
    entries = {"clusters": ",".join(clusters)}
    entries |= {f"{alias}.bootstrap.servers": each.plain for alias, each in clusters.items()}
    entries |= {f"{edge}.enabled": "true" for edge in edges}
    entries |= {"emit.heartbeats.enabled": "false", "refresh.topics.interval.seconds": "1"}
    entries |= {f"{topic}replication.factor": "1" for topic in ("", "offset-syncs.topic.", "checkpoints.topic.")}
    return entries | {name.replace("_", "."): text for name, text in given.items()}


class RunningFlow:
    """A `FlowWorker` in a thread."""

    def __init__(self, flow: FlowConfig, settings: ShardSettings, *, has_control: bool) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(flow, settings, has_control), daemon=True)
        self._made = threading.Event()
        self._thawed = threading.Event()
        self.error: BaseException | None = None
        self._thread.start()
        assert self._made.wait(HANG_SECONDS)

    def _run(self, flow: FlowConfig, settings: ShardSettings, has_control: bool) -> None:
        async def run() -> None:
            self.worker = FlowWorker(flow, settings=settings, has_control=has_control)
            self._task = asyncio.current_task()
            self._made.set()
            await self.worker.run()

        try:
            self.loop.run_until_complete(run())
        except BaseException as error:
            self.error = error
        finally:
            self.loop.close()

    def freeze(self) -> None:
        """It does nothing from now on, and its connections stay open, as those of a process that has hung."""
        frozen = threading.Event()

        def hold() -> None:
            frozen.set()
            assert self._thawed.wait(10 * HANG_SECONDS)

        self.loop.call_soon_threadsafe(hold)
        assert frozen.wait(HANG_SECONDS)

    def thaw(self) -> None:
        self._thawed.set()

    def status(self) -> FlowStatus:
        async def ask() -> FlowStatus:
            return self.worker.status()

        return asyncio.run_coroutine_threadsafe(ask(), self.loop).result(HANG_SECONDS)

    def use_share(self, number: int, count: int) -> None:
        """Copy these shards from now on; returns when the others have ended."""
        asyncio.run_coroutine_threadsafe(self.worker.use_share(number, count), self.loop).result(HANG_SECONDS)

    def partition(self, topic: str, partition: int = 0) -> PartitionStatus | None:
        found = (each for each in self.status().partitions if (each.topic, each.partition) == (topic, partition))
        return next(found, None)

    def control(self, task: str) -> ControlStatus:
        return next(each for each in self.status().control if each.task == task)

    def wait(self, met: Callable[[FlowStatus], object]) -> FlowStatus:
        """The first status for which it is true."""
        deadline = time.monotonic() + HANG_SECONDS
        while not met(status := self.status()):
            assert time.monotonic() < deadline, status
            time.sleep(0.02)
        return status

    def wait_for_end(self, topic: str, ends: dict[int, int]) -> FlowStatus:
        """Until each partition is copied up to this offset."""
        return self.wait(
            lambda status: all(
                any((each.topic, each.partition, each.next_offset) == (topic, *end) for each in status.partitions)
                for end in ends.items()
            )
        )

    def stop(self) -> None:
        self.thaw()
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.worker.stop)
        self._thread.join(HANG_SECONDS)
        assert not self._thread.is_alive()


@contextmanager
def running(flow: FlowConfig, *, has_control: bool = True, **settings: Any) -> Iterator[RunningFlow]:
    settings = {"exactly_once": flow.exactly_once, "commit_interval_ms": 50} | settings
    run = RunningFlow(flow, ShardSettings(**settings), has_control=has_control)
    try:
        yield run
    finally:
        run.stop()
        assert run.error is None


def create(target: Target, topic: str, partitions: int = 1, **configs: str) -> None:
    given = {key.replace("_", "."): value for key, value in configs.items()}
    with AdminClient(bootstrap_servers=target.plain) as admin:
        admin.create_topics(NewTopic(topic, partitions, 1, configs=given))


def ends(target: Target, topic: str, partitions: int = 1) -> dict[int, int]:
    """The end of each partition."""
    consumer = Consumer({"bootstrap.servers": target.plain, "group.id": "ends"})
    try:
        return {
            number: consumer.get_watermark_offsets(Position(topic, number), HANG_SECONDS)[1]
            for number in range(partitions)
        }
    finally:
        consumer.close()


def seen(target: Target, topic: str, partition: int = 0, *, isolation: str = "read_committed") -> list[Seen]:
    """All records of a partition, by librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": target.plain,
            "group.id": "tests",
            "check.crcs": True,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # for the answer that there is no more
            "auto.offset.reset": "earliest",
        }
    )
    found: list[Seen] = []
    try:
        consumer.assign([Position(topic, partition, 0)])
        deadline = time.monotonic() + HANG_SECONDS
        while True:
            assert time.monotonic() < deadline
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is None:
                    found.append((message.key(), message.value(), message.headers(), message.timestamp()))
                else:
                    assert error.name() == "_PARTITION_EOF"
                    return found
    finally:
        consumer.close()
