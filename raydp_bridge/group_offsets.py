"""(shell) Shows how far streaming queries have read as the committed offsets of consumer groups, for monitoring.

After each batch its end offsets are committed to the group `spark-<query id>`. Nothing ever reads them back: a query
continues from its checkpoint.

Spark tells a listener in the driver the id of the query and the offsets of each finished batch; a source learns neither
the id nor when its last batch is done. So the listener asks the query's plan, in the JVM, which of its sources are
raylog's and with which options they were made.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from raylog.client.admin.admin_client import AdminClient
from raylog.config.admin import ADMIN_CONFIG
from raylog.core.errors import ConfigError, KafkaError
from raylog.raydp_bridge.partition_offsets import parse_offsets
from raylog.raydp_bridge.read_options import ReadOptions

log = logging.getLogger("raylog.spark")
FORMAT = "raylog"
COMMIT_TIMEOUT_SECONDS = 10


@dataclass
class Run:
    """One run of a streaming query."""

    query: Any
    """Its handle, which is needed after its end too, since events come late."""
    committed: dict[str, str] = field(default_factory=dict)
    """By source."""
    failed: bool = False


class GroupOffsets(StreamingQueryListener):
    """Commits the end offsets of finished batches. What fails is logged once per run, and ends no query."""

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark
        self._runs: dict[str, Run] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name
        query = self._session.streams.get(str(event.id))
        if query is not None:
            self._runs[str(event.runId)] = Run(query)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's name
        run = self._runs.get(str(event.progress.runId))
        if run is None or run.failed:
            return
        try:
            ends = {source.description: source.endOffset for source in event.progress.sources if source.endOffset}
            fresh = {source: end for source, end in ends.items() if run.committed.get(source) != end}
            if fresh:
                for source, options in _sources(run.query).items():
                    if source in fresh:
                        _commit(f"spark-{event.progress.id}", fresh[source], options)
            run.committed |= fresh
        except (KafkaError, ConfigError, Py4JError) as error:
            run.failed = True
            reason = str(error).splitlines()[0]
            log.warning("offsets are not shown", extra={"query": str(event.progress.id), "reason": reason})

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  # Spark's name
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  # Spark's name
        self._runs.pop(str(event.runId), None)


def _sources(query: Any) -> dict[str, dict[str, str]]:
    """The options of raylog's sources in a query, by the descriptions that Spark's events have."""
    leaves = query._jsq.streamingQuery().logicalPlan().collectLeaves()
    found = {}
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if not leaf.getClass().getSimpleName().startswith("StreamingDataSourceV2"):
            continue
        relation = leaf.relation()
        if relation.table().name() == FORMAT:
            found[leaf.stream().toString()] = dict(relation.options().asCaseSensitiveMap())
    return found


def _commit(group: str, end: str, options: Mapping[str, str]) -> None:
    """Raises ConfigError and KafkaError."""
    properties = ReadOptions.parse(options, streaming=True).properties
    offsets = parse_offsets("endOffset", end, least=0)
    known: dict[str, Any] = {name: value for name, value in properties.items() if name in ADMIN_CONFIG.keys}
    with AdminClient(known) as admin:
        admin.alter_consumer_group_offsets(group, dict(offsets), timeout=COMMIT_TIMEOUT_SECONDS)
