"""(shell) Decides what each batch of a stream reads, when a task first asks for it, and keeps the decision.

Spark repeats a batch whose end it has not committed, in this process or in the next one. Its tasks ask for the same
number and get the same offsets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raylog.client import range_reader
from raylog.client.client_config import ClientConfig
from raylog.core.errors import ConfigError
from raylog.raydp_bridge.offset_ranges import Bounds, OffsetRange, Resolved, continue_from
from raylog.raydp_bridge.partition_offsets import PartitionOffsets
from raylog.raydp_bridge.plan_store import PlanStore
from raylog.raydp_bridge.ranges import TopicReader, after_loss_checks, bounds_of, offsets_of
from raylog.raydp_bridge.read_options import ReadOptions
from raylog.raydp_bridge.stream_plan import BatchPlan, plan_batch

BATCHES_KEPT = 2


@dataclass(frozen=True, slots=True)
class Stream:
    """What tasks and planner know of a stream."""

    location: str
    tasks: int
    options: ReadOptions
    brokers: ClientConfig
    reader: TopicReader = range_reader
    id: str = ""
    """Of one call of `read_stream`, whose options may differ from those of another one for the same location."""


class Planner:
    """Plans the batches of one stream. Threads may share it."""

    def __init__(self, stream: Stream, *, pause: Callable[[float], None] = time.sleep) -> None:
        """Raises ConfigError."""
        self._stream = stream
        self._store = PlanStore(stream.location)
        self._pause = pause
        self._lock = threading.Lock()
        self._query_id = ""
        """That of the plans, once it was compared."""
        self._shares: dict[int, list[list[OffsetRange]]] = {}
        """Of the last batches, since each of their tasks asks for them; a stored plan never changes."""
        self._until: PartitionOffsets | None = None
        self._last_trigger = float("-inf")
        """When the last batch with records was planned (monotonic)."""

    def ranges(self, batch: int, query_id: str | None = None) -> list[list[OffsetRange]]:
        """The ranges that each task of this batch reads; the same ones each time.

        Raises ConfigError if the plans do not belong to the checkpoint of the query, and KafkaError.
        """
        with self._lock:
            if query_id is not None and query_id != self._query_id:
                self._store.check_query(query_id)
                self._query_id = query_id
            shares = self._shares.get(batch)
            if shares is None:
                plan = self._store.get(batch) or self._store.add(batch, self._decide(batch))
                shares = plan.shares(self._stream.tasks, self._stream.options.min_partitions)
                self._shares[batch] = shares
                while len(self._shares) > BATCHES_KEPT:
                    del self._shares[next(iter(self._shares))]
        return shares

    def latest(self) -> PartitionOffsets:
        """The end of what can be read now. Raises KafkaError."""
        return bounds_of(self._stream.options.subscription, self._stream.brokers, self._stream.reader).latest

    def hold(self, until: PartitionOffsets | None) -> None:
        """Plan no further than this, for Trigger.AvailableNow; None for no end."""
        with self._lock:
            self._until = until

    def is_before(self, until: PartitionOffsets) -> bool:
        """Whether the last batch was not empty and ended before `until`, so that another one is to be read."""
        planned = self._store.batches()
        last = planned[max(planned)] if planned else None
        return last is None or (not last.is_empty and any(last.ends.get(tp, end) < end for tp, end in until.items()))

    def ends(self, batch: int) -> PartitionOffsets | None:
        """The end offsets of a planned batch."""
        plan = self._store.get(batch)
        return None if plan is None else plan.ends

    def _decide(self, batch: int) -> BatchPlan:
        previous = self._store.get(batch - 1) if batch else None
        if batch and previous is None:
            raise ConfigError(
                f"plan_location={self._store.location}: has no plan of batch {batch - 1}, which the checkpoint of the "
                "query requires. Use the plan location that the query was started with. If a function of foreachBatch "
                "did not read the DataFrame of that batch, begin with a new checkpoint and let it read each DataFrame"
            )
        starts, bounds = self._starts(previous)
        waited_ms = (time.monotonic() - self._last_trigger) * 1000
        limits = self._stream.options.limits
        plan = plan_batch(starts.offsets, bounds.latest, limits, waited_ms=waited_ms, until=self._until)
        if not plan.is_empty:
            self._last_trigger = time.monotonic()
        return plan

    def _starts(self, previous: BatchPlan | None) -> tuple[Resolved, Bounds]:
        """Where the next batch starts. A loss that is an error is raised at once: Spark repeats the task."""
        stream, options = self._stream, self._stream.options

        def find() -> tuple[tuple[Resolved, Bounds], Sequence[str]]:
            bounds = bounds_of(options.subscription, stream.brokers, stream.reader, all_exist=previous is None)
            if previous is None:
                starts = offsets_of(options.starting, bounds, stream.brokers, stream.reader)
            else:
                starts = continue_from(previous.ends, bounds)
            return (starts, bounds), starts.losses

        return after_loss_checks(find, fail=options.fail_on_data_loss, pause=self._pause)
