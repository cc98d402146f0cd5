"""Stock admin clients change the configuration of topics and brokers at run time, and read it back."""

from __future__ import annotations

import warnings
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from raylog.controller.configs import ConfigOperation
from raylog.core.errors import ErrorCode
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster
from tests.support.hang import wait_until
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.compat

SECONDS = 20
_numbers = count()


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    name = f"altered-{next(_numbers)}"
    create_topic(bootstrap_servers, name, partitions=3)
    return name


@pytest.fixture
def admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(SECONDS)
    return found


def source_of(entry: ConfigEntry) -> int:
    """The number of the source in the protocol."""
    source: Any = entry.source
    return int(getattr(source, "value", source))


def change(
    admin: AdminClient, kind: ResourceType, name: str, *changes: tuple[str, AlterConfigOpType, str | None]
) -> None:
    entries = [ConfigEntry(key, value, incremental_operation=operation) for key, operation, value in changes]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(SECONDS)


def test_a_topic_is_changed_and_reset(admin: AdminClient, topic: str, cluster: RunningCluster) -> None:
    before = described(admin, ResourceType.TOPIC, topic)["retention.ms"]
    assert (before.value, source_of(before)) == ("604800000", 5)
    change(admin, ResourceType.TOPIC, topic, ("retention.ms", AlterConfigOpType.SET, "1234"))
    after = described(admin, ResourceType.TOPIC, topic)["retention.ms"]
    assert (after.value, source_of(after)) == ("1234", 1)
    partitions = [
        partition for broker in cluster.brokers for tp, partition in broker.partitions.items() if tp[0] == topic
    ]
    # The other brokers hear of a change a moment after the response.
    wait_until(lambda: {partition.log.settings.retention_ms for partition in partitions} == {1234})
    change(admin, ResourceType.TOPIC, topic, ("retention.ms", AlterConfigOpType.DELETE, None))
    assert described(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "604800000"


def test_alter_configs_replaces_the_whole_configuration(admin: AdminClient, topic: str) -> None:
    change(admin, ResourceType.TOPIC, topic, ("retention.ms", AlterConfigOpType.SET, "1234"))
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"flush.ms": "77"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        admin.alter_configs([resource])[resource].result(SECONDS)
    found = described(admin, ResourceType.TOPIC, topic)
    assert (found["flush.ms"].value, found["retention.ms"].value) == ("77", "604800000")


@pytest.mark.parametrize("value", ["soon", "-2"])
def test_an_invalid_value_is_refused_and_changes_nothing(admin: AdminClient, topic: str, value: str) -> None:
    with pytest.raises(KafkaException, match=r"retention\.ms"):
        change(admin, ResourceType.TOPIC, topic, ("retention.ms", AlterConfigOpType.SET, value))
    assert described(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "604800000"


def test_all_brokers_and_then_one_of_them(
    admin: AdminClient, topic: str, bootstrap_servers: str, cluster: RunningCluster
) -> None:
    """librdkafka does not let one name all brokers, so they are named by our own client."""
    key = "log.segment.bytes"
    change_all_brokers(bootstrap_servers, key, ConfigOperation.SET, "2000000")
    change(admin, ResourceType.BROKER, "1", (key, AlterConfigOpType.SET, "3000000"))
    wanted = {0: (2_000_000, 3), 1: (3_000_000, 2), 2: (2_000_000, 3)}
    try:
        wait_until(lambda: segment_sizes(cluster, topic) == {broker: {size} for broker, (size, _) in wanted.items()})
        for broker_id in cluster.servers:
            entry = described(admin, ResourceType.BROKER, str(broker_id))[key]
            assert (int(entry.value or 0), source_of(entry)) == wanted[broker_id]
    finally:
        change_all_brokers(bootstrap_servers, key, ConfigOperation.DELETE, None)
        change(admin, ResourceType.BROKER, "1", (key, AlterConfigOpType.DELETE, None))
    wait_until(lambda: segment_sizes(cluster, topic) == {broker: {1 << 30} for broker in wanted})


def change_all_brokers(bootstrap_servers: str, key: str, operation: ConfigOperation, value: str | None) -> None:
    entry = AlterableConfig(name=key, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=(entry,))
    with RawClient(bootstrap_servers, client_id="all-brokers") as client:
        answer = client.call_any(IncrementalAlterConfigsRequest(resources=(resource,)))
    assert answer.responses[0].error_code == ErrorCode.NONE, answer


def segment_sizes(cluster: RunningCluster, topic: str) -> dict[int, set[int]]:
    return {
        broker.identity.node_id: {p.log.settings.segment_bytes for tp, p in broker.partitions.items() if tp[0] == topic}
        for broker in cluster.brokers
    }


def test_read_only_keys_are_refused(admin: AdminClient) -> None:
    with pytest.raises(KafkaException, match="listeners"):
        change(admin, ResourceType.BROKER, "0", ("listeners", AlterConfigOpType.SET, "PLAINTEXT://127.0.0.1:1"))
