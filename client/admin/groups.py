"""Consumer groups: list, describe and delete them, their offsets and their members. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from raylog.client.admin.calls import (
    Answer,
    Broker,
    Call,
    Results,
    Steps,
    ask,
    distinct,
    group,
    joined,
    named,
    node_ids,
    partitions_in,
    refused_as_a_whole,
    several,
)
from raylog.client.admin.cluster import operations_in
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.core.errors import ErrorCode, KafkaError, ProtocolViolation
from raylog.core.ids import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition, by_topic
from raylog.protocol.consumer_protocol import ConsumerProtocolAssignment, decode, flat
from raylog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raylog.protocol.messages.delete_groups import DeleteGroupsRequest
from raylog.protocol.messages.describe_groups import DescribeGroupsRequest
from raylog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raylog.protocol.messages.list_groups import ListGroupsRequest
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
from raylog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from raylog.security.acl import Operation

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"
DEAD: Final = "Dead"
"""The state of a group that does not exist."""
BY_NAME_UNTIL: Final = 9
"""The last version of OffsetFetch and OffsetCommit that names topics; later ones have their ids."""
Partition = TypeVar("Partition", bound=tuple[str, int])
"""A TopicPartition, or a tuple like it."""
_NO_CONSUMER_GROUP: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
_MEMBER_TYPES: Final = {0: True, 1: False}
"""Whether a member of a consumer group uses the classic protocol."""
_name = named("group")


class GroupListing(NamedTuple):
    """Fields are empty where the broker is too old to say."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class MemberDescription(NamedTuple):
    """`partitions` is empty if the group does not share partitions in the manner of consumers."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    metadata: bytes
    assignment: bytes
    member_epoch: int | None = None
    """This and the following are of members of consumer groups only."""
    target_partitions: tuple[TopicPartition, ...] = ()
    """What it is to have once it has the epoch of the target assignment."""
    topics: tuple[str, ...] = ()
    topic_regex: str | None = None
    is_classic: bool | None = None
    """Whether it uses the classic protocol in a group of the consumer protocol; None if the broker does not say."""
    tasks: Mapping[str, tuple[str, ...]] | None = None
    """This and the following are of members of streams groups only. Its tasks by kind (active, standby, warmup), under
    the names that Kafka Streams gives them: the id of the subtopology, and the partition."""
    target_tasks: Mapping[str, tuple[str, ...]] | None = None
    process_id: str | None = None
    """The instance of the application that it belongs to."""


class SubtopologyDescription(NamedTuple):
    """A part of a Kafka Streams application: what its tasks read and write, and the changelogs of their state."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[str, ...]
    state_changelog_topics: tuple[str, ...]


