"""DeleteTopics (key 20), v1-6. v4 flexible; v5 error messages, and may return
THROTTLING_QUOTA_EXCEEDED (KIP-599); v6 topics by id as well as by name.

Each broker removes its replicas of the topic, and the offsets committed for it, when it replays the deletion. Requires
DELETE on each topic. If a topic given by its id is denied, the response has its name only with DESCRIBE on it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

from raylog.controller import topics
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID
from raylog.metadata.topic_names import INTERNAL_TOPICS
from raylog.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.controller.mutation_quotas import MutationQuota
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange

FIRST_VERSION_WITH_QUOTA_ERROR = 5


def handle(controller: ControllerServices, exchange: Exchange, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    quota = controller.mutation_quotas.of(exchange, strict_from=FIRST_VERSION_WITH_QUOTA_ERROR)
    named = Counter(wanted(request))
    return DeleteTopicsResponse(
        responses=tuple(
            _delete(controller, exchange, quota, name, topic_id, times=times)
            for (name, topic_id), times in named.items()
        )
    )


def wanted(request: DeleteTopicsRequest) -> list[tuple[str | None, UUID]]:
    """The requested topics, by name or by id."""
    named: list[tuple[str | None, UUID]] = [(name, ZERO_TOPIC_ID) for name in request.topic_names]
    return named + [(topic.name, topic.topic_id) for topic in request.topics]


def refused(name: str | None, topic_id: UUID, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)


def _check_named(name: str | None, topic_id: UUID, *, times: int) -> None:
    """Check that the topic is named once, either by its name or by its id. Raises KafkaError(INVALID_REQUEST)."""
    if name is None and topic_id == ZERO_TOPIC_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and topic_id != ZERO_TOPIC_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if times > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if name is None else 'name'}.")


def _delete(
    controller: ControllerServices,
    exchange: Exchange,
    quota: MutationQuota,
    name: str | None,
    topic_id: UUID,
    *,
    times: int,
) -> DeletableTopicResult:
    image = controller.image
    try:
        if not controller.settings.topics.deletable:
            early = exchange.api_version < 3
            raise KafkaError(ErrorCode.INVALID_REQUEST if early else ErrorCode.TOPIC_DELETION_DISABLED)
        _check_named(name, topic_id, times=times)
        if name is None:
            topic = image.topics_by_id.get(topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            found = topic.name
            if controller.authorization.may(exchange, Operation.DESCRIBE, Resource.topic(found), logs_denial=False):
                name = found
        else:
            found = name
        controller.authorization.check(exchange, Operation.DELETE, Resource.topic(found))
        name = found
        if name in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' is internal and cannot be deleted.")
        if name in image.topics:
            topic_id = image.topics[name].topic_id
        outcome = topics.delete_topic(image, name)
        quota.charge(len(image.topics[name].partitions))
        controller.decide(outcome, exchange.now)
    except KafkaError as error:
        return refused(name, topic_id, error)
    return DeletableTopicResult(name=name, topic_id=topic_id)
