"""What a member of a consumer group says of itself in its metadata: the topics it is subscribed to.

int16 version, array of strings (topics), bytes (user data), and from version 1 on what is not looked at here.
Source: Kafka's ConsumerProtocolSubscription.json. Other protocol types bring metadata of their own.
"""

from __future__ import annotations

import struct

CONSUMER = "consumer"


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """None where it is no such metadata: then nothing is known."""
    try:
        _, count = struct.unpack_from(">hi", metadata)
        at = 6
        topics: set[str] = set()
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, at)
            end = at + 2 + length
            if length < 0 or end > len(metadata):
                return None
            topics.add(metadata[at + 2 : end].decode())
            at = end
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
