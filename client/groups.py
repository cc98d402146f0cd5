"""(shell) The requests about consumer groups that tools need, one call each. Error codes are raised as KafkaError."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from raylog.client.cluster_client import ClusterClient
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_OFFSET, ZERO_TOPIC_ID, TopicPartition
from raylog.protocol.messages.delete_groups import DeleteGroupsRequest
from raylog.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from raylog.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

DEAD = "Dead"
"""The state of a group that does not exist."""


def list_groups(client: ClusterClient) -> list[ListedGroup]:
    """The groups of all brokers, by name."""
    groups: list[ListedGroup] = []
    for answer in client.call_each(ListGroupsRequest()):
        _check(answer.error_code, "the groups of a broker")
        groups += answer.groups
    return sorted(groups, key=lambda group: group.group_id)


def describe_group(client: ClusterClient, group: str) -> DescribedGroup:
    """The description of a group; its state is Dead if it does not exist."""
    answer = client.call_coordinator(
        group, DescribeGroupsRequest(groups=(group,)), lambda answer: answer.groups[0].error_code
    )
    described: DescribedGroup = answer.groups[0]
    if described.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        _check(described.error_code, f"group {group!r}")
    return described


def delete_group(client: ClusterClient, group: str) -> None:
    """Delete a group. Raises KafkaError, such as GROUP_ID_NOT_FOUND and NON_EMPTY_GROUP."""
    request = DeleteGroupsRequest(groups_names=(group,))
    answer = client.call_coordinator(group, request, lambda answer: answer.results[0].error_code)
    _check(answer.results[0].error_code, f"group {group!r}")


def committed_offsets(client: ClusterClient, group: str) -> dict[TopicPartition, int]:
    """The committed offsets of the group in topics that exist."""
    names = {topic.topic_id: topic.name or "" for topic in client.view(None).metadata.topics}
    # Versions up to 7 and from 8 on name the group in different fields; the codec writes those of its version.
    wanted = OffsetFetchRequestGroup(group_id=group, topics=None)
    request = OffsetFetchRequest(group_id=group, topics=None, groups=(wanted,))
    answer = client.call_coordinator(group, request, lambda answer: _of_one(answer).error_code)
    found = _of_one(answer)
    _check(found.error_code, f"group {group!r}")
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), each.partition_index): each.committed_offset
        for topic in found.topics
        for each in topic.partitions
        if each.committed_offset != NO_OFFSET
    }


def commit_offsets(client: ClusterClient, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets for a group without members. Raises KafkaError for the first partition that is rejected."""
    ids = {topic.name: topic.topic_id for topic in client.view(sorted({tp.topic for tp in offsets})).metadata.topics}
    topics = tuple(
        OffsetCommitRequestTopic(
            name=topic,
            topic_id=ids.get(topic, ZERO_TOPIC_ID),
            partitions=tuple(
                OffsetCommitRequestPartition(
                    partition_index=tp.partition, committed_offset=offsets[tp], committed_metadata=""
                )
                for tp in partitions
            ),
        )
        for topic, partitions in groupby(sorted(offsets), key=lambda tp: tp.topic)
    )
    request = OffsetCommitRequest(group_id=group, topics=topics)
    answer = client.call_coordinator(group, request, lambda answer: answer.topics[0].partitions[0].error_code)
    for asked, topic in zip(topics, answer.topics, strict=True):
        for each in topic.partitions:
            _check(each.error_code, f"group {group!r}, {TopicPartition(asked.name, each.partition_index)}")


def delete_offsets(
    client: ClusterClient, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """The result for each partition. Raises KafkaError if the whole request is rejected."""
    topics = tuple(
        OffsetDeleteRequestTopic(
            name=topic, partitions=tuple(OffsetDeleteRequestPartition(partition_index=tp.partition) for tp in wanted)
        )
        for topic, wanted in groupby(sorted(partitions), key=lambda tp: tp.topic)
    )
    request = OffsetDeleteRequest(group_id=group, topics=topics)
    answer = client.call_coordinator(group, request, lambda answer: answer.error_code)
    _check(answer.error_code, f"group {group!r}")
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }


def _of_one(answer: Any) -> Any:
    """The part of the response for the only group; up to version 7 it is the response itself."""
    return answer.groups[0] if answer.groups else answer


def _check(code: ErrorCode, what: str) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(code, f"{what}: {code.sentence}")
