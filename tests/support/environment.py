"""The environment of processes that tests start."""

from __future__ import annotations

import os
from typing import Any, Final

WORKER_NICENESS = "RAY_worker_niceness"
"""Ray runs its workers, and so our actors, at niceness 15: next to other tests they would hardly be scheduled."""


WITHOUT_COORDINATORS: Final[dict[str, Any]] = {"group_coordinators": 0, "transaction_coordinators": 0}
"""For `raylog.start` with several brokers: the start of an actor takes about a second of CPU time."""


def set_worker_niceness() -> None:
    os.environ.setdefault(WORKER_NICENESS, "0")


def without_ray() -> dict[str, str]:
    """The environment of this process without settings for Ray."""
    return {name: value for name, value in os.environ.items() if name == WORKER_NICENESS or not name.startswith("RAY_")}
