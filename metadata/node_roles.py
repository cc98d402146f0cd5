"""The roles of nodes, which their ids show: each role has a thousand ids of its own.

Coordinators are brokers that lead the partitions of one internal topic and hold no others. Kafka's registration has no
field for a role, and stock tools see nothing of a node but its id, so that the id is the role.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from raylog.core.ids import BrokerId

IDS_PER_ROLE: Final = 1000


class NodeRole(Enum):
    """The roles of nodes, in the order of their ids: 0 to 999 are brokers, 1000 to 1999 controllers, and so on."""

    BROKER = "broker"
    CONTROLLER = "controller"
    GROUP_COORDINATOR = "group-coordinator"
    TRANSACTION_COORDINATOR = "transaction-coordinator"

    @property
    def first_id(self) -> BrokerId:
        return BrokerId(IDS_PER_ROLE * list(NodeRole).index(self))


def role_of(node_id: int) -> NodeRole:
    """The role of a node of this cluster."""
    return list(NodeRole)[min(max(node_id, 0) // IDS_PER_ROLE, len(NodeRole) - 1)]


FIRST_COORDINATOR_ID: Final = NodeRole.GROUP_COORDINATOR.first_id
COORDINATOR_ROLES: Final = (NodeRole.GROUP_COORDINATOR, NodeRole.TRANSACTION_COORDINATOR)
COORDINATOR_IDS: Final = range(FIRST_COORDINATOR_ID, FIRST_COORDINATOR_ID + len(COORDINATOR_ROLES) * IDS_PER_ROLE)
ROLE_OF_TOPIC: Final[Mapping[str, NodeRole]] = {
    "__consumer_offsets": NodeRole.GROUP_COORDINATOR,
    "__share_group_state": NodeRole.GROUP_COORDINATOR,
    "__transaction_state": NodeRole.TRANSACTION_COORDINATOR,
}
"""Whose nodes lead the partitions of an internal topic, if there are any."""


def is_coordinator(node_id: int) -> bool:
    """Whether the node holds replicas of an internal topic only, in addition to those of brokers."""
    return node_id >= FIRST_COORDINATOR_ID


def coordinators_of(topic: str, nodes: Iterable[BrokerId]) -> list[BrokerId]:
    """Those of `nodes` that coordinate by the partitions of this topic, in the order of their ids."""
    role = ROLE_OF_TOPIC.get(topic)
    if role is None:
        return []
    return sorted(node for node in nodes if role.first_id <= node < role.first_id + IDS_PER_ROLE)


def only_brokers(replicas: Iterable[BrokerId]) -> tuple[BrokerId, ...]:
    """The replicas of a partition without those of coordinators, which do not count for its replication factor."""
    return tuple(replica for replica in replicas if replica < FIRST_COORDINATOR_ID)
