"""What is wrong with a mirror, as its commands print it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from raylog.actors.mirror import ActorStatus

QUIET_SECONDS: Final = 60.0
"""A fault that reappears within this time is not printed again."""
NEW_MAX: Final = 20
"""Lines that are printed at a time."""
_NUMBERS: Final = re.compile("[0-9]+")
"""They change while the fault stays: offsets, attempts."""


def actor_and_flow_faults(actors: Sequence[ActorStatus]) -> list[str]:
    """Actors that do not run, and the errors of flows and of their control tasks."""
    lines = [f"actor {actor.number} is {actor.state}" for actor in actors if actor.state != "running"]
    flows = [flow for actor in actors for flow in actor.flows]
    lines += [f"{flow.flow}: {error}" for flow in flows for error in flow.errors]
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
    """Which faults of a running mirror were not printed yet."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}
        """When each was there last, in seconds; without the numbers of its text."""

    def new(self, faults: Iterable[str], now: float) -> list[str]:
        """The lines to print; of very many the first ones."""
        found: dict[str, str] = {}
        for text in faults:
            found.setdefault(_NUMBERS.sub("", text), text)
        fresh = [text for key, text in found.items() if key not in self._seen]
        recent = {key: seen for key, seen in self._seen.items() if now - seen < QUIET_SECONDS}
        self._seen = recent | dict.fromkeys(found, now)
        if len(fresh) > NEW_MAX:
            return [*fresh[:NEW_MAX], f"and {len(fresh) - NEW_MAX} more, which raylog mirror status shows"]
        return fresh
