"""Where the state of each partition can be queried: the endpoints of the members of a streams group."""

from __future__ import annotations

from collections.abc import Iterable

from raylog.groupcoord.consumer.topics import Topics
from raylog.groupcoord.streams.group import StreamsGroup
from raylog.groupcoord.streams.heartbeat import MemberEndpoint
from raylog.groupcoord.streams.tasks import TaskId, by_subtopology


def endpoints_of(group: StreamsGroup, topics: Topics) -> tuple[MemberEndpoint, ...]:
    """The partitions of the active and the standby tasks of each member that has an endpoint."""
    sources: dict[str, list[str]] = {}
    for name, subtopology_id in sorted(group.source_topics.items()):
        sources.setdefault(subtopology_id, []).append(name)

    def partitions(tasks: Iterable[TaskId]) -> tuple[tuple[str, tuple[int, ...]], ...]:
        found = []
        for subtopology_id, numbers in by_subtopology(tasks).items():
            for name in sources.get(subtopology_id, ()):
                shape = topics.shape(name)
                if shape is not None:
                    found.append((name, tuple(number for number in numbers if number < shape.partition_count)))
        return tuple(found)

    return tuple(
        MemberEndpoint(*member.endpoint, partitions(member.assigned.active), partitions(member.assigned.standby))
        for member in group.members.values()
        if member.endpoint is not None
    )
