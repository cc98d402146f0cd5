"""Nodes talk over mutual TLS if their internal listener has it, and peers without a certificate are refused."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import raylog
from raylog.broker.broker import Broker
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.security.cluster_secret import NONCE_BYTES, SecretProver
from raylog.transport import server
from tests.support.administration import create_topic
from tests.support.certificates import Certificates
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.connection import BlockingConnection, connect_tcp
from tests.support.raw_client import RawClient

HANG_SECONDS = 30.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.new(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[RunningCluster]:
    config = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SSL",
        "listener.name.internal.ssl.keystore.type": "PEM",
        "listener.name.internal.ssl.keystore.location": str(certificates.issue("node", "127.0.0.1")),
        "listener.name.internal.ssl.truststore.type": "PEM",
        "listener.name.internal.ssl.truststore.location": str(certificates.trusted),
        "listener.name.internal.ssl.client.auth": "required",
        "min.insync.replicas": 2,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "TLS_REFRESH_SECONDS", 0.05)
        with cluster_thread(config, tmp_path_factory.mktemp("data"), brokers=2) as running:
            yield running


def internal_address(cluster: RunningCluster) -> tuple[str, int]:
    endpoint = cluster.broker.endpoints["INTERNAL"]
    return endpoint.host, endpoint.port


def write_and_read(cluster: RunningCluster, topic: str) -> None:
    """Needs both replicas, and so the links between all nodes."""
    with RawClient(cluster.bootstrap_servers, client_id="test") as client:
        create_topic(client, topic, num_partitions=1, replication_factor=2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    producer.produce(topic, b"x" * 500_000)
    assert producer.flush(HANG_SECONDS) == 0
    with raylog.PartitionReader(cluster.bootstrap_servers, topic, 0, mapped=False) as reader:
        assert [record.value for record in reader.read_records(max_wait_ms=30_000)] == [b"x" * 500_000]


def test_records_are_replicated_over_tls(cluster: RunningCluster) -> None:
    write_and_read(cluster, "replicated")
    broker = cluster.broker
    internal = cluster.do(lambda: [each for each in broker._connections if each.listener.internal])
    assert internal
    assert all(connection.authenticated for connection in internal)


def client_context(certificates: Certificates, name: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.trusted))
    if name is not None:
        context.load_cert_chain(certificates.folder / f"{name}.pem")
    return context


def says_nothing(cluster: RunningCluster, context: ssl.SSLContext | None) -> bool:
    """Whether a connection is closed before it gets an answer to ApiVersions."""
    try:
        stream = connect_tcp(*internal_address(cluster), tls=context, timeout_seconds=HANG_SECONDS)
        connection = BlockingConnection(stream, client_id="stranger", timeout_seconds=HANG_SECONDS)
    except KafkaError:
        return True
    connection.close()
    return False


def test_peers_without_a_certificate_of_the_authority_are_refused(
    cluster: RunningCluster, certificates: Certificates, tmp_path: Path
) -> None:
    stranger = Certificates.new(tmp_path / "stranger")
    stranger.issue("node", "127.0.0.1")
    foreign = ssl.create_default_context(cafile=str(certificates.trusted))
    foreign.load_cert_chain(stranger.folder / "node.pem")
    certificates.issue("late", days=1, now=datetime.now(UTC) - timedelta(days=3))
    for context in (None, client_context(certificates, None), foreign, client_context(certificates, "late")):
        assert says_nothing(cluster, context)
    assert not says_nothing(cluster, client_context(certificates, "node"))


def test_a_certificate_does_not_stand_for_the_secret_of_the_cluster(
    cluster: RunningCluster, certificates: Certificates
) -> None:
    def connect(login: Any) -> BlockingConnection:
        stream = connect_tcp(*internal_address(cluster), tls=client_context(certificates, "node"), login=login)
        return BlockingConnection(stream, client_id="stranger")

    with pytest.raises(KafkaError):
        connect(None).call(MetadataRequest(topics=()))
    with pytest.raises(KafkaError, match="the server does not have the cluster's secret"):
        connect(lambda: SecretProver(b"another secret", os.urandom(NONCE_BYTES)))


def test_plaintext_is_not_answered(cluster: RunningCluster) -> None:
    with socket.create_connection(internal_address(cluster), timeout=HANG_SECONDS) as sock:
        sock.sendall((8).to_bytes(4, "big") + b"\0\x12\0\0\0\0\0\1")
        answer = b""
        while received := sock.recv(4096):
            answer += received
        assert answer[:1] in (b"", b"\x15")  # an alert of TLS


def test_renewed_certificates_are_used_by_the_next_connections(
    cluster: RunningCluster, certificates: Certificates
) -> None:
    before = served_certificate(cluster, certificates)
    certificates.issue("node", "127.0.0.1")
    deadline = time.monotonic() + HANG_SECONDS
    while served_certificate(cluster, certificates) == before:
        assert time.monotonic() < deadline
    for broker in cluster.brokers:
        cluster.do(partial(disconnect, broker))
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        try:
            write_and_read(cluster, "after-renewal")
            break
        except KafkaError as error:  # the controller has lost its brokers for a moment
            if error.code != ErrorCode.INVALID_REPLICATION_FACTOR or time.monotonic() > deadline:
                raise


def disconnect(broker: Broker) -> None:
    for link in broker.links:
        link.disconnect()


def served_certificate(cluster: RunningCluster, certificates: Certificates) -> bytes:
    with (
        socket.create_connection(internal_address(cluster), timeout=HANG_SECONDS) as sock,
        client_context(certificates, "node").wrap_socket(sock, server_hostname="127.0.0.1") as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""
