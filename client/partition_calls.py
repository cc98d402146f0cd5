"""What readers of single partitions ask of a cluster: where a partition is, its offsets, and batches. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from raylog.client.admin.calls import Answer, Broker, Call, Leader, Steps, refused_as_a_whole
from raylog.client.admin.partitions import list_offsets
from raylog.client.cluster_metadata import LocatedPartition
from raylog.core.ids import TopicPartition
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.records.isolation import READ_COMMITTED, READ_UNCOMMITTED, Aborted


class Fetched(NamedTuple):
    """Batches, the last of which may be cut, and the aborted transactions among them."""

    batches: memoryview
    aborted: tuple[Aborted, ...]


def locate(tp: TopicPartition) -> Steps[LocatedPartition]:
    """The leader and the topic of a partition, without a request if they are known."""
    found = yield Call({tp: Leader(tp)}, str, None, lambda _, items: ())
    located: LocatedPartition = found.checked()[tp]
    return located


def offset_for(tp: TopicPartition, timestamp: int, *, committed: bool = False) -> Steps[int]:
    """The offset of the first record at or after `timestamp` (ms), or of an `OffsetSpec`; -1 for none.

    With `committed`, of those below the last stable offset.
    """
    found = yield from list_offsets({tp: timestamp}, read_committed=committed)
    return found[tp].offset


def fetch(
    tp: TopicPartition,
    topic_id: UUID,
    offset: int,
    *,
    max_bytes: int,
    max_wait_ms: int,
    committed: bool,
    broker_id: int | None = None,
) -> Steps[Fetched]:
    """Batches from the one that contains `offset`, of the leader or of the replica on the broker `broker_id`.

    With `committed` there are none from the last stable offset on, and those of aborted transactions are named.
    """
    wanted = FetchPartition(partition=tp.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
        topics=[FetchTopic(name=tp.topic, topic_id=topic_id, partitions=[wanted])],  # the version has one of the two
    )

    def read(response: Any, items: Sequence[TopicPartition]) -> Iterator[Answer]:
        yield from refused_as_a_whole(response, items)
        for result in (each for topic in response.responses for each in topic.partitions):
            aborted = tuple(Aborted(each.producer_id, each.first_offset) for each in result.aborted_transactions or ())
            yield Answer(tp, Fetched(memoryview(b"".join(result.records or ())), aborted), result.error_code)

    route = Leader(tp) if broker_id is None else Broker(broker_id)
    found = yield Call({tp: route}, str, lambda *_: request, read, wait_ms=max_wait_ms)
    fetched: Fetched = found.checked()[tp]
    return fetched
