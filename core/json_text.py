"""JSON text that others have written."""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar

T = TypeVar("T")
_KINDS: Final[dict[type, str]] = {str: "text", int: "a whole number", list: "an array"}


def parse_json(text: str | bytes) -> Any:
    """The value of `text`. Raises ValueError, also if it is nested too deeply or contains what UTF-8 cannot encode."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # refuses lone surrogates, which no request can contain
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def field_of(entry: Any, name: str, kind: type[T], *, at: str) -> T:
    """The field of the object that is called `at`. Raises ValueError if it is missing or of another type."""
    if not isinstance(entry, dict):
        raise ValueError(f"{at} must be an object, not {json.dumps(entry):.100}")
    if name not in entry:
        raise ValueError(f"{at} has no field {name!r}")
    return element_of(entry[name], kind, at=f"{name!r} of {at}")


def element_of(value: Any, kind: type[T], *, at: str) -> T:
    """`value`, which is called `at`. Raises ValueError if it is of another type."""
    if type(value) is not kind:
        raise ValueError(f"{at} must be {_KINDS[kind]}, not {json.dumps(value):.100}")
    return value
