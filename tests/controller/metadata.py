"""Images for the tests of commands: brokers that are alive, and what follows from an outcome's records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar
from uuid import UUID

from raylog.controller import topics
from raylog.core.ids import BrokerId
from raylog.core.outcome import Outcome
from raylog.metadata.image import MetadataImage
from raylog.metadata.records import BrokerRegistered, BrokerUnfenced, MetadataRecord

Response = TypeVar("Response")
ID = UUID(int=7)
OTHER_ID = UUID(int=8)


def image_of(*broker_ids: int) -> MetadataImage:
    """An image in which these brokers are alive; their epochs are 10, 20, 30 and so on."""
    image = MetadataImage()
    for number, broker_id in enumerate(broker_ids, 1):
        image.replay(registered(broker_id, epoch=10 * number))
        image.replay(BrokerUnfenced(BrokerId(broker_id), 10 * number))
    return image


def registered(broker_id: int, *, epoch: int, incarnation: int | None = None) -> BrokerRegistered:
    incarnation_id = UUID(int=100 + broker_id if incarnation is None else incarnation)
    return BrokerRegistered(BrokerId(broker_id), incarnation_id, epoch, (("PLAINTEXT", "h", 9092 + broker_id),))


def replay(image: MetadataImage, records: Iterable[MetadataRecord]) -> None:
    for record in records:
        image.replay(record)


def carry_out(image: MetadataImage, outcome: Outcome[Response, MetadataRecord]) -> Response:
    replay(image, outcome.records)
    return outcome.response


def create(image: MetadataImage, topic: str = "t", **more: object) -> list[MetadataRecord]:
    options = {"topic_id": ID, "num_partitions": 2, "replication_factor": 1, **more}
    outcome = topics.create_topic(image, topic, **options)  # type: ignore[arg-type]
    replay(image, outcome.records)
    return list(outcome.records)
