"""DescribeShareGroupOffsets (key 90), v0-1: the start offsets of share groups (KIP-932).

v1 lag (KIP-1226): the records from the start offset to the high watermark, without those in between that are done. It
is -1 if one of these numbers is not known, for instance because the leader does not answer. A partition without a start
offset has -1, and so has each named one of a group that does not exist. Requires DESCRIBE on each group and topic; when
all topics are asked for, those that the client may not describe are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from raylog.broker.share.member_requests import check_enabled
from raylog.core.clock import Now
from raylog.core.config import LONG_MAX
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID, TopicPartition
from raylog.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from raylog.security.acl import Operation, Resource
from raylog.sharecoord.records import UNKNOWN_COUNT
from raylog.sharecoord.states import UNINITIALIZED_START_OFFSET

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

FIRST_VERSION_WITH_LAG: Final = 1
UNKNOWN_LAG: Final = -1
TopicIdPartition = tuple[UUID, int]
Wanted = dict[str, tuple[int, ...]]
"""The partitions of each topic."""


def handle(broker: BrokerServices, exchange: Exchange, request: DescribeShareGroupOffsetsRequest) -> None:
    described: dict[int, DescribeShareGroupOffsetsResponseGroup] = {}

    def done(place: int, group: DescribeShareGroupOffsetsResponseGroup) -> None:
        described[place] = group
        if len(described) == len(request.groups) and not exchange.cancelled:
            exchange.answer(
                DescribeShareGroupOffsetsResponse(groups=tuple(described[each] for each in range(len(described))))
            )

    if not request.groups:
        exchange.answer(DescribeShareGroupOffsetsResponse())
    for place, group in enumerate(request.groups):
        try:
            wanted, hidden = _wanted(broker, exchange, group)
        except KafkaError as error:
            refused = DescribeShareGroupOffsetsResponseGroup(
                group_id=group.group_id, error_code=error.code, error_message=error.message
            )
            done(place, refused)
            continue
        ids = {
            (topic.topic_id, number): name
            for name, numbers in wanted.items()
            if name not in hidden and (topic := broker.image.topics.get(name)) is not None
            for number in numbers
            if 0 <= number < len(topic.partitions)
        }

        def found(
            place: int,
            group_id: str,
            wanted: Wanted,
            hidden: set[str],
            ids: Mapping[TopicIdPartition, str],
            results: Mapping[TopicIdPartition, Any],
            _: Now,
        ) -> None:
            def answer(ends: Mapping[TopicPartition, int]) -> None:
                topics = tuple(
                    _topic(broker, name, numbers, results, ends, hidden=name in hidden)
                    for name, numbers in wanted.items()
                )
                done(place, DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=topics))

            if exchange.api_version < FIRST_VERSION_WITH_LAG:
                answer({})
            else:
                names = {topic_id: name for (topic_id, _), name in ids.items()}
                tps = [TopicPartition(names[topic_id], number) for topic_id, number in results]
                broker.latest_offsets.find(tps, answer, broker.now)

        on_results = partial(found, place, group.group_id, wanted, hidden, ids)
        broker.persister.summaries(group.group_id, ids, on_results, exchange.now)


def _wanted(
    broker: BrokerServices, exchange: Exchange, request: DescribeShareGroupOffsetsRequestGroup
) -> tuple[Wanted, set[str]]:
    """The partitions to describe, and the topics that the client may not see. Raises KafkaError for the group."""
    check_enabled(broker)
    broker.authorization.check(exchange, Operation.DESCRIBE, Resource.group(request.group_id))
    group = broker.groups.shard(exchange, request.group_id).share.groups.get(request.group_id)
    if request.topics is not None:
        wanted = {topic.topic_name: topic.partitions for topic in request.topics}
    else:
        numbers: dict[str, list[int]] = {}
        for topic_id, number in sorted(group.initialized if group is not None else ()):
            topic = broker.image.topics_by_id.get(topic_id)
            if topic is not None:
                numbers.setdefault(topic.name, []).append(number)
        wanted = {name: tuple(each) for name, each in numbers.items()}
    hidden = {
        name
        for name in wanted
        if not broker.authorization.may(exchange, Operation.DESCRIBE, Resource.topic(name), logs_denial=False)
    }
    if request.topics is None:
        wanted = {name: each for name, each in wanted.items() if name not in hidden}
    return wanted, hidden


def _topic(
    broker: BrokerServices,
    name: str,
    numbers: tuple[int, ...],
    results: Mapping[TopicIdPartition, Any],
    ends: Mapping[TopicPartition, int],
    *,
    hidden: bool,
) -> DescribeShareGroupOffsetsResponseTopic:
    topic = None if hidden else broker.image.topics.get(name)
    topic_id = ZERO_TOPIC_ID if topic is None else topic.topic_id
    missing = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED if hidden else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=topic_id,
        partitions=tuple(
            _partition(number, results.get((topic_id, number), missing), ends.get(TopicPartition(name, number)))
            for number in numbers
        ),
    )


def _partition(number: int, result: Any, end: int | None) -> DescribeShareGroupOffsetsResponsePartition:
    if isinstance(result, KafkaError):
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=number,
            start_offset=UNINITIALIZED_START_OFFSET,
            error_code=result.code,
            error_message=result.message,
        )
    done = result.delivery_complete_count
    is_known = done != UNKNOWN_COUNT  # which a partition without a start offset has
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=number,
        start_offset=result.start_offset,
        leader_epoch=result.leader_epoch,
        lag=min(max(0, end - result.start_offset - done), LONG_MAX) if is_known and end is not None else UNKNOWN_LAG,
    )
