"""In which order the nodes of a cluster are restarted with another configuration. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raylog.actors.names import by_number, is_controller


def restart_order(
    nodes: Sequence[str], running: Mapping[str, bool], *, controllers_first: bool
) -> list[tuple[str, ...]]:
    """Groups of nodes; a group is restarted when the one before it is complete.

    `running` are the nodes that run, and whether each is the active controller. The nodes that do not run are the first
    group, since they may need each other, and others may need them. Then each node is a group. The active controller
    follows the other controllers, so that there is one election.
    """

    def place(node: str) -> tuple[bool, bool, tuple[bool, int]]:
        return is_controller(node) != controllers_first, running[node], by_number(node)

    away = tuple(sorted((node for node in nodes if node not in running), key=by_number))
    return [*([away] if away else []), *((node,) for node in sorted(running, key=place))]
