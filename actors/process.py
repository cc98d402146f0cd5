"""Pools of actors that process topics: `raylog.process`.

A pool is an actor that keeps its workers alive, and one actor for each worker; what a worker does is in
`raylog.client.processing`. A worker that has died is started again under the same name in its group, so that it gets
its partitions back without a rebalance, and fences what is left of the former one. Ray ends the workers with their
pool, and restarts the pool, which starts them anew.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final, Self

import ray
from ray import cloudpickle

from raylog.client.consumer.consumer import Consumer
from raylog.client.errors import FencedError, ProcessingError
from raylog.client.processing.settings import AT_LEAST_ONCE, ProcessSettings
from raylog.client.processing.supervision import DEATHS_MAX, WorkerLife
from raylog.client.processing.worker import Worker, WorkerProgress, WorkerSpec
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.core.logs import log_to_stderr

log = logging.getLogger("raylog.actors")
TOPIC_SECONDS: Final = 3.0
"""How long a topic may be unknown, as one is that was just created."""
STOP_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 1.0
"""How often a pool asks its workers for their progress."""
RESPONSE_SECONDS: Final = 5.0
"""How long it waits for that; a worker does not respond while its process is suspended, or waits for resources."""
_kept: list[Any] = []
"""Pools run until they are stopped, or this process ends, also where the program drops what `process` has returned."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a pool has done since it was started, or Ray has restarted its actor.

    What was not committed does not count.
    """

    state: str
    """starting, running, stopped or failed."""
    records: int = 0
    """Input records that are done, dead letters included."""
    outputs: int = 0
    dead_letters: int = 0
    failures: int = 0
    """Failed attempts, whether or not a retry succeeded."""
    restarts: int = 0
    """How often a worker was started again."""
    lag: Mapping[TopicPartition, int] = field(default_factory=dict)
    """How many records are not done, of the partitions that the workers read."""
    error: str | None = None
    """Why it has failed."""


STOPPED_ELSEWHERE: Final = Progress("stopped")
"""Of a pool that another process has stopped, which has its counts."""


@ray.remote(num_cpus=0, max_restarts=0)
class WorkerActor:
    """One worker."""

    def __init__(self, spec: WorkerSpec, number: int) -> None:
        log_to_stderr()
        self._worker = Worker(spec, number)
        self._started = asyncio.Event()

    async def run(self) -> WorkerProgress:
        """As `Worker.run`; returns the last progress."""
        try:
            await self._worker.start()
            self._started.set()
            await self._worker.run()
            return self._worker.progress()
        finally:
            await self._worker.close()

    async def started(self) -> None:
        await self._started.wait()

    async def progress(self) -> WorkerProgress:
        return self._worker.progress()

    async def stop(self) -> None:
        self._worker.stop()


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class PoolActor:
    """Starts with its creation."""

    def __init__(self, spec: WorkerSpec, actor_options: Mapping[str, Any]) -> None:
        log_to_stderr()
        self._spec = spec
        self._actor_options = actor_options
        self._error: KafkaError | None = None
        self._stopping = False
        count = spec.settings.concurrency
        self._lives = [WorkerLife(partial(random.uniform, 0.8, 1.2)) for _ in range(count)]
        self._workers: dict[int, Any] = {}
        self._started: set[int] = set()
        self._ended: Counter[str] = Counter()
        """The counts of all actors that have ended, as they last reported them."""
        self._seen: dict[int, WorkerProgress] = {}
        self._ready, self._finished = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep(number)) for number in range(count)]
        self._tasks.append(loop.create_task(self._look()))

    async def ready(self) -> None:
        """Returns when all workers have started, or one has failed at a record. Raises any other error of the pool."""
        await self._ready.wait()
        if self._error is not None and getattr(self._error, "offset", None) is None:
            raise self._error

    async def progress(self) -> Progress:
        await self._ask()
        return self._progress()

    async def wait(self, seconds: float | None) -> bool:
        """Whether the pool has ended in time. Raises its error."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._finished.wait()
        if self._error is not None:
            raise self._error
        return self._finished.is_set()

    async def stop(self, seconds: float) -> Progress:
        """Have the workers end; those that do not in time are killed."""
        self._end(None)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._finished.wait()
        for worker in self._workers.values():
            ray.kill(worker)
        return self._progress()

    def _progress(self) -> Progress:
        total = self._ended.copy()
        lag: dict[TopicPartition, int] = {}
        for each in self._seen.values():
            total.update(asdict(each.counts))
            lag.update(each.lag)
        state = "running" if self._ready.is_set() else "starting"
        if self._error is not None:
            state = "failed"
        elif self._stopping:
            state = "stopped"
        return Progress(
            state,
            records=total["records"],
            outputs=total["outputs"],
            dead_letters=total["dead_letters"],
            failures=total["failures"],
            restarts=sum(life.restarts for life in self._lives),
            lag=lag,
            error=None if self._error is None else str(self._error),
        )

    async def _keep(self, number: int) -> None:
        """Run a worker again and again."""
        actor: Any = WorkerActor
        while not self._stopping:
            try:
                worker = self._workers[number] = actor.options(**self._actor_options).remote(self._spec, number)
            except (TypeError, ValueError) as error:
                self._end(ConfigError(f"actor_options={self._actor_options!r}: {error}"))
                return
            starting = asyncio.get_running_loop().create_task(self._note_start(number, worker))
            is_unavailable = False
            try:
                self._seen[number] = await worker.run.remote()
                ended = "stopped"
            except (ray.exceptions.RayActorError, FencedError) as error:
                ended = str(error)
            except ray.exceptions.RayTaskError as error:
                cause = _cause(error)
                is_unavailable = self._ready.is_set() and not starting.done() and _may_pass(cause)
                if not is_unavailable:
                    self._end(cause)
                    return
                ended = str(cause)
            except ray.exceptions.RayError as error:
                ended = str(error)
            finally:
                starting.cancel()
                if number in self._seen:
                    self._ended.update(asdict(self._seen.pop(number).counts))
                self._workers.pop(number, None)
                if self._stopping and not self._workers:
                    self._finished.set()
            if not self._stopping:
                await self._pause(number, ended, is_unavailable=is_unavailable)

    async def _pause(self, number: int, reason: str, *, is_unavailable: bool) -> None:
        life = self._lives[number]
        pause_ms = life.not_started() if is_unavailable else life.died()
        log.warning("worker ended", extra={"group": self._spec.settings.group_id, "worker": number, "reason": reason})
        if pause_ms is None:
            first = next(iter(reason.splitlines()), "")
            text = (
                f"worker {number} has ended {DEATHS_MAX} times in a row without committing anything; at last: {first}"
            )
            self._end(ProcessingError(text))
        else:
            await asyncio.sleep(pause_ms / 1000)

    async def _note_start(self, number: int, worker: Any) -> None:
        with suppress(ray.exceptions.RayError):
            await worker.started.remote()
            self._started.add(number)
            if len(self._started) == len(self._lives):
                self._ready.set()

    def _end(self, error: KafkaError | None) -> None:
        """Have all workers stop."""
        if self._error is None and not self._stopping:
            self._error = error
        self._stopping = True
        self._ready.set()
        for worker in self._workers.values():
            worker.stop.remote()
        if not self._workers:
            self._finished.set()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._ask()

    async def _ask(self) -> None:
        async def ask(number: int, worker: Any) -> None:
            with suppress(ray.exceptions.RayError, TimeoutError):
                async with asyncio.timeout(RESPONSE_SECONDS):
                    progress = await worker.progress.remote()
                if self._workers.get(number) is worker:
                    self._seen[number] = progress
                    if progress.counts.commits:
                        self._lives[number].committed()

        await asyncio.gather(*(ask(number, worker) for number, worker in list(self._workers.items())))


