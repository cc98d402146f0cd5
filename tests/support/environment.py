"""What the processes that tests start find in their environment."""

from __future__ import annotations

import os

WORKER_NICENESS = "RAY_worker_niceness"
"""Ray runs its workers, and so our actors, at niceness 15: beside other tests they would hardly be scheduled."""


def set_worker_niceness() -> None:
    os.environ.setdefault(WORKER_NICENESS, "0")


def without_ray() -> dict[str, str]:
    """The environment of this process as that of a user who has set nothing for Ray."""
    return {name: value for name, value in os.environ.items() if name == WORKER_NICENESS or not name.startswith("RAY_")}
