"""(shell) Topics as a streaming DataFrame on Spark 3.5, which has no streaming sources in Python.

    flights = read_stream(spark, {"kafka.bootstrap.servers": servers, "subscribe": "flights"}, plan_location="/plans/f")
    flights.groupBy(window("timestamp", "1 hour")).count().writeStream.option("checkpointLocation", "/checkpoints/f")...

Spark's source rate-micro-batch makes one row per task and batch, whose value says which batch and which task it is.
The task asks the planner (`planner.Planner`), a Ray actor of the driver, which offsets to read. Batches start, fail and
are repeated as Spark decides, so windows, watermarks and state work as with any source.

- Only the tasks know that a batch has started, and they may run on any node: hence an actor, and not the driver.
- The planner runs on the driver's node, which therefore needs the directory of the plans, as it needs that of the
  checkpoint. When the driver comes back on another node, both must be there, so both belong on a shared file system.
- The actor ends with the driver; a new driver starts another one. Ray restarts one that dies.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakSet

import pyarrow as pa
import ray
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.readwriter import DataStreamWriter
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raylog.actors.local_ray import join_ray
from raylog.client import range_reader
from raylog.client.admin.groups import alter_consumer_group_offsets
from raylog.client.blocking_calls import BlockingCalls, config_of
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.core.errors import ConfigError, KafkaError
from raylog.raydp_bridge.arrow import spark_schema
from raylog.raydp_bridge.offset_ranges import OffsetRange
from raylog.raydp_bridge.partition_offsets import PartitionOffsets
from raylog.raydp_bridge.plan_store import PlanStore
from raylog.raydp_bridge.planner import Planner, Stream
from raylog.raydp_bridge.ranges import TopicReader, bounds_of, brokers_of, offsets_of, read_range
from raylog.raydp_bridge.read_options import ReadOptions

log = logging.getLogger("raylog.spark")
CLIENT_ID = "raylog-stream"
COMMIT_SECONDS = 10.0
PLANNER_THREADS = 16
QUERY_ID_PROPERTY = "sql.streaming.queryId"
BATCH_ID_PROPERTY = "streaming.sql.batchId"


class PlannerAddress(NamedTuple):
    """How tasks reach the planner."""

    ray_address: str
    namespace: str
    name: str


def read_stream(
    spark: SparkSession,
    options: Mapping[str, Any],
    *,
    plan_location: str | os.PathLike[str],
    reader: TopicReader = range_reader,
) -> DataFrame:
    """The records that the options of Spark's own Kafka source select, as a streaming DataFrame with its columns.

    docs/spark.md lists the options. `plan_location` is a directory that belongs to the checkpoint of one query: it is
    kept, moved and deleted with it. The number of tasks per batch is that of the partitions when the stream begins, or
    minPartitions if that is more. A function of foreachBatch must read each DataFrame that it is given, since the first
    task of a batch has its offsets planned. Raises ConfigError for invalid options, and KafkaError if a topic does not
    exist when the stream begins.
    """
    if not ray.is_initialized():
        raise ConfigError("read_stream: this process is not connected to Ray; use raydp_bridge.session.spark_session")
    parsed = ReadOptions.parse(options, streaming=True)
    for warning in parsed.warnings:
        log.warning("option ignored", extra={"reason": warning})
    brokers = brokers_of(parsed)
    store = PlanStore(plan_location)
    begins = not store.batches()
    bounds = bounds_of(parsed.subscription, brokers, reader, all_exist=begins)
    if begins:
        offsets_of(
            parsed.starting, bounds, brokers, reader
        )  # only for its errors: the first batch determines its start
    wanted = max(1, len(bounds.latest), parsed.min_partitions or 1)
    tasks = store.open(str(parsed.subscription), wanted)
    stream = Stream(str(store.location), tasks, parsed, brokers, reader, uuid.uuid4().hex)
    _streams[stream.location] = stream
    _listen(spark)
    batches = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", tasks).option("numPartitions", tasks).load()
    )
    return batches.select("value").mapInArrow(_task(stream, _planner().address), spark_schema(parsed.columns))


def run_available_now(writer: DataStreamWriter, *, plan_location: str | os.PathLike[str]) -> None:
    """Read what is available now in batches of maxOffsetsPerTrigger, and return when all of them are finished.

    `writer` is that of a query over the stream with this plan location. By itself, `trigger(availableNow=True)` runs
    one batch on Spark 3.5. Raises what the query raises, and KafkaError.
    """
    stream = _streams.get(str(PlanStore(plan_location).location))
    if stream is None:
        raise ConfigError(f"plan_location={plan_location!r}: no stream with it was made by read_stream in this process")
    planner = _planner().actor
    until: PartitionOffsets | KafkaError = ray.get(planner.latest.remote(stream))
    if isinstance(until, KafkaError):
        raise until
    try:
        while True:
            ray.get(planner.hold.remote(stream, until))  # each time: it may have been restarted
            writer.trigger(availableNow=True).start().awaitTermination()
            if not ray.get(planner.is_before.remote(stream, until)):
                return
    finally:
        ray.get(planner.hold.remote(stream, None))


class _Planners:
    """The actor: the planners of all streams of a driver."""

    def __init__(self) -> None:
        self._planners: dict[str, Planner] = {}
        self._started: dict[tuple[str, int], tuple[Stream, int]] = {}
        """The latest batch of each query, by query and the number that Spark has given it."""
        self._warned: set[str] = set()
        """Queries whose offsets could not be committed."""
        self._lock = threading.Lock()

    def ranges(
        self, stream: Stream, batch: int, task: int, query_id: str | None, batch_id: str | None
    ) -> list[OffsetRange] | KafkaError:
        """An error is returned, since Ray would wrap what is raised."""
        try:
            shares = self._planner(stream).ranges(batch, query_id)
        except KafkaError as error:
            return error
        if query_id and batch_id:
            with self._lock:
                self._started[query_id, int(batch_id)] = stream, batch
        return shares[task]

    def finished(self, query_id: str, batch_id: int) -> None:
        """Commit the end offsets of a batch to the group of the query, for tools that show the lag of groups."""
        with self._lock:
            found = self._started.get((query_id, batch_id))
            for each in [key for key in self._started if key[0] == query_id and key[1] <= batch_id]:
                del self._started[each]
        ends = None if found is None else self._planner(found[0]).ends(found[1])
        if found is None or not ends:
            return
        try:
            with BlockingCalls(config_of(found[0].brokers, client_id=CLIENT_ID)) as calls:
                offsets = {tp: OffsetAndMetadata(end) for tp, end in ends.items()}
                calls.run(alter_consumer_group_offsets(f"spark-{query_id}", offsets), COMMIT_SECONDS)
        except KafkaError as error:  # the offsets are for display only
            if query_id not in self._warned:
                log.warning("offsets not committed", extra={"query": query_id, "reason": error.message})
            self._warned.add(query_id)

    def latest(self, stream: Stream) -> PartitionOffsets | KafkaError:
        try:
            return self._planner(stream).latest()
        except KafkaError as error:
            return error

    def hold(self, stream: Stream, until: PartitionOffsets | None) -> None:
        self._planner(stream).hold(until)

    def is_before(self, stream: Stream, until: PartitionOffsets) -> bool:
        return self._planner(stream).is_before(until)

    def _planner(self, stream: Stream) -> Planner:
        with self._lock:
            planner = self._planners.get(stream.id)
            if planner is None:
                planner = self._planners[stream.id] = Planner(stream)
            return planner


class _RunningPlanner(NamedTuple):
    address: PlannerAddress
    actor: Any
    """While it is referred to, the actor lives."""


_streams: dict[str, Stream] = {}
"""By location: those of this process."""
_planners: dict[str, _RunningPlanner] = {}
"""By the id of the job, of which a process has another one after each `ray.init`."""


def _planner() -> _RunningPlanner:
    """The planner of this driver, which is started by its first stream."""
    context = ray.get_runtime_context()
    job = context.get_job_id()
    if job not in _planners:
        name = f"raylog-planner-{uuid.uuid4().hex}"
        actor = (
            ray.remote(_Planners)
            .options(
                name=name,
                num_cpus=0,
                max_restarts=-1,
                max_task_retries=-1,
                max_concurrency=PLANNER_THREADS,
                scheduling_strategy=NodeAffinitySchedulingStrategy(context.get_node_id(), soft=False),
            )
            .remote()
        )
        _planners[job] = _RunningPlanner(PlannerAddress(context.gcs_address, context.namespace, name), actor)
    return _planners[job]


def _task(stream: Stream, planner: PlannerAddress) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The function for the executors: it takes rows that number batch and task, and returns record columns."""
    options, brokers = stream.options, stream.brokers

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in numbers:
            for value in rows.column(0).to_pylist():
                for each in _ask(planner, stream, *divmod(value, stream.tasks)):
                    yield from read_range(
                        each,
                        brokers,
                        options.columns,
                        stream.reader,
                        skip_malformed=options.skip_malformed,
                        fail_on_data_loss=options.fail_on_data_loss,
                    )

    return read


