"""The embedded consumer protocol: the subscriptions and assignments of the members of a consumer group.

Subscription: int16 version, array of strings (topics), bytes (user data), and from version 1 on fields that are ignored
here. Assignment: int16 version, array of (string topic, array of int32 partitions), bytes (user data).
Source: Kafka's ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json. Other protocol types use other
formats.
"""

from __future__ import annotations

import struct

from raylog.core.ids import TopicPartition

CONSUMER = "consumer"


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """The subscribed topics; None if the metadata has another format."""
    topics: set[str] = set()
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        at = 6
        for _ in range(count):
            topic, at = _read_string(metadata, at)
            topics.add(topic)
    except (struct.error, UnicodeDecodeError):
        return None
    return topics


def assigned_partitions(assignment: bytes) -> list[TopicPartition]:
    """The assigned partitions; empty if the assignment has another format."""
    partitions: list[TopicPartition] = []
    try:
        (topic_count,) = struct.unpack_from(">i", assignment, 2)
        at = 6
        for _ in range(topic_count):
            topic, at = _read_string(assignment, at)
            (count,) = struct.unpack_from(">i", assignment, at)
            numbers = struct.unpack_from(f">{max(count, 0)}i", assignment, at + 4)
            at += 4 + 4 * len(numbers)
            partitions += [TopicPartition(topic, number) for number in numbers]
    except (struct.error, UnicodeDecodeError):
        return []
    return partitions


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    """The string and the position after it. Raises struct.error or UnicodeDecodeError."""
    (length,) = struct.unpack_from(">h", data, at)
    (text,) = struct.unpack_from(f">{max(length, 0)}s", data, at + 2)
    return text.decode(), at + 2 + len(text)
