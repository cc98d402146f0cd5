"""(shell) Topics as a sequence of bounded Ray Datasets, whose offsets a consumer group keeps (see `group_plan`)."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, Final, Self

import ray.data

from raylog.client import range_reader
from raylog.client.admin.admin_client import admin_client
from raylog.client.client_config import ClientConfig
from raylog.client.errors import AbortableError, ClientClosedError
from raylog.client.given_values import is_text, shown
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.client.producer.producer import Producer, producer_of
from raylog.core.config import INT_MAX
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.isolation import IsolationLevel
from raylog.raydp_bridge.arguments import checked_flag, optional_integer
from raylog.raydp_bridge.dataset import dataset_of
from raylog.raydp_bridge.group_plan import BatchPlan, GroupProgress, next_plan
from raylog.raydp_bridge.offset_ranges import OffsetRange, Resolved, plan_ranges
from raylog.raydp_bridge.partition_offsets import OFFSET_MAX
from raylog.raydp_bridge.ranges import after_loss_checks, bounds_of, offsets_of
from raylog.raydp_bridge.read_options import Limits, ReadOptions, StartingOffsets

CLIENT_ID = "raylog-dataset-stream"
POLL_INTERVAL_MS = 500.0
RENEW_SECONDS: Final = 600.0
"""How often a stream without records commits its offsets again, so that they do not expire."""


class DatasetBatch:
    """A bounded part of the topics. The batch with the same number has the same offsets, however often it is read."""

    def __init__(
        self, plan: BatchPlan, ranges: Sequence[OffsetRange], dataset: ray.data.Dataset, commit: Callable[[], None]
    ) -> None:
        self.batch_id = plan.batch_id
        """0, 1, 2, ... in the group."""
        self.ranges = tuple(ranges)
        """The offsets, one range for each read task."""
        self.dataset = dataset
        self._commit = commit

    def commit(self) -> None:
        """The batch is done: the group continues behind it. Raises KafkaError, FencedError if another stream of the
        group was opened since: then that one has the batch; with `fail_on_data_loss` also if a topic was deleted."""
        self._commit()


class DatasetStream:
    """Bounded Datasets, one after the other; an iterator and a context manager. See `stream_datasets`."""

    def __init__(
        self,
        options: ReadOptions,
        brokers: ClientConfig,
        group_id: str,
        *,
        stop_at_latest: bool,
        poll_interval_ms: float,
        concurrency: int | None,
    ) -> None:
        self._options = options
        self._brokers = brokers
        self._group_id = group_id
        self._stop_at_latest = stop_at_latest
        self._poll_interval_ms = poll_interval_ms
        self._concurrency = concurrency
        self._fixed: Mapping[TopicPartition, int] | None = None
        """With `stop_at_latest`, where the stream ends."""
        self._open: DatasetBatch | None = None
        """The batch that was returned and is not committed."""
        self._closed = threading.Event()
        self._producer: Producer | None = None
        self._stored: dict[TopicPartition, OffsetAndMetadata] = {}
        self._open_transaction: Mapping[TopicPartition, OffsetAndMetadata] | None = None
        """The offsets that it commits, empty if it is to be aborted. It stays open after a timeout."""
        self._topics = frozenset(options.subscription.names or ())
        self._gone: set[TopicPartition] = set()
        """Partitions with stored offsets that no longer exist, which has been reported."""
        self._renew_at_s = -math.inf
        """When the offsets of all partitions are to be committed again (monotonic)."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> DatasetBatch:
        """The next batch; waits until there are records. Raises KafkaError.

        It ends after `close`, which another thread may call, and with `stop_at_latest` where the topics ended first.
        """
        if self._open is not None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"batch {self._open.batch_id}: must be committed before the next"
            )
        while not self._closed.is_set():
            if (plan := self._next_plan()) is not None:
                ranges = plan_ranges(plan.starts, plan.ends, min_partitions=self._options.min_partitions)
                dataset = dataset_of(ranges, self._brokers, self._options, concurrency=self._concurrency)
                self._open = DatasetBatch(plan, ranges, dataset, partial(self._done, plan))
                return self._open
            if self._stop_at_latest:
                break
            self._closed.wait(self._poll_interval_ms / 1000)
        raise StopIteration

    def close(self) -> None:
        """A batch that is not committed is returned again by the next stream of the group."""
        self._closed.set()
        if self._producer is not None:
            self._producer.close()

    def _next_plan(self) -> BatchPlan | None:
        """The plan of the next batch, which is committed; None if there is nothing to read now."""
        self._end_transaction()
        progress = self._progress()
        progress.require_pending_in(self._topics, self._group_id)
        if progress.pending is not None:
            return progress.pending
        plan, self._fixed = after_loss_checks(
            partial(self._find_plan, progress), fail=self._options.fail_on_data_loss, pause=self._closed.wait
        )
        self._gone |= {tp for tp in progress.positions_in(self._topics) if tp not in plan.starts}
        due = not plan.is_empty or time.monotonic() >= self._renew_at_s
        self._commit(plan.announced(self._stored), renew=due)
        if due:
            self._renew_at_s = time.monotonic() + RENEW_SECONDS
        return None if plan.is_empty else plan

    def _find_plan(
        self, progress: GroupProgress
    ) -> tuple[tuple[BatchPlan, Mapping[TopicPartition, int] | None], Sequence[str]]:
        """The plan that follows now and, with `stop_at_latest`, where the stream ends; and what was lost."""
        options, fixed, positions = self._options, self._fixed, progress.positions_in(self._topics)
        bounds = bounds_of(options.subscription, self._brokers, all_exist=not positions)
        first = Resolved({}) if positions else offsets_of(options.starting, bounds, self._brokers)
        if self._stop_at_latest:
            fixed = ends = fixed or bounds.latest
            bounds = replace(bounds, latest={tp: min(end, ends[tp]) for tp, end in bounds.latest.items() if tp in ends})
        plan, losses = next_plan(progress, first, bounds, options.limits, topics=self._topics, gone=self._gone)
        return (plan, fixed), losses

    def _progress(self) -> GroupProgress:
        """That of the group. A stream that is opened ends the transaction of the one before, and fences it."""
        if self._producer is None:
            transactional_id = f"raylog-datasets-{self._group_id}"
            producer = producer_of(self._brokers, client_id=CLIENT_ID, transactional_id=transactional_id)
            try:
                producer.init_transactions()
                with admin_client(self._brokers, client_id=CLIENT_ID) as admin:
                    found = admin.list_consumer_group_offsets(self._group_id, require_stable=True)
            except BaseException:
                producer.close(0)
                raise
            self._producer = producer
            self._stored = {tp: each for tp, each in found.items() if each is not None}
        return GroupProgress.read(self._stored)

    def _done(self, plan: BatchPlan) -> None:
        if self._open is None or self._open.batch_id != plan.batch_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"batch {plan.batch_id}: is committed already")
        offsets = plan.done()
        gone = self._deleted_meanwhile(plan.batch_id, offsets.keys())
        self._commit({tp: each for tp, each in offsets.items() if tp not in gone})
        self._stored.update({tp: offsets[tp] for tp in gone})  # not committed: their part of the batch is done too
        self._gone |= gone
        self._open = None

    def _deleted_meanwhile(self, batch_id: int, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """The partitions of a batch that no longer exist; reports them. The brokers commit no offsets of theirs.

        Raises KafkaError, with `fail_on_data_loss` for each that no longer exists.
        """

        def find() -> tuple[frozenset[TopicPartition], list[str]]:
            counts = range_reader.partition_counts(self._brokers, sorted({tp.topic for tp in partitions}))
            gone = frozenset(tp for tp in partitions if tp.partition >= counts.get(tp.topic, 0))
            losses = [f"{tp} is gone" for tp in sorted(gone)]
            if losses and self._options.fail_on_data_loss:
                text = f"{'; '.join(losses)}. To commit the rest of the batch, set fail_on_data_loss=False"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"batch {batch_id}: {text}")
            return gone, losses

        return after_loss_checks(find, fail=False, pause=self._closed.wait)

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, renew: bool = False) -> None:
        """With `renew` also if they are those of the last commit."""
        if self._closed.is_set() or self._producer is None:
            raise ClientClosedError("the stream is closed")
        self._end_transaction()
        if not offsets or (not renew and all(self._stored.get(tp) == each for tp, each in offsets.items())):
            return  # also by a call before, which timed out
        self._producer.begin_transaction()
        self._open_transaction = {}
        try:
            self._producer.send_offsets_to_transaction(offsets, self._group_id)
        except KafkaError:
            self._end_transaction()
            raise
        self._open_transaction = offsets
        self._end_transaction()

    def _end_transaction(self) -> None:
        """Commit or abort the transaction if one is open. After a timeout the next call waits for the same end."""
        if self._producer is None or self._open_transaction is None:
            return
        if offsets := self._open_transaction:
            try:
                self._producer.commit_transaction()
            except AbortableError:
                self._open_transaction = {}
                self._end_transaction()
                raise
            self._stored.update(offsets)
            self._gone.difference_update(offsets)
        else:
            self._producer.abort_transaction()
        self._open_transaction = None