def _ask(planner: PlannerAddress, stream: Stream, batch: int, task: int) -> list[OffsetRange]:
    """What this task of this batch reads. Raises KafkaError."""
    if not ray.is_initialized():
        join_ray(planner.ray_address)
    context = TaskContext.get()
    query_id, batch_id = (
        None if context is None else context.getLocalProperty(name) for name in (QUERY_ID_PROPERTY, BATCH_ID_PROPERTY)
    )
    actor: Any = ray.get_actor(planner.name, namespace=planner.namespace)
    answer: list[OffsetRange] | KafkaError = ray.get(actor.ranges.remote(stream, batch, task, query_id, batch_id))
    if isinstance(answer, KafkaError):
        raise answer
    return answer


class _Finished(StreamingQueryListener):
    """Tells the planner which batches are finished."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        planner = _planners.get(ray.get_runtime_context().get_job_id()) if ray.is_initialized() else None
        if planner is not None:
            planner.actor.finished.remote(str(event.progress.id), event.progress.batchId)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


_listened: WeakSet[SparkSession] = WeakSet()


def _listen(spark: SparkSession) -> None:
    """Once for each session: a listener hears of the queries of its own session only."""
    if spark not in _listened:
        _listened.add(spark)
        spark.streams.addListener(_Finished())
