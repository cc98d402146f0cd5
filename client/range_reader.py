"""(shell) Reads a range of a partition batch by batch, for Spark tasks, Ray Data tasks and tools.

On the leader's node the batches come from its mapped files; on other nodes, or if that fails, from Fetch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from raylog.client.admin.partitions import OffsetSpec, list_offsets
from raylog.client.admin.topics import describe_topics
from raylog.client.blocking_calls import BlockingCalls, config_of
from raylog.client.client_config import ClientConfig
from raylog.client.cluster_view import Node
from raylog.client.errors import UnknownTopicError
from raylog.client.local_broker import open_local
from raylog.client.partition_calls import fetch, locate, offset_for
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.local_log import Chunk
from raylog.protocol.records.reader import Record, read_batches, whole_batches

CLIENT_ID = "raylog-range-reader"
FETCH_BYTES = 4 << 20
FETCH_WAIT_MS = 500
TIMEOUT_SECONDS = 30.0
"""Of each call, with its retries."""


def partition_counts(brokers: ClientConfig, topics: Sequence[str] | None) -> dict[str, int]:
    """The number of partitions of each of these topics that exists, or of all that are not internal.

    Raises KafkaError.
    """
    given = config_of(brokers, client_id=CLIENT_ID)
    with BlockingCalls(given, waits_for_brokers=False, topics=topics or ()) as calls:
        try:
            described = calls.run(describe_topics(topics), TIMEOUT_SECONDS)
        except UnknownTopicError as error:
            described = error.results
        chosen = [each for each in described.values() if topics is not None or not each.is_internal]
        return {each.name: len(each.partitions) for each in chosen}


def offsets_at(brokers: ClientConfig, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The offset of the first record of each partition at or after its timestamp (ms); -1 for none.

    OffsetSpec.EARLIEST stands for the log start, LATEST for the end of what may be read: under read_committed the last
    stable offset. Raises KafkaError if a partition does not exist.
    """
    given, topics = config_of(brokers, client_id=CLIENT_ID), {tp.topic for tp in timestamps}
    with BlockingCalls(given, waits_for_brokers=False, topics=topics) as calls:
        found = calls.run(list_offsets(timestamps, read_committed=brokers.reads_committed), TIMEOUT_SECONDS)
        return {tp: each.offset for tp, each in found.items()}


def fetch_batches(
    brokers: ClientConfig,
    topic: str,
    partition: int,
    *,
    start_offset: int,
    end_offset: int,
    mapped: bool = True,
) -> Iterator[Chunk]:
    """Chunks of complete batches; the records from offset `start` on are new.

    The first batch may begin before it, the last may extend beyond `end_offset`. A chunk is valid until the next one is
    requested. Under read_committed the caller skips the batches of its aborted transactions. The caller verifies
    checksums. The iterator ends at `end_offset`, even if no record has the last offsets. Raises KafkaError:
    OFFSET_OUT_OF_RANGE if a part of the range no longer exists, CORRUPT_MESSAGE if a chunk that was returned is no
    longer valid. `mapped=False` never uses the files.
    """
    tp = TopicPartition(topic, partition)
    position = start_offset
    committed = brokers.reads_committed
    given = config_of(brokers, client_id=CLIENT_ID)
    with BlockingCalls(given, topics=[topic]) as calls:
        leader, metadata = calls.run(locate(tp), TIMEOUT_SECONDS)
        if mapped and position < end_offset:
            user = given.dialer.user
            for chunk in _from_files(leader, tp, position, end_offset, user=user, committed=committed):
                yield chunk
                position = chunk.next_offset
        while position < end_offset:
            batches, aborted = calls.run(
                fetch(
                    tp,
                    metadata.topic_id,
                    position,
                    max_bytes=FETCH_BYTES,
                    max_wait_ms=FETCH_WAIT_MS,
                    committed=committed,
                ),
                TIMEOUT_SECONDS,
            )
            if not batches:
                if calls.run(offset_for(tp, OffsetSpec.LATEST, committed=committed), TIMEOUT_SECONDS) < end_offset:
                    message = f"{tp}: the log ends before offset {end_offset}; the range no longer exists"
                    raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
                continue
            size_bytes, next_position = whole_batches(batches)
            if next_position <= position:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{tp}: cannot read a batch at offset {position}")
            yield Chunk(batches[:size_bytes], Offset(position), Offset(next_position), 0, aborted)
            position = next_position


def _from_files(
    leader: Node, tp: TopicPartition, position: int, end_offset: int, *, user: str | None, committed: bool
) -> Iterator[Chunk]:
    """Chunks, while the leader is on this node and admits this process.

    Ends early on an error; the caller continues with Fetch. Raises KafkaError(CORRUPT_MESSAGE) if batches that were
    already returned have become invalid.
    """
    local = open_local(leader.cluster_id, leader.broker_id, user=user)
    if local is None:
        return
    with local, local.open(tp, position, committed=committed, check_crc=False) as reader:
        while reader.position < end_offset:
            try:
                chunk = reader.read(max_bytes=FETCH_BYTES)
            except KafkaError:
                return
            if chunk is None:
                return
            yield chunk
            if not reader.accept(chunk):
                message = f"{tp}: the log was truncated while it was read at offset {chunk.start}"
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, message)


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
    for chunk in fetch_batches(
        brokers, topic, partition, start_offset=start_offset, end_offset=end_offset, mapped=mapped
    ):
        records = list(
            read_batches(chunk.records, from_offset=chunk.start, end_offset=end_offset, aborted=chunk.aborted)
        )
        if records:
            yield records
