"""A share consumer's core whose requests are taken from it, and answered by the test."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from raylog.client.share.core import ShareConsumerCore
from raylog.config.share_consumer import SHARE_CONSUMER_CONFIG, share_consumer_settings
from raylog.core.clock import Now
from raylog.core.config import Configs, ConfigSource, Layer
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from raylog.protocol.messages.share_acknowledge import PartitionData as Acknowledged
from raylog.protocol.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from raylog.protocol.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from raylog.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from raylog.protocol.records.builder import NewRecord, build_batch

TOPIC_ID = UUID(int=7)
INTERVAL_MS = 5000
LOCK_MS = 30_000


def batch(base_offset: int, count: int) -> bytes:
    records = [NewRecord(None, str(base_offset + number).encode(), 0) for number in range(count)]
    return bytes(build_batch(records, base_offset=base_offset))


def acquired(number: int, *ranges: tuple[int, int, int], records: bytes | None = None, **more: Any) -> PartitionData:
    """Ranges of (first offset, last offset, delivery count), by default with a batch that has exactly these records."""
    if records is None:
        records = b"".join(batch(first, last - first + 1) for first, last, _ in ranges)
    found = tuple(
        AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count) for first, last, count in ranges
    )
    return PartitionData(partition_index=number, records=records, acquired_records=found, **more)


class Bench:
    """Topic t has partition 0, led by broker 1, and partition 1, led by broker 2."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, version: int = 2) -> None:
        given = {"group.id": "g", "share.acknowledgement.mode": "explicit", **(settings or {})}
        layer = Layer(ConfigSource.STATIC_BROKER_CONFIG, SHARE_CONSUMER_CONFIG.parse(given))
        made = share_consumer_settings(Configs(SHARE_CONSUMER_CONFIG, [layer]))
        self.core = ShareConsumerCore("h:1", made, random.Random(1))
        self.ms = 1000
        self.version = version
        self.beats: list[tuple[Any, Any, Any]] = []
        self.sent: dict[int, tuple[Any, Any, Any]] = {}
        """The request in flight to each leader."""
        network: Any = self.core.network
        network.ask = self._ask
        coordinators: Any = self.core.coordinators
        coordinators.node_id = lambda *_: 1
        self.core.subscribe(["t"])
        self.core.run(self.now)
        self.lead(1, 2)

    @property
    def now(self) -> Now:
        return Now(self.ms, 0)

    def lead(self, *leaders: int, brokers: Sequence[int] = (1, 2), epoch: int = 0) -> None:
        """The leaders of the partitions, as a metadata response shows them."""
        partitions = tuple(
            MetadataResponsePartition(partition_index=number, leader_id=leader, leader_epoch=epoch)
            for number, leader in enumerate(leaders)
        )
        topic = MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=partitions)
        shown = tuple(MetadataResponseBroker(node_id=number, host="h", port=number) for number in brokers)
        self.core.network.metadata.answered(MetadataResponse(brokers=shown, topics=(topic,)), self.now)

    def _ask(self, node_id: int, request: Any, answered: Any, failed: Any, now: Now, **how: Any) -> None:
        if callable(request):
            try:
                request = request(lambda _: self.version)
            except KafkaError as error:
                failed(error, now)
                return
        if isinstance(request, ShareGroupHeartbeatRequest):
            self.beats.append((request, answered, failed))
        else:
            assert node_id not in self.sent, "two requests to one leader"
            self.sent[node_id] = (request, answered, failed)

    def pass_time(self, ms: int) -> None:
        self.ms += ms
        self.core.run(self.now)

    # --- the member

    def beat(self, epoch: int = 1, assigned: Sequence[int] | None = None, *, code: ErrorCode = ErrorCode.NONE) -> Any:
        """Answer the heartbeat in flight, and return it."""
        ((request, answered, _),) = self.beats
        self.beats.clear()
        assignment = None
        if assigned is not None:
            topics = (TopicPartitions(topic_id=TOPIC_ID, partitions=tuple(assigned)),) if assigned else ()
            assignment = Assignment(topic_partitions=topics)
        response = ShareGroupHeartbeatResponse(
            error_code=code,
            member_id=request.member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=assignment,
        )
        answered(response, self.now)
        self.core.run(self.now)
        return request

    def join(self, *assigned: int) -> None:
        self.poll()
        self.beat(assigned=assigned)

    # --- records

    def poll(self, count: int = 500) -> list[Any]:
        """What is there at once."""
        self.core.begin_poll(self.now)
        try:
            self.core.raise_error()
            return self.core.take(count, self.now)
        finally:
            self.core.end_poll(self.now)

    def commit(self, timeout_ms: int = 60_000) -> list[Any]:
        return self.core.commit(self.now, timeout_ms)

    def fetch(self, node_id: int = 1) -> ShareFetchRequest:
        request = self.sent[node_id][0]
        assert isinstance(request, ShareFetchRequest), request
        return request

    def acknowledgement(self, node_id: int = 1) -> ShareAcknowledgeRequest:
        request = self.sent[node_id][0]
        assert isinstance(request, ShareAcknowledgeRequest), request
        return request

    def answer(self, *partitions: Any, node_id: int = 1, code: ErrorCode = ErrorCode.NONE) -> None:
        """The request in flight to this leader, with what `acquired` or `told` make."""
        request, answered, _ = self.sent.pop(node_id)
        fetches = isinstance(request, ShareFetchRequest)
        assert all(isinstance(each, PartitionData if fetches else Acknowledged) for each in partitions)
        if fetches:
            topics = (ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions),)
            answered(
                ShareFetchResponse(error_code=code, acquisition_lock_timeout_ms=LOCK_MS, responses=topics), self.now
            )
        else:
            results = (ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=partitions),)
            answered(
                ShareAcknowledgeResponse(error_code=code, acquisition_lock_timeout_ms=LOCK_MS, responses=results),
                self.now,
            )
        self.core.run(self.now)

    def lose(self, node_id: int = 1) -> None:
        """The connection to this leader."""
        _, _, failed = self.sent.pop(node_id)
        failed(KafkaError(ErrorCode.NETWORK_EXCEPTION, "lost"), self.now)
        self.core.run(self.now)


def told(number: int = 0, code: ErrorCode = ErrorCode.NONE) -> Acknowledged:
    """The result of a ShareAcknowledge for a partition."""
    return Acknowledged(partition_index=number, error_code=code)


def batches_in(request: Any, number: int = 0) -> list[tuple[int, int, tuple[int, ...]]]:
    """The acknowledgements of a partition in a request."""
    return [
        (each.first_offset, each.last_offset, tuple(each.acknowledge_types))
        for topic in request.topics
        for partition in topic.partitions
        if partition.partition_index == number
        for each in partition.acknowledgement_batches
    ]


def partitions_in(request: Any) -> list[int]:
    return [partition.partition_index for topic in request.topics for partition in topic.partitions]


def forgotten_in(request: Any) -> list[int]:
    return [number for topic in request.forgotten_topics_data for number in topic.partitions]
