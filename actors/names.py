"""The names of a cluster's actors in Ray."""

from __future__ import annotations

import re

from raylog.core.errors import ConfigError

NAMESPACE_PREFIX = "raylog/"
SUPERVISOR_NAME = "supervisor"
CHANGE_NAME = "change"
"""The actor that locks the cluster while brokers are added, removed or restarted."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def namespace_of(cluster: str) -> str:
    return f"{NAMESPACE_PREFIX}{cluster}"


def check_name(cluster: str) -> None:
    """Raises ConfigError for an invalid cluster name."""
    if not _NAME.fullmatch(cluster):
        raise ConfigError(
            f"name={cluster!r}: must be up to 100 letters, digits, '.', '_' and '-', a letter or digit first"
        )


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
