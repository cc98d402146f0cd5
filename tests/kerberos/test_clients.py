"""Stock clients log in by GSSAPI with tickets of a real KDC, produce and consume; without a ticket they are refused."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer

from raylog.protocol.messages.metadata import MetadataRequest
from raylog.security.sasl.gssapi import GssapiClient
from raylog.security.sasl.kerberos import initiator
from tests.support.cluster_thread import cluster_thread
from tests.support.connection import BlockingConnection, connect_tcp
from tests.support.kafka_peer import java
from tests.support.kerberos_realm import REALM, SERVICE, Realm
from tests.support.ports import free_port

pytestmark = pytest.mark.kerberos
ANSWER_SECONDS = 60.0
LOGIN = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
ALLOWED = "User:alice"


@pytest.fixture(scope="module")
def server(realm: Realm, service_keytab: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that serves User:alice and nobody else."""
    port = free_port()
    config = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"SASL_PLAINTEXT://localhost:{port}",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": (
            f'{LOGIN} keyTab="{service_keytab}" principal="{SERVICE}@{REALM}";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ALLOWED,
    }
    with cluster_thread(config, tmp_path_factory.mktemp("gssapi")):
        yield f"localhost:{port}"


@pytest.fixture
def ticket(realm: Realm, alice_keytab: Path) -> Iterator[None]:
    realm.kinit("alice", alice_keytab)
    yield
    realm.kdestroy()


SETTINGS: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "GSSAPI",
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": "localhost",
}


@pytest.mark.usefixtures("ticket")
def test_kafka_python(server: str) -> None:
    producer = KafkaProducer(bootstrap_servers=server, **SETTINGS)
    producer.send("by-kafka-python", b"kafka-python", partition=0).get(ANSWER_SECONDS)
    producer.close()
    settings = {"bootstrap_servers": server, "group_id": "g", "auto_offset_reset": "earliest", **SETTINGS}
    consumer = KafkaConsumer("by-kafka-python", **settings)
    try:
        assert next(iter(consumer)).value == b"kafka-python"
    finally:
        consumer.close()


@pytest.mark.usefixtures("ticket")
def test_aiokafka(server: str) -> None:
    async def copied() -> bytes | None:
        async with AIOKafkaProducer(bootstrap_servers=server, **SETTINGS) as producer:
            await producer.send_and_wait("by-aiokafka", b"aiokafka", partition=0)
        settings = {"bootstrap_servers": server, "group_id": "g2", "auto_offset_reset": "earliest", **SETTINGS}
        async with AIOKafkaConsumer("by-aiokafka", **settings) as consumer:
            value: bytes | None = (await asyncio.wait_for(consumer.getone(), ANSWER_SECONDS)).value
            return value

    assert asyncio.run(copied()) == b"aiokafka"


@pytest.mark.usefixtures("ticket")
def test_our_own_client(server: str) -> None:
    host, _, port = server.partition(":")
    stream = connect_tcp(host, int(port), login=lambda: GssapiClient(initiator("kafka", "localhost")))
    connection = BlockingConnection(stream, client_id="test")
    assert connection.call(MetadataRequest(topics=())).brokers
    connection.close()


def kcat(server: str, keytab: Path, principal: str, *arguments: str, given: bytes = b"") -> Any:
    settings = (
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=GSSAPI",
        "sasl.kerberos.service.name=kafka",
        f"sasl.kerberos.keytab={keytab}",
        f"sasl.kerberos.principal={principal}",
    )
    options = [option for setting in settings for option in ("-X", setting)]
    command = ["kcat", "-b", server, *options, *arguments]
    return subprocess.run(command, input=given, capture_output=True, timeout=ANSWER_SECONDS, check=False)


def test_kcat(server: str, alice_keytab: Path, realm: Realm) -> None:
    if b"sasl_gssapi" not in subprocess.run(["kcat", "-X", "list"], capture_output=True, check=True).stdout:
        pytest.skip("this librdkafka has no GSSAPI")
    produced = kcat(server, alice_keytab, "alice", "-P", "-t", "by-kcat", given=b"kcat\n")
    assert produced.returncode == 0, produced.stderr
    consumed = kcat(server, alice_keytab, "alice", "-C", "-t", "by-kcat", "-o", "beginning", "-c", "1")
    assert consumed.stdout == b"kcat\n", consumed.stderr
    realm.kdestroy()


def test_a_principal_without_rights_is_authenticated_and_refused(server: str, realm: Realm) -> None:
    """The right is asked of the short name: User:eve may not do what User:alice may."""
    produced = kcat(server, realm.keytab("eve"), "eve", "-P", "-t", "by-kcat", given=b"kcat\n")
    assert produced.returncode != 0
    assert b"authorization failed" in produced.stderr.lower()
    realm.kdestroy()


@pytest.mark.kafka
def test_java(server: str, realm: Realm, alice_keytab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = f"-Djava.security.krb5.conf={realm.environment['KRB5_CONFIG']}"
    monkeypatch.setenv("JDK_JAVA_OPTIONS", " ".join((options, os.environ.get("JDK_JAVA_OPTIONS", ""))).strip())
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f'sasl.jaas.config={LOGIN} keyTab="{alice_keytab}" principal="alice@{REALM}";\n'
    )
    to = ("--bootstrap-server", server, "--command-config", str(properties), "--topic", "by-java")
    java("org.apache.kafka.tools.TopicCommand", "--create", *to)
    records = ("--num-records", "10", "--record-size", "10", "--throughput", "-1")
    load = (
        "--topic",
        "by-java",
        "--producer-props",
        f"bootstrap.servers={server}",
        "--producer.config",
        str(properties),
    )
    java("org.apache.kafka.tools.ProducerPerformance", *load, *records)
    assert "by-java:0:10" in java("org.apache.kafka.tools.GetOffsetShell", *to)
