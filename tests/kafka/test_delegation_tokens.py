"""kafka-delegation-tokens manages the tokens of a raylog cluster, and Kafka's Java client logs in by them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from raylog.config.authorization import STANDARD_AUTHORIZER
from tests.support.certificates import Certificates
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.kafka_peer import java

pytestmark = pytest.mark.kafka
LOGIN = "org.apache.kafka.common.security"
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
_ROW = re.compile(r"^([\w-]{22})\s+(\S{88})\s+(\S+)\s+(\S+)\s+\[(.*?)\]", re.MULTILINE)
PASSWORDS = {"admin": "administrator", "alice": "wonderland", "bob": "builder"}


@dataclass(frozen=True, slots=True)
class Secured:
    running: RunningCluster
    certificates: Certificates
    folder: Path

    def servers(self, protocol: str) -> str:
        return f"localhost:{self.running.broker.endpoints[protocol].port}"

    def login(self, protocol: str, mechanism: str, jaas: str) -> Path:
        """A file with the properties of a client."""
        properties = {
            "security.protocol": protocol,
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": jaas,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.trusted),
        }
        path = self.folder / f"{len(list(self.folder.iterdir()))}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return path

    def by_password(self, user: str, protocol: str = "SASL_PLAINTEXT") -> Path:
        module = f"{LOGIN}.plain.PlainLoginModule required"
        return self.login(protocol, "PLAIN", f'{module} username="{user}" password="{PASSWORDS[user]}";')

    def by_token(self, token: Token, protocol: str, mechanism: str = "SCRAM-SHA-256") -> Path:
        module = f"{LOGIN}.scram.ScramLoginModule required"
        jaas = f'{module} username="{token.token_id}" password="{token.hmac}" tokenauth="true";'
        return self.login(protocol, mechanism, jaas)

    def tokens(self, config: Path, *arguments: str, protocol: str = "SASL_PLAINTEXT") -> str:
        servers = ("--bootstrap-server", self.servers(protocol), "--command-config", str(config))
        return java("org.apache.kafka.tools.DelegationTokenCommand", *servers, *arguments)

    def described(self, config: Path, owner: str = "User:alice") -> list[Token]:
        """Without an owner the tool of Kafka 4.1 sends an empty list, for which a broker finds no token."""
        return rows(self.tokens(config, "--describe", "--owner-principal", owner))

    def create(self, config: Path, *arguments: str) -> Token:
        (token,) = rows(self.tokens(config, "--create", "--max-life-time-period", "-1", *arguments))
        return token


@dataclass(frozen=True, slots=True)
class Token:
    """A row of the tool's output, without its dates."""

    token_id: str
    hmac: str
    owner: str
    requester: str
    renewers: str


def rows(output: str) -> list[Token]:
    return [Token(*match.groups()) for match in _ROW.finditer(output)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tokens")
    certificates = Certificates.new(folder / "certificates")
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    config = {
        "listeners": ",".join(f"{protocol}://localhost:0" for protocol in PROTOCOLS),
        "advertised.listeners": ",".join(f"{protocol}://localhost:0" for protocol in PROTOCOLS),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "group.initial.rebalance.delay.ms": 0,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.issue("broker", "localhost")),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
        "delegation.token.secret.key": "secret-of-this-test",
        **{
            f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": f"{LOGIN}.plain.PlainLoginModule required"
            f" {users};"
            for protocol in PROTOCOLS
        },
    }
    (folder / "clients").mkdir()
    with cluster_thread(config, folder / "data") as running:
        yield Secured(running, certificates, folder / "clients")


def test_create_describe_renew_and_expire(secured: Secured) -> None:
    alice, bob = secured.by_password("alice"), secured.by_password("bob")
    token = secured.create(alice, "--renewer-principal", "User:bob")
    assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", "User:bob")
    for viewer in (alice, bob):
        assert token in secured.described(viewer)
        assert secured.described(viewer, "User:zoe") == []
    renewed = secured.tokens(bob, "--renew", "--renew-time-period", "-1", "--hmac", token.hmac)
    assert "Completed renew operation. New expiry date" in renewed
    expired = secured.tokens(alice, "--expire", "--expiry-time-period", "-1", "--hmac", token.hmac)
    assert "Completed expire operation. New expiry date" in expired
    assert token not in secured.described(alice)
    with pytest.raises(AssertionError, match="DelegationTokenNotFoundException"):
        secured.tokens(alice, "--renew", "--renew-time-period", "-1", "--hmac", token.hmac)


def test_only_the_owner_and_the_renewers_may_renew(secured: Secured) -> None:
    token = secured.create(secured.by_password("alice"))
    for verb, period in (("--renew", "--renew-time-period"), ("--expire", "--expiry-time-period")):
        with pytest.raises(AssertionError, match="DelegationTokenOwnerMismatchException"):
            secured.tokens(secured.by_password("bob"), verb, period, "-1", "--hmac", token.hmac)


def test_tokens_for_other_owners_take_a_right_that_kafka_acls_gives(secured: Secured) -> None:
    admin, bob = secured.by_password("admin"), secured.by_password("bob")
    with pytest.raises(AssertionError, match="DelegationTokenAuthorizationException"):
        secured.create(bob, "--owner-principal", "User:alice")
    right = ("--operation", "CreateTokens", "--operation", "DescribeTokens", "--user-principal", "User:alice")
    servers = ("--bootstrap-server", secured.servers("SASL_PLAINTEXT"), "--command-config", str(admin))
    java("org.apache.kafka.tools.AclCommand", *servers, "--add", "--allow-principal", "User:bob", *right)
    token = secured.create(bob, "--owner-principal", "User:alice")
    assert (token.owner, token.requester) == ("User:alice", "User:bob")
    assert token in secured.described(secured.by_password("alice"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_java_client_logs_in_by_a_token(secured: Secured, protocol: str) -> None:
    topic, mechanism = protocol.lower(), "SCRAM-SHA-512" if protocol == "SASL_SSL" else "SCRAM-SHA-256"
    token = secured.create(secured.by_password("admin"))
    config, servers = secured.by_token(token, protocol, mechanism), secured.servers(protocol)
    to = ("--bootstrap-server", servers, "--topic", topic)
    java("org.apache.kafka.tools.TopicCommand", *to, "--command-config", str(config), "--create")
    load = ("--topic", topic, "--producer-props", f"bootstrap.servers={servers}", "--producer.config", str(config))
    records = ("--num-records", "10", "--record-size", "10", "--throughput", "-1")
    java("org.apache.kafka.tools.ProducerPerformance", *load, *records)
    group = ("--group", topic, "--from-beginning", "--max-messages", "10", "--consumer.config", str(config))
    consumed = java("org.apache.kafka.tools.consumer.ConsoleConsumer", *to, *group)
    assert len([line for line in consumed.splitlines() if len(line) == 10]) == 10
    with pytest.raises(AssertionError, match="requests are not allowed on"):
        secured.tokens(config, "--create", "--max-life-time-period", "-1", protocol=protocol)
    secured.tokens(secured.by_password("admin"), "--expire", "--expiry-time-period", "-1", "--hmac", token.hmac)
    with pytest.raises(AssertionError, match="SaslAuthenticationException"):
        java("org.apache.kafka.tools.TopicCommand", *to, "--command-config", str(config), "--list")
