"""Share groups: describe and delete them, and their start offsets (KIP-932). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from raylog.client.admin.calls import Answer, Call, Steps, ask, distinct, group, joined, named, partitions_in, several
from raylog.client.admin.cluster import operations_in
from raylog.client.admin.groups import (
    SHARE,
    GroupDescription,
    MemberDescription,
    Partition,
    assigned_partitions,
    delete_consumer_groups,
)
from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_OFFSET, TopicPartition, by_topic
from raylog.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from raylog.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from raylog.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from raylog.protocol.messages.share_group_describe import ShareGroupDescribeRequest

_name = named("group")


class SharePartitionOffset(NamedTuple):
    """Where a share group stands in a partition."""

    start_offset: int
    """The first record that is not done."""
    leader_epoch: int
    lag: int | None
    """The number of records that are not done; None if the broker does not say."""


def describe_share_groups(
    group_ids: Iterable[str] | str, *, include_authorized_operations: bool = False, timeout: float | None = None
) -> Steps[dict[str, GroupDescription]]:
    """State, epochs and members of each share group. One that does not exist fails with GROUP_ID_NOT_FOUND."""
    wanted = distinct(several(group_ids), _name)

    def request(items: Sequence[str], _: int) -> ShareGroupDescribeRequest:
        return ShareGroupDescribeRequest(
            group_ids=tuple(items), include_authorized_operations=include_authorized_operations
        )

    def read(response: Any, _: Sequence[str]) -> Iterator[Answer]:
        for each in response.groups:
            described = None if each.error_code else _described(each)
            yield Answer(each.group_id, described, each.error_code, each.error_message)

    found = yield Call({each: group(each) for each in wanted}, _name, request, read)
    return found.checked()


def delete_share_groups(group_ids: Iterable[str] | str, *, timeout: float | None = None) -> Steps[dict[str, None]]:
    """Delete share groups without members, and their offsets."""
    return (yield from delete_consumer_groups(group_ids))


def list_share_group_offsets(
    group_id: str, partitions: Iterable[tuple[str, int]] | None = None, *, timeout: float | None = None
) -> Steps[dict[TopicPartition, SharePartitionOffset | None]]:
    """The start offsets of a share group: all, or those of these partitions (None where there is none)."""
    wanted = None if partitions is None else partitions_in(partitions)
    topics = None
    if wanted is not None:
        topics = tuple(
            DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=numbers)
            for topic, numbers in by_topic(wanted)
        )
    request = DescribeShareGroupOffsetsRequest(
        groups=(DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics),)
    )

    def read(response: Any, _: Sequence[None]) -> Iterator[Answer]:
        for each in response.groups:
            yield Answer(None, each, each.error_code, each.error_message)

    call = Call({None: group(group_id)}, lambda _: _name(group_id), lambda *_: request, read)
    answer = (yield call).checked()[None]
    answers = [
        Answer(TopicPartition(topic.topic_name, each.partition_index), _offset(each), each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    ]
    if wanted is None:
        wanted = [each.item for each in answers if each.code or each.value is not None]
    return joined(answers, wanted, lambda tp: f"{_name(group_id)}, {tp}")


def alter_share_group_offsets(
    group_id: str, offsets: Mapping[Partition, int], *, timeout: float | None = None
) -> Steps[dict[TopicPartition, None]]:
    """Set the start offsets of a share group without members. What is behind one is delivered, also what was done."""
    partitions_in(offsets)
    wanted = {TopicPartition(*tp): offset for tp, offset in offsets.items()}
    topics = tuple(
        AlterShareGroupOffsetsRequestTopic(
            topic_name=topic,
            partitions=tuple(
                AlterShareGroupOffsetsRequestPartition(
                    partition_index=number, start_offset=wanted[TopicPartition(topic, number)]
                )
                for number in numbers
            ),
        )
        for topic, numbers in by_topic(wanted)
    )
    request = AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics)
    response = yield from ask(group(group_id), _name(group_id), lambda _: request, lambda response: response)
    answers = [
        Answer(TopicPartition(topic.topic_name, each.partition_index), None, each.error_code, each.error_message)
        for topic in response.responses
        for each in topic.partitions
    ]
    return joined(answers, wanted, lambda tp: f"{_name(group_id)}, {tp}")


def delete_share_group_offsets(
    group_id: str, topics: Iterable[str] | str, *, timeout: float | None = None
) -> Steps[dict[str, None]]:
    """Delete the start offsets of topics in a share group without members, which then begins there anew."""
    wanted = distinct(several(topics), named("topic"))
    request = DeleteShareGroupOffsetsRequest(
        group_id=group_id, topics=tuple(DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in wanted)
    )
    response = yield from ask(group(group_id), _name(group_id), lambda _: request, lambda response: response)
    answers = [Answer(each.topic_name, None, each.error_code, each.error_message) for each in response.responses]
    return joined(answers, wanted, lambda topic: f"{_name(group_id)}, topic {topic!r}")


def _described(described: Any) -> GroupDescription:
    members = tuple(
        MemberDescription(
            each.member_id,
            None,
            each.client_id,
            each.client_host,
            assigned_partitions(each.assignment),
            b"",
            b"",
            each.member_epoch,
            topics=tuple(each.subscribed_topic_names),
        )
        for each in described.members
    )
    return GroupDescription(
        described.group_id,
        described.group_state,
        SHARE,
        described.assignor_name,
        members,
        operations_in(described.authorized_operations),
        SHARE,
        described.group_epoch,
        described.assignment_epoch,
    )


def _offset(each: Any) -> SharePartitionOffset | None:
    if each.error_code is not ErrorCode.NONE or each.start_offset == NO_OFFSET:
        return None
    return SharePartitionOffset(each.start_offset, each.leader_epoch, None if each.lag < 0 else each.lag)
