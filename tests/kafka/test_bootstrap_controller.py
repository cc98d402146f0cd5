"""Kafka's tools reach the controllers of a raylog cluster by --bootstrap-controller, with and without a login."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.config.authorization import STANDARD_AUTHORIZER
from raylog.metadata.levels import LATEST_LEVEL, METADATA_FEATURE
from tests.support.cluster_thread import CONTROLLER_ID, RunningCluster, cluster_thread
from tests.support.kafka_peer import java

pytestmark = pytest.mark.kafka

FEATURES = "org.apache.kafka.tools.FeatureCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
CONFIGS = "kafka.admin.ConfigCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
ACLS = "org.apache.kafka.tools.AclCommand"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PASSWORD = "in wonderland"
CONFIG = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": f'{MODULE} user_admin="{PASSWORD}" user_alice="{PASSWORD}";',
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster_thread(CONFIG, tmp_path_factory.mktemp("controllers")) as running:
        yield running


class Tools:
    def __init__(self, cluster: RunningCluster, folder: Path, user: str) -> None:
        self._servers = ("--bootstrap-controller", cluster.bootstrap_controllers)
        self._login = folder / f"{user}.properties"
        self._login.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\ndefault.api.timeout.ms=20000\nrequest.timeout.ms=10000\n"
            f'sasl.jaas.config={MODULE} username="{user}" password="{PASSWORD}";\n'
        )

    def run(self, command: str, *arguments: str) -> str:
        return java(command, *self._servers, "--command-config", str(self._login), *arguments)

    def cluster_id(self) -> str:
        return java(CLUSTER, "cluster-id", *self._servers, "--config", str(self._login))


@pytest.fixture
def admin(cluster: RunningCluster, tmp_path: Path) -> Tools:
    return Tools(cluster, tmp_path, "admin")


def test_the_quorum_is_described_and_changed(cluster: RunningCluster, admin: Tools) -> None:
    status = admin.run(QUORUM, "describe", "--status")
    assert f"LeaderId:               {CONTROLLER_ID}" in status
    assert str(CONTROLLER_ID) in admin.run(QUORUM, "describe", "--replication")
    admin.run(FEATURES, "upgrade", "--feature", "kraft.version=1")
    removal = ("remove-controller", "--controller-id", "1001", "--controller-directory-id", "AAAAAAAAAAAAAAAAAAAABw")
    with pytest.raises(AssertionError, match="VoterNotFoundException"):
        admin.run(QUORUM, *removal)
    assert f"FinalizedVersionLevel: {LATEST_LEVEL}" in next(
        line for line in admin.run(FEATURES, "describe").splitlines() if METADATA_FEATURE in line
    )


def test_the_cluster_id_is_found(cluster: RunningCluster, admin: Tools) -> None:
    assert cluster.cluster_id in admin.cluster_id()


def test_configurations_are_described_and_altered(admin: Tools) -> None:
    controller = ("--entity-type", "brokers", "--entity-name", str(CONTROLLER_ID))
    assert "controller.listener.names=CONTROLLER" in admin.run(CONFIGS, "--describe", "--all", *controller)
    every = ("--entity-type", "brokers", "--entity-default")
    admin.run(CONFIGS, "--alter", *every, "--add-config", "log.retention.ms=7")
    assert "log.retention.ms=7" in admin.run(CONFIGS, "--describe", *every)
    logger = ("--entity-type", "broker-loggers", "--entity-name", str(CONTROLLER_ID))
    assert "raylog.controller=" in admin.run(CONFIGS, "--describe", *logger)


def test_permissions_are_given_and_bind(cluster: RunningCluster, admin: Tools, tmp_path: Path) -> None:
    alice = Tools(cluster, tmp_path, "alice")
    with pytest.raises(AssertionError, match="ClusterAuthorizationException"):
        alice.cluster_id()
    admin.run(ACLS, "--add", "--allow-principal", "User:alice", "--operation", "Alter", "--cluster")
    assert "User:alice" in admin.run(ACLS, "--list")
    assert cluster.cluster_id in alice.cluster_id()


def test_a_broker_is_no_controller(cluster: RunningCluster) -> None:
    with pytest.raises(AssertionError, match="MismatchedEndpointTypeException"):
        java(QUORUM, "--bootstrap-controller", cluster.bootstrap_servers, "describe", "--status")
