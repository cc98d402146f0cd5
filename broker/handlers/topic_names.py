"""A topic in a request stands by name or, in newer versions, by id."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from raylog.core.errors import ErrorCode

if TYPE_CHECKING:
    from raylog.broker.broker import Broker


def resolve(broker: Broker, name: str, topic_id: UUID, *, by_id: bool) -> tuple[str, ErrorCode | None]:
    """The topic's name, and the code to refuse with where the id is not known. An unknown name is found out later."""
    if not by_id:
        return name, None
    topic = broker.image.topics_by_id.get(topic_id)
    return ("", ErrorCode.UNKNOWN_TOPIC_ID) if topic is None else (topic.name, None)
