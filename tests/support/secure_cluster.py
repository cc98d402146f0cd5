"""A broker with a listener of each security protocol, users and certificates, for clients that log in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from raylog.security.principal import Principal
from tests.compat.secure_clients import Login
from tests.support.certificates import Certificates
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.descriptors import kept

PASSWORD = 'it\'s "quoted", = and \\ \N{SNOWMAN}'
LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


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


@contextmanager
def secure_cluster(folder: Path, more: Mapping[str, Any] | None = None) -> Iterator[SecureCluster]:
    """The broker's certificate is for localhost alone; that of `late` has expired. `more` configures the broker."""
    certificates = Certificates.new(folder / "certificates")
    broker = certificates.issue("broker", "localhost")
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
        **(more or {}),
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
