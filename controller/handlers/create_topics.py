"""CreateTopics (key 19), v2-7: create topics, or with validate_only only validate the request.

v4 -1 for the defaults of partitions and replicas; v5 flexible, configurations in the response (KIP-525); v6 may return
THROTTLING_QUOTA_EXCEEDED (KIP-599); v7 topic ids.
Brokers send it directly to create internal topics; requests of clients arrive in an Envelope. Requires CREATE on the
cluster or on each topic; the response has the configuration of topics for which the client has DESCRIBE_CONFIGS.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from raylog.config.topic import TOPIC_CONFIG, check_topic_together, topic_configs
from raylog.controller import topics
from raylog.core.errors import ErrorCode, KafkaError
from raylog.metadata.effective_configs import ALL_BROKERS, effective_configs
from raylog.metadata.node_roles import only_brokers
from raylog.metadata.topic_names import INTERNAL_TOPICS
from raylog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from raylog.security.acl import CLUSTER, Operation, Resource

if TYPE_CHECKING:
    from raylog.controller.mutation_quotas import MutationQuota
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange

USE_DEFAULT = -1
FIRST_VERSION_WITH_QUOTA_ERROR = 6


def handle(controller: ControllerServices, exchange: Exchange, request: CreateTopicsRequest) -> CreateTopicsResponse:
    return create(controller, exchange, request, from_client=False)


def handle_forwarded(
    controller: ControllerServices, exchange: Exchange, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    return create(controller, exchange, request, from_client=True)


def create(
    controller: ControllerServices, exchange: Exchange, request: CreateTopicsRequest, *, from_client: bool
) -> CreateTopicsResponse:
    times_named = Counter(topic.name for topic in request.topics)
    may_create_any = controller.authorization.may(exchange, Operation.CREATE, CLUSTER, logs_denial=False)
    results: dict[str, CreatableTopicResult] = {}
    permitted: list[CreatableTopic] = []
    for topic in request.topics:
        try:
            controller.check_active()
            if times_named[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is contained twice in the request.")
            if not may_create_any:
                controller.authorization.check(exchange, Operation.CREATE, Resource.topic(topic.name))
            if from_client and topic.name in INTERNAL_TOPICS:
                message = f"Topic '{topic.name}' is internal: the cluster creates it when needed."
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
            permitted.append(topic)
        except KafkaError as error:
            results[topic.name] = refused(topic, error)
    partition_count = sum(_partition_count(controller, topic) for topic in permitted)
    partitions_max = controller.settings.topics.partitions_max
    refusal = topics.request_refusal(controller.image, partition_count, partitions_max=partitions_max)
    quota = controller.mutation_quotas.of(exchange, strict_from=FIRST_VERSION_WITH_QUOTA_ERROR)
    for topic in permitted:
        try:
            if refusal is not None:
                raise refusal
            results[topic.name] = _create(controller, exchange, topic, quota, validate_only=request.validate_only)
        except KafkaError as error:
            results[topic.name] = refused(topic, error)
    return CreateTopicsResponse(topics=tuple(results[name] for name in times_named))


def _partition_count(controller: ControllerServices, topic: CreatableTopic) -> int:
    """How many partitions the request would create for the topic; 0 for a number that is refused by itself."""
    return len(topic.assignments) or max(
        _or_default(topic.num_partitions, controller.settings.topics.num_partitions), 0
    )


def refused(topic: CreatableTopic, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name, error_code=error.code, error_message=error.message, num_partitions=-1, replication_factor=-1
    )


def _create(
    controller: ControllerServices,
    exchange: Exchange,
    topic: CreatableTopic,
    quota: MutationQuota,
    *,
    validate_only: bool,
) -> CreatableTopicResult:
    texts: dict[str, Any] = {entry.name: entry.value for entry in topic.configs}
    TOPIC_CONFIG.parse(texts)
    configs = topic_configs(texts, effective_configs(controller.image, controller.configs, ALL_BROKERS))
    check_topic_together(configs)
    defaults = controller.settings.topics
    outcome = topics.create_topic(
        controller.image,
        topic.name,
        topic_id=controller.new_id(),
        num_partitions=_or_default(topic.num_partitions, defaults.num_partitions),
        replication_factor=_or_default(topic.replication_factor, defaults.replication_factor),
        assignments=_assignments(topic),
        configs=texts,
    )
    quota.charge(len(outcome.response.partitions))
    created = outcome.response if validate_only else controller.decide(outcome, exchange.now)
    if not controller.authorization.may(
        exchange, Operation.DESCRIBE_CONFIGS, Resource.topic(topic.name), logs_denial=False
    ):
        hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return CreatableTopicResult(
            name=topic.name, topic_id=created.topic_id, configs=(), topic_config_error_code=hidden
        )
    described = []
    for key in configs.schema.keys.values():
        value, source = configs.lookup(key)
        described.append(CreatableTopicConfigs(name=key.name, value=key.format(value), config_source=source))
    return CreatableTopicResult(
        name=topic.name,
        topic_id=created.topic_id,
        num_partitions=len(created.partitions),
        replication_factor=len(only_brokers(created.partitions[0].replicas)),
        configs=tuple(described),
    )


def _or_default(number: int, default: int) -> int:
    return default if number == USE_DEFAULT else number


def _assignments(topic: CreatableTopic) -> list[tuple[int, ...]] | None:
    """The brokers of partitions 0, 1, 2... Raises KafkaError for gaps, or if a partition count is given as well."""
    if not topic.assignments:
        return None
    if topic.num_partitions != USE_DEFAULT or topic.replication_factor != USE_DEFAULT:
        message = "With a replica assignment, the number of partitions and the replication factor must be -1."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    ordered = sorted(topic.assignments, key=lambda assignment: assignment.partition_index)
    if [assignment.partition_index for assignment in ordered] != list(range(len(ordered))):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be numbered from 0 without gaps.")
    return [assignment.broker_ids for assignment in ordered]
