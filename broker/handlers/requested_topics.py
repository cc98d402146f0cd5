"""A topic in a request stands by name or, in newer versions, by id; and its client must have the right to it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.transport.exchange import Exchange


def resolve(
    broker: Broker, exchange: Exchange, operation: Operation, name: str, topic_id: UUID, *, by_id: bool
) -> tuple[str, ErrorCode | None]:
    """The topic's name, and the code to refuse with where the id is not known, or the client may not do that.

    An unknown name is found out later: who may not know of a topic is told the same whether it exists or not. Ids are
    no secret.
    """
    if by_id:
        topic = broker.image.topics_by_id.get(topic_id)
        if topic is None:
            return "", ErrorCode.UNKNOWN_TOPIC_ID
        name = topic.name
    if broker.authorization.authorizer is not None and not broker.authorization.may(
        exchange, operation, Resource.topic(name)
    ):
        return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return name, None
