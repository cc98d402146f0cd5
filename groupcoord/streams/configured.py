"""A topology on the topics of the cluster: how many tasks each subtopology has, and which topics are to be created.

The number of partitions of a repartition topic follows from the sources of the subtopology that writes it, through any
number of other repartition topics; that of a changelog from the sources of its subtopology.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from raylog.groupcoord.streams.topology import invalid, required_topics, shown, source_topics
from raylog.groupcoord.topics import Topics, metadata_hash
from raylog.protocol.messages.streams_group_heartbeat import Subtopology, TopicInfo, Topology

TASKS_MAX: Final = 10_000
"""Of one group: they are assigned in one step."""


class StatusCode(IntEnum):
    """What keeps a group from its work, in the response to a heartbeat."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


@dataclass(frozen=True, slots=True)
class Status:
    code: StatusCode
    detail: str


@dataclass(frozen=True, slots=True)
class Configured:
    """The topology as of some state of the topics."""

    metadata_hash: int
    status: Status | None = None
    """Why no tasks can be assigned; None if the topology is ready."""
    task_counts: Mapping[str, int] = field(default_factory=dict)
    """Of each subtopology; empty if it is not known."""
    stateful: frozenset[str] = frozenset()
    """The subtopologies with changelogs, which can have standby tasks."""
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """Of each internal topic."""
    missing: tuple[TopicInfo, ...] = ()
    """The internal topics that do not exist, with their numbers of partitions."""

    @property
    def is_ready(self) -> bool:
        return self.status is None


class _Misfit(Exception):
    """The topics do not fit the topology."""

    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


def configure(topology: Topology, topics: Topics) -> Configured:
    """Raises KafkaError(STREAMS_INVALID_TOPOLOGY) for a topology that no topics could fit."""
    version = metadata_hash(topics, required_topics(topology))
    try:
        return _configured(topology, topics, version)
    except _Misfit as misfit:
        return Configured(version, misfit.status)


