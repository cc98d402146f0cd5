"""The levels of this broker's loggers, which administrators change while it runs (KIP-412).

They are those of the process: a restart brings back RAYLOG_LOG_LEVEL. Levels have Kafka's names; `raylog` is the root,
whose level loggers have that have none of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from raylog.core.config import shown
from raylog.core.errors import ErrorCode, KafkaError

ROOT: Final = "raylog"
TRACE: Final = 5
LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}


def levels() -> dict[str, str]:
    """The effective level of each logger, by name."""
    known = logging.root.manager.loggerDict
    names = {ROOT, *(name for name, found in known.items() if name.startswith(f"{ROOT}.") and _is_logger(found))}
    return {name: _shown(logging.getLogger(name).getEffectiveLevel()) for name in sorted(names)}


def check_levels(changes: Mapping[str, str | None]) -> None:
    """Check that these levels can be set; None removes a level. Raises KafkaError."""
    known = levels()
    for name, level in changes.items():
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {shown(name)} does not exist.")
        if level is None:
            if name == ROOT:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"The level of the root logger, {ROOT}, cannot be deleted.")
        elif level not in LEVELS:
            message = f"Logger {name}: level {shown(level)} is unknown; it must be one of {', '.join(LEVELS)}."
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)


def set_levels(changes: Mapping[str, str | None]) -> None:
    """Set checked levels."""
    for name, level in changes.items():
        logging.getLogger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _is_logger(found: object) -> bool:
    return isinstance(found, logging.Logger)  # else the place of a logger that has only children


def _shown(level: int) -> str:
    """The least severe of the known levels that is logged."""
    return min(((known, name) for name, known in LEVELS.items() if known >= level), default=(level, "FATAL"))[1]
