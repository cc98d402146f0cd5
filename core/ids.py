"""Typed words of the field: whole numbers that must not be mistaken for one another, at no run-time cost."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)
"""Position of a record in its partition; the first ever written is 0."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaderships of one partition (KIP-101)."""

ProducerId = NewType("ProducerId", int)
"""Names one idempotent producer; handed out by the controller in blocks (KIP-98)."""

BrokerId = NewType("BrokerId", int)
TopicId = UUID
"""Names one incarnation of a topic: a topic deleted and created again has another id (KIP-516)."""

NO_OFFSET = Offset(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP_MS = -1
NO_BROKER_ID = BrokerId(-1)
ZERO_TOPIC_ID = UUID(int=0)


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
    """The numbers of the partitions of each topic, all in order: how requests name them."""
    grouped = groupby(sorted(partitions), key=lambda tp: tp.topic)
    return [(topic, tuple(tp.partition for tp in found)) for topic, found in grouped]
