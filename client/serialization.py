"""What serializers and deserializers are told besides the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SerializationContext:
    """Names the topic, and the field of the record, that is serialized.

    It has the attributes of confluent-kafka's, whose serializers fit.
    """

    topic: str
    field: str
    """key or value"""
    headers: Sequence[tuple[str, bytes | None]]
    """A list for a serializer, which may add to it."""
