"""(shell) The pytest plugin: the fixtures `raylog_cluster`, `raylog_topic` and `raylog_faults`.

raylog is imported when one of them is used, so that other runs of pytest do not wait for it. The first test that needs
the cluster starts it, for the whole run. It has as many brokers as the setting `raylog_brokers` says, and the
configuration in `raylog_config`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from raylog.testing.cluster import TestCluster


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("raylog_brokers", "number of brokers of raylog_cluster", default="1")
    parser.addini("raylog_config", "key=value of Kafka's broker configuration, one in a line", type="linelist")


@pytest.fixture(scope="session")
def raylog_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    """A cluster for all tests of the run; `raylog_cluster.bootstrap_servers` is for any Kafka client."""
    from raylog.testing.cluster import TestCluster

    brokers = request.config.getini("raylog_brokers").strip()
    if not brokers.isdecimal() or not 1 <= int(brokers) <= 100:
        raise pytest.UsageError(f"raylog_brokers={brokers!r}: must be a number from 1 to 100")
    config = {}
    for line in request.config.getini("raylog_config"):
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            raise pytest.UsageError(f"raylog_config: {line!r}: must be key=value")
        config[key.strip()] = value.strip()
    with TestCluster(tmp_path_factory.mktemp("raylog"), brokers=int(brokers), config=config) as cluster:
        yield cluster


@pytest.fixture
def raylog_topic(request: pytest.FixtureRequest, raylog_cluster: TestCluster) -> Iterator[str]:
    """A topic with one partition, which only this test has; it is deleted at the end."""
    from raylog.client.admin.admin_client import AdminClient
    from raylog.client.admin.topics import NewTopic
    from raylog.client.errors import UnknownTopicError

    name = f"{re.sub('[^A-Za-z0-9_.-]', '-', request.node.name)[:200]}-{uuid4().hex[:8]}"
    with AdminClient(bootstrap_servers=raylog_cluster.bootstrap_servers) as admin:
        admin.create_topics(NewTopic(name, num_partitions=1))
        yield name
        raylog_cluster.heal()
        with suppress(UnknownTopicError):  # the test has deleted it
            admin.delete_topics(name)


@pytest.fixture
def raylog_faults(raylog_cluster: TestCluster) -> Iterator[TestCluster]:
    """The cluster, for a test that kills, pauses, slows or refuses: all faults end with the test."""
    yield raylog_cluster
    raylog_cluster.heal()
