"""(shell) DataFrames to topics, with the columns of Spark's Kafka sink: at least once, or exactly once for a stream."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from raylog.client.given_values import checked_mapping, shown
from raylog.core.config import LONG_MAX, SHORT_MAX
from raylog.core.errors import ConfigError
from raylog.raydp_bridge.arguments import checked_integer, optional_integer
from raylog.raydp_bridge.sinks.columns import sink_columns
from raylog.raydp_bridge.sinks.exactly_once import SinkId, check_tasks
from raylog.raydp_bridge.sinks.progress_topic import fix_tasks
from raylog.raydp_bridge.sinks.spool import SPOOL_BYTES
from raylog.raydp_bridge.sinks.target import SinkTarget
from raylog.raydp_bridge.sinks.task_writer import TaskResult, write_at_least_once, write_exactly_once

_COUNTS: Final = "topic string, records bigint"
_RESULTS: Final = "task int, records bigint, written boolean"
_QUERY_ID: Final = "sql.streaming.queryId"
_SPECULATION: Final = "spark.speculation"
Write = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


class WrittenRecords(NamedTuple):
    """What was written; what attempts of tasks that have failed wrote is not counted."""

    records: int
    by_topic: dict[str, int]


class WrittenBatch(NamedTuple):
    """What became of a batch."""

    records: int
    """Of the whole batch, whenever they were written."""
    tasks: int
    tasks_written_before: int
    """Tasks whose rows an earlier attempt of the batch had written."""


def write_topic(
    df: DataFrame,
    topic: str | None = None,
    *,
    bootstrap_servers: str | None = None,
    client_config: Mapping[str, Any] | None = None,
    producer_config: Mapping[str, Any] | None = None,
) -> WrittenRecords:
    """Write each row as a record, at least once, with one idempotent producer for each task of `df`.

    The columns are those of Spark's Kafka sink: `value` and `key` (string or binary), `partition` (int), `headers`
    (array<struct<key: string, value: binary>>), and `topic` (string), which is ignored if the argument names the topic;
    only `value` is required, and other columns are ignored. Rows without a partition go to that of their key's hash.
    `client_config` contains properties of Kafka's Java client, for listeners with TLS or a login; `producer_config`
    further keys of a producer, such as compression.type.

    A task that fails is started again by Spark, and writes all of its rows again. Raises ConfigError for wrong columns
    and options, and KafkaError if the topic does not exist, before a task starts; a record that was refused fails its
    task with Kafka's error.
    """
    columns = sink_columns(df.dtypes, topic)
    target = SinkTarget.of(
        topic, bootstrap_servers=bootstrap_servers, client_config=client_config, producer_config=producer_config
    )
    target.require_topic()
    counts: Counter[str] = Counter()
    for row in df.select(*columns).mapInArrow(_at_least_once(target), _COUNTS).collect():
        counts[row["topic"]] += row["records"]
    return WrittenRecords(counts.total(), dict(counts))


def write_stream(
    df: DataFrame,
    topic: str | None = None,
    *,
    checkpoint_location: str | os.PathLike[str],
    sink: str = "sink",
    tasks: int | None = None,
    bootstrap_servers: str | None = None,
    client_config: Mapping[str, Any] | None = None,
    producer_config: Mapping[str, Any] | None = None,
    output_mode: str = "append",
    trigger: Mapping[str, Any] | None = None,
    query_name: str | None = None,
) -> StreamingQuery:
    """Start a query that writes each row of a streaming DataFrame exactly once, by `ExactlyOnceSink`.

    `trigger` has the arguments of Spark's `trigger`, such as `{"availableNow": True}`. The other arguments are those of
    `write_topic` and of `ExactlyOnceSink`. Raises ConfigError, and KafkaError if the topic does not exist.
    """
    location: Any = checkpoint_location
    if not isinstance(location, (str, os.PathLike)) or not os.fspath(location):
        raise ConfigError(f"checkpoint_location={shown(location)}: must be the directory of the query's checkpoint")
    if trigger is not None:
        checked_mapping("trigger", trigger)
    sink_columns(df.dtypes, topic)
    _check_speculation(df)
    writes = ExactlyOnceSink(
        topic,
        sink=sink,
        tasks=tasks,
        bootstrap_servers=bootstrap_servers,
        client_config=client_config,
        producer_config=producer_config,
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        writes.write(batch, batch_id)

    writer = df.writeStream.foreachBatch(write).outputMode(output_mode)
    writer = writer.option("checkpointLocation", os.fspath(checkpoint_location))
    if trigger:
        writer = writer.trigger(**trigger)
    if query_name is not None:
        writer = writer.queryName(query_name)
    return writer.start()


class ExactlyOnceSink:
    """Writes the batches of a streaming query, for use in a function of foreachBatch. Each row is written exactly once.

    That holds for what consumers with isolation.level=read_committed read, however often tasks, batches and the query
    are started again with the same checkpoint. Each task writes its rows in one transaction; the tasks of a batch
    commit one after another, so the batch as a whole is not atomic. The order of rows is not kept.

    The rows are divided among `tasks` tasks by their content; the first batch fixes the number, by default
    `spark.default.parallelism`, in the progress topic `<query id>-<sink>-progress`, which is created with
    `replication_factor` replicas and must be kept as long as the checkpoint. The rows of a batch must be the same when
    Spark repeats it: a task whose rows have changed fails. Several sinks of one query have different names `sink`.
    Every batch must be written to each of them, also one without rows, beginning with `first_batch`.
    """

    def __init__(
        self,
        topic: str | None = None,
        *,
        sink: str = "sink",
        tasks: int | None = None,
        bootstrap_servers: str | None = None,
        client_config: Mapping[str, Any] | None = None,
        producer_config: Mapping[str, Any] | None = None,
        replication_factor: int | None = None,
        first_batch: int = 0,
        spool_bytes: int = SPOOL_BYTES,
    ) -> None:
        """Rows of a task beyond `spool_bytes` wait in a temporary file. Raises ConfigError, and KafkaError if the topic
        does not exist."""
        self._target = SinkTarget.of(
            topic,
            bootstrap_servers=bootstrap_servers,
            client_config=client_config,
            producer_config=producer_config,
            exactly_once=True,
        )
        SinkId("any", sink, first_batch)
        check_tasks(tasks, None, default=1)
        self._sink = sink
        self._first_batch = first_batch
        self._tasks = tasks
        self._replication_factor = optional_integer("replication_factor", replication_factor, 1, SHORT_MAX)
        self._spool_bytes = checked_integer("spool_bytes", spool_bytes, 0, LONG_MAX)
        self._target.require_topic()

    def write(self, batch: DataFrame, batch_id: int, *, query_id: str | None = None) -> WrittenBatch:
        """Write the rows of this batch, unless they were written. Without `query_id`, the id of the running query.

        Raises ConfigError for wrong columns and options, BatchRefused if the batch does not follow the one before; a
        record that was refused fails its task with Kafka's error.
        """
        columns = sink_columns(batch.dtypes, self._target.topic)
        _check_speculation(batch)
        context = batch.sparkSession.sparkContext
        job_id = query_id or context.getLocalProperty(_QUERY_ID)
        if not job_id:
            raise ConfigError("query_id: must be given for a batch that is not one of a streaming query")
        sink = SinkId(job_id, self._sink, self._first_batch)
        tasks = fix_tasks(
            self._target.brokers,
            sink,
            batch_id,
            tasks=self._tasks,
            default_tasks=context.defaultParallelism,
            replication_factor=self._replication_factor,
        )
        task = _exactly_once(self._target, sink, tasks, batch_id, self._spool_bytes)
        rows = batch.select(*columns).repartition(tasks, *columns).mapInArrow(task, _RESULTS).collect()
        results = {row["task"]: TaskResult(*row) for row in rows}
        for missing in set(range(tasks)) - results.keys():  # Spark starts no task for a plan that it knows to be empty
            results[missing] = write_exactly_once(
                (), self._target, sink, task=missing, tasks=tasks, batch_id=batch_id, spool_bytes=self._spool_bytes
            )
        records = sum(result.rows for result in results.values())
        return WrittenBatch(records, tasks, sum(not result.written for result in results.values()))


def _check_speculation(df: DataFrame) -> None:
    """Raises ConfigError: two attempts of a task would fence each other."""
    if df.sparkSession.sparkContext.getConf().get(_SPECULATION, "false") == "true":
        raise ConfigError(f"{_SPECULATION}=true: must be false for a sink that writes exactly once")


def _at_least_once(target: SinkTarget) -> Write:
    """The function for the executors."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = write_at_least_once(batches, target)
        columns = [pa.array(list(counts), pa.string()), pa.array(list(counts.values()), pa.int64())]
        yield pa.RecordBatch.from_arrays(columns, ["topic", "records"])

    return write


def _exactly_once(target: SinkTarget, sink: SinkId, tasks: int, batch_id: int, spool_bytes: int) -> Write:
    """The function for the executors."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        result = write_exactly_once(
            batches,
            target,
            sink,
            task=context.partitionId(),
            tasks=tasks,
            batch_id=batch_id,
            spool_bytes=spool_bytes,
        )
        columns = [
            pa.array([result.task], pa.int32()),
            pa.array([result.rows], pa.int64()),
            pa.array([result.written], pa.bool_()),
        ]
        yield pa.RecordBatch.from_arrays(columns, ["task", "records", "written"])

    return write
