"""The cluster's metadata, kept by this broker: the image, the log it is replayed from, and the commands that change it.

There is one broker so far, which is its own controller; the machine itself (`raylog.controller`) does not know that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from raylog.broker.event_log import EventLog
from raylog.controller import brokers, records, topics
from raylog.controller.image import MetadataImage, TopicImage
from raylog.controller.records import MetadataRecord
from raylog.core.ids import BrokerId, ProducerId
from raylog.core.outcome import Outcome
from raylog.replication.partition import Partition

Response = TypeVar("Response")


class Metadata:
    """`on_change` is told of every record, and the time, once it is on disk and replayed."""

    def __init__(self, partition: Partition, *, on_change: Callable[[MetadataRecord, int], None]) -> None:
        self.image = MetadataImage()
        self._on_change = on_change
        self._log: EventLog[MetadataRecord] = EventLog(
            partition,
            encode=lambda record: (None, records.encode(record)),
            decode=lambda _, value: records.decode(value or b""),
            replay=self.image.replay,
        )
        self._producer_ids: range = range(0)

    def load(self) -> None:
        """Replay the log; `on_change` is not called for what was true before."""
        self._log.load()

    def register_broker(self, broker_id: BrokerId, *, incarnation_id: UUID, host: str, port: int, now_ms: int) -> None:
        self._commit(
            brokers.register_broker(self.image, broker_id, incarnation_id=incarnation_id, host=host, port=port), now_ms
        )

    def create_topic(
        self,
        topic: str,
        *,
        topic_id: UUID,
        num_partitions: int,
        replication_factor: int,
        assignments: Sequence[Sequence[int]] | None,
        configs: dict[str, str],
        validate_only: bool,
        now_ms: int,
    ) -> TopicImage:
        """The topic as created, or as it would be. Raises KafkaError."""
        outcome = topics.create_topic(
            self.image,
            topic,
            topic_id=topic_id,
            num_partitions=num_partitions,
            replication_factor=replication_factor,
            assignments=assignments,
            configs=configs,
        )
        return outcome.response if validate_only else self._commit(outcome, now_ms)

    def create_partitions(
        self,
        topic: str,
        *,
        total_count: int,
        assignments: Sequence[Sequence[int]] | None,
        validate_only: bool,
        now_ms: int,
    ) -> None:
        """Raises KafkaError."""
        outcome = topics.create_partitions(self.image, topic, total_count=total_count, assignments=assignments)
        if not validate_only:
            self._commit(outcome, now_ms)

    def delete_topic(self, topic: str, *, now_ms: int) -> None:
        """Raises KafkaError."""
        self._commit(topics.delete_topic(self.image, topic), now_ms)

    def next_producer_id(self, *, now_ms: int) -> ProducerId:
        """An id no producer was ever given; ids are taken from the log in blocks. Raises KafkaError."""
        if not self._producer_ids:
            self._producer_ids = self._commit(brokers.allocate_producer_ids(self.image), now_ms)
        producer_id = self._producer_ids[0]
        self._producer_ids = self._producer_ids[1:]
        return ProducerId(producer_id)

    def _commit(self, outcome: Outcome[Response, MetadataRecord], now_ms: int) -> Response:
        response = self._log.commit(outcome, now_ms=now_ms)
        for record in outcome.records:
            self._on_change(record, now_ms)
        return response
