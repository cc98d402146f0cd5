"""MirrorMaker actors: `raylog.mirror` and `raylog mirror`.

A mirror is an actor that keeps its MirrorMaker actors alive. These share the shards of each flow by their numbers. One
that has died is started again and goes on with its shards; with exactly-once it fences what is left of the former one.
Ray ends the actors with their mirror, and restarts the mirror, which starts as many as it began with.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import ray

from raylog.client.backoff import backoff_ms
from raylog.config.metrics import MetricsAddress
from raylog.config.metrics import metrics_address as parse_metrics_address
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.logs import log_to_stderr
from raylog.mirror.config import FlowConfig, MirrorConfig, mirror_config
from raylog.mirror.config_keys import ACTORS_MAX
from raylog.mirror.flow_checks import check_built
from raylog.mirror.flow_status import FlowStatus
from raylog.mirror.flow_worker import FlowWorker
from raylog.mirror.metrics import scrape
from raylog.mirror.renaming import Rename
from raylog.mirror.shard import ShardSettings
from raylog.transport.metrics_endpoint import MetricsEndpoint

log = logging.getLogger("raylog.actors")
NAMESPACE: Final = "raylog-mirrors"
STOP_SECONDS: Final = 30.0
STATUS_SECONDS: Final = 10.0
RESTART_MS: Final = 100
RESTART_MS_MAX: Final = 10_000
_REPLICATED: Final = ("", "offset-syncs.topic.", "checkpoints.topic.", "heartbeats.topic.")


@dataclass(frozen=True, slots=True)
class ActorStatus:
    """One MirrorMaker actor."""

    number: int
    state: str
    """running, or starting: also while it is started again."""
    restarts: int
    pid: int
    """0 while it is starting."""
    metrics: str
    """host:port of its metrics; empty if they are not shown."""
    flows: tuple[FlowStatus, ...]


@ray.remote(num_cpus=0, max_restarts=0)
class MirrorMakerActor:
    """A share of each flow. The one with number 0 has the control of the flows, too."""

    def __init__(
        self,
        flows: Sequence[FlowConfig],
        commit_interval_ms: int,
        metrics: MetricsAddress | None,
        number: int,
        count: int,
    ) -> None:
        log_to_stderr()
        self._number = number
        self._metrics_address = metrics
        self._metrics = MetricsEndpoint(lambda: scrape(number, self._shown()), lambda: True)
        self._workers = [
            FlowWorker(
                flow,
                settings=ShardSettings(exactly_once=flow.exactly_once, commit_interval_ms=commit_interval_ms),
                share=(number, count),
                has_control=number == 0,
            )
            for flow in flows
        ]

    async def run(self) -> None:
        """Returns after `stop`."""
        if self._metrics_address is not None:
            await self._metrics.open(self._metrics_address, self._number)
        try:
            await asyncio.gather(*(worker.run() for worker in self._workers))
        finally:
            self._metrics.close()

    async def use_share(self, number: int, count: int) -> None:
        """Returns when the shards that go to others have ended."""
        await asyncio.gather(*(worker.use_share(number, count) for worker in self._workers))

    async def status(self) -> tuple[int, str, tuple[FlowStatus, ...]]:
        """Its process, where its metrics are, and what it does."""
        bound = self._metrics.bound
        return os.getpid(), "" if bound is None else str(bound), self._shown()

    def _shown(self) -> tuple[FlowStatus, ...]:
        return tuple(worker.status() for worker in self._workers)

    async def stop(self) -> None:
        for worker in self._workers:
            worker.stop()


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class MirrorActor:
    """Starts with its creation."""

    def __init__(
        self, flows: Sequence[FlowConfig], commit_interval_ms: int, metrics: MetricsAddress | None, count: int
    ) -> None:
        log_to_stderr()
        self._flows = flows
        self._metrics = metrics
        self._commit_interval_ms = commit_interval_ms
        self._count = 0
        self._stopping = False
        self._actors: dict[int, Any] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._restarts: dict[int, int] = {}
        self._scaling = asyncio.Lock()
        self._start(count)

    async def scale(self, count: int) -> None:
        """Share the work among so many actors. Returns when those that were there have given up what others get."""
        async with self._scaling:
            surplus = [number for number in self._tasks if number >= count]
            self._count = count
            for number in surplus:
                await self._end(number)
            for number, actor in list(self._actors.items()):
                with suppress(ray.exceptions.RayError):
                    await actor.use_share.remote(number, count)
            self._start(count)

    async def status(self) -> list[ActorStatus]:
        return list(await asyncio.gather(*(self._status(number) for number in sorted(self._tasks))))

    async def stop(self) -> None:
        """Have the actors commit and end; those that do not in time are killed."""
        self._stopping = True
        await asyncio.gather(*(self._end(number) for number in list(self._tasks)))
        async with self._scaling:  # it goes on once these have ended
            pass

    def _start(self, count: int) -> None:
        if self._stopping:
            return
        self._count = count
        for number in range(count):
            if number not in self._tasks:
                self._tasks[number] = asyncio.get_running_loop().create_task(self._keep(number))

    async def _keep(self, number: int) -> None:
        """Run an actor again and again."""
        made: Any = MirrorMakerActor
        deaths = 0
        while not self._stopping and number < self._count:
            actor = self._actors[number] = made.remote(
                self._flows, self._commit_interval_ms, self._metrics, number, self._count
            )
            try:
                await actor.run.remote()
                continue
            except ray.exceptions.RayError as error:
                deaths += 1
                reason = str(error)
            finally:
                self._actors.pop(number, None)
            log.warning("mirror actor ended", extra={"actor": number, "reason": reason})
            self._restarts[number] = self._restarts.get(number, 0) + 1
            pause_ms = backoff_ms(deaths, RESTART_MS, RESTART_MS_MAX, partial(random.uniform, 0.8, 1.2))
            await asyncio.sleep(pause_ms / 1000)

    async def _end(self, number: int) -> None:
        task, actor = self._tasks.pop(number, None), self._actors.get(number)
        if task is None:
            return
        if actor is not None:
            with suppress(ray.exceptions.RayError):
                await actor.stop.remote()
            await asyncio.wait([task], timeout=STOP_SECONDS)
            ray.kill(actor)
        task.cancel()

    async def _status(self, number: int) -> ActorStatus:
        actor, restarts = self._actors.get(number), self._restarts.get(number, 0)
        if actor is not None:
            with suppress(ray.exceptions.RayError, TimeoutError):
                async with asyncio.timeout(STATUS_SECONDS):
                    return ActorStatus(number, "running", restarts, *await actor.status.remote())
        return ActorStatus(number, "starting", restarts, 0, "", ())


class Mirror:
    """A running mirror. As a context manager it stops the mirror."""

    def __init__(self, actor: Any) -> None:
        """Use `raylog.mirror` or `find_mirror` instead."""
        self._actor = actor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def status(self) -> list[ActorStatus]:
        """What each actor copies, how far it is, and what is wrong. Raises KafkaError if the mirror has ended."""
        return _get(self._actor.status.remote())  # type: ignore[no-any-return]

    def scale(self, actors: int) -> None:
        """Share the work among so many actors, until the mirror ends or Ray restarts it. Raises ConfigError."""
        _check_actors(actors)
        _get(self._actor.scale.remote(actors))

    def stop(self) -> None:
        """Commit what was copied, and end. Another mirror of the same flows goes on there."""
        try:
            _get(self._actor.stop.remote())
        finally:
            ray.kill(self._actor)


def start_mirror(
    config: MirrorConfig,
    *,
    name: str = "mirror",
    actors: int | None = None,
    commit_interval_ms: int = 1_000,
    metrics_address: str = "",
) -> Mirror:
    """Run the flows of mm2.properties; the actors are as many as the greatest tasks.max says, or `actors`.

    `metrics_address` is where they show their metrics, as the key raylog.metrics.address of brokers.
    Raises ConfigError if there is no flow, a mirror of this name is running, or this process is not connected to Ray.
    """
    check_built(config.flows)
    count = max(flow.tasks_max for flow in config.flows) if actors is None else actors
    _check_actors(count)
    if commit_interval_ms < 1:
        raise ConfigError(f"commit_interval_ms={commit_interval_ms}: must be at least 1")
    shown_at = parse_metrics_address(metrics_address)
    _check_connected()
    if not name or len(name) > 200:
        raise ConfigError(f"name={name[:50]!r}: must have 1 to 200 characters")
    made: Any = MirrorActor
    try:
        actor = made.options(name=name, namespace=NAMESPACE).remote(config.pairs, commit_interval_ms, shown_at, count)
        _get(actor.status.remote())
    except ValueError as error:
        raise ConfigError(f"name={name!r}: a mirror of this name is running; give another name, or stop it") from error
    return Mirror(actor)


def find_mirror(name: str = "mirror") -> Mirror:
    """A mirror that runs in the Ray that this process is connected to. Raises ConfigError if there is none."""
    _check_connected()
    try:
        return Mirror(ray.get_actor(name, namespace=NAMESPACE))
    except ValueError:
        raise ConfigError(f"name={name!r}: no mirror of this name is running in this Ray") from None


def ray_address() -> str:
    """Of the Ray that this process is connected to."""
    return str(ray.get_runtime_context().gcs_address)


def mirror(
    *,
    source: str | Mapping[str, str],
    target: str | Mapping[str, str],
    topics: str | Iterable[str],
    source_alias: str = "source",
    target_alias: str = "target",
    exactly_once: bool = True,
    rename: Rename | None = None,
    actors: int | None = None,
    name: str = "mirror",
    commit_interval_ms: int = 1_000,
    metrics_address: str = "",
    **keys: Any,
) -> Mirror:
    """Copy topics from one cluster to another by MirrorMaker actors, until the mirror is stopped or this process ends.

    `source` and `target` are bootstrap.servers, or properties of Kafka's clients; `topics` are names or regular
    expressions. A copy is called `<source_alias>.<topic>`, or what `rename` makes of the alias and the name. `keys` are
    those of mm2.properties with underscores, such as replication_policy_class. Topics are created with the replication
    factor that is the brokers' default, unless it is among the keys. `metrics_address` is host:port, or host:first-last
    for several actors on one host, at which they show their metrics to Prometheus. Raises ConfigError.
    """
    entries = {
        "clusters": f"{source_alias},{target_alias}",
        f"{source_alias}->{target_alias}.enabled": "true",
        f"{target_alias}->{source_alias}.emit.heartbeats.enabled": "false",  # nothing but offset syncs to the source
        **{f"{topic}replication.factor": "-1" for topic in _REPLICATED},
    }
    for alias, given in ((source_alias, source), (target_alias, target)):
        properties = {"bootstrap.servers": given} if isinstance(given, str) else given
        entries |= {f"{alias}.{key}": text for key, text in properties.items()}
    entries["topics"] = topics if isinstance(topics, str) else ",".join(topics)
    entries["exactly.once.source.support"] = "enabled" if exactly_once else "disabled"
    entries |= {_key(name): _text(value) for name, value in keys.items()}
    config = mirror_config(entries, rename=rename)
    unknown = [str(note) for note in config.notes if note.key in set(map(_key, keys))]
    if unknown:
        raise ConfigError("; ".join(unknown))
    return start_mirror(
        config, name=name, actors=actors, commit_interval_ms=commit_interval_ms, metrics_address=metrics_address
    )


def _key(name: str) -> str:
    return name.replace("_", ".").replace("offset.syncs.", "offset-syncs.")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_actors(count: int) -> None:
    if not 1 <= count <= ACTORS_MAX:
        raise ConfigError(f"actors={count}: must be between 1 and {ACTORS_MAX}")


def _check_connected() -> None:
    if not ray.is_initialized():
        raise ConfigError("this process is not connected to Ray: call ray.init(address=...) first")


def _get(reference: Any) -> Any:
    """Raises the KafkaError that the actor has raised, or BROKER_NOT_AVAILABLE if it has ended."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, KafkaError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        rule = f"the mirror has ended or does not respond: {error}"
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, rule) from error
