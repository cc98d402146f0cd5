"""A running cluster goes from PLAINTEXT to SASL_SSL by rolling restarts, and loses no acknowledged record."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import ray

import raylog
from raylog.actors.broker_restart import not_in_sync_on
from raylog.actors.client_files import PROPERTIES_FILE
from raylog.actors.cluster_actors import current_handles
from raylog.client.admin.topics import describe_topics
from raylog.client.client_config import ClientConfig
from raylog.config.properties import parse_properties
from raylog.core.errors import ConfigError, KafkaError
from tests.compat.topics import create_topic
from tests.ray.clients import answers, read
from tests.ray.test_three_brokers import PartitionLoad, until_more
from tests.support import administration
from tests.support.certificates import STORE_PASSWORD, Certificates
from tests.support.environment import WITHOUT_COORDINATORS
from tests.support.ports import free_ports
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

NAME = "changing"
TOPIC = "spread"
PARTITIONS = 2
PASSWORD = "hunter2-of-alice"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
CONFIG = {"default.replication.factor": 2}


class SecureSettings:
    """The configuration with a listener for SASL_SSL, and that of stock clients of it."""

    def __init__(self, folder: Path) -> None:
        certificates = Certificates.new(folder)
        certificates.issue("broker", "127.0.0.1")
        self.config = {
            **CONFIG,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(certificates.pkcs12("broker")),
            "ssl.keystore.password": STORE_PASSWORD,
        }
        self.ports = free_ports(2)
        self.servers = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.client: dict[str, Any] = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(certificates.trusted),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }
        self.trusting = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificates.trusted)}

    def login(self, password: str) -> dict[str, str]:
        """The properties of Kafka's clients."""
        jaas = f'{MODULE} required username="alice" password="{password}";'
        mechanism = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}
        return {**self.trusting, "security.protocol": "SASL_SSL", **mechanism}

    def listeners(self, more: str = "") -> dict[int, dict[str, str]]:
        """The configuration of single brokers."""
        return {
            broker_id: {"listeners": f"{more}SASL_SSL://127.0.0.1:{port}"} for broker_id, port in enumerate(self.ports)
        }


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("changing") / "data"


@pytest.fixture(scope="module")
def cluster(ray_runtime: None, data_dir: Path) -> Iterator[raylog.Cluster]:
    with raylog.start(NAME, brokers=2, config=CONFIG, data_dir=str(data_dir), **WITHOUT_COORDINATORS) as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS, replication_factor=2)
        yield cluster


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"node.id": 7}, "node.id=7: the first broker has id 0, which is kept"),
        ({"listeners": "PLAINTEXT://127.0.0.1:9092"}, "several brokers cannot share a port"),
        ({"num.partitions": "many"}, "num.partitions='many': must be a whole number"),
        (
            {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM", "ssl.keystore.location": "/nowhere"},
            "broker 0: ssl.keystore.location='/nowhere': ",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SSL"},
            "INTERNAL has protocol PLAINTEXT, and SSL in the new configuration. Nodes cannot connect to each other",
        ),
    ],
)
def test_nothing_is_restarted_with_an_invalid_configuration(
    cluster: raylog.Cluster, data_dir: Path, config: dict[str, Any], message: str
) -> None:
    before, files = cluster.status(), {path: path.read_bytes() for path in data_dir.glob("*.*") if path.is_file()}
    with pytest.raises(ConfigError) as refused:
        cluster.rolling_restart(config={**config, "ssl.keystore.password": "hunter3"})
    assert message in refused.value.message
    assert [broker.pid for broker in cluster.status()] == [broker.pid for broker in before]
    assert {path: path.read_bytes() for path in data_dir.glob("*.*") if path.is_file()} == files


def client(servers: str, properties: Mapping[str, Any]) -> RawClient:
    return RawClient(ClientConfig.of(servers, properties), client_id="test")


def text_of(path: Path) -> str:
    """Empty if the file cannot be read."""
    with suppress(OSError):
        return path.read_bytes().decode(errors="replace")
    return ""


