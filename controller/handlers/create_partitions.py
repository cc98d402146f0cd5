"""CreatePartitions (key 37), v0-3: add partitions to topics. v2 flexible; v3 may return THROTTLING_QUOTA_EXCEEDED.

Requires ALTER on each topic.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from raylog.controller import topics
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.controller.mutation_quotas import MutationQuota
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange

FIRST_VERSION_WITH_QUOTA_ERROR = 3


def handle(
    controller: ControllerServices, exchange: Exchange, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    times_named = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    permitted: list[CreatePartitionsTopic] = []
    for topic in request.topics:
        try:
            if times_named[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is contained twice in the request.")
            controller.authorization.check(exchange, Operation.ALTER, Resource.topic(topic.name))
            permitted.append(topic)
        except KafkaError as error:
            results[topic.name] = refused(topic, error)
    added_count = sum(_added_count(controller, topic) for topic in permitted)
    partitions_max = controller.settings.topics.partitions_max
    refusal = topics.request_refusal(controller.image, added_count, partitions_max=partitions_max)
    quota = controller.mutation_quotas.of(exchange, strict_from=FIRST_VERSION_WITH_QUOTA_ERROR)
    for topic in permitted:
        try:
            if refusal is not None:
                raise refusal
            _grow(controller, exchange, topic, quota, validate_only=request.validate_only)
            results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
        except KafkaError as error:
            results[topic.name] = refused(topic, error)
    return CreatePartitionsResponse(results=tuple(results[name] for name in times_named))


def _added_count(controller: ControllerServices, topic: CreatePartitionsTopic) -> int:
    """How many partitions the request would add to the topic; 0 for one that is refused by itself."""
    existing = controller.image.topics.get(topic.name)
    return 0 if existing is None else max(topic.count - len(existing.partitions), 0)


def refused(topic: CreatePartitionsTopic, error: KafkaError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)


def _grow(
    controller: ControllerServices,
    exchange: Exchange,
    topic: CreatePartitionsTopic,
    quota: MutationQuota,
    *,
    validate_only: bool,
) -> None:
    assignments = None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
    outcome = topics.create_partitions(controller.image, topic.name, total_count=topic.count, assignments=assignments)
    quota.charge(_added_count(controller, topic))
    if not validate_only:
        controller.decide(outcome, exchange.now)
