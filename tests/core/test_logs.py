"""Log lines contain an event and its fields, and the level follows RAYLOG_LOG_LEVEL."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from raylog.core.logs import EventFormatter, JsonFormatter, log_to_stderr


def line(message: str, *, formatter: logging.Formatter | None = None, **fields: object) -> str:
    record = logging.LogRecord("raylog.test", logging.WARNING, __file__, 1, message, None, None)
    record.created = 1_785_585_600.25
    vars(record).update(fields)
    return (formatter or EventFormatter()).format(record)


def test_fields_follow_the_event() -> None:
    assert line("segment rolled", tp="flights-0", base_offset=1200) == (
        "2026-08-01T12:00:00.250Z WARNING raylog.test segment rolled tp=flights-0 base_offset=1200"
    )


def test_what_other_libraries_add_to_a_record_is_no_field() -> None:
    """Ray does so in each process that imports it."""
    assert line("segment rolled", _ray_timestamp_ns=1, tp="flights-0").endswith("segment rolled tp=flights-0")


def test_values_that_are_not_a_single_word_are_quoted() -> None:
    assert line("refused", reason='disk "a" is full\nnow', empty="", pair="a=b").endswith(
        r'refused reason="disk \"a\" is full\nnow" empty="" pair="a=b"'
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a\x1b[2J", r'"a\u001b[2J"'),
        ("a\u2028b", r'"a\u2028b"'),
        ("a\x85b", r'"a\u0085b"'),
        ("a\x7f", r'"a\u007f"'),
        ("\ud800", r'"\ud800"'),
        ("Zürich", "Zürich"),
    ],
)
def test_characters_that_cannot_be_printed_are_escaped(value: str, shown: str) -> None:
    assert line("refused", topic=value).endswith(f"refused topic={shown}")


def test_a_traceback_follows_on_its_own_lines() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        first, *rest = line("request failed", peer="::1", exc_info=sys.exc_info()).splitlines()
    assert first.endswith("request failed peer=::1")
    assert (rest[0], rest[-1]) == ("Traceback (most recent call last):", "ValueError: broken")


def test_events_as_json() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        told = line(
            "request failed",
            formatter=JsonFormatter(),
            tp="flights-0",
            bytes=1200,
            level="\x1b\n\u2028\ud800",
            ratio=float("nan"),
            sync=True,
            of=None,
            exc_info=sys.exc_info(),
        )
    assert told.isascii()
    assert told.isprintable()
    event = json.loads(told)
    assert event.pop("exception").endswith("ValueError: broken")
    assert event == {
        "time": "2026-08-01T12:00:00.250Z",
        "level": "WARNING",
        "logger": "raylog.test",
        "event": "request failed",
        "tp": "flights-0",
        "bytes": 1200,
        "level_": "\x1b\n\u2028\ud800",
        "ratio": "nan",
        "sync": True,
        "of": None,
    }


@pytest.fixture
def raylog_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("raylog")
    before = (logger.handlers[:], logger.level, logger.propagate)
    logger.handlers.clear()
    yield logger
    logger.handlers[:], logger.level, logger.propagate = before


@pytest.mark.parametrize(("named", "level"), [("debug", "DEBUG"), ("ERROR", "ERROR"), ("loud", "INFO"), ("", "INFO")])
def test_the_level_comes_from_the_environment(
    raylog_logger: logging.Logger, monkeypatch: pytest.MonkeyPatch, named: str, level: str
) -> None:
    monkeypatch.setenv("RAYLOG_LOG_LEVEL", named)
    log_to_stderr()
    log_to_stderr()
    assert logging.getLevelName(raylog_logger.level) == level
    assert sum(isinstance(handler.formatter, EventFormatter) for handler in raylog_logger.handlers) == 1


@pytest.mark.parametrize(
    ("named", "formatter"), [("JSON", JsonFormatter), ("xml", EventFormatter), ("", EventFormatter)]
)
def test_the_format_comes_from_the_environment(
    raylog_logger: logging.Logger, monkeypatch: pytest.MonkeyPatch, named: str, formatter: type
) -> None:
    monkeypatch.setenv("RAYLOG_LOG_FORMAT", named)
    log_to_stderr()
    own = [each.formatter for each in raylog_logger.handlers if isinstance(each.formatter, EventFormatter)]
    assert [type(each) for each in own] == [formatter]  # pytest has a handler too


def test_single_loggers_can_have_levels_of_their_own(
    raylog_logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, root_level = logging.getLogger("raylog.test-own"), logging.getLogger().level
    monkeypatch.setenv("RAYLOG_LOG_LEVEL", "warning, raylog.test-own=debug,")
    log_to_stderr()
    assert logging.getLevelName(raylog_logger.level) == "WARNING"
    assert own.isEnabledFor(logging.DEBUG)
    assert logging.getLogger().level == root_level
