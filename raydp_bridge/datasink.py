"""(shell) A Ray Dataset to topics: at least once, or exactly once for a job that is run again after a failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from ray.data import DataContext, Datasink
from ray.data._internal.execution.interfaces import TaskContext
from ray.data.block import Block, BlockAccessor
from ray.data.datasource.datasink import WriteResult

from raylog.core.config import SHORT_MAX
from raylog.core.errors import ConfigError
from raylog.raydp_bridge.arguments import checked_integer, optional_integer
from raylog.raydp_bridge.sinks.columns import SPARK_TYPES, sink_columns
from raylog.raydp_bridge.sinks.exactly_once import BATCH_ID_MAX, SinkId, check_tasks
from raylog.raydp_bridge.sinks.progress_topic import fix_tasks
from raylog.raydp_bridge.sinks.target import SinkTarget
from raylog.raydp_bridge.sinks.task_writer import TaskResult, write_at_least_once, write_exactly_once

_PARTITION: Final = "partition"
Written = Counter[str] | TaskResult
"""Of one task: the number of records of each topic, or which task has written its rows."""


class TopicDatasink(Datasink[Written]):
    """Writes each row as a record, by `dataset.write_datasink(raylog.TopicDatasink(...))`.

    The columns are those of Spark's Kafka sink: `value` and `key` (text or bytes), `partition`, `headers` (a list of
    key and value), and `topic`, which is ignored if the argument names the topic; only `value` is required, and other
    columns are ignored. Rows without a partition go to that of their key's hash.

    Without `job_id` each task has an idempotent producer. A task that fails is started again and writes all of its rows
    again: at least once.

    With `job_id` each row is written exactly once, for consumers with isolation.level=read_committed, however often a
    task or the whole job is started again. Task k writes its rows in one transaction of the transactional id
    `<job id>-dataset-<k>`; the tasks commit one after another. Partition k of the compacted topic
    `<job id>-dataset-progress` has the last batch that the task has written, so a job writes its batches in the order
    of `batch_id`: 0, 1, 2, ..., those of `stream_datasets` for example, or just 0. `tasks` is the same for all batches
    of a job, and at least the number of the Dataset's blocks: `dataset.repartition(tasks)`. When a batch is repeated,
    each block must have the rows of the first time, or the job fails: the Dataset must be deterministic, and executed
    with `DataContext.get_current().execution_options.preserve_order = True`.
    """

    def __init__(
        self,
        topic: str | None = None,
        *,
        bootstrap_servers: str | None = None,
        client_config: Mapping[str, Any] | None = None,
        producer_config: Mapping[str, Any] | None = None,
        job_id: str | None = None,
        tasks: int | None = None,
        batch_id: int = 0,
        replication_factor: int | None = None,
    ) -> None:
        """`client_config` contains properties of Kafka's Java client, for listeners with TLS or a login;
        `producer_config` further keys of a producer. Raises ConfigError."""
        self._target = SinkTarget.of(
            topic,
            bootstrap_servers=bootstrap_servers,
            client_config=client_config,
            producer_config=producer_config,
            exactly_once=job_id is not None,
        )
        self._sink = None if job_id is None else SinkId(job_id, "dataset")
        self._tasks = _tasks(job_id, tasks)
        self._batch_id = checked_integer("batch_id", batch_id, 0, BATCH_ID_MAX)
        self._replication_factor = optional_integer("replication_factor", replication_factor, 1, SHORT_MAX)

    def get_name(self) -> str:
        return "raylog"

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """In the driver, before the tasks. Raises ConfigError and KafkaError."""
        if isinstance(schema, pa.Schema):
            _columns(schema, self._target.topic)
        self._target.require_topic()
        if self._sink is not None:
            if not DataContext.get_current().execution_options.preserve_order:
                raise ConfigError(
                    "job_id: requires DataContext.get_current().execution_options.preserve_order = True, or a batch "
                    "that is repeated would have other rows in its tasks"
                )
            self._fix_tasks(self._sink)

    def write(self, blocks: Iterable[Block], ctx: TaskContext) -> Written:
        """In a task, which may be started again. Raises KafkaError."""
        batches = (batch for block in blocks for batch in _batches(block, self._target.topic))
        if self._sink is None:
            return write_at_least_once(batches, self._target)
        if ctx.task_idx >= self._tasks:
            text = f"tasks={self._tasks}: the Dataset has more blocks; use dataset.repartition({self._tasks})"
            raise ConfigError(text)
        return self._write_exactly_once(self._sink, batches, ctx.task_idx)

    def on_write_complete(self, write_result: WriteResult[Written]) -> None:
        """In the driver: the tasks for which there were no blocks have written the batch too. Raises KafkaError."""
        if self._sink is not None:
            self._fix_tasks(self._sink)
            written = {each.task for each in write_result.write_returns if isinstance(each, TaskResult)}
            for task in set(range(self._tasks)) - written:
                self._write_exactly_once(self._sink, iter(()), task)

    def _fix_tasks(self, sink: SinkId) -> None:
        fix_tasks(
            self._target.brokers,
            sink,
            self._batch_id,
            tasks=self._tasks,
            default_tasks=self._tasks,
            replication_factor=self._replication_factor,
        )

    def _write_exactly_once(self, sink: SinkId, batches: Iterator[pa.RecordBatch], task: int) -> TaskResult:
        return write_exactly_once(batches, self._target, sink, task=task, tasks=self._tasks, batch_id=self._batch_id)


def _tasks(job_id: str | None, tasks: int | None) -> int:
    if (job_id is None) != (tasks is None):
        raise ConfigError("job_id and tasks: must be given together")
    return check_tasks(tasks, None, default=1)


def _batches(block: Block, topic: str | None) -> Iterator[pa.RecordBatch]:
    table: pa.Table = BlockAccessor.for_block(block).to_arrow()
    if not table.num_rows:
        return
    table = table.select(_columns(table.schema, topic))
    if _PARTITION in table.schema.names:
        column = table.schema.get_field_index(_PARTITION)
        table = table.set_column(column, _PARTITION, table[_PARTITION].cast(pa.int32()))
    yield from table.to_batches()


def _columns(schema: pa.Schema, topic: str | None) -> list[str]:
    """Those that are written. Raises ConfigError."""
    return sink_columns([(field.name, _spark_type(field)) for field in schema], topic)


def _spark_type(field: pa.Field) -> str:
    """The type for which it can stand, as Spark writes it, or its own name."""
    kind = field.type
    if pa.types.is_null(kind) or field.name == "headers":
        return SPARK_TYPES.get(field.name, ("null",))[0]
    for is_type, name in _IS_TYPE.items():
        if is_type(kind):
            return name
    return str(kind)


_IS_TYPE: Final[Mapping[Any, str]] = {
    pa.types.is_string: "string",
    pa.types.is_large_string: "string",
    pa.types.is_string_view: "string",
    pa.types.is_binary: "binary",
    pa.types.is_large_binary: "binary",
    pa.types.is_binary_view: "binary",
    pa.types.is_integer: "int",
}
