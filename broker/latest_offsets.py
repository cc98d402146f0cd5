"""The end offsets of partitions, which the coordinator of a group asks of the leaders on behalf of a client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId, TopicPartition, by_topic
from raylog.metadata.image import MetadataImage
from raylog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from raylog.replication.partition import Partition
from raylog.transport.peer_link import PeerLink

CONNECT_MS_MAX: Final = 1000
"""How long a request may wait for a connection to the leader."""
LATEST: Final = -1

OnOffset = Callable[[TopicPartition, int, Now], None]


def ask_leader(
    link: PeerLink, tps: Iterable[TopicPartition], on_offset: OnOffset, ended: Callable[[], None], now: Now
) -> None:
    """Ask the leader of these partitions for their high watermarks. `ended` is called at the end, also of a failure."""
    topics = tuple(
        ListOffsetsTopic(
            name=name,
            partitions=tuple(ListOffsetsPartition(partition_index=each, timestamp=LATEST) for each in numbers),
        )
        for name, numbers in by_topic(tps)
    )

    def answered(response: ListOffsetsResponse, now: Now) -> None:
        for topic in response.topics:
            for found in topic.partitions:
                if found.error_code == ErrorCode.NONE:
                    on_offset(TopicPartition(topic.name, found.partition_index), found.offset, now)
        ended()

    def failed(error: KafkaError, now: Now) -> None:
        ended()

    request = ListOffsetsRequest(replica_id=NO_BROKER_ID, topics=topics)
    link.request(request, answered, failed, now=now, timeout_ms=CONNECT_MS_MAX)


class LatestOffsets:
    """Of partitions that this node leads, and of others."""

    def __init__(
        self,
        broker_id: BrokerId,
        partitions: Mapping[TopicPartition, Partition],
        image: Callable[[], MetadataImage],
        link_to: Callable[[BrokerId], PeerLink],
    ) -> None:
        self._broker_id = broker_id
        self._partitions = partitions
        self._image = image
        self._link_to = link_to

    def find(
        self, tps: Iterable[TopicPartition], on_found: Callable[[Mapping[TopicPartition, int]], None], now: Now
    ) -> None:
        """`on_found` is called once, with the high watermarks of those partitions whose leaders answer."""
        found: dict[TopicPartition, int] = {}
        elsewhere: dict[BrokerId, list[TopicPartition]] = {}
        image = self._image()
        for tp in tps:
            partition, shown = self._partitions.get(tp), image.partition(tp)
            if partition is not None and partition.is_leader:
                found[tp] = partition.high_watermark
            elif shown is not None and shown.leader not in (NO_BROKER_ID, self._broker_id):
                elsewhere.setdefault(shown.leader, []).append(tp)
        missing = len(elsewhere)
        if not missing:
            on_found(found)
            return

        def ended() -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                on_found(found)

        def note(tp: TopicPartition, offset: int, _: Now) -> None:
            found[tp] = offset

        for leader, of_leader in elsewhere.items():
            ask_leader(self._link_to(leader), of_leader, note, ended, now)
