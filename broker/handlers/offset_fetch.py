"""OffsetFetch (key 9), v1-10: the committed offsets of groups.

v2 null topics for all of them, and a group-level error; v5 leader epochs; v6 flexible; v7 require_stable; v8 several
groups at once (KIP-709); v9 member epochs; v10 topic ids. With require_stable an offset that an open transaction may
still change gets UNSTABLE_OFFSET_COMMIT (KIP-447).
Requires DESCRIBE on each group and each topic; a request for all topics omits those without it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence, Set
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, cast

from raylog.broker.handlers.requested_topics import resolve
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_LEADER_EPOCH, NO_OFFSET, ZERO_TOPIC_ID, TopicPartition
from raylog.protocol.codec import EncodedElements
from raylog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.groupcoord.records import OffsetCommitted
    from raylog.transport.exchange import Exchange

FIRST_VERSION_WITH_ERROR = 2
"""First version with a group-level error; before it, each partition carries the error."""


STEP_PARTITIONS: Final = 1000
"""How many partitions are looked up before others are served."""


def handle(broker: BrokerServices, exchange: Exchange, request: OffsetFetchRequest) -> OffsetFetchResponse | None:
    if exchange.api_version >= 8:
        exchange.answer_in_steps(_fetch_groups(broker, exchange, request))
        return None
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    named = OffsetFetchRequestGroup(group_id=request.group_id, topics=_tuple(topics))
    one = _fetch_group(broker, exchange, named, require_stable=request.require_stable)
    if exchange.api_version < FIRST_VERSION_WITH_ERROR and one.error_code != ErrorCode.NONE:
        one = replace(one, topics=tuple(_refused(topic, one.error_code) for topic in topics or ()))
    return OffsetFetchResponse(
        error_code=one.error_code,
        topics=tuple(
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=found.partition_index,
                        committed_offset=found.committed_offset,
                        committed_leader_epoch=found.committed_leader_epoch,
                        metadata=found.metadata,
                        error_code=found.error_code,
                    )
                    for found in topic.partitions
                ),
            )
            for topic in one.topics
        ),
    )


def _fetch_groups(
    broker: BrokerServices, exchange: Exchange, request: OffsetFetchRequest
) -> Generator[None, None, OffsetFetchResponse]:
    groups = EncodedElements(OffsetFetchResponseGroup, of=OffsetFetchResponse, version=exchange.api_version)
    fetched = (
        _fetch_group(broker, exchange, group, require_stable=request.require_stable)
        for group in dict.fromkeys(request.groups)
    )
    yield from groups.add_in_steps(
        fetched, step=STEP_PARTITIONS, work=lambda group: 1 + sum(len(topic.partitions) for topic in group.topics)
    )
    return OffsetFetchResponse(groups=cast(Any, groups))


def _fetch_group(
    broker: BrokerServices, exchange: Exchange, group: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    by_id = exchange.api_version >= 10
    try:
        broker.authorization.check(exchange, Operation.DESCRIBE, Resource.group(group.group_id))
        broker.groups.shard(exchange, group.group_id).check_fetch(group.group_id, group.member_epoch, group.member_id)
        unstable = broker.groups.unstable(exchange, group.group_id) if require_stable else set()
        if group.topics is None:
            topics = _all(broker, exchange, group.group_id, unstable, by_id=by_id)
        else:
            topics = [_named(broker, exchange, group.group_id, topic, unstable, by_id=by_id) for topic in group.topics]
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=tuple(topics))


def _all(
    broker: BrokerServices, exchange: Exchange, group_id: str, unstable: Set[TopicPartition], *, by_id: bool
) -> list[OffsetFetchResponseTopics]:
    committed = broker.groups.fetch(exchange, group_id, None)
    known = sorted((committed | dict.fromkeys(unstable)).items())
    topics = []
    for name, entries in groupby(known, key=lambda entry: entry[0].topic):
        topic = broker.image.topics.get(name)
        if (topic is None and by_id) or not broker.authorization.may(
            exchange, Operation.DESCRIBE, Resource.topic(name), logs_denial=False
        ):
            continue
        topic_id = ZERO_TOPIC_ID if topic is None else topic.topic_id
        partitions = tuple(_stable_position(tp, found, unstable) for tp, found in entries)
        topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions))
    return topics


def _named(
    broker: BrokerServices,
    exchange: Exchange,
    group_id: str,
    topic: OffsetFetchRequestTopics,
    unstable: Set[TopicPartition],
    *,
    by_id: bool,
) -> OffsetFetchResponseTopics:
    name, refusal = resolve(broker, exchange, Operation.DESCRIBE, topic.name, topic.topic_id, by_id=by_id)
    partitions: Iterable[OffsetFetchResponsePartitions]
    wanted = [TopicPartition(name, number) for number in topic.partition_indexes]
    if refusal is not None:
        partitions = (_position(tp, None, refusal) for tp in wanted)
    else:
        found = broker.groups.fetch(exchange, group_id, wanted)
        partitions = (_stable_position(tp, found[tp], unstable) for tp in wanted)
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions))


def _stable_position(
    tp: TopicPartition, found: OffsetCommitted | None, unstable: Set[TopicPartition]
) -> OffsetFetchResponsePartitions:
    return _position(tp, None, ErrorCode.UNSTABLE_OFFSET_COMMIT) if tp in unstable else _position(tp, found)


def _position(
    tp: TopicPartition, found: OffsetCommitted | None, error_code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=tp.partition,
        committed_offset=NO_OFFSET if found is None else found.offset,
        committed_leader_epoch=NO_LEADER_EPOCH if found is None else found.leader_epoch,
        metadata="" if found is None else found.metadata,
        error_code=error_code,
    )


def _refused(topic: OffsetFetchRequestTopics, error_code: ErrorCode) -> OffsetFetchResponseTopics:
    positions = (_position(TopicPartition(topic.name, number), None, error_code) for number in topic.partition_indexes)
    return OffsetFetchResponseTopics(name=topic.name, partitions=tuple(positions))


def _tuple(topics: Sequence[OffsetFetchRequestTopics] | None) -> tuple[OffsetFetchRequestTopics, ...] | None:
    return None if topics is None else tuple(topics)
