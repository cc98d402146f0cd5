"""DeleteShareGroupOffsets (key 92), v0: delete the start offsets of topics in a share group without members (KIP-932).

The group then begins where share.auto.offset.reset says. Requires DELETE on the group and READ on each topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from raylog.broker.share.member_requests import check_enabled
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID
from raylog.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(
    broker: BrokerServices, exchange: Exchange, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse | None:
    group_id = request.group_id
    errors: dict[str, KafkaError] = {}
    ids: dict[str, UUID] = {}
    try:
        check_enabled(broker)
        broker.authorization.check(exchange, Operation.DELETE, Resource.group(group_id))
        share = broker.groups.shard(exchange, group_id).share
        group = share.empty(group_id)
    except KafkaError as error:
        return _refused(error)
    for topic in request.topics:
        try:
            broker.authorization.check(exchange, Operation.READ, Resource.topic(topic.topic_name))
            shown = broker.image.topics.get(topic.topic_name)
            if shown is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            ids[topic.topic_name] = shown.topic_id
        except KafkaError as error:
            errors[topic.topic_name] = error
    known = group.initialized | group.initializing
    partitions = frozenset(partition for partition in known if partition[0] in ids.values())
    try:
        share.begin_deletion(group_id, partitions, exchange.now)
    except KafkaError as error:
        return _refused(error)

    def deleted(failed: Mapping[tuple[UUID, int], KafkaError], now: Now) -> None:
        of_topic = {topic_id: error for (topic_id, _), error in failed.items()}
        errors.update({name: of_topic[topic_id] for name, topic_id in ids.items() if topic_id in of_topic})
        try:
            shard = broker.groups.shard(exchange, group_id)
            shard.share.has_no_state(group_id, partitions - failed.keys(), now)
        except KafkaError as error:
            errors.update(dict.fromkeys(ids, error))
        if not exchange.cancelled:
            exchange.answer(
                DeleteShareGroupOffsetsResponse(
                    responses=tuple(
                        DeleteShareGroupOffsetsResponseTopic(
                            topic_name=topic.topic_name,
                            topic_id=ids.get(topic.topic_name, ZERO_TOPIC_ID),
                            error_code=errors[topic.topic_name].code if topic.topic_name in errors else ErrorCode.NONE,
                            error_message=errors[topic.topic_name].message if topic.topic_name in errors else None,
                        )
                        for topic in request.topics
                    )
                )
            )

    broker.persister.delete_all(group_id, partitions, deleted, exchange.now)
    return None


def _refused(error: KafkaError) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
