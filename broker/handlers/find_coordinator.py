"""FindCoordinator (key 10), v0-6: the broker that coordinates a group, or the transactions of a transactional id.

v1 key types (0: group, 1: transactional id, 2: share group); v3 flexible; v4 several keys at once (KIP-699); v6 share
groups, whose keys are `group:topic id:partition`. Requires DESCRIBE on each group or transactional id, and for share
groups CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from raylog.broker.share.member_requests import check_enabled
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId
from raylog.groupcoord.shards import OFFSETS_TOPIC
from raylog.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from raylog.security.acl import CLUSTER, Operation, Resource
from raylog.sharecoord.records import parse_key
from raylog.sharecoord.shards import SHARE_STATE_TOPIC
from raylog.txncoord.shards import TRANSACTION_TOPIC

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange

SHARE = 2
FIRST_VERSION_WITH_SHARE = 6
STEP_KEYS = 200
"""How many coordinators are looked up between two requests of other connections."""
_KINDS = {0: (OFFSETS_TOPIC, Resource.group), 1: (TRANSACTION_TOPIC, Resource.transactional_id)}
"""By key type: the topic that stores them, and the resource of the ACL check."""


def handle(
    broker: BrokerServices, exchange: Exchange, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | None:
    if exchange.api_version >= 4:
        exchange.answer_in_steps(_find_all(broker, exchange, request))
        return None
    one = _find(broker, exchange, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


def _find_all(
    broker: BrokerServices, exchange: Exchange, request: FindCoordinatorRequest
) -> Generator[None, None, FindCoordinatorResponse]:
    found = []
    for number, key in enumerate(request.coordinator_keys, 1):
        found.append(_find(broker, exchange, key, request.key_type))
        if number % STEP_KEYS == 0:
            yield
    return FindCoordinatorResponse(coordinators=tuple(found))


def _find(broker: BrokerServices, exchange: Exchange, key: str, key_type: int) -> Coordinator:
    try:
        if key_type == SHARE:
            broker.authorization.check(exchange, Operation.CLUSTER_ACTION, CLUSTER)
            if exchange.api_version < FIRST_VERSION_WITH_SHARE or parse_key(key) is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key!r} is not the key of a share-partition.")
            check_enabled(broker)
            topic = SHARE_STATE_TOPIC
        elif key_type in _KINDS:
            topic, resource = _KINDS[key_type]
            broker.authorization.check(exchange, Operation.DESCRIBE, resource(key))
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Key type {key_type} is not supported.")
        coordinator, host, port = _leader_of(broker, exchange, topic, key)
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=NO_BROKER_ID, host="", port=-1, error_code=error.code, error_message=error.message
        )
    return Coordinator(key=key, node_id=coordinator, host=host, port=port)


def _leader_of(broker: BrokerServices, exchange: Exchange, name: str, key: str) -> tuple[BrokerId, str, int]:
    """The leader of the partition that stores the key. Raises KafkaError(COORDINATOR_NOT_AVAILABLE)."""
    tp, leader = broker.find_coordinator(name, key, exchange.now)
    for broker_id, host, port, _ in broker.alive_on(exchange.connection.listener.name):
        if broker_id == leader:
            return broker_id, host, port
    raise KafkaError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        f"The leader of {tp}, which is the coordinator, has no endpoint on this listener or is not alive.",
    )
