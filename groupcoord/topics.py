"""The topics of the cluster, as groups of every kind need them."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

from raylog.metadata.image import MetadataImage


class TopicShape(NamedTuple):
    """What an assignment depends on."""

    topic_id: UUID
    partition_count: int


class Topics(Protocol):
    """Implemented by `ImageTopics`."""

    def shape(self, name: str) -> TopicShape | None:
        """None for a topic that does not exist."""

    def name(self, topic_id: UUID) -> str | None:
        """None for a topic that does not exist."""

    def names(self) -> Iterable[str]:
        """All topics."""

    def deleted(self, names: Iterable[str]) -> set[str]:
        """Those of the names that belong to deleted topics only."""


class ImageTopics:
    """The topics of a metadata image."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    def shape(self, name: str) -> TopicShape | None:
        topic = self._image().topics.get(name)
        return None if topic is None else TopicShape(topic.topic_id, len(topic.partitions))

    def name(self, topic_id: UUID) -> str | None:
        topic = self._image().topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        return self._image().topics.keys()

    def deleted(self, names: Iterable[str]) -> set[str]:
        image = self._image()
        missing = {name for name in names if name not in image.topics}
        return missing.intersection(image.deleted_topics.values()) if missing else missing


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """A number of 64 bits that changes with the id or the partitions of any of these topics; 0 if none exists."""
    found = [(name, topics.shape(name)) for name in sorted(names)]
    digest = hashlib.blake2b(digest_size=8)
    exists = False
    for name, shape in found:
        if shape is not None:
            exists = True
            digest.update(struct.pack(">16si", shape.topic_id.bytes, shape.partition_count) + name.encode() + b"\0")
    (number,) = struct.unpack(">q", digest.digest())
    return int(number) if exists else 0
