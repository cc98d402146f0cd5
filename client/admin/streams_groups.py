"""Streams groups: describe them (KIP-1071). They are deleted, and their offsets changed, as consumer groups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from raylog.client.admin.calls import Answer, Call, Steps, distinct, group, named, several
from raylog.client.admin.cluster import operations_in
from raylog.client.admin.groups import STREAMS, GroupDescription, MemberDescription, SubtopologyDescription
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest

ASSIGNOR_NAME = "sticky"
"""The only one, which responses do not name."""
_name = named("group")


def describe_streams_groups(
    group_ids: Iterable[str] | str, *, include_authorized_operations: bool = False, timeout: float | None = None
) -> Steps[dict[str, GroupDescription]]:
    """State, epochs, topology and members of each streams group. One that does not exist fails with
    GROUP_ID_NOT_FOUND."""
    wanted = distinct(several(group_ids), _name)

    def request(items: Sequence[str], _: int) -> StreamsGroupDescribeRequest:
        return StreamsGroupDescribeRequest(
            group_ids=tuple(items), include_authorized_operations=include_authorized_operations
        )

    def read(response: Any, _: Sequence[str]) -> Iterator[Answer]:
        for each in response.groups:
            described = None if each.error_code else _described(each)
            yield Answer(each.group_id, described, each.error_code, each.error_message)

    found = yield Call({each: group(each) for each in wanted}, _name, request, read)
    return found.checked()


def _described(described: Any) -> GroupDescription:
    topology = described.topology
    subtopologies = () if topology is None else tuple(map(_subtopology, topology.subtopologies or ()))
    sources = {each.subtopology_id: (*each.source_topics, *each.repartition_source_topics) for each in subtopologies}

    def partitions(assignment: Any) -> tuple[TopicPartition, ...]:
        """Of the active tasks, if all source topics have as many partitions as there are tasks."""
        return tuple(
            TopicPartition(topic, partition)
            for tasks in assignment.active_tasks
            for topic in sources.get(tasks.subtopology_id, ())
            for partition in tasks.partitions
        )

    members = tuple(
        MemberDescription(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            partitions(each.assignment),
            b"",
            b"",
            each.member_epoch,
            partitions(each.target_assignment),
            tasks=_tasks(each.assignment),
            target_tasks=_tasks(each.target_assignment),
            process_id=each.process_id,
        )
        for each in described.members
    )
    return GroupDescription(
        described.group_id,
        described.group_state,
        STREAMS,
        ASSIGNOR_NAME,
        members,
        operations_in(described.authorized_operations),
        STREAMS,
        described.group_epoch,
        described.assignment_epoch,
        None if topology is None else topology.epoch,
        subtopologies,
    )


def _subtopology(described: Any) -> SubtopologyDescription:
    return SubtopologyDescription(
        described.subtopology_id,
        tuple(described.source_topics),
        tuple(described.repartition_sink_topics),
        tuple(topic.name for topic in described.repartition_source_topics),
        tuple(topic.name for topic in described.state_changelog_topics),
    )


def _tasks(assignment: Any) -> dict[str, tuple[str, ...]]:
    kinds = {
        "active": assignment.active_tasks,
        "standby": assignment.standby_tasks,
        "warmup": assignment.warmup_tasks,
    }
    return {
        kind: tuple(f"{each.subtopology_id}_{partition}" for each in tasks for partition in each.partitions)
        for kind, tasks in kinds.items()
    }
