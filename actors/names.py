"""The names of a cluster's actors in Ray, and of their states."""

from __future__ import annotations

import re

from raylog.core.errors import ConfigError
from raylog.metadata.node_roles import COORDINATOR_ROLES, NodeRole, role_of

NAMESPACE_PREFIX = "raylog/"
SUPERVISOR_NAME = "supervisor"
GATEWAY_NAME = "gateway"
CHANGE_NAME = "change"
"""The actor that locks the cluster while brokers are added, removed or restarted."""
STOPPED = "stopped"
"""The state of a node that was asked to stop, and serves no more; its actor remains until it is killed."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def namespace_of(cluster: str) -> str:
    return f"{NAMESPACE_PREFIX}{cluster}"


def check_name(cluster: str) -> None:
    """Raises ConfigError for an invalid cluster name."""
    if not _NAME.fullmatch(cluster):
        raise ConfigError(
            f"name={cluster!r}: must be up to 100 letters, digits, '.', '_' and '-', a letter or digit first"
        )


def node_name(node_id: int) -> str:
    """The name of the node's actor: its role, and its number among the nodes of that role."""
    role = role_of(node_id)
    return f"{role.value}-{node_id - role.first_id}"


def node_id_of(node: str) -> int:
    """The reverse of `node_name`."""
    return NodeRole(node.rpartition("-")[0]).first_id + number_of(node)


def broker_name(broker_id: int) -> str:
    return f"{NodeRole.BROKER.value}-{broker_id}"


def controller_name(number: int) -> str:
    return f"{NodeRole.CONTROLLER.value}-{number}"


def is_broker(node: str) -> bool:
    return _is_a(node, NodeRole.BROKER)


def is_controller(node: str) -> bool:
    return _is_a(node, NodeRole.CONTROLLER)


def is_coordinator(node: str) -> bool:
    return any(_is_a(node, role) for role in COORDINATOR_ROLES)


def is_node(node: str) -> bool:
    """Whether this is the name of an actor that is a node of the cluster."""
    return is_broker(node) or is_controller(node) or is_coordinator(node)


def number_of(node: str) -> int:
    """The number in the name of a node."""
    return int(node.rpartition("-")[2])


def by_number(node: str) -> tuple[bool, int]:
    """Sort key: controllers, brokers, then coordinators, each in the order of their numbers."""
    return not is_controller(node), node_id_of(node)


def _is_a(node: str, role: NodeRole) -> bool:
    return node.startswith(f"{role.value}-")
