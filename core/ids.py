"""Integer types that mypy does not let be mixed up, such as Offset and LeaderEpoch; plain integers at run time."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)
"""Position of a record in its partition; the first ever written is 0."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaderships of one partition (KIP-101)."""

ProducerId = NewType("ProducerId", int)
"""Identifies an idempotent producer; the controller allocates blocks of ids to brokers (KIP-98)."""

BrokerId = NewType("BrokerId", int)
TopicId = UUID
"""Identifies a topic: one that is deleted and created again has a new id (KIP-516)."""

NO_OFFSET = Offset(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP_MS = -1
NO_BROKER_ID = BrokerId(-1)
ZERO_TOPIC_ID = UUID(int=0)
NO_DIRECTORY_ID = UUID(int=0)
"""Where the id of a log directory is not known (KIP-858)."""


class TopicPartition(NamedTuple):
    """One partition of one topic, by name; sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerIdentity(NamedTuple):
    """The id and epoch of an idempotent or transactional producer."""

    producer_id: ProducerId
    producer_epoch: int


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, tuple[int, ...]]]:
    """The partitions grouped by topic, both in order, as requests list them."""
    grouped = groupby(sorted(partitions), key=lambda tp: tp.topic)
    return [(topic, tuple(tp.partition for tp in found)) for topic, found in grouped]


def id_text(value: UUID) -> str:
    """The id as Kafka prints it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
