"""Configurations of topics, brokers and groups: describe, change and list them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, cast

from raylog.client.admin.calls import ANY_BROKER, CONTROLLER, Answer, Broker, Call, Route, Steps, ask, distinct
from raylog.client.given_values import iterator_of, shown, whole_number
from raylog.core.config import ConfigSource, overriding_listener
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.alter_configs import AlterableConfig as ReplacedConfig
from raylog.protocol.messages.alter_configs import AlterConfigsRequest
from raylog.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from raylog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.protocol.messages.list_config_resources import ListConfigResourcesRequest


class ConfigResourceType(IntEnum):
    """What has a configuration."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A topic, a broker (by its id), all brokers (by an empty name), a group..."""

    type: ConfigResourceType
    name: str

    def __str__(self) -> str:
        if self.type == ConfigResourceType.BROKER:
            return f"broker {self.name}" if self.name else "all brokers"
        if self.type not in _TYPES:
            return f"resource {self.name!r} of type {self.type}"
        return f"{_TYPES[self.type].name.lower().replace('_', ' ')} {self.name!r}"


class ConfigSynonym(NamedTuple):
    """A value that applies, or would apply if those before it were not set."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """One key's effective value, and where it was set: `source` is one of ConfigSource."""

    name: str
    value: str | None
    """None: not set, or a secret."""
    source: int
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether the value was set on the topic or group itself, not on its broker."""
        return self.source in (
            ConfigSource.DYNAMIC_TOPIC_CONFIG,
            ConfigSource.DYNAMIC_GROUP_CONFIG,
            ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
        )


class Append(NamedTuple):
    """Adds these entries to the value of a key that is a list."""

    value: str


class Subtract(NamedTuple):
    """Removes these entries from the value of a key that is a list."""

    value: str


SET, DELETE, APPEND, SUBTRACT = range(4)
Change = str | None | Append | Subtract
"""A new value, None to remove what is set, or a change of a list."""
Resources = Iterable[ConfigResource | tuple[ConfigResourceType, str]]
_TYPES: Final = {int(each): each for each in ConfigResourceType}
_LARGEST_TYPE: Final = 127
_BROKER_ID: Final = re.compile(r"[0-9]{1,10}")


def describe_configs(
    resources: Resources | ConfigResource,
    *,
    keys: Iterable[str] | None = None,
    include_synonyms: bool = False,
    include_documentation: bool = False,
    timeout: float | None = None,
) -> Steps[dict[ConfigResource, dict[str, ConfigEntry]]]:
    """All keys of each resource, or these, with their effective values; for all brokers, those that are set."""
    wanted = _resources([resources] if isinstance(resources, ConfigResource) else resources)
    names = None if keys is None else tuple(keys)

    def request(items: Sequence[ConfigResource], _: int) -> DescribeConfigsRequest:
        asked = tuple(
            DescribeConfigsResource(resource_type=item.type, resource_name=item.name, configuration_keys=names)
            for item in items
        )
        return DescribeConfigsRequest(
            resources=asked, include_synonyms=include_synonyms, include_documentation=include_documentation
        )

    def read(response: Any, _: Sequence[ConfigResource]) -> Iterator[Answer]:
        for each in response.results:
            entries = {entry.name: _entry(entry) for entry in each.configs}
            yield Answer((each.resource_type, each.resource_name), entries, each.error_code, each.error_message)

    found = yield Call({item: _described_by(item) for item in wanted}, str, request, read)
    return found.checked()


def incremental_alter_configs(
    changes: Mapping[ConfigResource, Mapping[str, Change]],
    *,
    validate_only: bool = False,
    timeout: float | None = None,
) -> Steps[dict[ConfigResource, None]]:
    """Change single keys of resources; all others stay as they are. A broker itself checks keys of its listeners."""
    wanted = {item: dict(changes[item]) for item in _resources(changes)}

    def request(items: Sequence[ConfigResource], _: int) -> IncrementalAlterConfigsRequest:
        altered = tuple(
            AlterConfigsResource(
                resource_type=item.type,
                resource_name=item.name,
                configs=tuple(_alterable(name, change) for name, change in wanted[item].items()),
            )
            for item in items
        )
        return IncrementalAlterConfigsRequest(resources=altered, validate_only=validate_only)

    found = yield Call({item: _altered_by(item, wanted[item]) for item in wanted}, str, request, _altered)
    return found.checked()


def alter_configs(
    configs: Mapping[ConfigResource, Mapping[str, str]], *, validate_only: bool = False, timeout: float | None = None
) -> Steps[dict[ConfigResource, None]]:
    """Replace the whole configuration of resources: keys that are not given here are removed from what is set."""
    wanted = {item: dict(configs[item]) for item in _resources(configs)}

    def request(items: Sequence[ConfigResource], _: int) -> AlterConfigsRequest:
        replaced = tuple(
            ReplacedResource(
                resource_type=item.type,
                resource_name=item.name,
                configs=tuple(ReplacedConfig(name=name, value=value) for name, value in wanted[item].items()),
            )
            for item in items
        )
        return AlterConfigsRequest(resources=replaced, validate_only=validate_only)

    found = yield Call({item: _altered_by(item, wanted[item]) for item in wanted}, str, request, _altered)
    return found.checked()


def list_config_resources(
    types: Iterable[ConfigResourceType] = (), *, timeout: float | None = None
) -> Steps[list[ConfigResource]]:
    """The resources of these types that have a configuration, or of all types. Needs ALTER_CONFIGS on the cluster."""
    request = ListConfigResourcesRequest(resource_types=tuple(types))

    def read(response: Any) -> list[ConfigResource]:
        return sorted(
            ConfigResource(ConfigResourceType(each.resource_type), each.resource_name)
            for each in response.config_resources
        )

    return (yield from ask(ANY_BROKER, "the resources", lambda _: request, read))


def _resources(given: Resources) -> list[ConfigResource]:
    """Raises KafkaError for one that is given twice or cannot exist."""
    wanted = []
    for each in iterator_of("resources", given):
        if not isinstance(each, tuple) or len(each) != 2 or not isinstance(each[1], str):
            text = f"a resource must be a ConfigResource, or a type and a name of text, not {shown(each)}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        kind = whole_number("type of a resource", each[0])
        wanted.append(ConfigResource(_TYPES.get(kind, cast("ConfigResourceType", kind)), each[1]))
    for kind, name in wanted:
        if not 0 <= kind <= _LARGEST_TYPE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{kind} is not a type of resource")
        if kind == ConfigResourceType.BROKER and name and not _BROKER_ID.fullmatch(name):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {name[:100]!r}: must be the id of a broker, or empty")
    return distinct(wanted, str)


def _described_by(item: ConfigResource) -> Route:
    of_a_broker = item.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
    return Broker(int(item.name)) if of_a_broker and item.name else ANY_BROKER


def _altered_by(item: ConfigResource, keys: Iterable[str]) -> Route:
    by_itself = item.type == ConfigResourceType.BROKER and item.name and any(map(overriding_listener, keys))
    return Broker(int(item.name)) if by_itself or item.type == ConfigResourceType.BROKER_LOGGER else CONTROLLER


def _altered(response: Any, _: Sequence[ConfigResource]) -> Iterator[Answer]:
    for each in response.responses:
        yield Answer((each.resource_type, each.resource_name), None, each.error_code, each.error_message)


def _alterable(name: str, change: Change) -> AlterableConfig:
    if isinstance(change, Append):
        return AlterableConfig(name=name, config_operation=APPEND, value=change.value)
    if isinstance(change, Subtract):
        return AlterableConfig(name=name, config_operation=SUBTRACT, value=change.value)
    return AlterableConfig(name=name, config_operation=DELETE if change is None else SET, value=change)


def _entry(entry: Any) -> ConfigEntry:
    synonyms = tuple(ConfigSynonym(each.name, each.value, each.source) for each in entry.synonyms)
    return ConfigEntry(
        entry.name,
        entry.value,
        entry.config_source,
        entry.read_only,
        entry.is_sensitive,
        synonyms,
        entry.documentation,
    )
