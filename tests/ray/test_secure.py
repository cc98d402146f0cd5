"""A secure cluster in one command: who can log in, what is written where, and how it is started again."""

from __future__ import annotations

import json
import socket
import ssl
import stat
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import ray
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import raylog
from raylog.actors.certificates import make_authority
from raylog.actors.client_files import LIBRDKAFKA_FILE, PROPERTIES_FILE
from raylog.actors.data_dir import open_data_dir
from raylog.actors.given_config import GivenConfig
from raylog.actors.login import prepare_login
from raylog.client.client_config import ClientConfig
from raylog.config.properties import parse_properties
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.protocol.messages.describe_cluster import DescribeClusterRequest
from raylog.security.authority import Authority, KeyPair
from tests.support import administration
from tests.support.administration import create_topic
from tests.support.certificates import Certificates
from tests.support.connection import BlockingConnection, connect
from tests.support.environment import WITHOUT_COORDINATORS
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]
SECONDS = 30


def librdkafka(root: Path) -> dict[str, Any]:
    """As kcat -F reads it."""
    lines = (root / LIBRDKAFKA_FILE).read_text().splitlines()
    config: dict[str, Any] = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    return {**config, "log_level": 0}


def client(cluster: raylog.Cluster, properties: Mapping[str, Any]) -> RawClient:
    return RawClient(ClientConfig.of(cluster.bootstrap_servers, properties), client_id="test", timeout_seconds=5)


def code_of(cluster: raylog.Cluster, properties: Mapping[str, Any]) -> ErrorCode:
    """Of a login with these properties."""
    with client(cluster, properties) as attempt:
        try:
            attempt.metadata([])
        except KafkaError as error:
            return error.code
    return ErrorCode.NONE


def test_one_command_makes_a_secure_cluster(tmp_path: Path) -> None:
    root = tmp_path / "a directory"
    with raylog.start(
        "safe",
        data_dir=str(root),
        secure=True,
        brokers=2,
        controller_port=0,
        users={"bob": "builder"},
        **WITHOUT_COORDINATORS,
    ) as cluster:
        properties = cluster.client_config
        _check_controller(cluster.bootstrap_controllers, properties)
        assert parse_properties((root / PROPERTIES_FILE).read_text()) == properties
        for path in (root / PROPERTIES_FILE, root / LIBRDKAFKA_FILE, *(root / "security").iterdir()):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        password = Password(librdkafka(root)["sasl.password"])
        holders = {path.name for path in tmp_path.rglob("*") if path.is_file() and _contains(path, password)}
        assert holders == {PROPERTIES_FILE, LIBRDKAFKA_FILE}
        assert password.reveal() not in repr(ray.get(cluster.broker(0).spec.remote()))

        # The administrator may do everything, with a stock client and with our own.
        admin = AdminClient(librdkafka(root))
        assert len(admin.list_topics(timeout=SECONDS).brokers) == 2
        producer = Producer(librdkafka(root))
        with client(cluster, properties) as own:
            create_topic(own, "t", num_partitions=1, replication_factor=2, configs={})
        producer.produce("t", b"value")
        assert producer.flush(SECONDS) == 0
        with raylog.PartitionReader(cluster.bootstrap_servers, "t", 0, client_config=properties) as reader:
            assert [record.value for record in reader.read_records(max_wait_ms=30_000)] == [b"value"]
            assert reader.reads_files
        with raylog.connect("safe") as connected:  # a restart needs no login
            connected.restart_broker(1)

        # Delegation tokens need no further configuration.
        with client(cluster, properties) as own:
            token = administration.create_token(own)
        login = _scram(token.token_id, token.hmac.reveal()).replace(";", ' tokenauth="true";')
        by_token = {**properties, "sasl.jaas.config": login}
        assert code_of(cluster, by_token) == ErrorCode.NONE

        # Another user logs in, but has no rights yet. Others do not log in.
        bob = {**properties, "sasl.jaas.config": _scram("bob", "builder")}
        with client(cluster, bob) as limited, pytest.raises(KafkaError, match="AUTHORIZATION_FAILED"):
            administration.list_users(limited)
        assert code_of(cluster, bob) == ErrorCode.NONE
        wrong = {**properties, "sasl.jaas.config": _scram("admin", "admin")}
        assert code_of(cluster, wrong) == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert code_of(cluster, {**properties, "security.protocol": "SASL_PLAINTEXT"}).retriable
        assert code_of(cluster, {}).retriable


def test_nodes_on_several_machines_use_mutual_tls(tmp_path: Path) -> None:
    """Here on one machine, where the configuration must say so."""
    root = tmp_path / "data"
    config = {"listener.security.protocol.map": "SASL_SSL:SASL_SSL,INTERNAL:SSL", "default.replication.factor": 2}
    with raylog.start(
        "mutual", data_dir=str(root), secure=True, brokers=2, config=config, **WITHOUT_COORDINATORS
    ) as cluster:
        with client(cluster, cluster.client_config) as own:
            create_topic(own, "t", num_partitions=1)
        producer = Producer({**librdkafka(root), "acks": "all"})
        producer.produce("t", b"value")
        assert producer.flush(SECONDS) == 0
        for node in ("controller-0", "broker-0", "broker-1"):
            port = json.loads((root / "run" / f"{node}.json").read_text())["INTERNAL"]
            context = ssl.create_default_context(cafile=str(root / "security" / "authority.pem"))
            context.load_cert_chain(root / "security" / "broker-1.pem")
            with (
                socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as sock,
                context.wrap_socket(sock, server_hostname="127.0.0.1") as secured,
            ):
                assert (("commonName", node),) in (secured.getpeercert() or {})["subject"]