class Pool:
    """A running pool. It can be passed to tasks and actors; as a context manager it stops the pool."""

    def __init__(self, actor: Any) -> None:
        """Use `raylog.process` instead."""
        self._actor = actor
        self._last: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def progress(self) -> Progress:
        """What the pool has done so far; without counts if another process has stopped it."""
        return self._last or _get_unless_dead(self._actor.progress.remote(), otherwise=STOPPED_ELSEWHERE)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the pool ends, at most `timeout` seconds; returns whether it has. Raises why it has failed."""
        return self._last is not None or _get_unless_dead(self._actor.wait.remote(timeout), otherwise=True)

    def stop(self, timeout: float = STOP_SECONDS) -> Progress:
        """Finish the records that are being worked on, commit, leave the group, and end all actors.

        Workers that do not end within `timeout` seconds are killed; what they did not commit is done again by the next
        pool of the group. Can be called twice, also by several processes, and for a pool that has failed.
        """
        if self._last is None:
            self._last = _get_unless_dead(self._actor.stop.remote(timeout), otherwise=STOPPED_ELSEWHERE)
            ray.kill(self._actor)
            _kept[:] = [each for each in _kept if each != self._actor]
        return self._last


def process(
    topic: str | Iterable[str],
    work: Callable[..., Any],
    *,
    bootstrap_servers: str,
    group_id: str,
    concurrency: int = 1,
    output: str | None = None,
    delivery: str = AT_LEAST_ONCE,
    dead_letter_topic: str | None = None,
    retries: int = 3,
    retry_backoff_ms: int = 100,
    retry_backoff_max_ms: int = 10_000,
    commit_interval_ms: int = 1_000,
    arguments: Mapping[str, Any] | None = None,
    client_config: Mapping[str, Any] | None = None,
    consumer_config: Mapping[str, Any] | None = None,
    producer_config: Mapping[str, Any] | None = None,
    actor_options: Mapping[str, Any] | None = None,
) -> Pool:
    """Process the records of topics by a pool of Ray actors in one consumer group. It is running on return.

    `work` is a function of a record, a coroutine function, or a class, which is constructed once in each actor with
    `arguments` and has `__call__`, or `process_batch` for the records of a partition as a list. It returns None, or
    what is to be produced to `output`: a value, (key, value), an OutputRecord, or a list of these; `process_batch`
    returns one of these for each record. Records of a partition are worked on in order.

    With `delivery="at_least_once"` offsets are committed after the work; with "exactly_once" outputs and offsets are
    committed in transactions. A record that fails is worked on again `retries` times with growing pauses. Then it goes
    to `dead_letter_topic`, or without one the pool stops with a ProcessingError.

    `client_config`, `consumer_config` and `producer_config` have Kafka's keys; `actor_options` are Ray's for the actors
    of the workers, such as num_cpus. Raises ConfigError, KafkaError for a topic that does not exist, and
    ProcessingError if the work cannot be constructed.
    """
    settings = ProcessSettings(
        topics=(topic,) if isinstance(topic, str) else tuple(topic),
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        concurrency=concurrency,
        output=output,
        delivery=delivery,
        dead_letter_topic=dead_letter_topic,
        retries=retries,
        retry_backoff_ms=retry_backoff_ms,
        retry_backoff_max_ms=retry_backoff_max_ms,
        commit_interval_ms=commit_interval_ms,
        client_config=client_config or {},
        consumer_config=consumer_config or {},
        producer_config=producer_config or {},
    )
    spec = WorkerSpec(settings, _pickled(work, arguments or {}), arguments or {})
    if not ray.is_initialized():
        raise ConfigError(
            "this process is not connected to Ray: call ray.init(address=...) or raylog.connect(name) first"
        )
    _check_topics(settings)
    actor: Any = PoolActor
    made = actor.remote(spec, dict(actor_options or {}))
    try:
        _get(made.ready.remote())
    except BaseException:
        ray.kill(made)
        raise
    _kept.append(made)
    return Pool(made)


def _pickled(work: Callable[..., Any], arguments: Mapping[str, Any]) -> bytes:
    """Raises ConfigError."""
    if not callable(work) and not hasattr(work, "process_batch"):
        raise ConfigError(f"work={work!r}: must be a function or a class")
    if inspect.isclass(work) and not hasattr(work, "process_batch") and not _is_called(work):
        raise ConfigError(f"work={work.__qualname__}: a class must have __call__ or process_batch")
    if arguments and not inspect.isclass(work):
        raise ConfigError("arguments: are those of the constructor of a class, but work is none")
    try:
        dumps: Callable[[Any], bytes] = cloudpickle.dumps
        dumps(dict(arguments))
        pickled = dumps(work)
    except Exception as error:
        name = getattr(work, "__qualname__", type(work).__qualname__)
        text = f"work={name}: cannot be pickled: {error}; make clients, locks and files in the constructor of a class"
        raise ConfigError(text) from error
    return pickled


def _is_called(work: type) -> bool:
    return any("__call__" in vars(each) for each in work.__mro__)


def _check_topics(settings: ProcessSettings) -> None:
    """Raises ConfigError, and KafkaError if a topic does not exist."""
    config = {**settings.client_config, "bootstrap.servers": settings.bootstrap_servers}
    with Consumer({**config, "allow.auto.create.topics": False}) as consumer:
        for topic in settings.named_topics:
            try:
                consumer.partitions_for_topic(topic, timeout=TOPIC_SECONDS)
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                raise KafkaError(error.code, f"topic {topic!r} does not exist") from error


def _get(reference: Any) -> Any:
    """Raises what the actor has raised."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise _cause(error) from None


def _get_unless_dead(reference: Any, *, otherwise: Any) -> Any:
    """As `_get`; `otherwise` if the actor is dead and will not be restarted."""
    try:
        return _get(reference)
    except ray.exceptions.ActorDiedError:
        return otherwise


def _cause(error: Any) -> KafkaError:
    """What a task has raised."""
    cause = error.cause
    return (
        cause if isinstance(cause, KafkaError) else ProcessingError(f"a worker has failed: {cause!r}", trace=str(error))
    )


def _may_pass(error: KafkaError) -> bool:
    """Whether a worker that could be started before will be again; its cluster may be restarting.

    A name of which Ray knows no cluster is a ConfigError.
    """
    return error.code.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE or isinstance(error, ConfigError)
