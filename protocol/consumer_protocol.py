"""What the members of a consumer group tell each other in JoinGroup and SyncGroup.

Brokers pass it on unread, except in groups with members of both protocols.

Source: Kafka's ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json, and the user data of its sticky
assignors. Each begins with its version; a reader takes from a newer one what it knows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final, TypeVar

from raylog.core.errors import ErrorCode, KafkaError, ProtocolViolation
from raylog.core.ids import TopicPartition, by_topic
from raylog.protocol import codec
from raylog.protocol.schema import Api, Message, array, binary, int32, message, string

NO_GENERATION: Final = -1
_NOT_SENT: Final = -1
"""The key of formats that are no API."""
_VERSION: Final = struct.Struct(">h")
_GENERATION: Final = struct.Struct(">i")
M = TypeVar("M", bound=Message)


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = string()
    partitions: tuple[int, ...] = array(int32)


@message
class ConsumerProtocolSubscription:
    """What a member wants, and what it has."""

    api: ClassVar[Api] = Api(_NOT_SENT, "ConsumerProtocolSubscription", lowest=0, highest=3, flexible_from=None)
    topics: tuple[str, ...] = array(string)
    user_data: bytes | None = binary(None, null_since=0)
    owned_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, since=1)
    generation_id: int = int32(NO_GENERATION, since=2)
    rack_id: str | None = string(None, since=3, null_since=3)


@message
class ConsumerProtocolAssignment:
    """What a member gets."""

    api: ClassVar[Api] = Api(_NOT_SENT, "ConsumerProtocolAssignment", lowest=0, highest=3, flexible_from=None)
    assigned_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions)
    user_data: bytes | None = binary(None, null_since=0)


@message
class StickyAssignorUserData:
    """What a member had, as the sticky assignor sends it. It carries no version."""

    api: ClassVar[Api] = Api(_NOT_SENT, "StickyAssignorUserData", lowest=0, highest=1, flexible_from=None)
    previous_assignment: tuple[TopicPartitions, ...] = array(TopicPartitions)
    generation: int = int32(NO_GENERATION, since=1)


def encode(content: Message, version: int | None = None) -> bytes:
    """In this version, or in the newest."""
    version = content.api.highest if version is None else max(0, min(version, content.api.highest))
    return _VERSION.pack(version) + codec.encode(content, version)


def decode(cls: type[M], data: bytes) -> M:
    """Raises KafkaError (INCONSISTENT_GROUP_PROTOCOL) for anything else."""
    try:
        (version,) = _VERSION.unpack_from(data)
        if version >= 0:
            return codec.decode(cls, min(version, cls.api.highest), data, _VERSION.size)
        what = f"version {version}"
    except (struct.error, ProtocolViolation) as error:
        what = str(error)
    raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"not a {cls.api.name}: {what}")


def version_of(data: bytes) -> int:
    """The version of something that `decode` accepts."""
    return int(_VERSION.unpack_from(data)[0])


def encode_sticky(owned: Iterable[TopicPartition], generation: int) -> bytes:
    content = StickyAssignorUserData(previous_assignment=grouped(owned), generation=generation)
    return codec.encode(content, content.api.highest)


def decode_sticky(data: bytes | None) -> tuple[Sequence[TopicPartition], int]:
    """(what the member had, in which generation); nothing if the data cannot be read, as in Kafka."""
    for version in (1, 0):
        try:
            found = codec.decode(StickyAssignorUserData, version, data or b"")
        except ProtocolViolation:
            continue
        return flat(found.previous_assignment), found.generation
    return (), NO_GENERATION


def encode_generation(generation: int) -> bytes:
    """The user data of the cooperative sticky assignor."""
    return _GENERATION.pack(generation)


def decode_generation(data: bytes | None) -> int:
    return int(_GENERATION.unpack_from(data)[0]) if data and len(data) >= _GENERATION.size else NO_GENERATION


def grouped(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    return tuple(TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions))


def flat(topics: Iterable[TopicPartitions]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, number) for each in topics for number in each.partitions]