def stream_datasets(
    topic: str | Sequence[str],
    *,
    group_id: str,
    bootstrap_servers: str | None = None,
    client_config: Mapping[str, Any] | None = None,
    starting_offsets: StartingOffsets = "earliest",
    max_offsets_per_batch: int | None = None,
    stop_at_latest: bool = False,
    poll_interval_ms: float = POLL_INTERVAL_MS,
    columns: Sequence[str] | None = None,
    isolation_level: IsolationLevel | None = None,
    min_partitions: int | None = None,
    concurrency: int | None = None,
    skip_malformed: bool = False,
    fail_on_data_loss: bool = True,
) -> DatasetStream:
    """The records of a topic, or of several, as bounded Datasets, each of which is committed when it is done.

        for batch in raylog.stream_datasets("orders", group_id="features", bootstrap_servers=servers):
            batch.dataset.map_batches(features).write_parquet(f"/features/{batch.batch_id}")
            batch.commit()

    Before a batch is returned its offsets are committed to the group. A program that dies before `batch.commit()` gets
    the same batch again, with the same number and the same offsets, so that work which replaces the result of its batch
    has each record once. The group needs no members: one stream at a time reads it, and a newer one fences the older.
    The offsets of a group that no stream reads expire after offsets.retention.minutes of the brokers.

    A batch has at most `max_offsets_per_batch` offsets, or all that there are. `starting_offsets` is for a group
    without committed offsets in these topics; partitions that are added later are read from their beginning. The stream
    waits for records, and looks for them every `poll_interval_ms`, unless it is to `stop_at_latest`: then it ends at
    the offsets that are the latest at its first batch. Records that were deleted before they were read are an error, or
    with `fail_on_data_loss=False` a warning. The other arguments are those of `read_dataset`. Raises ConfigError.
    """
    if not is_text(group_id) or not group_id:
        raise ConfigError(f"group_id={shown(group_id)}: must be text that is not empty")
    limit = optional_integer("max_offsets_per_batch", max_offsets_per_batch, 1, OFFSET_MAX)
    is_number = isinstance(poll_interval_ms, Real) and not isinstance(poll_interval_ms, bool)
    if not is_number or not 0 < poll_interval_ms < threading.TIMEOUT_MAX:
        raise ConfigError(f"poll_interval_ms={shown(poll_interval_ms)}: must be a positive number of milliseconds")
    options = ReadOptions.of(
        topic,
        starting_offsets=starting_offsets,
        ending_offsets="latest",
        columns=columns,
        min_partitions=min_partitions,
        skip_malformed=skip_malformed,
        fail_on_data_loss=fail_on_data_loss,
        streaming=True,
    )
    return DatasetStream(
        replace(options, limits=Limits(limit)),
        ClientConfig.of(bootstrap_servers, client_config, isolation_level=isolation_level),
        group_id,
        stop_at_latest=checked_flag("stop_at_latest", stop_at_latest),
        poll_interval_ms=poll_interval_ms,
        concurrency=optional_integer("concurrency", concurrency, 1, INT_MAX),
    )
