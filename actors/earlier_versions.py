"""What nodes of an earlier version send is read: during an upgrade, nodes of both versions run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any


def set_state(target: Any, state: Sequence[object]) -> None:
    """`__setstate__` of a dataclass with slots: its last fields may be unknown to the sender, and have their defaults.

    New fields must therefore come last and have defaults. A later version's further fields are ignored.
    """
    known = fields(target)
    for field, value in zip(known, state, strict=False):
        object.__setattr__(target, field.name, value)
    for field in known[len(state) :]:
        value = field.default if field.default_factory is MISSING else field.default_factory()
        object.__setattr__(target, field.name, value)