def loads_of(servers: str, client: dict[str, Any]) -> list[PartitionLoad]:
    return [PartitionLoad(servers, number, **client) for number in range(PARTITIONS)]


def under_load(loads: list[PartitionLoad], change: Callable[[], None]) -> None:
    """The loads work while the cluster changes, and go on afterwards."""
    until_more(loads, loads, 100)
    with ThreadPoolExecutor(1) as thread:
        changing = thread.submit(change)
        while not changing.done():
            for load in loads:
                load.work()
        changing.result()
    until_more(loads, loads, 100)


def test_clients_move_from_plaintext_to_sasl_ssl(cluster: raylog.Cluster, data_dir: Path, tmp_path: Path) -> None:
    secure = SecureSettings(tmp_path)
    plain_servers, pids = cluster.bootstrap_servers, {broker.pid for broker in cluster.status()}
    plain = loads_of(plain_servers, {})

    def add_listener() -> None:
        cluster.rolling_restart(
            config=secure.config,
            broker_config=secure.listeners("PLAINTEXT://127.0.0.1:0,"),
            users={"alice": PASSWORD},
        )

    def fail_to_add_listener() -> None:
        with (
            socket.create_server(("127.0.0.1", secure.ports[1])),
            pytest.raises(ConfigError, match=rf"ended at broker 1: .*:{secure.ports[1]}: .* before: broker 0\."),
        ):
            add_listener()

    under_load(plain, fail_to_add_listener)
    assert [broker.state for broker in cluster.status()] == ["running", "starting"]
    under_load(plain, add_listener)
    assert cluster.bootstrap_servers == plain_servers
    assert not pids & {broker.pid for broker in cluster.status()}
    for load in plain:
        load.finish()

    moved = loads_of(secure.servers, secure.client)
    steps: list[str] = []

    def report(line: str) -> None:
        steps.append(line)
        with pytest.raises(ConfigError, match="are being added, removed or restarted already"):
            cluster.restart_broker(0)
        if line.startswith("Broker 0 is in sync"):
            with client(secure.servers, secure.login(PASSWORD)) as alice:
                assert not_in_sync_on(0, alice.run(describe_topics()).values()) == []

    def remove_listener() -> None:
        config = {**secure.config, "super.users": "User:alice"}
        cluster.rolling_restart(config=config, broker_config=secure.listeners(), secure=True, report=report)

    under_load(moved, remove_listener)
    restarts = [line.split(",")[0] for line in steps if line.startswith("Restarting")]
    assert restarts == ["Restarting controller 0", "Restarting broker 0", "Restarting broker 1"]
    for load in moved:
        load.finish()
        ledger = plain[load.partition].ledger + load.ledger
        assert read(secure.servers, TOPIC, load.partition, **secure.client) == ledger

    # Clients without a valid login are refused.
    assert cluster.bootstrap_servers == secure.servers
    assert not any(map(answers, plain_servers.split(",")))
    for properties in ({"security.protocol": "SSL", **secure.trusting}, secure.login("guessed")):
        with client(secure.servers, properties) as stranger, pytest.raises(KafkaError):
            stranger.metadata([])
    assert parse_properties((data_dir / PROPERTIES_FILE).read_text()) == cluster.client_config
    with client(secure.servers, {**cluster.client_config, **secure.trusting}) as administrator:
        assert set(administration.list_users(administrator)) == {"admin", "alice"}

    # Passwords are in one file. All nodes have the same configuration, and so will those that are added.
    handles = current_handles(NAME, ["broker-0", "broker-1", "controller-0"])
    specs = ray.get([handle.spec.remote() for handle in handles.values()])
    assert specs[0].given == specs[1].given == specs[2].given
    assert STORE_PASSWORD.encode() not in pickle.dumps(specs)
    holders = {path for path in data_dir.parent.rglob("*") if path.is_file() and STORE_PASSWORD in text_of(path)}
    assert holders == {data_dir / "passwords.json"}
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if STORE_PASSWORD in text_of(path)]
