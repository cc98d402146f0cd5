"""Checks of arguments that several reads and writes have. Pure."""

from __future__ import annotations

from typing import Any

from raylog.client.given_values import shown
from raylog.core.errors import ConfigError
from raylog.raydp_bridge.partition_offsets import is_integer


def checked_integer(key: str, value: Any, least: int, most: int) -> int:
    """An integer, also one of numpy, as one of Python. Raises ConfigError."""
    if not is_integer(value) or not least <= value <= most:
        raise ConfigError(f"{key}={shown(value)}: must be an integer between {least} and {most}")
    return int(value)


def optional_integer(key: str, value: Any, least: int, most: int) -> int | None:
    """None, or as `checked_integer`."""
    return None if value is None else checked_integer(key, value, least, most)


def checked_flag(key: str, value: Any) -> bool:
    """Raises ConfigError: a text such as "false" would count as true."""
    if isinstance(value, bool):
        return value
    raise ConfigError(f"{key}={shown(value)}: must be True or False")