class GroupDescription(NamedTuple):
    """`authorized_operations` is None unless it was asked for."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]
    authorized_operations: frozenset[Operation] | None
    type: str = CLASSIC
    """`classic`, or `consumer`, `share` or `streams` if the coordinator assigns; `protocol` is its assignor then."""
    group_epoch: int | None = None
    """This and the next one are of groups whose coordinator assigns."""
    target_assignment_epoch: int | None = None
    topology_epoch: int | None = None
    """This and the next one are of streams groups only."""
    subtopologies: tuple[SubtopologyDescription, ...] = ()


class MemberToRemove(NamedTuple):
    """A static member by its group.instance.id, or any other by its member id."""

    group_instance_id: str | None = None
    member_id: str = ""


def list_groups(
    *, states: Iterable[str] = (), types: Iterable[str] = (), timeout: float | None = None
) -> Steps[list[GroupListing]]:
    """The groups of all brokers by name, of every type, or those in some states or of some types only.

    Types are `classic`, `consumer` and `share`.
    """
    request = ListGroupsRequest(states_filter=tuple(several(states)), types_filter=tuple(several(types)))

    def read(response: Any, items: Sequence[int]) -> Iterator[Answer]:
        yield from refused_as_a_whole(response, items)
        yield Answer(items[0], [_listing(each) for each in response.groups])

    routes = {broker_id: Broker(broker_id) for broker_id in (yield from node_ids())}
    found = yield Call(routes, lambda item: f"the groups of broker {item}", lambda *_: request, read)
    return sorted(each for groups in found.checked().values() for each in groups)


def list_consumer_groups(
    *, states: Iterable[str] = (), types: Iterable[str] = (), timeout: float | None = None
) -> Steps[list[GroupListing]]:
    """As `list_groups`, without the groups that commit no offsets: share groups."""
    found = yield from list_groups(states=states, types=types)
    return [each for each in found if each.type != SHARE]


def describe_consumer_groups(
    group_ids: Iterable[str] | str, *, include_authorized_operations: bool = False, timeout: float | None = None
) -> Steps[dict[str, GroupDescription]]:
    """State and members of each group. One that does not exist fails with GROUP_ID_NOT_FOUND.

    Each is described as a group of the consumer protocol, or where that is not what it is, as a classic one.
    """
    wanted = distinct(several(group_ids), _name)

    def of_consumer_groups(items: Sequence[str], _: int) -> ConsumerGroupDescribeRequest:
        return ConsumerGroupDescribeRequest(
            group_ids=tuple(items), include_authorized_operations=include_authorized_operations
        )

    def of_classic_groups(items: Sequence[str], _: int) -> DescribeGroupsRequest:
        return DescribeGroupsRequest(groups=tuple(items), include_authorized_operations=include_authorized_operations)

    found = yield Call({each: group(each) for each in wanted}, _name, of_consumer_groups, _consumer_groups)
    others = [each for each, error in found.errors.items() if error.code in _NO_CONSUMER_GROUP]
    as_classic = yield Call({each: group(each) for each in others}, _name, of_classic_groups, _classic_groups)
    failed = {each: error for each, error in found.errors.items() if each not in as_classic.values}
    values = found.values | as_classic.values
    return Results({each: values[each] for each in wanted if each in values}, failed | as_classic.errors).checked()


def delete_consumer_groups(group_ids: Iterable[str] | str, *, timeout: float | None = None) -> Steps[dict[str, None]]:
    """Delete groups without members, and their offsets."""
    wanted = distinct(several(group_ids), _name)

    def request(items: Sequence[str], _: int) -> DeleteGroupsRequest:
        return DeleteGroupsRequest(groups_names=tuple(items))

    def read(response: Any, _: Sequence[str]) -> Iterator[Answer]:
        for each in response.results:
            yield Answer(each.group_id, None, each.error_code)

    found = yield Call({each: group(each) for each in wanted}, _name, request, read)
    return found.checked()


def list_consumer_group_offsets(
    group_id: str,
    partitions: Iterable[tuple[str, int]] | None = None,
    *,
    require_stable: bool = False,
    timeout: float | None = None,
) -> Steps[dict[TopicPartition, OffsetAndMetadata | None]]:
    """The committed offsets of a group: all, or those of these partitions (None where there is none).

    With `require_stable` it waits for transactions that are about to commit offsets.
    """
    wanted = None if partitions is None else partitions_in(partitions)
    request = _fetch_request(group_id, wanted, require_stable)

    def read(response: Any, _: Sequence[None]) -> Iterator[Answer]:
        answer = response.groups[0] if response.groups else response
        codes = {each.error_code for topic in answer.topics for each in topic.partitions}
        unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
        yield Answer(None, answer, answer.error_code or (unstable if unstable in codes else ErrorCode.NONE))

    call = Call({None: group(group_id)}, lambda _: _name(group_id), lambda *_: request, read, BY_NAME_UNTIL)
    answer = (yield call).checked()[None]
    answers = [
        Answer(TopicPartition(topic.name, each.partition_index), _committed(each), each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    ]
    if wanted is None:
        wanted = [each.item for each in answers if each.code or each.value is not None]
    return joined(answers, wanted, lambda tp: f"{_name(group_id)}, {tp}")


def alter_consumer_group_offsets(
    group_id: str, offsets: Mapping[Partition, int | OffsetAndMetadata], *, timeout: float | None = None
) -> Steps[dict[TopicPartition, None]]:
    """Commit offsets for a group without members."""
    partitions_in(offsets)
    wanted = {
        TopicPartition(*tp): OffsetAndMetadata(each) if isinstance(each, int) else each for tp, each in offsets.items()
    }

    def request(items: Sequence[TopicPartition], _: int) -> OffsetCommitRequest:
        topics = tuple(
            OffsetCommitRequestTopic(
                name=topic, partitions=tuple(_commit(n, wanted[TopicPartition(topic, n)]) for n in numbers)
            )
            for topic, numbers in by_topic(items)
        )
        return OffsetCommitRequest(group_id=group_id, topics=topics)

    def read(response: Any, _: Sequence[TopicPartition]) -> Iterator[Answer]:
        for topic in response.topics:
            for each in topic.partitions:
                yield Answer(TopicPartition(topic.name, each.partition_index), None, each.error_code)

    routes = dict.fromkeys(wanted, group(group_id))
    found = yield Call(routes, lambda tp: f"{_name(group_id)}, {tp}", request, read, BY_NAME_UNTIL)
    return found.checked()


def delete_consumer_group_offsets(
    group_id: str, partitions: Iterable[tuple[str, int]], *, timeout: float | None = None
) -> Steps[dict[TopicPartition, None]]:
    """Delete committed offsets of topics to which the group is not subscribed."""
    wanted = partitions_in(partitions)
    topics = tuple(
        OffsetDeleteRequestTopic(
            name=topic, partitions=tuple(OffsetDeleteRequestPartition(partition_index=number) for number in numbers)
        )
        for topic, numbers in by_topic(wanted)
    )
    request = OffsetDeleteRequest(group_id=group_id, topics=topics)
    response = yield from ask(group(group_id), _name(group_id), lambda _: request, lambda response: response)
    answers = [
        Answer(TopicPartition(topic.name, each.partition_index), None, each.error_code)
        for topic in response.topics
        for each in topic.partitions
    ]
    return joined(answers, wanted, lambda tp: f"{_name(group_id)}, {tp}")


def remove_members_from_consumer_group(
    group_id: str,
    members: Iterable[MemberToRemove] | None = None,
    *,
    reason: str | None = None,
    timeout: float | None = None,
) -> Steps[dict[MemberToRemove, None]]:
    """Remove these members from a group, or all (None); those that are alive will join it again."""
    if members is None:
        described = (yield from describe_consumer_groups(group_id))[group_id]
        members = [
            MemberToRemove(each.group_instance_id, "" if each.group_instance_id else each.member_id)
            for each in described.members
        ]
    wanted = distinct(members, str)
    for each in wanted:
        if not each.member_id and each.group_instance_id is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a member to remove needs a group_instance_id or a member_id")
    if not wanted:
        return {}
    identities = tuple(
        MemberIdentity(member_id=each.member_id, group_instance_id=each.group_instance_id, reason=reason)
        for each in wanted
    )
    request = LeaveGroupRequest(group_id=group_id, members=identities)
    response = yield from ask(group(group_id), _name(group_id), lambda _: request, lambda response: response)
    by_identity = {each.group_instance_id or each.member_id: each for each in response.members}
    answers = []
    for member in wanted:
        shown = by_identity.get(member.group_instance_id or member.member_id)
        if shown is not None:
            answers.append(Answer(member, None, shown.error_code))
    return joined(answers, wanted, lambda member: f"member {member.group_instance_id or member.member_id!r}")


def _listing(each: Any) -> GroupListing:
    return GroupListing(each.group_id, each.protocol_type, each.group_state, each.group_type)


def _consumer_groups(response: Any, _: Sequence[str]) -> Iterator[Answer]:
    for each in response.groups:
        described = None if each.error_code else _described_consumer_group(each)
        yield Answer(each.group_id, described, each.error_code, each.error_message)


def _classic_groups(response: Any, _: Sequence[str]) -> Iterator[Answer]:
    for each in response.groups:
        gone = not each.error_code and each.group_state == DEAD
        code = ErrorCode.GROUP_ID_NOT_FOUND if gone else each.error_code
        yield Answer(each.group_id, None if code else _described(each), code)


def _described_consumer_group(described: Any) -> GroupDescription:
    members = tuple(
        MemberDescription(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            assigned_partitions(each.assignment),
            b"",
            b"",
            each.member_epoch,
            assigned_partitions(each.target_assignment),
            tuple(each.subscribed_topic_names),
            each.subscribed_topic_regex,
            _MEMBER_TYPES.get(each.member_type),
        )
        for each in described.members
    )
    return GroupDescription(
        described.group_id,
        described.group_state,
        CONSUMER,
        described.assignor_name,
        members,
        operations_in(described.authorized_operations),
        CONSUMER,
        described.group_epoch,
        described.assignment_epoch,
    )


def assigned_partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions
    )


def _described(described: Any) -> GroupDescription:
    members = tuple(
        MemberDescription(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            _assigned(each.member_assignment),
            bytes(each.member_metadata),
            bytes(each.member_assignment),
        )
        for each in described.members
    )
    operations = operations_in(described.authorized_operations)
    return GroupDescription(
        described.group_id,
        described.group_state,
        described.protocol_type,
        described.protocol_data,
        members,
        operations,
    )


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    try:
        return tuple(flat(decode(ConsumerProtocolAssignment, assignment).assigned_partitions))
    except (KafkaError, ProtocolViolation):
        return ()


def _fetch_request(group_id: str, wanted: Sequence[TopicPartition] | None, require_stable: bool) -> OffsetFetchRequest:
    # Versions up to 7 and from 8 on name the group in different fields; the codec writes those of its version.
    topics = of_group = None
    if wanted is not None:
        topics = tuple(OffsetFetchRequestTopic(name=topic, partition_indexes=each) for topic, each in by_topic(wanted))
        of_group = tuple(
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes) for each in topics
        )
    return OffsetFetchRequest(
        group_id=group_id,
        topics=topics,
        groups=(OffsetFetchRequestGroup(group_id=group_id, topics=of_group),),
        require_stable=require_stable,
    )


def _committed(each: Any) -> OffsetAndMetadata | None:
    if each.committed_offset == NO_OFFSET:
        return None
    epoch = None if each.committed_leader_epoch == NO_LEADER_EPOCH else each.committed_leader_epoch
    return OffsetAndMetadata(each.committed_offset, each.metadata or "", epoch)


def _commit(number: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=NO_LEADER_EPOCH if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )
