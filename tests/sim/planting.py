"""Mistakes that the simulator must find: each puts something wrong in the place of a production function, for a while.

Production code has no hooks for this. A replacement is written as the mistake would be: what is left out of it, or
taken for granted, is the point. `tests/sim/test_planted.py` runs each under the seed that is noted with it, and
`script/sim --plant NAME` looks for the first seed that finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Replacement = tuple[Any, str, Any]
"""Whose attribute, its name, and what stands there instead."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A mistake: what is wrong, how, the first seed whose run finds it, and how that fails."""

    name: str
    what: str
    replacements: Callable[[], list[Replacement]]
    seed: int | None
    """None: no seed of those that were tried."""
    complaint: str = ""
    """Part of what is said of it."""


@contextmanager
def planted(fault: Planted) -> Iterator[None]:
    """While it lasts, every simulated node has the fault."""
    before: list[Replacement] = []
    try:
        for owner, name, wrong in fault.replacements():
            before.append((owner, name, vars(owner)[name]))
            setattr(owner, name, wrong)
        yield
    finally:
        for owner, name, right in reversed(before):
            setattr(owner, name, right)
