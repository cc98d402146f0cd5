"""Where the state of each partition can be queried: the endpoints of the members of a streams group."""

from __future__ import annotations

from collections.abc import Iterable

from raylog.groupcoord.streams.group import StreamsGroup, StreamsMember
from raylog.groupcoord.streams.tasks import TaskId, by_subtopology
from raylog.groupcoord.topics import Topics
from raylog.protocol.messages.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition


class GroupEndpoints:
    """Of one group, for one state of the topics. What a member has is found out again once it `changed`."""

    def __init__(self) -> None:
        self._of_members: dict[str, EndpointToPartitions] = {}

    def changed(self, member_id: str) -> None:
        self._of_members.pop(member_id, None)

    def all(self, group: StreamsGroup, topics: Topics) -> tuple[EndpointToPartitions, ...]:
        """The partitions of the active and the standby tasks of each member that has an endpoint."""
        sources: dict[str, list[str]] | None = None
        found = []
        for member in group.members.values():
            if member.endpoint is None:
                continue
            known = self._of_members.get(member.member_id)
            if known is None:
                sources = _sources(group) if sources is None else sources
                known = self._of_members[member.member_id] = _endpoint_of(member, member.endpoint, sources, topics)
            found.append(known)
        return tuple(found)


def _sources(group: StreamsGroup) -> dict[str, list[str]]:
    """The topics that each subtopology reads."""
    sources: dict[str, list[str]] = {}
    for name, subtopology_id in sorted(group.source_topics.items()):
        sources.setdefault(subtopology_id, []).append(name)
    return sources


def _endpoint_of(
    member: StreamsMember, endpoint: tuple[str, int], sources: dict[str, list[str]], topics: Topics
) -> EndpointToPartitions:
    def partitions(tasks: Iterable[TaskId]) -> tuple[TopicPartition, ...]:
        found = []
        for subtopology_id, numbers in by_subtopology(tasks).items():
            for name in sources.get(subtopology_id, ()):
                shape = topics.shape(name)
                if shape is not None:
                    there = tuple(number for number in numbers if number < shape.partition_count)
                    found.append(TopicPartition(topic=name, partitions=there))
        return tuple(found)

    host, port = endpoint
    return EndpointToPartitions(
        user_endpoint=Endpoint(host=host, port=port),
        active_partitions=partitions(member.assigned.active),
        standby_partitions=partitions(member.assigned.standby),
    )
