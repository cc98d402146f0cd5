"""(shell) Reads a range of one partition over the wire, batch by batch: what a Spark task or a tool does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raylog.client.cluster_client import EARLIEST_OFFSET, LATEST_OFFSET, ClusterClient
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.batch import HEADER_SIZE, parse_header
from raylog.protocol.records.reader import Record, read_batches

CLIENT_ID = "raylog-range-reader"
FETCH_BYTES = 4 << 20
FETCH_WAIT_MS = 500


def topic_bounds(bootstrap_servers: str, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    """Earliest and latest offset of every partition. Raises KafkaError where there is no such topic."""
    with ClusterClient(bootstrap_servers, client_id=CLIENT_ID) as client:
        partitions = range(client.view([topic]).partition_count(topic))
        earliest = {number: client.offset_for(TopicPartition(topic, number), EARLIEST_OFFSET) for number in partitions}
        latest = {number: client.offset_for(TopicPartition(topic, number), LATEST_OFFSET) for number in partitions}
        return earliest, latest


def fetch_batches(
    bootstrap_servers: str, topic: str, partition: int, *, start_offset: int, end_offset: int
) -> Iterator[tuple[int, memoryview]]:
    """(position, batches): whole batches and nothing else, whose records from offset `position` on are new.

    The first batch may begin before the position, the last may reach beyond `end_offset`. A view lives until the next
    one is asked for. Ends when `end_offset` is reached, also where the last offsets hold no record. Raises KafkaError
    when the range is not there any more.
    """
    tp = TopicPartition(topic, partition)
    with ClusterClient(bootstrap_servers, client_id=CLIENT_ID) as client:
        position = start_offset
        while position < end_offset:
            batches = client.fetch(tp, position, max_bytes=FETCH_BYTES, max_wait_ms=FETCH_WAIT_MS)
            if not batches:
                if client.offset_for(tp, LATEST_OFFSET) < end_offset:
                    message = f"{tp} ends before offset {end_offset}: the range is not there any more"
                    raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
                continue
            size_bytes, next_position = _whole_batches(batches)
            if next_position <= position:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{tp}: nothing can be read at offset {position}")
            yield position, batches[:size_bytes]
            position = next_position


def fetch_range(
    bootstrap_servers: str, topic: str, partition: int, *, start_offset: int, end_offset: int
) -> Iterator[Sequence[Record]]:
    """The records of [start_offset, end_offset) in order, one list for each answer of the broker that has any.

    Ends, and raises KafkaError, as `fetch_batches` does.
    """
    for position, batches in fetch_batches(
        bootstrap_servers, topic, partition, start_offset=start_offset, end_offset=end_offset
    ):
        records = [record for record in read_batches(batches, from_offset=position) if record.offset < end_offset]
        if records:
            yield records


def next_offset(batches: memoryview) -> int:
    """One past the last offset of the last whole batch; 0 where not even one is whole."""
    return _whole_batches(batches)[1]


def _whole_batches(batches: memoryview) -> tuple[int, int]:
    """(size in bytes of the batches that are whole, one past the last offset of the last of them); zeros for none."""
    size_bytes = following = 0
    while len(batches) - size_bytes >= HEADER_SIZE:
        header = parse_header(batches, size_bytes)
        if size_bytes + header.size_bytes > len(batches):
            break
        size_bytes += header.size_bytes
        following = header.next_offset
    return size_bytes, following
