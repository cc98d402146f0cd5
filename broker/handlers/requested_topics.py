"""Resolves a topic in a request, given by name or, in newer versions, by id, and checks the client's right to it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def resolve(
    broker: BrokerServices, exchange: Exchange, operation: Operation, name: str, topic_id: UUID, *, by_id: bool
) -> tuple[str, ErrorCode | None]:
    """The topic's name, and the error code if the id is unknown or the client lacks the right.

    Unknown names are detected later, so a client without rights gets the same error whether a topic exists or not. Ids
    are not secret.
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