def _configured(topology: Topology, topics: Topics, version: int) -> Configured:
    subtopologies = sorted(topology.subtopologies, key=lambda each: each.subtopology_id)
    _check_sources(subtopologies, topics)
    decided = _repartition_counts(subtopologies, topics)

    def count_of(name: str) -> int:
        shape = topics.shape(name)
        return decided[name] if shape is None else shape.partition_count

    for subtopology in subtopologies:
        _enforce_copartitioning(subtopology, count_of, decided)
    task_counts = {each.subtopology_id: max(map(count_of, source_topics(each))) for each in subtopologies}
    if sum(task_counts.values()) > TASKS_MAX:
        raise invalid(f"The topology has {sum(task_counts.values())} tasks, but may have {TASKS_MAX} at most.")
    internal: dict[str, TopicInfo] = {}
    for subtopology in subtopologies:
        for topic in subtopology.repartition_source_topics:
            internal[topic.name] = _with_count(topic, topic.partitions or decided[topic.name])
        for topic in subtopology.state_changelog_topics:
            internal[topic.name] = _with_count(topic, task_counts[subtopology.subtopology_id])
    missing = tuple(topic for _, topic in sorted(internal.items()) if not _exists(topic, topics))
    status = None
    if missing:
        names = shown([topic.name for topic in missing])
        status = Status(StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return Configured(
        version,
        status,
        task_counts,
        frozenset(each.subtopology_id for each in subtopologies if each.state_changelog_topics),
        {name: topic.partitions for name, topic in internal.items()},
        missing,
    )


def _check_sources(subtopologies: Iterable[Subtopology], topics: Topics) -> None:
    named = {name for subtopology in subtopologies for name in subtopology.source_topics}
    if missing := sorted(name for name in named if topics.shape(name) is None):
        raise _Misfit(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {shown(missing)} are missing.")


def _exists(topic: TopicInfo, topics: Topics) -> bool:
    """Raises _Misfit for a topic with another number of partitions."""
    shape = topics.shape(topic.name)
    if shape is not None and shape.partition_count != topic.partitions:
        raise _Misfit(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Existing topic {topic.name} has different number of partitions: expected {topic.partitions}, found"
            f" {shape.partition_count}",
        )
    return shape is not None


def _with_count(topic: TopicInfo, partitions: int) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        partitions=partitions,
        replication_factor=topic.replication_factor,
        topic_configs=topic.topic_configs,
    )


class _Writer:
    """A subtopology on the way to the number of partitions of what it writes: the largest one of its sources."""

    def __init__(self, subtopology: Subtopology, topics: Topics) -> None:
        self.subtopology = subtopology
        counts = (topics.shape(name) for name in subtopology.source_topics)
        self.largest = max((shape.partition_count for shape in counts if shape is not None), default=None)
        self.unknown = {topic.name for topic in subtopology.repartition_source_topics}
        """The sources whose numbers are not known yet."""
        self.is_done = False

    def source_counted(self, name: str, count: int) -> None:
        if name in self.unknown:
            self.unknown.discard(name)
            self.largest = count if self.largest is None else max(self.largest, count)


def _repartition_counts(subtopologies: list[Subtopology], topics: Topics) -> dict[str, int]:
    """The number of partitions of each repartition topic.

    A subtopology waits for all of its sources; in a loop of subtopologies the first one that has any goes ahead.
    """
    counts: dict[str, int] = {}
    writers = [_Writer(subtopology, topics) for subtopology in subtopologies]
    readers: dict[str, list[int]] = {}
    for place, writer in enumerate(writers):
        for name in writer.unknown:
            readers.setdefault(name, []).append(place)
    ready: list[int] = []
    partly: list[int] = []

    def decide(name: str, count: int) -> None:
        counts[name] = count
        for place in readers.get(name, ()):
            writers[place].source_counted(name, count)
            heapq.heappush(partly if writers[place].unknown else ready, place)

    for subtopology in subtopologies:
        for topic in subtopology.repartition_source_topics:
            if topic.partitions:
                decide(topic.name, topic.partitions)
    for place, writer in enumerate(writers):
        if writer.largest is not None:
            heapq.heappush(partly if writer.unknown else ready, place)
    while ready or partly:
        writer = writers[heapq.heappop(ready or partly)]
        if writer.is_done or writer.largest is None:
            continue
        writer.is_done = True
        for name in writer.subtopology.repartition_sink_topics:
            if name not in counts:
                decide(name, writer.largest)
    if any(name not in counts for writer in writers for name in writer.subtopology.repartition_sink_topics):
        raise invalid(
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology that"
            " cannot be resolved."
        )
    if any(name not in counts for name in readers):
        raise invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is"
            " never used as a sink topic."
        )
    return counts


def _enforce_copartitioning(subtopology: Subtopology, count_of: Callable[[str], int], decided: dict[str, int]) -> None:
    """Give the repartition topics of each copartition group the number of partitions of the others. Raises _Misfit."""
    for group in subtopology.copartition_groups:
        sources = {subtopology.source_topics[number] for number in group.source_topics}
        repartition = {
            topic.name: topic
            for topic in (subtopology.repartition_source_topics[number] for number in group.repartition_source_topics)
        }
        external = sources - repartition.keys()
        fixed = {name for name, topic in repartition.items() if topic.partitions}
        given = {name: count_of(name) for name in sorted(external or fixed)}
        if len(set(given.values())) > 1:
            raise _Misfit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Following topics do not have the same number of partitions: {_counts_shown(given)}",
            )
        wanted = max((given or {name: count_of(name) for name in repartition}).values(), default=0)
        for name in sorted(repartition):
            if name in fixed and count_of(name) != wanted:
                raise _Misfit(
                    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{count_of(name)}] of repartition topic [{name}] doesn't match number of"
                    f" partitions [{wanted}] of the source topic.",
                )
            decided[name] = wanted


def _counts_shown(counts: Mapping[str, int]) -> str:
    return "[" + shown([f"{name}={count}" for name, count in counts.items()]) + "]"
