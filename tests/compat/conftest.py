"""Three brokers for all of tests/compat; after each test their logs are checked for errors and closed connections."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from raylog.broker.handlers.appending import REFUSED_FOR_NOW
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.descriptors import kept

QUIET_REASONS = {"closed by the peer", "the node is stopping", REFUSED_FOR_NOW}
"""On a busy machine a broker may miss its heartbeats, so that another one leads."""


class Complaints(logging.Handler):
    """What the broker logs when something is wrong: with itself, or with what a client has sent."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == "slow turn":  # which says how busy the machine is
            return
        reason = getattr(record, "reason", None)
        if record.levelno >= logging.WARNING or (record.msg == "connection closed" and reason not in QUIET_REASONS):
            self.lines.append(f"{record.getMessage()}: {reason or record.exc_info}")


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    config, folder = {"default.replication.factor": "3"}, tmp_path_factory.mktemp("compat")
    with cluster_thread(config, folder, brokers=3) as running, kept(folder):
        yield running


@pytest.fixture
def bootstrap_servers(cluster: RunningCluster) -> str:
    return cluster.bootstrap_servers


@pytest.fixture(autouse=True)
def complaints(request: pytest.FixtureRequest) -> Iterator[Complaints]:
    """A test that expects complaints clears `lines`; every other one fails by them. What may be logged at any time in
    a file, such as after the test that caused it, contains one of the texts in the file's MAY_BE_LOGGED."""
    logger = logging.getLogger("raylog")
    heard = Complaints()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(heard)
    yield heard
    logger.removeHandler(heard)
    logger.setLevel(level)
    expected: tuple[str, ...] = getattr(request.module, "MAY_BE_LOGGED", ())
    unexpected = [line for line in heard.lines if not any(text in line for text in expected)]
    assert not unexpected, unexpected
