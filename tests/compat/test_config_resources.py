"""kafka-python, the only stock client that requests them, lists the configurable resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient

from tests.compat.topics import create_topic

pytestmark = pytest.mark.compat


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    yield client
    client.close()


def test_all_resources(admin: Any, bootstrap_servers: str) -> None:
    create_topic(bootstrap_servers, "configurable", partitions=1)
    listed = admin.list_config_resources()
    assert listed.keys() == {"broker", "broker_logger", "topic"}
    assert sorted(listed["broker"]) == sorted(listed["broker_logger"]) == ["0", "1", "2"]
    assert "configurable" in listed["topic"]


def test_resources_by_type(admin: Any) -> None:
    assert admin.list_config_resources(["BROKER"]).keys() == {"broker"}
    assert admin.list_config_resources(["GROUP", "CLIENT_METRICS"]) == {}
