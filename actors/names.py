"""The names of a cluster's actors in Ray."""

from __future__ import annotations

SUPERVISOR_NAME = "supervisor"
CHANGE_NAME = "change"
"""The actor that locks the cluster while brokers are added, removed or restarted."""


def namespace_of(cluster: str) -> str:
    return f"raylog/{cluster}"


def broker_name(broker_id: int) -> str:
    return f"broker-{broker_id}"


def controller_name(number: int) -> str:
    return f"controller-{number}"


def is_broker(node: str) -> bool:
    return node.startswith("broker-")


def is_controller(node: str) -> bool:
    return node.startswith("controller-")


def number_of(node: str) -> int:
    """The number in the name of a broker or a controller."""
    return int(node.rpartition("-")[2])


def by_number(node: str) -> tuple[bool, int]:
    """Sort key: controllers before brokers, each in the order of their numbers."""
    return is_broker(node), number_of(node)
