"""A busy day of consumer groups: __consumer_offsets stays below a bound that does not depend on the number of commits.

Commits are appended, segments rolled and cleanings begun by the broker itself. The bound, with L the bytes of the live
keys, each alone in a batch, r min.cleanable.dirty.ratio, W what is written in log.cleaner.backoff.ms and S
segment.bytes:

    L / (1 - r) + W + 2 S

Closed segments are cleaned once more than the share r of them is dirty, so that they hold at most L / (1 - r) at that
moment. Until the broker looks, W is added. The active segment is not cleaned, and neither is the one before it until it
is durable.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.groupcoord import records
from raylog.groupcoord.offsets import Commit
from raylog.groupcoord.shards import OFFSETS_TOPIC
from raylog.logstore.log import Log
from raylog.protocol.records.batch import split_batches
from raylog.protocol.records.reader import read_records
from raylog.transport.commits import CommitSource
from tests.support.direct_broker import DirectBroker
from tests.support.forms import by_form
from tests.support.transactional_client import group_coordinator

COMMITS = by_form(100_000, long=10_000_000)
GROUPS = 2000
PARTITIONS = 5
"""Of each group."""
SEGMENT_BYTES = 1 << 20
BACKOFF_MS = 15_000
DAY_MS = 86_400_000
COMMITS_PER_ROUND = 10_000_000 * BACKOFF_MS // DAY_MS
"""In the time of BACKOFF_MS, if a day has ten million."""
DIRTY_RATIO = 0.5
CONFIG: dict[str, Any] = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.segment.bytes": SEGMENT_BYTES,
    "log.cleaner.backoff.ms": BACKOFF_MS,
    "log.cleaner.min.cleanable.ratio": DIRTY_RATIO,
    "log.cleaner.dedupe.buffer.size": 1 << 20,
}
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)


@dataclass
class Request:
    """What the coordinator needs of an exchange."""

    now: Now

    def depends_on(self, source: CommitSource) -> None:
        """The answer is not sent."""


def test_the_offsets_topic_stays_below_its_bound() -> None:
    broker = DirectBroker(CONFIG)
    broker.create_topic("t", partitions=PARTITIONS)
    group_coordinator(broker.cluster)
    log = broker.broker.partitions[OFFSETS].log
    rng = random.Random(1)
    last: dict[tuple[str, int], int] = {}
    largest_bytes = batch_bytes_max = 0
    for begun in range(0, COMMITS, COMMITS_PER_ROUND):
        for number in range(begun, min(begun + COMMITS_PER_ROUND, COMMITS)):
            group, partition = f"group-{rng.randrange(GROUPS)}", rng.randrange(PARTITIONS)
            before_bytes = log.size_bytes
            commit(broker, group, partition, number)
            batch_bytes_max = max(batch_bytes_max, log.size_bytes - before_bytes)
            last[group, partition] = number
        largest_bytes = max(largest_bytes, log.size_bytes)
        broker.pass_time(BACKOFF_MS)
    live_bytes = GROUPS * PARTITIONS * batch_bytes_max
    written_bytes = COMMITS_PER_ROUND * batch_bytes_max
    bound_bytes = live_bytes / (1 - DIRTY_RATIO) + written_bytes + 2 * SEGMENT_BYTES
    assert largest_bytes < bound_bytes < COMMITS * batch_bytes_max / 2
    assert committed_in(log) == last


def commit(broker: DirectBroker, group: str, partition: int, offset: int) -> None:
    tp = TopicPartition("t", partition)
    answer = broker.broker.groups.commit(
        Request(broker.now()),
        group,
        {tp: Commit(offset, -1, "")},
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        metadata_bytes_max=100,
        unknown_group=ErrorCode.GROUP_ID_NOT_FOUND,
    )
    assert answer == {tp: ErrorCode.NONE}


def committed_in(log: Log) -> dict[tuple[str, int], int]:
    """The offsets that a coordinator loads from the log."""
    found: dict[tuple[str, int], int] = {}
    at = log.log_start_offset
    while at < log.log_end_offset:
        piece = log.read(at, max_bytes=1 << 20, upto=log.log_end_offset)
        for position, header in split_batches(piece.records):
            for record in read_records(piece.records, position, header):
                decoded = records.decode(record.key or b"", record.value)
                assert isinstance(decoded, records.OffsetCommitted)
                found[decoded.group, decoded.partition] = decoded.offset
        at = piece.next_offset
    return found
