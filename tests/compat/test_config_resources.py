"""kafka-python, the one of our stock clients that asks for them, finds the topics and brokers that it can configure."""

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


def test_what_can_be_configured_is_listed(admin: Any, bootstrap_servers: str) -> None:
    create_topic(bootstrap_servers, "configurable", partitions=1)
    listed = admin.list_config_resources()
    assert listed.keys() == {"broker", "topic"}
    assert sorted(listed["broker"]) == ["0", "1", "2"]
    assert "configurable" in listed["topic"]


def test_kinds_are_asked_for_by_name(admin: Any) -> None:
    assert admin.list_config_resources(["BROKER"]).keys() == {"broker"}
    assert admin.list_config_resources(["GROUP", "CLIENT_METRICS", "BROKER_LOGGER"]) == {}
