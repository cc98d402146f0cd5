"""What is wrong with a mirror, as its commands print it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from raylog.actors.mirror import ActorStatus

QUIET_SECONDS: Final = 60.0
"""A fault that was gone for less than this is not new."""
NEW_MAX: Final = 20
"""Lines that are printed at a time."""


def flow_faults(actors: Sequence[ActorStatus]) -> list[str]:
    """Those of flows and of their control."""
    flows = [flow for actor in actors for flow in actor.flows]
    lines = [f"{flow.flow}: {error}" for flow in flows for error in flow.errors]
    for flow in flows:
        for task in flow.control:
            reasons = task.problems if task.error is None else (task.error,)
            lines += [f"{flow.flow}: {task.task}: {reason}" for reason in reasons]
    return lines


def partition_faults(actors: Sequence[ActorStatus]) -> list[str]:
    """Each error once, however many partitions have it."""
    found = [
        f"{flow.flow}: {each.error}"
        for actor in actors
        for flow in actor.flows
        for each in flow.partitions
        if each.error
    ]
    return list(dict.fromkeys(found))


class FaultNews:
    """Which faults of a running mirror have not been told yet."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}
        """When each was there last, in seconds."""

    def new(self, faults: Iterable[str], now: float) -> list[str]:
        """The lines to print; of very many the first ones."""
        found = dict.fromkeys(faults, now)
        fresh = [text for text in found if text not in self._seen]
        recent = {text: seen for text, seen in self._seen.items() if now - seen < QUIET_SECONDS}
        self._seen = recent | found
        if len(fresh) > NEW_MAX:
            return [*fresh[:NEW_MAX], f"and {len(fresh) - NEW_MAX} more, which raylog mirror status shows"]
        return fresh
