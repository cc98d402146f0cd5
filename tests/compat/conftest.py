"""One broker for all of tests/compat; each test looks back whether the broker erred or hung up on a client."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_thread import RunningBroker, broker_thread

QUIET_REASONS = {"closed by the peer", "the broker stops"}


class Complaints(logging.Handler):
    """What the broker logs when something is wrong: with itself, or with what a client has sent."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        reason = getattr(record, "reason", None)
        if record.levelno >= logging.WARNING or (record.msg == "connection closed" and reason not in QUIET_REASONS):
            self.lines.append(f"{record.getMessage()}: {reason or record.exc_info}")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with broker_thread({}, tmp_path_factory.mktemp("compat") / "broker-0") as running:
        yield running


@pytest.fixture
def bootstrap_servers(broker: RunningBroker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def log_path(broker: RunningBroker) -> Path:
    return broker.log_path


@pytest.fixture(autouse=True)
def complaints() -> Iterator[Complaints]:
    """A test that expects complaints clears `lines`; every other one fails by them."""
    logger = logging.getLogger("raylog")
    heard = Complaints()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(heard)
    yield heard
    logger.removeHandler(heard)
    logger.setLevel(level)
    assert not heard.lines, heard.lines
