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


def fetch_range(
    bootstrap_servers: str, topic: str, partition: int, *, start_offset: int, end_offset: int
) -> Iterator[Sequence[Record]]:
    """The records of [start_offset, end_offset) in order, one list for each answer of the broker.

    Ends when `end_offset` is reached, also where the last offsets hold no record. Raises KafkaError when the range is
    not there any more.
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
            records = [record for record in read_batches(batches, from_offset=position) if record.offset < end_offset]
            next_position = next_offset(batches)
            if next_position <= position:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{tp}: nothing can be read at offset {position}")
            position = next_position
            if records:
                yield records


def next_offset(batches: memoryview) -> int:
    """One past the last offset of the last whole batch; 0 where not even one is whole."""
    following = position = 0
    while len(batches) - position >= HEADER_SIZE:
        header = parse_header(batches, position)
        position += header.size_bytes
        if position <= len(batches):
            following = header.next_offset
    return following
