"""AlterShareGroupOffsets (key 91), v0: set the start offsets of a share group without members (KIP-932).

What was in flight or done after the start offset is forgotten. A group that does not exist is created, so that its
first members begin at these offsets. Requires READ on the group and on each topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from raylog.broker.share.member_requests import check_enabled
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID
from raylog.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(
    broker: BrokerServices, exchange: Exchange, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse | None:
    group_id = request.group_id
    errors: dict[tuple[str, int], KafkaError] = {}
    offsets: dict[tuple[UUID, int], int] = {}
    names: dict[tuple[UUID, int], str] = {}
    try:
        check_enabled(broker)
        broker.authorization.check(exchange, Operation.READ, Resource.group(group_id))
        broker.groups.shard(exchange, group_id).check_share_offsets(group_id)
        for topic in request.topics:
            refusal = _refusal(broker, exchange, topic.topic_name)
            shown = broker.image.topics.get(topic.topic_name)
            for wanted in topic.partitions:
                number = wanted.partition_index
                if refusal is None and shown is not None and 0 <= number < len(shown.partitions):
                    if wanted.start_offset < 0:
                        refusal_of_offset = f"The start offset {wanted.start_offset} is negative."
                        errors[topic.topic_name, number] = KafkaError(ErrorCode.INVALID_REQUEST, refusal_of_offset)
                    else:
                        offsets[shown.topic_id, number] = wanted.start_offset
                        names[shown.topic_id, number] = topic.topic_name
                else:
                    errors[topic.topic_name, number] = refusal or KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not offsets:
            return _response(broker, request, errors)
        epoch = broker.groups.shard(exchange, group_id).share.next_state_epoch(group_id, exchange.now)
    except KafkaError as error:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)

    def altered(failed: Mapping[tuple[UUID, int], KafkaError], now: Now) -> None:
        for (topic_id, number), error in failed.items():
            errors[names[topic_id, number], number] = error
        stored = {partition: name for partition, name in names.items() if partition not in failed}
        try:
            broker.groups.shard(exchange, group_id).share.has_state(group_id, stored, now)
        except KafkaError as error:
            errors.update({(name, number): error for (_, number), name in stored.items()})
        if not exchange.cancelled:
            exchange.answer(_response(broker, request, errors))

    broker.persister.initialize_all(group_id, offsets, state_epoch=epoch, on_results=altered, now=exchange.now)
    return None


def _refusal(broker: BrokerServices, exchange: Exchange, topic: str) -> KafkaError | None:
    try:
        broker.authorization.check(exchange, Operation.READ, Resource.topic(topic))
    except KafkaError as error:
        return error
    return None


def _response(
    broker: BrokerServices, request: AlterShareGroupOffsetsRequest, errors: Mapping[tuple[str, int], KafkaError]
) -> AlterShareGroupOffsetsResponse:
    topics = []
    for topic in request.topics:
        shown = broker.image.topics.get(topic.topic_name)
        partitions = []
        for wanted in topic.partitions:
            error = errors.get((topic.topic_name, wanted.partition_index))
            partitions.append(
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=wanted.partition_index,
                    error_code=ErrorCode.NONE if error is None else error.code,
                    error_message=None if error is None else error.message,
                )
            )
        hidden = any(each.error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED for each in partitions)
        topic_id = ZERO_TOPIC_ID if shown is None or hidden else shown.topic_id
        topics.append(
            AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name, topic_id=topic_id, partitions=tuple(partitions)
            )
        )
    return AlterShareGroupOffsetsResponse(responses=tuple(topics))
