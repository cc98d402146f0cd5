"""A running cluster goes from PLAINTEXT to SASL_SSL by rolling restarts, and loses no acknowledged record."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

import raylog
from raylog.core.errors import ConfigError
from tests.compat.topics import create_topic
from tests.ray.clients import read
from tests.ray.test_three_brokers import PartitionLoad, until_more
from tests.support.certificates import STORE_PASSWORD, Certificates
from tests.support.ports import free_ports

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

NAME = "changing"
TOPIC = "spread"
PARTITIONS = 2
PASSWORD = "hunter2-of-alice"
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
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        }
        self.ports = free_ports(2)
        self.servers = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.client: dict[str, Any] = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(certificates.trusted),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }

    def listeners(self, more: str = "") -> dict[int, dict[str, str]]:
        """The configuration of single brokers."""
        return {
            broker_id: {"listeners": f"{more}SASL_SSL://127.0.0.1:{port}"} for broker_id, port in enumerate(self.ports)
        }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[raylog.Cluster]:
    with raylog.start(NAME, brokers=2, config=CONFIG, data_dir=str(tmp_path / "data")) as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS, replication_factor=2)
        yield cluster


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


def test_clients_move_from_plaintext_to_sasl_ssl(cluster: raylog.Cluster, tmp_path: Path) -> None:
    secure = SecureSettings(tmp_path / "certificates")
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
            pytest.raises(ConfigError, match=rf"ended at broker 1: .*:{secure.ports[1]}: .*; broker 0 has the new "),
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

    def remove_listener() -> None:
        cluster.rolling_restart(
            config={**secure.config, "super.users": "User:alice"},
            broker_config=secure.listeners(),
            secure=True,
            report=steps.append,
        )

    def try_another_change(_: str) -> None: ...

    under_load(moved, remove_listener)
    assert [line.split(",")[0] for line in steps if line.startswith("Restarting")] == [
        "Restarting controller 0",
        "Restarting broker 0",
        "Restarting broker 1",
    ]
    for load in moved:
        load.finish()
        ledger = plain[load.partition].ledger + load.ledger
        assert read(secure.servers, TOPIC, load.partition, **secure.client) == ledger

    assert cluster.bootstrap_servers == secure.servers
    for servers in (plain_servers, secure.servers):
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=1)
