"""(shell) Reads a range of a partition batch by batch, for Spark tasks, Ray Data tasks and tools.

On the leader's node the batches come from its mapped files; on other nodes, or if that fails, from Fetch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raylog.client.client_config import ClientConfig
from raylog.client.cluster_client import EARLIEST_OFFSET, LATEST_OFFSET, ClusterClient
from raylog.client.connectors import NearestConnector
from raylog.client.local_broker import open_local
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.reader import Record, read_batches, whole_batches

CLIENT_ID = "raylog-range-reader"
FETCH_BYTES = 4 << 20
FETCH_WAIT_MS = 500


def topic_bounds(brokers: ClientConfig, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    """Earliest and latest offset of every partition. Raises KafkaError if the topic does not exist."""
    with ClusterClient(brokers, client_id=CLIENT_ID) as client:
        partitions = range(client.view([topic]).partition_count(topic))
        earliest = {number: client.offset_for(TopicPartition(topic, number), EARLIEST_OFFSET) for number in partitions}
        latest = {number: client.offset_for(TopicPartition(topic, number), LATEST_OFFSET) for number in partitions}
        return earliest, latest


def fetch_batches(
    brokers: ClientConfig,
    topic: str,
    partition: int,
    *,
    start_offset: int,
    end_offset: int,
    mapped: bool = True,
) -> Iterator[tuple[int, memoryview]]:
    """Pairs (position, complete batches); the records from offset `position` on are new.

    The first batch may begin before the position, the last may extend beyond `end_offset`. A view is valid until the
    next pair is requested. The caller verifies checksums. The iterator ends at `end_offset`, even if no record has the
    last offsets. Raises KafkaError if the range no longer exists. `mapped=False` never uses the files.
    """
    tp = TopicPartition(topic, partition)
    position = start_offset
    connector = NearestConnector(brokers)
    with ClusterClient(connector, client_id=CLIENT_ID) as client:
        if mapped and position < end_offset:
            user = connector.dialer.user
            for at, batches, next_position in _from_files(client, tp, position, end_offset, user):
                yield at, batches
                position = next_position
        while position < end_offset:
            batches = client.fetch(tp, position, max_bytes=FETCH_BYTES, max_wait_ms=FETCH_WAIT_MS)
            if not batches:
                if client.offset_for(tp, LATEST_OFFSET) < end_offset:
                    message = f"{tp}: the log ends before offset {end_offset}; the range no longer exists"
                    raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
                continue
            size_bytes, next_position = whole_batches(batches)
            if next_position <= position:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{tp}: cannot read a batch at offset {position}")
            yield position, batches[:size_bytes]
            position = next_position


def _from_files(
    client: ClusterClient, tp: TopicPartition, position: int, end_offset: int, user: str | None
) -> Iterator[tuple[int, memoryview, int]]:
    """(position, batches, next position), while the leader is on this node and admits this process.

    Ends early on an error; the caller continues with Fetch. Raises KafkaError if batches that were already returned
    have become invalid.
    """
    leader = client.leader(tp)
    local = open_local(leader.cluster_id, leader.broker_id, user=user)
    if local is None:
        return
    with local, local.open(tp, position, check_crc=False) as reader:
        while reader.position < end_offset:
            try:
                chunk = reader.read(max_bytes=FETCH_BYTES)
            except KafkaError:
                return
            if chunk is None:
                return
            yield chunk.start, chunk.records, chunk.next_offset
            if not reader.accept(chunk):
                message = f"{tp}: the log was truncated while it was read at offset {chunk.start}"
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)


def fetch_range(
    brokers: ClientConfig,
    topic: str,
    partition: int,
    *,
    start_offset: int,
    end_offset: int,
    mapped: bool = True,
) -> Iterator[Sequence[Record]]:
    """The records of [start_offset, end_offset) in order, one list per response that contains any.

    Ends and raises KafkaError like `fetch_batches`.
    """
    for position, batches in fetch_batches(
        brokers, topic, partition, start_offset=start_offset, end_offset=end_offset, mapped=mapped
    ):
        records = list(read_batches(batches, from_offset=position, end_offset=end_offset))
        if records:
            yield records
