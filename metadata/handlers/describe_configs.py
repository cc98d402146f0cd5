"""DescribeConfigs (key 32), v1-4: the configuration of topics, groups, client metrics and this node; loggers' levels.

v1 sources and synonyms (KIP-226); v3 types and documentation (KIP-569); v4 flexible. Requires DESCRIBE_CONFIGS on the
topic or the group, or on the cluster for brokers.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, cast

from raylog.config.client_metrics import client_metrics_configs
from raylog.config.group_resource import group_configs
from raylog.config.table import BROKER_CONFIG
from raylog.core.config import ConfigKey, Configs, ConfigSchema, ConfigSource, Layer
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.loggers import levels
from raylog.metadata.config_resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC, guarded
from raylog.metadata.effective_configs import ALL_BROKERS
from raylog.metadata.handlers.alter_loggers import check_node_name
from raylog.metadata.topic_names import check_topic_name
from raylog.protocol.codec import EncodedElements
from raylog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from raylog.security.acl import Operation

if TYPE_CHECKING:
    from raylog.metadata.services import ImageServices
    from raylog.transport.exchange import Exchange

STEP_RESOURCES: Final = 10
"""How many resources are described before others are served. Each has up to 150 keys."""


def handle(node: ImageServices, exchange: Exchange, request: DescribeConfigsRequest) -> None:
    exchange.answer_in_steps(_describe_all(node, exchange, request))


def _describe_all(
    node: ImageServices, exchange: Exchange, request: DescribeConfigsRequest
) -> Generator[None, None, DescribeConfigsResponse]:
    results = EncodedElements(DescribeConfigsResult, of=DescribeConfigsResponse, version=exchange.api_version)
    described = (_describe(node, exchange, request, resource) for resource in dict.fromkeys(request.resources))
    yield from results.add_in_steps(described, step=STEP_RESOURCES)
    return DescribeConfigsResponse(results=cast(Any, results))


def _describe(
    node: ImageServices, exchange: Exchange, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        resource_guard = guarded(resource.resource_type, resource.resource_name)
        node.authorization.check(exchange, Operation.DESCRIBE_CONFIGS, resource_guard)
        if resource.resource_type == BROKER_LOGGER:
            return _describe_loggers(node, resource)
        configs = _configs_of(node, resource)
    except KafkaError as error:
        return DescribeConfigsResult(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    wanted = frozenset(resource.configuration_keys or ())
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            _describe_key(configs, key, request)
            for name, key in sorted(configs.keys().items())
            if not wanted or name in wanted  # no keys are all keys, as in Kafka
        ),
    )


def _describe_loggers(node: ImageServices, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    check_node_name(node, resource.resource_name)
    wanted = frozenset(resource.configuration_keys or ())
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            DescribeConfigsResourceResult(
                name=name, value=level, config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
            )
            for name, level in levels().items()
            if not wanted or name in wanted
        ),
    )


def _configs_of(node: ImageServices, resource: DescribeConfigsResource) -> Configs:
    if resource.resource_type == TOPIC:
        check_topic_name(resource.resource_name)
        topic = node.image.topics.get(resource.resource_name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return node.topic_configs(topic)
    if resource.resource_type == GROUP:
        if not resource.resource_name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty.")
        return group_configs(node.image.group_configs.get(resource.resource_name, {}), node.configs_in_force)
    if resource.resource_type == CLIENT_METRICS:
        if not resource.resource_name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty.")
        return client_metrics_configs(node.image.client_metrics.get(resource.resource_name, {}))
    if resource.resource_type == BROKER:
        if not resource.resource_name:  # the dynamic default of all brokers (KIP-226)
            cluster = node.image.broker_configs.get(ALL_BROKERS, {})
            layer = Layer(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, BROKER_CONFIG.restore(cluster))
            return Configs(ConfigSchema(BROKER_CONFIG.keys[name] for name in layer.values), [layer])
        if resource.resource_name != str(node.identity.node_id):
            message = (
                f"Broker resource {resource.resource_name!r} must be requested from that node; "
                f"this is node {node.identity.node_id}."
            )
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        return node.configs_in_force
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resource type {resource.resource_type} is not supported.")


def _describe_key(
    configs: Configs, key: ConfigKey[Any], request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    value, source = configs.lookup(key)
    fixed = configs.below is None and not key.dynamic
    return DescribeConfigsResourceResult(
        name=key.name,
        value=key.format(value),
        read_only=fixed,
        is_sensitive=key.is_sensitive,
        config_source=source,
        synonyms=_synonyms(configs, key) if request.include_synonyms else (),
        config_type=key.type,
        documentation=key.doc if request.include_documentation else None,
    )


def _synonyms(configs: Configs, key: ConfigKey[Any]) -> tuple[DescribeConfigsSynonym, ...]:
    """Every possible source of the value, the effective one first."""
    found = [
        DescribeConfigsSynonym(name=by.name, value=key.format(value), source=source)
        for source, by, value in configs.set_for(key)
    ]
    last = key if key.broker_key is None else key.broker_key
    default = DescribeConfigsSynonym(name=last.name, value=key.format(key.default), source=ConfigSource.DEFAULT_CONFIG)
    return (*found, default)
