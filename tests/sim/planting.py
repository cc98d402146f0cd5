"""Planted mistakes that the simulator must find: each temporarily replaces production functions by faulty ones.

Production code has no hooks for this. A replacement is written as the mistake would be, with a missing step or a wrong
assumption. `tests/sim/test_planted.py` runs each under its recorded seed, and `script/sim --plant NAME` searches the
first seed that finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Replacement = tuple[Any, str, Any]
"""The owner of the attribute, its name, and the replacement."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A mistake: its description, its replacements, a seed whose run finds it soon, and the failure."""

    name: str
    what: str
    replacements: Callable[[], list[Replacement]]
    seed: int | None
    """None: none of the tried seeds finds it."""
    complaint: str = ""
    """Part of the failure message."""


@contextmanager
def planted(fault: Planted) -> Iterator[None]:
    """Within the context every simulated node has the fault."""
    with replaced(fault.replacements()):
        yield


@contextmanager
def replaced(replacements: list[Replacement]) -> Iterator[None]:
    """Within the context these attributes are replaced."""
    before: list[Replacement] = []
    try:
        for owner, name, wrong in replacements:
            before.append((owner, name, vars(owner)[name]))
            setattr(owner, name, wrong)
        yield
    finally:
        for owner, name, right in reversed(before):
            setattr(owner, name, right)
