"""What the requests of share group members have in common: who may send them, and where a partition is led."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, NO_LEADER_EPOCH, BrokerId, TopicPartition
from raylog.metadata.features import SHARE_FEATURE

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def check_enabled(broker: BrokerServices) -> None:
    """Raises KafkaError(UNSUPPORTED_VERSION) while there may be nodes that do not know share groups."""
    if not broker.image.feature_level(SHARE_FEATURE):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Share groups are not enabled.")


def check_member(request: Any) -> tuple[str, str]:
    """Group and member id of a request. Raises KafkaError(INVALID_REQUEST) without one of them."""
    if not request.group_id or not request.member_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId and MemberId can't be empty.")
    return request.group_id, request.member_id


def leader_of(broker: BrokerServices, partition: tuple[UUID, int]) -> tuple[int, int]:
    """Id and epoch of the leader that the partition has, as far as this broker knows; -1 if it has none."""
    topic = broker.image.topics_by_id.get(partition[0])
    shown = None if topic is None else broker.image.partition(TopicPartition(topic.name, partition[1]))
    return (NO_BROKER_ID, NO_LEADER_EPOCH) if shown is None else (shown.leader, shown.leader_epoch)


def node_endpoints(
    broker: BrokerServices, exchange: Exchange, leaders: Iterable[int]
) -> list[tuple[BrokerId, str, int, str | None]]:
    """(id, host, port, rack) of these brokers on the listener of the client."""
    wanted = set(leaders) - {NO_BROKER_ID}
    if not wanted:
        return []
    return [each for each in broker.alive_on(exchange.connection.listener.name) if each[0] in wanted]
