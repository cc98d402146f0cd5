"""(shell) A topic as a Ray Dataset: the driver plans offset ranges, each read task reads one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import ray.data
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from raylog.client.client_config import ClientConfig
from raylog.core.config import INT_MAX
from raylog.protocol.records.arrow import arrow_schema
from raylog.protocol.records.isolation import IsolationLevel
from raylog.raydp_bridge.arguments import optional_integer
from raylog.raydp_bridge.offset_ranges import OffsetRange
from raylog.raydp_bridge.ranges import plan_read, read_range
from raylog.raydp_bridge.read_options import EndingOffsets, ReadOptions, StartingOffsets


def read_dataset(
    topic: str | Sequence[str],
    *,
    bootstrap_servers: str | None = None,
    client_config: Mapping[str, Any] | None = None,
    starting_offsets: StartingOffsets = "earliest",
    ending_offsets: EndingOffsets = "latest",
    starting_timestamp_ms: int | None = None,
    ending_timestamp_ms: int | None = None,
    columns: Sequence[str] | None = None,
    isolation_level: IsolationLevel | None = None,
    min_partitions: int | None = None,
    concurrency: int | None = None,
    skip_malformed: bool = False,
    fail_on_data_loss: bool = True,
) -> ray.data.Dataset:
    """The records of a topic, or of several, with the columns of Spark's Kafka source (`protocol.records.arrow`).

    `client_config` contains properties of Kafka's Java client, for listeners with TLS or a login; bootstrap.servers in
    it can stand for `bootstrap_servers`. Offsets are as in `read_topic`; a timestamp goes before them, and a partition
    without a record at or after it starts, or ends, at the latest offset. There is one read task per partition, or more
    with `min_partitions`; `concurrency` of them run at a time, and hold a few megabytes each. A task on the node of a
    partition's leader reads its mapped files. Columns that are not requested are not decoded. `isolation_level` is that
    of `client_config` by default, or read_committed: the records of aborted transactions are left out, and the latest
    offset is the last stable one. Requires Ray Data's packages (the extra `arrow`). A batch whose records cannot be
    decoded fails its task, unless `skip_malformed`: then it is skipped, and a warning in the log of the task names its
    offsets. Records that no longer exist are an error, or with `fail_on_data_loss=False` a warning. Raises ConfigError
    for invalid options, and KafkaError if a topic does not exist.
    """
    options = ReadOptions.of(
        topic,
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        columns=columns,
        min_partitions=min_partitions,
        skip_malformed=skip_malformed,
        fail_on_data_loss=fail_on_data_loss,
        starting_timestamp_ms=starting_timestamp_ms,
        ending_timestamp_ms=ending_timestamp_ms,
    )
    brokers = ClientConfig.of(bootstrap_servers, client_config, isolation_level=isolation_level)
    at_a_time = optional_integer("concurrency", concurrency, 1, INT_MAX)
    return dataset_of(plan_read(options, brokers), brokers, options, concurrency=at_a_time)


def dataset_of(
    ranges: Sequence[OffsetRange], brokers: ClientConfig, options: ReadOptions, *, concurrency: int | None
) -> ray.data.Dataset:
    """The rows of the ranges, each of which is read by a task."""
    if not ranges:
        return ray.data.from_arrow(arrow_schema(options.columns).empty_table())
    source = TopicDatasource(ranges, brokers, options)
    dataset: ray.data.Dataset = ray.data.read_datasource(
        source, override_num_blocks=len(ranges), concurrency=concurrency
    )
    return dataset


class TopicDatasource(Datasource):
    """The offset ranges of one plan."""

    def __init__(self, plan: Sequence[OffsetRange], brokers: ClientConfig, options: ReadOptions) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._plan = plan
        self._brokers = brokers
        self._options = options

    def get_name(self) -> str:
        return "raylog"

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        del parallelism, data_context  # the plan determines the number of tasks
        schema = arrow_schema(self._options.columns)
        return [
            ReadTask(
                partial(_read, each, self._brokers, self._options),
                BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None),
                schema=schema,
                per_task_row_limit=per_task_row_limit,
            )
            for each in self._plan
        ]


def _read(each: OffsetRange, brokers: ClientConfig, options: ReadOptions) -> Iterator[pa.Table]:
    for batch in read_range(
        each,
        brokers,
        options.columns,
        skip_malformed=options.skip_malformed,
        fail_on_data_loss=options.fail_on_data_loss,
    ):
        yield pa.Table.from_batches([batch])