def test_a_secure_cluster_stays_secure_until_it_is_told_otherwise(tmp_path: Path) -> None:
    root = tmp_path / "data"

    def start(**given: Any) -> raylog.Cluster:
        return raylog.start("staying", data_dir=str(root), **given)

    with start() as cluster:
        assert cluster.client_config == {}
        with client(cluster, {}) as own:
            create_topic(own, "kept", num_partitions=1, replication_factor=1, configs={})
    with start(secure=True) as cluster:  # a cluster that began without users gets its administrator
        first = dict(cluster.client_config)
        with client(cluster, first) as admin:
            assert len(admin.metadata(["kept"]).topics[0].partitions) == 1
            administration.set_password(admin, "admin", Password("changed"))
    written = (root / PROPERTIES_FILE).read_text()
    prepare_login(open_data_dir(str(root), name="staying"), GivenConfig(secure=True))
    assert (root / PROPERTIES_FILE).read_text() == written  # also by a start that fails
    with start() as cluster:  # what the administrator has changed is not changed back
        assert code_of(cluster, cluster.client_config) == ErrorCode.SASL_AUTHENTICATION_FAILED
        changed = {**cluster.client_config, "sasl.jaas.config": _scram("admin", "changed")}
        assert code_of(cluster, changed) == ErrorCode.NONE
    (root / PROPERTIES_FILE).unlink()
    with start() as cluster:  # the owner of the data directory gets a new password
        assert cluster.client_config != first
        assert code_of(cluster, cluster.client_config) == ErrorCode.NONE
        assert code_of(cluster, changed) == ErrorCode.SASL_AUTHENTICATION_FAILED
    with start(secure=False) as cluster:
        assert code_of(cluster, {}) == ErrorCode.NONE
    assert json.loads((root / "cluster.json").read_text())["secure"] is False


def test_a_broker_renews_its_certificate(tmp_path: Path) -> None:
    with raylog.start("renewing", data_dir=str(tmp_path / "data"), secure=True) as cluster:
        folder = tmp_path / "data" / "security"
        renew = cluster.broker(0).renew_certificate.remote
        assert ray.get(renew()) is False
        authority = Authority(KeyPair((folder / "authority.key").read_bytes(), (folder / "authority.pem").read_bytes()))
        key, chain = authority.issue("broker-0", ("127.0.0.1",), days=3, now=datetime.now(UTC) - timedelta(days=2.5))
        (folder / "broker-0.pem").write_bytes(key + chain)
        (folder / "authority.key").rename(folder / "elsewhere")
        assert ray.get(renew()) is False  # logged; the old one is valid for half a day
        assert (folder / "broker-0.pem").read_bytes() == key + chain
        key, chain = authority.issue("broker-0", ("127.0.0.1",), days=1, now=datetime.now(UTC) - timedelta(days=3))
        (folder / "broker-0.pem").write_bytes(key + chain)
        with pytest.raises(ConfigError, match="the certificate authority cannot be used"):
            ray.get(renew())
        trusted = (folder / "authority.pem").read_bytes()
        make_authority(tmp_path / "data", "renewing")  # as the next start does
        assert (folder / "authority.pem").read_bytes() == trusted
        (folder / "elsewhere").rename(folder / "authority.key")
        assert ray.get(renew()) is True
        assert ray.get(renew()) is False
        assert code_of(cluster, cluster.client_config) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:0"}, "listeners: PLAINTEXT has protocol PLAINTEXT"),
        ({"listeners": "SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"}, "SASL_PLAINTEXT has protocol"),
        ({"authorizer.class.name": ""}, "authorizer.class.name: a secure cluster must have an authorizer"),
    ],
)
def test_an_insecure_configuration_is_refused(config: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        raylog.start("contradicting", secure=True, config=config)
    assert message in refused.value.message


def test_own_certificates_and_super_users_are_kept(tmp_path: Path) -> None:
    certificates = Certificates.new(tmp_path / "certificates")
    config = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.issue("broker", "127.0.0.1")),
        "super.users": "User:bob",
    }
    with raylog.start("own", secure=True, config=config, users={"bob": "builder"}) as cluster:
        trusting = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificates.trusted)}
        for login in ({}, {"sasl.jaas.config": _scram("bob", "builder")}):
            with client(cluster, {**cluster.client_config, **trusting, **login}) as admin:
                assert set(administration.list_users(admin)) == {"admin", "bob"}
        code = code_of(cluster, cluster.client_config)  # no authority of the system has signed it
        assert code == ErrorCode.SASL_AUTHENTICATION_FAILED


def _scram(user: str, password: str) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="{user}" password="{password}";'


def _contains(path: Path, password: Password) -> bool:
    return password.reveal().encode() in path.read_bytes()


def _check_controller(address: str, properties: Mapping[str, Any]) -> None:
    """Its listener for clients has the security of the brokers' listeners."""
    host, _, port = address.rpartition(":")
    connection = BlockingConnection(connect(ClientConfig(address, properties), host, int(port)), client_id="test")
    found = connection.call(DescribeClusterRequest(endpoint_type=2))
    assert [(each.broker_id, each.port) for each in found.brokers] == [(1000, int(port))]
    connection.close()
    with pytest.raises(KafkaError) as refused:
        connect(ClientConfig(address, {**properties, "ssl.truststore.location": ""}), host, int(port))
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
