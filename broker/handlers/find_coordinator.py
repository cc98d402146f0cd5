"""FindCoordinator (key 10), v0-6: which broker keeps a group's offsets.

v1 key types (1: transactional id, 2: share group); v3 flexible; v4 several keys at once (KIP-699); v6 share groups.
There are no transactions and no share groups yet: their keys are refused. A transactional id gets the one code that
every client takes for final: at INVALID_REQUEST librdkafka asks again until its own timeout, or for ever.
Asks for DESCRIBE on each group or transactional id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.broker.groups import OFFSETS_TOPIC
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId
from raylog.groupcoord.offsets import partition_of_group
from raylog.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from raylog.security.acl import Operation, Resource

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.transport.request import RequestContext

GROUP = 0
TRANSACTION = 1


def handle(broker: Broker, context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.api_version >= 4:
        found = tuple(_find(broker, context, key, request.key_type) for key in request.coordinator_keys)
        return FindCoordinatorResponse(coordinators=found)
    one = _find(broker, context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


def _find(broker: Broker, context: RequestContext, key: str, key_type: int) -> Coordinator:
    try:
        if key_type == TRANSACTION:
            broker.check(context, Operation.DESCRIBE, Resource.transactional_id(key))
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactions are not served yet.")
        if key_type != GROUP:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Key type {key_type} is not served.")
        broker.check(context, Operation.DESCRIBE, Resource.group(key))
        coordinator, host, port = _leader_of(broker, context, key)
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=NO_BROKER_ID, host="", port=-1, error_code=error.code, error_message=error.message
        )
    return Coordinator(key=key, node_id=coordinator, host=host, port=port)


def _leader_of(broker: Broker, context: RequestContext, group: str) -> tuple[BrokerId, str, int]:
    """Who leads the partition that keeps the group. Raises KafkaError(COORDINATOR_NOT_AVAILABLE)."""
    topic = broker.image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        broker.ask_for_topic(OFFSETS_TOPIC, context.now)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is being created.")
    partition = topic.partitions[partition_of_group(group, len(topic.partitions))]
    for broker_id, host, port, _ in broker.alive_on(context.connection.listener.name):
        if broker_id == partition.leader:
            return broker_id, host, port
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC}-{partition.partition} has no leader.")
