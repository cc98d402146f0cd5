"""(shell) The program's work, in a thread of its own: it may take long, and block, without harm to the clients."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import Any

from raylog.client.consumer.fetched import ConsumerRecord
from raylog.client.errors import ProcessingError
from raylog.client.processing.records import Failure, OutputRecord, outputs_of
from raylog.client.processing.worker_state import Batch, Result

BATCH_METHOD = "process_batch"


class WorkThread:
    """A function is called for each record; a class is constructed once, in the same thread as its calls."""

    def __init__(self, pickled: bytes, arguments: Mapping[str, Any], output: str | None) -> None:
        """`pickled` is the function or class, `arguments` are those of the constructor."""
        self._pickled = pickled
        self._arguments = arguments
        self._output = output
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="raylog-process")
        self._halted = threading.Event()
        self._results: deque[Result] = deque()
        self._work: Any = None
        self._takes_batches = False
        self._runner: asyncio.Runner | None = None
        """For coroutine functions; they run side by side, one for each partition."""
        self.name = "work"

    def construct(self) -> Future[None]:
        """Raises ProcessingError."""
        return self._thread.submit(self._construct)

    def run(self, batches: Sequence[Batch], slice_ms: int) -> Future[None]:
        """Work on the first records of each batch: up to its first failure, and as far as the time slice permits."""
        self._halted.clear()
        return self._thread.submit(self._run, batches, slice_ms)

    def take_results(self) -> list[Result]:
        """What has ended since the last call, also while a run is in progress."""
        return [self._results.popleft() for _ in range(len(self._results))]

    def halt(self) -> None:
        """End the run after the current record. Any thread may call it."""
        self._halted.set()

    def close(self) -> None:
        """Call the work's `close`, if it has one, after the current record; does not wait."""
        self._halted.set()
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    # --- in the thread

    def _construct(self) -> None:
        try:
            work = pickle.loads(self._pickled)
        except Exception as error:
            raise _failed("the work cannot be unpickled in a worker", error) from None
        self.name = getattr(work, "__qualname__", type(work).__qualname__)
        if inspect.isclass(work):
            try:
                work = work(**self._arguments)
            except BaseException as error:
                raise _failed(f"the constructor of {self.name} has failed", error) from None
        self._work = work
        self._takes_batches = hasattr(work, BATCH_METHOD)
        called = work.process_batch if self._takes_batches else work
        if inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(type(called).__call__):
            self._runner = asyncio.Runner()

    def _run(self, batches: Sequence[Batch], slice_ms: int) -> None:
        end = monotonic() + slice_ms / 1000
        began = False

        def goes_on() -> bool:
            """At least one record is worked on."""
            nonlocal began
            first, began = not began, True
            return first or (not self._halted.is_set() and monotonic() < end)

        if self._runner is not None:
            self._runner.run(_side_by_side([self._run_batch(batch, goes_on) for batch in batches]))
        else:
            for batch in batches:
                _finish(self._run_batch(batch, goes_on))

    async def _run_batch(self, batch: Batch, goes_on: Callable[[], bool]) -> None:
        lane, records, results = batch.lane, batch.records, self._results
        one_by_one = bool(batch.refused) or records[0].offset < lane.one_by_one_until
        if self._takes_batches and not one_by_one and len(records) > 1 and goes_on():
            found = await self._call(list(records))
            if not isinstance(found, Failure):
                results += [Result(lane, record, outputs) for record, outputs in zip(records, found, strict=True)]
                return
            lane.one_by_one_until = records[-1].offset + 1
        for record in records:
            if not goes_on():
                return
            found = batch.refused.get(record.offset) or await self._call([record])
            if isinstance(found, Failure):
                lane.one_by_one_until = record.offset + 1
                results.append(Result(lane, record, failure=found))
                return
            results.append(Result(lane, record, found[0]))

    async def _call(self, records: list[ConsumerRecord]) -> list[list[OutputRecord]] | Failure:
        """The outputs of each record; it is one unless the work takes batches."""
        try:
            result = self._work.process_batch(records) if self._takes_batches else self._work(records[0])
            if self._runner is not None and inspect.isawaitable(result):
                result = await result
            return self._each_of(result, len(records)) if self._takes_batches else [outputs_of(result, self._output)]
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # also SystemExit, CancelledError of an inner task, and panics of extensions
            return Failure.of(error, trace="".join(traceback.format_exception(error)))

    def _each_of(self, results: Any, count: int) -> list[list[OutputRecord]]:
        """What `process_batch` has returned, for each record. Raises TypeError."""
        if results is None:
            return [[] for _ in range(count)]
        found = list(results)
        if len(found) != count:
            raise TypeError(
                f"{BATCH_METHOD} returned {len(found)} results for {count} records: it must return one each"
            )
        return [outputs_of(each, self._output) for each in found]

    def _close(self) -> None:
        try:
            close = getattr(self._work, "close", None)
            if close is not None:
                close()
        finally:
            if self._runner is not None:
                self._runner.close()


async def _side_by_side(batches: Sequence[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*batches)


def _finish(batch: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that awaits nothing, outside of any loop, so that the work may run one."""
    try:
        batch.send(None)
    except StopIteration:
        return
    raise AssertionError("work that is no coroutine function has awaited something")


def _failed(what: str, error: BaseException) -> ProcessingError:
    trace = "".join(traceback.format_exception(error))
    return ProcessingError(f"{what}: {error!r}", cause=Failure.of(error).error_class, trace=trace)
