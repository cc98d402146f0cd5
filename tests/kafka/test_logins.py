"""Kafka's Java client logs in by every mechanism, over TLS and without, and is refused with what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tests.compat.secure_clients import Login, java_client
from tests.support.certificates import Certificates
from tests.support.kafka_peer import java
from tests.support.secure_cluster import SecureCluster, secure_cluster

pytestmark = pytest.mark.kafka
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
RECORDS = 10
_topics = (f"topic-{number}" for number in count())


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with secure_cluster(tmp_path_factory.mktemp("secure")) as cluster:
        yield cluster


def properties(login: Login, path: Path) -> str:
    """The name of a file with the properties of Kafka's client."""
    given = java_client(login)
    if login.certificate and login.key:
        both = path.with_suffix(".pem")
        both.write_text(login.key.read_text() + login.certificate.read_text())
        given |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(both)}
    text = "\n".join(f"{name}={value}" for name, value in given.items())
    text = text.replace("\\", "\\\\").encode("ascii", "backslashreplace").decode()
    path.write_text(text)
    return str(path)


def use(login: Login, folder: Path) -> int:
    """Create a topic, write records to it, and return how many a group reads. Raises AssertionError with the output."""
    config, topic = properties(login, folder / "client.properties"), next(_topics)
    to = ("--bootstrap-server", login.servers, "--topic", topic)
    java("org.apache.kafka.tools.TopicCommand", *to, "--command-config", config, "--create")
    load = ("--topic", topic, "--producer-props", f"bootstrap.servers={login.servers}", "--producer.config", config)
    records = ("--num-records", str(RECORDS), "--record-size", "10", "--throughput", "-1")
    java("org.apache.kafka.tools.ProducerPerformance", *load, *records)
    group = ("--group", topic, "--from-beginning", "--max-messages", str(RECORDS), "--consumer.config", config)
    consumed = java("org.apache.kafka.tools.consumer.ConsoleConsumer", *to, *group)
    return len([line for line in consumed.splitlines() if len(line) == 10])


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_log_in(secure: SecureCluster, protocol: str, mechanism: str, tmp_path: Path) -> None:
    assert use(secure.login(protocol, mechanism), tmp_path) == RECORDS


@pytest.mark.parametrize("name", ["", "bob"])
def test_tls(secure: SecureCluster, name: str, tmp_path: Path) -> None:
    login = secure.login("SSL")
    assert use(secure.with_certificate(login, name) if name else login, tmp_path) == RECORDS


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("wrong", [{"password": "wrong"}, {"user": "nobody"}])
def test_a_wrong_password_is_refused(
    secure: SecureCluster, mechanism: str, wrong: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="SaslAuthenticationException"):
        use(secure.login("SASL_SSL", mechanism, **wrong), tmp_path)


@pytest.mark.parametrize("name", ["late", "stranger"])
def test_a_certificate_that_is_not_valid_is_refused(secure: SecureCluster, name: str, tmp_path: Path) -> None:
    login = secure.with_certificate(secure.login("SSL"), name)
    if name == "stranger":
        others = Certificates.new(tmp_path / "others", "Another authority")
        others.issue("stranger", unit="Users")
        login = replace(login, certificate=others.folder / "stranger.crt", key=others.folder / "stranger.key")
    with pytest.raises(AssertionError, match=r"SslAuthenticationException|SSLHandshakeException|SSLException"):
        use(login, tmp_path)


def test_a_certificate_for_another_host_is_refused(secure: SecureCluster, tmp_path: Path) -> None:
    login = secure.login("SSL")
    with pytest.raises(AssertionError, match=r"(?s)SslAuthenticationException.*(127\.0\.0\.1|subject alternative)"):
        use(replace(login, servers=login.servers.replace("localhost", "127.0.0.1")), tmp_path)
