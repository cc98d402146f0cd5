"""DeleteTopics (key 20), v1-6. v4 flexible; v5 error messages; v6 topics by id as well as by name.

The topic's directories go at once; its committed offsets go with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from raylog.broker import config
from raylog.controller.topics import INTERNAL_TOPICS
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID
from raylog.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.broker.request import RequestContext


def handle(broker: Broker, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    wanted: list[tuple[str | None, UUID]] = [(name, ZERO_TOPIC_ID) for name in request.topic_names]
    wanted += [(topic.name, topic.topic_id) for topic in request.topics]
    return DeleteTopicsResponse(responses=tuple(_delete(broker, context, name, topic_id) for name, topic_id in wanted))


def _delete(broker: Broker, context: RequestContext, name: str | None, topic_id: UUID) -> DeletableTopicResult:
    try:
        if not broker.configs[config.DELETE_TOPIC_ENABLE]:
            early = context.api_version < 3
            raise KafkaError(ErrorCode.INVALID_REQUEST if early else ErrorCode.TOPIC_DELETION_DISABLED)
        if name is None:
            topic = broker.image.topics_by_id.get(topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            name = topic.name
        if name in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' belongs to the broker.")
        if name in broker.image.topics:
            topic_id = broker.image.topics[name].topic_id
        broker.metadata.delete_topic(name, now_ms=context.now.wall_ms)
        broker.offsets.topic_deleted(name, now_ms=context.now.wall_ms)
    except KafkaError as error:
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
    return DeletableTopicResult(name=name, topic_id=topic_id)
