"""The actor of a pool, with workers of the tests in place of Ray's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import ray
from ray.exceptions import RayActorError, RayTaskError

from raylog.actors import process
from raylog.client.errors import ProcessingError
from raylog.client.processing import supervision
from raylog.client.processing.settings import ProcessSettings
from raylog.client.processing.supervision import DEATHS_MAX
from raylog.client.processing.worker import WorkerProgress, WorkerSpec
from raylog.client.processing.worker_state import Counts
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from tests.support.hang import HANG_SECONDS

SPEC = WorkerSpec(ProcessSettings(topics=("t",), bootstrap_servers="h:1", group_id="g", concurrency=2), b"", {})
PROGRESS = WorkerProgress(Counts(records=5), {})
task_error: Callable[..., Exception] = RayTaskError
made_by_ray: Any = process.PoolActor
PoolActor: Callable[..., process.PoolActor] = made_by_ray.__ray_metadata__.modified_class


class Method:
    """`method.remote()` awaits `call`."""

    def __init__(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.call = call

    def remote(self) -> Any:
        return asyncio.ensure_future(self.call())


class FakeWorker:
    """It ends when it is asked to, or killed; it raises `failure` instead of starting."""

    def __init__(self, *, responds: bool, failure: KafkaError | None = None) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self.responds, self.failure = responds, failure
        self.run, self.started = Method(self._run), Method(self._start)
        self.progress, self.stop = Method(self._progress), Method(self._stop)

    async def _run(self) -> WorkerProgress:
        if self.failure is not None:
            raise task_error("run", "", self.failure)
        await self.ended
        return PROGRESS

    async def _start(self) -> None:
        if self.failure is not None:
            await self.ended

    async def _progress(self) -> WorkerProgress:
        if not self.responds:
            await self.ended
        return PROGRESS

    async def _stop(self) -> None:
        if self.responds:
            self.ended.set_result(None)


class FakeActor:
    """In place of the class of workers; `remote` makes the next one."""

    def __init__(self, *workers: Callable[[], FakeWorker]) -> None:
        self.workers = list(workers)
        self.made: list[FakeWorker] = []
        self.all_made = asyncio.Event()

    def options(self, **_: Any) -> FakeActor:
        return self

    def remote(self, _: WorkerSpec, __: int) -> FakeWorker:
        self.made.append(self.workers.pop(0)())
        if not self.workers:
            self.all_made.set()
        return self.made[-1]


def healthy() -> FakeWorker:
    return FakeWorker(responds=True)


def hanging() -> FakeWorker:
    return FakeWorker(responds=False)


def kill(worker: FakeWorker) -> None:
    if not worker.ended.done():
        worker.ended.set_exception(RayActorError())


def run(monkeypatch: pytest.MonkeyPatch, actor: FakeActor, test: Callable[[process.PoolActor], Any]) -> None:
    async def running() -> None:
        async with asyncio.timeout(HANG_SECONDS):
            await test(PoolActor(SPEC, {}))

    monkeypatch.setattr(process, "WorkerActor", actor)
    monkeypatch.setattr(ray, "kill", kill)
    monkeypatch.setattr(process, "RESPONSE_SECONDS", 0.1)
    asyncio.run(running())


def test_a_worker_that_does_not_respond_delays_neither_progress_nor_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    actor = FakeActor(healthy, hanging)

    async def test(pool: process.PoolActor) -> None:
        await pool.ready()
        progress = await pool.progress()
        assert (progress.state, progress.records) == ("running", 5)
        progress = await pool.stop(0.1)
        assert (progress.state, progress.records) == ("stopped", 5)
        assert all(worker.ended.done() for worker in actor.made)

    run(monkeypatch, actor, test)


def unstarted(failure: KafkaError) -> Callable[[], FakeWorker]:
    return lambda: FakeWorker(responds=False, failure=failure)


AWAY = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker responded")
MISSING = ConfigError("no cluster with this name is running in this Ray")
LOADING = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
DENIED = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
UNMADE = ProcessingError("the constructor has failed")


def test_a_worker_is_restarted_until_its_cluster_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = [unstarted(each) for each in (AWAY, MISSING, LOADING) * DEATHS_MAX]
    actor = FakeActor(healthy, healthy, *attempts, healthy)

    async def test(pool: process.PoolActor) -> None:
        await pool.ready()
        kill(actor.made[0])
        ends = [asyncio.create_task(each) for each in (actor.all_made.wait(), pool.wait(None))]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        progress = await pool.progress()
        assert (progress.state, progress.restarts) == ("running", 1 + len(attempts))
        await pool.stop(0)

    monkeypatch.setattr(supervision, "RESTART_BACKOFF_MAX_MS", 0)
    run(monkeypatch, actor, test)


@pytest.mark.parametrize("failure", [AWAY, MISSING])
def test_a_pool_that_has_never_started_ends_if_its_cluster_is_not_available(
    monkeypatch: pytest.MonkeyPatch, failure: KafkaError
) -> None:
    async def test(pool: process.PoolActor) -> None:
        with pytest.raises(KafkaError) as ended:
            await pool.ready()
        assert ended.value is failure

    run(monkeypatch, FakeActor(healthy, unstarted(failure)), test)


@pytest.mark.parametrize("failure", [DENIED, UNMADE])
def test_a_pool_ends_if_a_worker_cannot_be_started_again(monkeypatch: pytest.MonkeyPatch, failure: KafkaError) -> None:
    actor = FakeActor(healthy, healthy, unstarted(failure))

    async def test(pool: process.PoolActor) -> None:
        await pool.ready()
        kill(actor.made[0])
        with pytest.raises(KafkaError) as ended:
            await pool.wait(None)
        assert ended.value is failure

    run(monkeypatch, actor, test)
