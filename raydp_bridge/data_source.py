"""(shell) The format "raylog" of Spark 4: `read`, `readStream`, `write`, `writeStream` by the Python Data Source API.

    raylog.raydp_bridge.register(spark)
    spark.readStream.format("raylog").options(**{"kafka.bootstrap.servers": servers, "subscribe": "flights"}).load()

Spark makes these objects in Python processes of the driver's machine, which plan, and sends the readers to the
executors, which read. Between two calls they keep nothing that Spark does not give back from the checkpoint, but the
time of the last batch and the offsets at which Trigger.AvailableNow stops.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from raylog.client import range_reader
from raylog.core.errors import ConfigError, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.arrow import arrow_schema
from raylog.raydp_bridge.admission import admit, hold
from raylog.raydp_bridge.arrow import spark_schema
from raylog.raydp_bridge.data_sink import BatchWriter, StreamWriter
from raylog.raydp_bridge.group_offsets import FORMAT, GroupOffsets
from raylog.raydp_bridge.micro_batches import ranges_between
from raylog.raydp_bridge.offset_ranges import Bounds, OffsetRange, Resolved, continue_from
from raylog.raydp_bridge.partition_offsets import EARLIEST, PartitionOffsets, parse_offsets
from raylog.raydp_bridge.ranges import (
    LOST_CODES,
    after_loss_checks,
    bounds_of,
    brokers_of,
    offsets_of,
    plan_read,
    read_range,
    report_losses,
)
from raylog.raydp_bridge.read_options import Limits, ReadOptions

log = logging.getLogger("raylog.spark")
_registered: WeakSet[SparkSession] = WeakSet()
Offsets = dict[str, dict[str, int]]
"""Offsets by topic and partition, as Spark writes them into the checkpoint: the JSON of its own Kafka source."""


def register(spark: SparkSession) -> None:
    """See `raylog.raydp_bridge.register`. Another call for the same session changes nothing."""
    if spark not in _registered:
        spark.dataSource.register(RaylogSource)  # type: ignore[attr-defined]  # unknown to Spark 3.5
        spark.streams.addListener(GroupOffsets(spark))
        _registered.add(spark)


@dataclass
class RangePartition(InputPartition):
    """What one task reads."""

    range: OffsetRange


class RaylogSource(DataSource):
    """One read or write, with the options of Spark's own Kafka source and sink."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        """Raises ConfigError for options with which there is neither a batch query nor a streaming query."""
        try:
            options = ReadOptions.parse(self.options, streaming=False)
        except ConfigError as in_batch:
            try:
                options = ReadOptions.parse(self.options, streaming=True)
            except ConfigError as in_stream:
                if in_stream.message == in_batch.message:
                    raise
                raise ConfigError(f"{in_batch.message}; in a streaming query: {in_stream.message}") from None
        return spark_schema(options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(ReadOptions.parse(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        return StreamReader(ReadOptions.parse(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802  # as above
        del overwrite  # set for output mode complete, in which each batch adds all rows of the table again
        return StreamWriter(self.options, schema, overwrite=False)


class TaskReader:
    """What the executors do; the base of both readers."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises ConfigError, and KafkaError if the brokers of a named cluster do not respond."""
        if schema != from_arrow_schema(arrow_schema(options.columns)):
            raise ConfigError(
                "the source has a fixed schema and cannot be set with a custom one; the option columns chooses columns"
            )
        self.options = options
        self.schema = schema
        self.brokers = brokers_of(options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):  # Spark plans one task if there is nothing to read
            return
        schema = to_arrow_schema(self.schema, timezone="UTC")  # type: ignore[call-arg]  # unknown to Spark 3.5
        for batch in read_range(
            partition.range,
            self.brokers,
            self.options.columns,
            skip_malformed=self.options.skip_malformed,
            fail_on_data_loss=self.options.fail_on_data_loss,
        ):
            yield batch.cast(schema)


class BatchReader(TaskReader, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return [RangePartition(each) for each in plan_read(self.options, self.brokers)]


class StreamReader(TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._initial: Offsets | None = None
        self._planned = False
        """Whether this process has planned a batch."""
        self._last_batch_s = -math.inf
        self._fixed: PartitionOffsets | None = None
        self._latest: PartitionOffsets = {}

    def initialOffset(self) -> Offsets:  # noqa: N802  # Spark's name
        """Where a query without a finished batch starts; Spark asks more than once and does not keep the answer."""
        if self._initial is None:
            for warning in self.options.warnings:
                log.warning("option ignored", extra={"reason": warning})
            found = offsets_of(self.options.starting, bounds_of(self.options.subscription, self.brokers), self.brokers)
            report_losses(found.losses, fail=self.options.fail_on_data_loss)
            self._initial = _to_spark(found.offsets)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        limits = self.options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        self._fixed = bounds_of(self.options.subscription, self.brokers, all_exist=False).latest

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802  # Spark's name
        """The end of the next batch; `start` if there is none yet."""
        is_first, self._planned = not self._planned and start == self._initial, True
        if is_first and self.options.starting.may_be_latest:
            # The latest offset is another one after a restart. So the first batch does nothing but store it.
            return start
        previous = _from_spark(start)
        reached, bounds = after_loss_checks(partial(self._reached, previous), fail=self.options.fail_on_data_loss)
        self._latest = bounds.latest
        available = bounds.latest if self._fixed is None else hold(bounds.latest, self._fixed)
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self.options.limits
        if self._fixed is not None:  # a batch that waits for more would end the query
            limits = replace(limits, min_offsets=None)
        now_s = time.monotonic()
        starts = {tp: reached.offsets[tp] for tp in available}
        ends = admit(starts, available, limits, waited_ms=(now_s - self._last_batch_s) * 1000)
        if ends == previous:
            return start
        self._last_batch_s = now_s
        return _to_spark(ends)

    def _reached(self, previous: PartitionOffsets) -> tuple[tuple[Resolved, Bounds], Sequence[str]]:
        """Where a batch after `previous` starts now, and what was lost."""
        bounds = bounds_of(self.options.subscription, self.brokers, all_exist=False)
        reached = continue_from(previous, bounds)
        return (reached, bounds), reached.losses

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802  # Spark's name
        return _to_spark(self._latest) if self._latest else None

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        previous, until = _from_spark(start), _from_spark(end)
        if start == self._initial:
            if self.options.starting.may_be_latest and not self._planned:
                return []  # the first batch again; see latestOffset
            previous = {tp: offset for tp, offset in previous.items() if tp in until}  # without those added since
        earliest = self._earliest(until.keys() - previous.keys())
        ranges, losses = ranges_between(previous, until, earliest, min_partitions=self.options.min_partitions)
        report_losses(losses, fail=self.options.fail_on_data_loss)
        return [RangePartition(each) for each in ranges]

    def _earliest(self, added: set[TopicPartition]) -> PartitionOffsets:
        """Of those that still exist."""
        found: dict[TopicPartition, int] = {}
        for tp in sorted(added):
            try:
                found |= range_reader.offsets_at(self.brokers, {tp: EARLIEST})
            except KafkaError as error:
                if error.code not in LOST_CODES:
                    raise
        return found


def _to_spark(offsets: PartitionOffsets) -> Offsets:
    """Equal offsets give equal texts, by which Spark compares them."""
    ordered: Offsets = {}
    for tp in sorted(offsets):
        ordered.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return ordered


def _from_spark(offsets: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Raises ConfigError if the checkpoint contains something else."""
    return parse_offsets("offsets in the checkpoint", json.dumps(offsets), least=0)
