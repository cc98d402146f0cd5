"""The topology of a Kafka Streams application: which ones are refused, and the topics that they name.

A subtopology reads its source topics and the repartition topics that others write, and keeps its state in changelogs.
Source: KIP-1071; for what it leaves open, the behaviour of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from raylog.core.errors import ErrorCode, KafkaError
from raylog.metadata.topic_names import INTERNAL_TOPICS, check_topic_name
from raylog.protocol.messages.streams_group_heartbeat import Subtopology, Topology

TOPOLOGY_ITEMS_MAX: Final = 10_000
"""Subtopologies, topics, topic configurations and members of copartition groups: all are worked on in one step."""
PARTITIONS_MAX: Final = 100_000
"""Of a repartition topic, as the application wants it."""
NAMES_SHOWN_MAX: Final = 3
NAME_SHOWN_MAX: Final = 250
"""How much of a name an error shows, in characters."""


def check_names(topology: Topology) -> list[str]:
    """The names of all topics, which are valid. Raises KafkaError(STREAMS_INVALID_TOPOLOGY)."""
    count = sum(map(_items, topology.subtopologies))
    if count > TOPOLOGY_ITEMS_MAX:
        raise invalid(f"The topology has {count} parts, but may have {TOPOLOGY_ITEMS_MAX} at most.")
    names = topic_names(topology)
    if internal := [name for name in names if name in INTERNAL_TOPICS]:
        raise invalid(f"Use of Kafka internal topics {shown(internal)} in a Kafka Streams topology is prohibited.")
    if wrong := [name for name in names if not _is_valid(name)]:
        raise invalid(f"Topic names {shown(wrong)} are not valid topic names.")
    return names


def check_topology(topology: Topology) -> None:
    """Raises KafkaError: STREAMS_INVALID_TOPOLOGY, or INVALID_REQUEST for what is not supported."""
    check_names(topology)
    if topology.epoch < 0:
        raise invalid(f"The topology epoch is {topology.epoch}, but must not be negative.")
    ids: set[str] = set()
    for subtopology in topology.subtopologies:
        if subtopology.subtopology_id in ids:
            raise invalid(f"Subtopology {_short(subtopology.subtopology_id)} appears twice.")
        ids.add(subtopology.subtopology_id)
        _check_subtopology(subtopology)


def topic_names(topology: Topology) -> list[str]:
    """All topics that the topology names, in order."""
    return sorted({name for subtopology in topology.subtopologies for name in _names(subtopology)})


def source_topics(subtopology: Subtopology) -> list[str]:
    """The topics whose partitions the tasks of the subtopology read."""
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


def required_topics(topology: Topology) -> set[str]:
    """The topics that must exist before tasks are assigned."""
    return {
        name
        for subtopology in topology.subtopologies
        for name in (*source_topics(subtopology), *(topic.name for topic in subtopology.state_changelog_topics))
    }


def invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)


def shown(names: list[str]) -> str:
    """The first names of many."""
    first = ", ".join(map(_short, names[:NAMES_SHOWN_MAX]))
    more = len(names) - NAMES_SHOWN_MAX
    return f"{first} and {more} additional topics" if more > 0 else first


def _short(name: str) -> str:
    return name[:NAME_SHOWN_MAX]


def _is_valid(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def _names(subtopology: Subtopology) -> Iterator[str]:
    yield from source_topics(subtopology)
    yield from subtopology.repartition_sink_topics
    yield from (topic.name for topic in subtopology.state_changelog_topics)


def _items(subtopology: Subtopology) -> int:
    internal = (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics)
    return (
        1
        + len(subtopology.source_topics)
        + len(subtopology.source_topic_regex)
        + len(subtopology.repartition_sink_topics)
        + len(internal)
        + sum(len(topic.topic_configs) for topic in internal)
        + sum(
            1 + len(group.source_topics) + len(group.source_topic_regex) + len(group.repartition_source_topics)
            for group in subtopology.copartition_groups
        )
    )


def _check_subtopology(subtopology: Subtopology) -> None:
    name = _short(subtopology.subtopology_id)
    if subtopology.source_topic_regex:
        message = "Regular expressions for source topics are not supported yet."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if not source_topics(subtopology):
        raise invalid(f"No source topics found for subtopology {name}")
    for changelog in subtopology.state_changelog_topics:
        if changelog.partitions:
            raise invalid(
                f"Changelog topic {changelog.name} must have an undefined partition count, but it is set to"
                f" {changelog.partitions}."
            )
    for topic in subtopology.repartition_source_topics:
        if not 0 <= topic.partitions <= PARTITIONS_MAX:
            raise invalid(f"Repartition topic {topic.name} has {topic.partitions} partitions.")
    for group in subtopology.copartition_groups:
        for numbers, topics in (
            (group.source_topics, len(subtopology.source_topics)),
            (group.source_topic_regex, 0),
            (group.repartition_source_topics, len(subtopology.repartition_source_topics)),
        ):
            if not all(0 <= number < topics for number in numbers):
                raise invalid(
                    f"A copartition group of subtopology {name} has a topic that the subtopology does not have."
                )
