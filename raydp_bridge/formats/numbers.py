"""Numbers that are written only if the type has them. Pure."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, Final

_FLOAT32_MAX: Final = (2 - 2.0**-23) * 2.0**127


def as_whole(value: Any, least: int, greatest: int) -> int:
    """The integer that a number of Arrow is equal to. Raises TypeError, ValueError and OverflowError."""
    if type(value) is not int and not isinstance(value, (float, Decimal)):
        raise TypeError(f"an integer is required, not {type(value).__name__}")
    whole = int(value)
    if whole != value:
        raise ValueError(f"{value} is not an integer")
    if not least <= whole <= greatest:
        raise ValueError(f"{value} must be between {least} and {greatest}")
    return whole


def as_float32(value: float) -> float:
    """Raises ValueError for a number that float32 does not have; digits that it does not have are rounded."""
    if math.isfinite(value) and abs(value) > _FLOAT32_MAX:
        raise ValueError(f"{value} exceeds a float")
    return value
