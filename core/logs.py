"""(shell) Formats log events as lines: time, level, logger, the event, and its fields.

    2026-08-01T12:00:00.250Z INFO raylog.broker segment rolled tp=flights-0 base_offset=1200

With RAYLOG_LOG_FORMAT=json each line is a JSON object instead, for programs that collect logs:

    {"time": "2026-08-01T12:00:00.250Z", "level": "INFO", "logger": "raylog.broker", "event": "segment rolled",
     "tp": "flights-0", "base_offset": 1200}

Events carry their fields in `extra`, which Python's own formatter leaves out. Whatever text a client has put into a
field, it stays on its line and contains no control characters.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

LEVEL_VARIABLE = "RAYLOG_LOG_LEVEL"
DEFAULT_LEVEL = "INFO"
FORMAT_VARIABLE = "RAYLOG_LOG_FORMAT"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_NOT_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PLAIN = re.compile(r"[^\s\"=\\]+")


class EventFormatter(logging.Formatter):
    """One line per event, followed by the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        fields = [f"{name}={_text(value)}" for name, value in _fields(record)]
        line = " ".join([_time(record), record.levelname, record.name, record.getMessage(), *fields])
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(EventFormatter):
    """One JSON object per event, with its fields as members and its traceback as `exception`.

    A field whose name is one of the other members gets an underscore.
    """

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        for name, value in _fields(record):
            plain = value is None or isinstance(value, bool | int)
            event[f"{name}_" if name in event else name] = value if plain else str(value)
        return json.dumps(event)


def log_to_stderr() -> None:
    """Log raylog's events of the level in RAYLOG_LOG_LEVEL and above to stderr. Further calls have no effect.

    Single loggers can have levels of their own, such as the authorizer's: `INFO,raylog.authorizer=DEBUG`. An unknown
    level or format is replaced by the default: a process must not fail because of its log.
    """
    logger = logging.getLogger("raylog")
    if any(isinstance(handler.formatter, EventFormatter) for handler in logger.handlers):
        return
    handler = logging.StreamHandler(sys.stderr)
    as_json = os.environ.get(FORMAT_VARIABLE, "").strip().lower() == "json"
    handler.setFormatter(JsonFormatter() if as_json else EventFormatter())
    logger.addHandler(handler)
    logger.propagate = False
    level, *own_levels = os.environ.get(LEVEL_VARIABLE, DEFAULT_LEVEL).split(",")
    logger.setLevel(_known(level))
    for each in own_levels:
        name, _, level = each.partition("=")
        if name.strip():
            logging.getLogger(name.strip()).setLevel(_known(level))


def _known(level: str) -> str:
    level = level.strip().upper()
    return level if level in LEVELS else DEFAULT_LEVEL


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """Without those of other libraries, such as Ray's _ray_timestamp_ns."""
    attributes = vars(record).items()
    return ((name, value) for name, value in attributes if name not in _NOT_FIELDS and not name.startswith("_"))


def _text(value: object) -> str:
    """The value as one word; quoted as JSON if it contains spaces or characters that cannot be printed."""
    text = str(value)
    if not text.isprintable():
        return json.dumps(text).replace("\x7f", "\\u007f")
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
