"""What lies in the broker's log files: which codec each batch was really stored with, and the records in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from raylog.protocol.records.batch import BatchHeader, split_batches
from raylog.protocol.records.reader import read_batches, whole_batches
from tests.compat.row import Row
from tests.support.cluster_thread import RunningCluster


class StoredBatch(NamedTuple):
    """`codec` by its name in clients; `content_bytes` counts keys and values once they are decompressed."""

    header: BatchHeader
    codec: str
    content_bytes: int
    rows: list[Row]


def stored_batches(cluster: RunningCluster, topic: str, partition: int) -> Iterator[StoredBatch]:
    """Those that are whole by now: the broker may be writing another one."""
    for segment in sorted(cluster.partition_path(topic, partition).glob("*.log")):
        data = segment.read_bytes()
        for position, header in split_batches(data[: whole_batches(data)[0]]):
            records = list(read_batches(memoryview(data)[position : position + header.size_bytes]))
            content_bytes = sum(len(record.key or b"") + len(record.value or b"") for record in records)
            rows = [
                Row(partition, record.offset, record.key, record.value, record.headers, record.timestamp_ms)
                for record in records
            ]
            yield StoredBatch(header, header.codec.name.lower(), content_bytes, rows)
