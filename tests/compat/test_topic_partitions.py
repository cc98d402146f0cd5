"""kafka-python, the only stock client that requests pages of partitions, gets all of them in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient

from raylog.core.errors import ErrorCode
from tests.compat.topics import create_topic

pytestmark = pytest.mark.compat


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    yield client
    client.close()


def test_a_topic_is_returned_page_by_page(admin: Any, bootstrap_servers: str) -> None:
    create_topic(bootstrap_servers, "paged", partitions=5)
    seen = []
    cursor = None
    for size in (2, 2, 1):
        answer = admin.describe_topic_partitions(["paged"], response_partition_limit=2, cursor=cursor)
        (topic,) = answer["topics"]
        assert (topic["name"], topic["error_code"], len(topic["partitions"])) == ("paged", 0, size)
        seen += topic["partitions"]
        cursor = answer["next_cursor"]
    assert cursor is None
    assert [each["partition_index"] for each in seen] == [0, 1, 2, 3, 4]
    for each in seen:
        assert [each["leader_id"]] == each["replica_nodes"] == each["isr_nodes"]
        assert (each["leader_epoch"], each["offline_replicas"]) == (0, [])
    assert {each["leader_id"] for each in seen} == {0, 1, 2}


def test_an_unknown_topic_is_an_error(admin: Any) -> None:
    (topic,) = admin.describe_topic_partitions(["never-made"])["topics"]
    assert (topic["error_code"], topic["partitions"]) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
