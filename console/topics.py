"""(shell) Topics: list, describe, create, configure, grow and delete them."""

from __future__ import annotations

from typing import Any, Final

from raylog.client.admin.configs import ConfigEntry, ConfigResource, ConfigResourceType
from raylog.client.admin.topics import BROKER_DEFAULT, NewTopic, TopicDescription
from raylog.console.fields import Fields
from raylog.console.paging import Paging
from raylog.console.topic_rows import ORDERS, leader_sizes, led, partition_row, replica_sizes, topic_row
from raylog.console.visitor import DETAIL_SECONDS, Visitor
from raylog.core.config import ConfigSource
from raylog.core.ids import TopicPartition

NAME_CHARACTERS_MAX: Final = 249
SIZED_MAX: Final = 500
PARTITIONS_MAX: Final = 100_000


async def list_topics(visitor: Visitor, fields: Fields) -> Any:
    """A page of the topics, from their metadata alone, so that it is quick with thousands of them."""
    topics = await visitor.topics()
    shown = topics.values() if fields.flag("internal") else [each for each in topics.values() if not each.is_internal]
    paging = Paging.of(fields, ("name", *ORDERS))
    return paging.page(shown, lambda topic: topic.name, ORDERS).shown(topic_row)


async def topic_sizes(visitor: Visitor, fields: Fields) -> Any:
    """Records and bytes of some topics: those of a page."""
    known = await visitor.topics()
    topics = [known[name] for name in fields.texts("names", entries_max=SIZED_MAX) if name in known]
    sizes = await _sizes(visitor, topics)
    bounds = await visitor.bounds(led(topics), timeout=DETAIL_SECONDS)
    leaders = leader_sizes(topics, sizes or {})
    return {
        topic.name: {
            "records": sum(end - first for first, end in (bounds[tp] for tp in _all(topic) if tp in bounds)),
            "size_bytes": None if sizes is None else sum(leaders.get(tp, 0) for tp in _all(topic)),
            "replicas_size_bytes": None
            if sizes is None
            else sum(sum(sizes.get(tp, {}).values()) for tp in _all(topic)),
        }
        for topic in topics
    }


async def describe_topic(visitor: Visitor, fields: Fields) -> Any:
    """A topic and a page of its partitions, with their offsets and the size of each replica."""
    name = _name(fields)
    topic = (await visitor.admin.describe_topics(name))[name]
    page = Paging.of(fields, ("partition",)).page(topic.partitions, lambda each: f"{each.partition:08}", {})
    shown = topic._replace(partitions=tuple(page.items))
    sizes = await _sizes(visitor, [shown])
    bounds = await visitor.bounds(led([shown]), timeout=DETAIL_SECONDS)

    def row(each: Any) -> dict[str, Any]:
        tp = TopicPartition(name, each.partition)
        first, end = bounds.get(tp, (None, None))
        own = None if sizes is None else {str(broker): size for broker, size in sizes.get(tp, {}).items()}
        return {**partition_row(each), "first_offset": first, "end_offset": end, "sizes": own}

    return {**topic_row(topic), "id": str(topic.topic_id), "page": page.shown(row)}


async def describe_configs(visitor: Visitor, fields: Fields) -> Any:
    resource = ConfigResource(ConfigResourceType.TOPIC, _name(fields))
    found = await visitor.admin.describe_configs(resource, include_documentation=True)
    return [config_row(each) for _, each in sorted(found[resource].items())]


async def create_topic(visitor: Visitor, fields: Fields) -> Any:
    """Without numbers the brokers' defaults; with `validate_only` it only checks that the topic could be created."""
    configs = {key: value for key, value in fields.mapping("configs").items() if value is not None}
    topic = NewTopic(
        _name(fields),
        fields.number("partitions", BROKER_DEFAULT, least=1, most=PARTITIONS_MAX),
        fields.number("replicas", BROKER_DEFAULT, least=1, most=1_000),
        configs=configs,
    )
    await visitor.admin.create_topics(topic, validate_only=fields.flag("validate_only"))
    visitor.forget()
    return {"name": topic.name}


async def delete_topic(visitor: Visitor, fields: Fields) -> Any:
    name = _name(fields)
    await visitor.admin.delete_topics(name)
    visitor.forget()
    return {"name": name}


async def grow_topic(visitor: Visitor, fields: Fields) -> Any:
    """To so many partitions in all."""
    name, count = _name(fields), fields.number("partitions", least=1, most=PARTITIONS_MAX)
    await visitor.admin.create_partitions({name: count})
    visitor.forget()
    return {"name": name, "partitions": count}


async def alter_configs(visitor: Visitor, fields: Fields) -> Any:
    """Set keys of a topic, or remove those that are null."""
    resource = ConfigResource(ConfigResourceType.TOPIC, _name(fields))
    changes = fields.mapping("configs")
    if not changes:
        raise fields.refused("configs", "must have at least one key")
    await visitor.admin.incremental_alter_configs({resource: changes})
    return {"name": resource.name}


def config_row(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "own": entry.is_own,
        "source": ConfigSource(entry.source).name if entry.source in set(ConfigSource) else str(entry.source),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "documentation": entry.documentation,
    }


def _name(fields: Fields) -> str:
    return fields.text("name", characters_max=NAME_CHARACTERS_MAX)


def _all(topic: TopicDescription) -> list[TopicPartition]:
    return [TopicPartition(topic.name, each.partition) for each in topic.partitions]


async def _sizes(visitor: Visitor, topics: list[TopicDescription]) -> dict[TopicPartition, dict[int, int]] | None:
    """None if the identity may not see them."""
    dirs = await visitor.log_dirs([tp for topic in topics for tp in _all(topic)])
    return None if dirs is None else replica_sizes(dirs)
