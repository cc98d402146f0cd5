"""(shell) The format "raylog" of Spark 4 as a sink: `df.write` and `df.writeStream`, at least once.

Spark does not tell the tasks of a Python data source which batch their rows belong to, so a task that is started again
writes its rows again. `sink.write_stream` writes exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from raylog.core.errors import ConfigError
from raylog.raydp_bridge.sinks.columns import sink_columns
from raylog.raydp_bridge.sinks.target import SinkTarget
from raylog.raydp_bridge.sinks.task_writer import write_at_least_once

_KAFKA: Final = "kafka."
_SERVERS: Final = "kafka.bootstrap.servers"
_OF_SPARK: Final = ("checkpointlocation", "path", "queryname")
"""Options of a streaming query that Spark hands to its sink too."""


@dataclass
class Written(WriterCommitMessage):
    """What one task has written."""

    records: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        """Raises ConfigError for wrong options and columns, and KafkaError if the topic does not exist."""
        if overwrite:
            raise ConfigError('the save mode "overwrite" is not allowed; records can only be added, by mode("append")')
        self._target = sink_target(options)
        self._names = schema.names
        types = [(each.name, each.dataType.simpleString()) for each in schema.fields]
        self._columns = sink_columns(types, self._target.topic)
        self._require_topic()

    def _require_topic(self) -> None:
        self._target.require_topic()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(write_at_least_once(self._chosen(iterator), self._target).total())

    def _chosen(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [batch.column(self._names.index(name)) for name in self._columns]
            yield pa.RecordBatch.from_arrays(columns, names=self._columns)


class StreamWriter(BatchWriter, DataSourceStreamArrowWriter):
    """Made for each batch, with whose id Spark calls `commit` and `abort` after the records have been written."""

    def _require_topic(self) -> None:
        """The tasks wait for it, as long as a producer does: brokers may be away for a while."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        pass

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        pass


def sink_target(options: Mapping[str, str]) -> SinkTarget:
    """From the options of Spark's Kafka sink: `topic`, and a producer's keys with the prefix `kafka.`.

    Raises ConfigError, and KafkaError if the brokers of a named cluster do not respond.
    """
    given = {name.lower(): value for name, value in options.items() if name.lower() not in _OF_SPARK}
    for name in given:
        if name != "topic" and not name.startswith(_KAFKA):
            raise ConfigError(f"{name!r}: is not an option of this sink; it has topic and kafka.*")
    servers = given.pop(_SERVERS, "")
    if not servers:
        raise ConfigError(f"{_SERVERS}: must be specified")
    topic = given.pop("topic", None)
    config = {name.removeprefix(_KAFKA): value for name, value in given.items()}
    return SinkTarget.of(topic, bootstrap_servers=servers, client_config=None, producer_config=config)
