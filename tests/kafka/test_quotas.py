"""kafka-configs sets, describes and removes the client quotas of a raylog cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import HANG_SECONDS
from tests.support.kafka_peer import java

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster_thread({}, tmp_path_factory.mktemp("quotas"), brokers=2) as running:
        yield running


def configs(cluster: RunningCluster, *arguments: str) -> str:
    return java("kafka.admin.ConfigCommand", "--bootstrap-server", cluster.bootstrap_servers, *arguments)


def quotas(cluster: RunningCluster) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    """Once every broker has the same."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        first, second = (broker.image.client_quotas.copy() for broker in cluster.brokers)
        if first == second:
            return first.entries
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_quotas_of_users_and_client_ids(cluster: RunningCluster) -> None:
    alice = ("--entity-type", "users", "--entity-name", "alice")
    both = (*alice, "--entity-type", "clients", "--entity-name", "app")
    configs(cluster, "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=12.5", *alice)
    configs(cluster, "--alter", "--add-config", "consumer_byte_rate=2048", *both)
    configs(cluster, "--alter", "--add-config", "consumer_byte_rate=1", "--entity-type", "clients", "--entity-default")
    assert quotas(cluster) == {
        (("user", "alice"),): {"producer_byte_rate": 1024, "request_percentage": 12.5},
        (("client-id", "app"), ("user", "alice")): {"consumer_byte_rate": 2048},
        (("client-id", None),): {"consumer_byte_rate": 1},
    }
    described = configs(cluster, "--describe", *alice)
    assert "Quota configs for user-principal 'alice' are" in described
    assert "producer_byte_rate=1024.0" in described
    assert "request_percentage=12.5" in described
    assert "consumer_byte_rate=2048.0" in configs(cluster, "--describe", *both)
    assert "consumer_byte_rate=1.0" in configs(cluster, "--describe", "--entity-type", "clients", "--entity-default")
    configs(cluster, "--alter", "--delete-config", "producer_byte_rate", *alice)
    assert quotas(cluster)[("user", "alice"),] == {"request_percentage": 12.5}


def test_quotas_of_addresses(cluster: RunningCluster) -> None:
    address = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
    configs(cluster, "--alter", "--add-config", "connection_creation_rate=7", *address)
    assert quotas(cluster)[("ip", "10.0.0.1"),] == {"connection_creation_rate": 7}
    assert "connection_creation_rate=7.0" in configs(cluster, "--describe", *address)


def test_a_value_that_is_refused(cluster: RunningCluster) -> None:
    with pytest.raises(AssertionError, match="must be greater than 0"):
        configs(
            cluster, "--alter", "--add-config", "producer_byte_rate=0", "--entity-type", "users", "--entity-default"
        )
