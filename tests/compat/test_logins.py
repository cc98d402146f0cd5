"""Stock clients log in by every mechanism they have, over TLS and without, and are refused with what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from raylog.security.principal import Principal
from tests.compat.conftest import Complaints
from tests.compat.secure_clients import SECURE_CLIENTS, VALUES, Login, SecureClient
from tests.support.certificates import Certificates
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.descriptors import kept

PASSWORD = 'it\'s "quoted", = and \\ \N{SNOWMAN}'
LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
clients = pytest.mark.parametrize("client", SECURE_CLIENTS, ids=lambda client: client.name)


@dataclass(frozen=True, slots=True)
class SecureCluster:
    running: RunningCluster
    certificates: Certificates

    def login(self, protocol: str, mechanism: str = "", *, user: str = "alice", **changed: Any) -> Login:
        endpoint = self.running.broker.endpoints[protocol]
        login = Login(f"localhost:{endpoint.port}", protocol)
        if mechanism:
            login = replace(login, mechanism=mechanism, user=user, password=PASSWORD)
        if protocol.endswith("SSL"):
            login = replace(login, trusted=self.certificates.trusted)
        return replace(login, **changed)

    def with_certificate(self, login: Login, name: str) -> Login:
        folder = self.certificates.folder
        return replace(login, certificate=folder / f"{name}.crt", key=folder / f"{name}.key")

    def principals(self) -> set[Principal]:
        """Those of all connections to the listeners for clients."""
        broker = self.running.broker
        return self.running.do(
            lambda: {
                connection.client.principal
                for connection in broker._connections
                if not connection.listener.internal and connection.authenticated
            }
        )


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    folder = tmp_path_factory.mktemp("secure")
    certificates = Certificates.new(folder / "certificates")
    broker = certificates.issue("broker", "localhost", "127.0.0.1")
    for name in ("alice", "bob"):
        certificates.issue(name, unit="Users")
    certificates.issue("late", unit="Users", days=1, now=datetime.now(UTC) - timedelta(days=3))
    jaas = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    config = {
        "listeners": ",".join(f"{name}://localhost:0" for name in LISTENERS),
        "advertised.listeners": ",".join(f"{name}://localhost:0" for name in LISTENERS),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "group.initial.rebalance.delay.ms": 0,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.trusted),
        "listener.name.ssl.ssl.client.auth": "requested",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*),OU=Users$/$1/,DEFAULT",
        **{
            f"listener.name.{listener}.plain.sasl.jaas.config": (
                f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{jaas}";'
            )
            for listener in ("sasl_plaintext", "sasl_ssl")
        },
    }
    with cluster_thread(config, folder / "data") as running, kept(folder):
        endpoint = running.broker.endpoints["PLAINTEXT"]
        admin = AdminClient({"bootstrap.servers": f"localhost:{endpoint.port}"})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for done in admin.alter_user_scram_credentials([credential]).values():
                done.result()
        described = cast("dict[str, Any]", admin.describe_user_scram_credentials(["alice"]))["alice"].result()
        assert len(described.scram_credential_infos) == 2
        yield SecureCluster(running, certificates)


def topic_of(request: pytest.FixtureRequest) -> str:
    return "".join(each if each.isalnum() else "-" for each in request.node.name)


@clients
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_log_in(
    secure: SecureCluster, client: SecureClient, protocol: str, mechanism: str, request: pytest.FixtureRequest
) -> None:
    assert client.use(secure.login(protocol, mechanism), topic_of(request)) == VALUES


@clients
@pytest.mark.parametrize("name", ["", "bob"])
def test_tls(secure: SecureCluster, client: SecureClient, name: str, request: pytest.FixtureRequest) -> None:
    login = secure.login("SSL")
    if name:
        login = secure.with_certificate(login, name)
    assert client.use(login, topic_of(request)) == VALUES


@clients
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("wrong", [{"password": "wrong"}, {"user": "nobody"}])
def test_a_wrong_password_is_refused(
    secure: SecureCluster,
    client: SecureClient,
    mechanism: str,
    wrong: dict[str, str],
    request: pytest.FixtureRequest,
    complaints: Complaints,
) -> None:
    with pytest.raises(Exception, match=r"(?i)authenticat|invalid credentials|bootstrap"):
        client.use(secure.login("SASL_PLAINTEXT", mechanism, **wrong), topic_of(request))
    assert any("authentication failed" in line for line in complaints.lines)
    assert not any(PASSWORD in line or "wrong" in line for line in complaints.lines)
    complaints.lines.clear()


@clients
@pytest.mark.parametrize("name", ["late", "stranger"])
def test_a_certificate_that_is_not_valid_is_refused(
    secure: SecureCluster,
    client: SecureClient,
    name: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    complaints: Complaints,
) -> None:
    login = secure.with_certificate(secure.login("SSL"), name)
    if name == "stranger":
        others = Certificates.new(tmp_path / "others", "Another authority")
        others.issue("stranger", unit="Users")
        login = replace(login, certificate=others.folder / "stranger.crt", key=others.folder / "stranger.key")
    with pytest.raises(Exception, match=r"(?i)ssl|handshake|bootstrap|connect|brokers are down"):
        client.use(login, topic_of(request))
    assert any("TLS handshake failed" in line for line in complaints.lines)
    complaints.lines.clear()
