"""kafka-acls and kafka-configs work over SASL_SSL with SCRAM, and a removed right is refused with the next request."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from raylog.config.authorization import STANDARD_AUTHORIZER
from raylog.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from raylog.security.distinguished_name import distinguished_name
from tests.support.certificates import STORE_PASSWORD, Certificates
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import HANG_SECONDS, wait_until
from tests.support.kafka_peer import java

pytestmark = pytest.mark.kafka
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
READ, WRITE, DESCRIBE, CREATE, ALL = (
    Operation.READ,
    Operation.WRITE,
    Operation.DESCRIBE,
    Operation.CREATE,
    Operation.ALL,
)
PASSWORD = "in wonderland"
MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@dataclass(frozen=True, slots=True)
class Secured:
    running: RunningCluster
    certificates: Certificates
    folder: Path

    @property
    def servers(self) -> str:
        return str(self.running.broker.endpoints["SASL_SSL"])

    def properties(self, user: str, mechanism: str = "SCRAM-SHA-512") -> str:
        """The file of a client's properties."""
        path = self.folder / f"{user}.properties"
        given = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.trusted),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{MODULES[mechanism]} required username="{user}" password="{PASSWORD}";',
        }
        path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        return str(path)

    def acls(self, *arguments: str, user: str = "admin") -> str:
        connection = ("--bootstrap-server", self.servers, "--command-config", self.properties(user))
        return java("org.apache.kafka.tools.AclCommand", *connection, *arguments)

    def configs(self, *arguments: str, user: str = "admin", mechanism: str = "SCRAM-SHA-512") -> str:
        connection = ("--bootstrap-server", self.servers, "--command-config", self.properties(user, mechanism))
        return java("kafka.admin.ConfigCommand", *connection, *arguments)

    def certificate(self) -> str:
        """The name in the certificate that a new connection gets."""
        endpoint = self.running.broker.endpoints["SASL_SSL"]
        context = ssl.create_default_context(cafile=str(self.certificates.trusted))
        with (
            socket.create_connection((endpoint.host, endpoint.port), timeout=HANG_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as sock,
        ):
            return distinguished_name(sock.getpeercert(binary_form=True) or b"")

    def shows(self, certificate: str) -> bool:
        """Waits for it."""
        until = time.monotonic() + HANG_SECONDS
        while self.certificate() != certificate:
            if time.monotonic() > until:
                return False
        return True

    def add_user(self, name: str, *, user: str = "admin", mechanism: str = "SCRAM-SHA-512") -> None:
        """Adds it as another user."""
        credential = f"SCRAM-SHA-512=[iterations=8192,password={PASSWORD}]"
        entity = ("--entity-type", "users", "--entity-name", name)
        self.configs("--alter", *entity, "--add-config", credential, user=user, mechanism=mechanism)

    def entries(self) -> set[AclBinding]:
        return self.running.do(lambda: set(self.running.broker.image.acls.entries.values()))

    def librdkafka(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.certificates.trusted),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORD,
            "log_level": 0,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """`admin` is a super user with a SCRAM credential, which kafka-configs has set for another super user, `root`."""
    folder = tmp_path_factory.mktemp("secured")
    certificates = Certificates.new(folder / "certificates")
    certificates.issue("broker", "127.0.0.1")
    config = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{MODULES["PLAIN"]} required user_root="{PASSWORD}";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.folder / "broker.pem"),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:root;User:admin",
        "auto.create.topics.enable": "true",
    }
    with cluster_thread(config, folder / "data") as running:
        made = Secured(running, certificates, folder)
        made.add_user("admin", user="root", mechanism="PLAIN")
        made.add_user("alice")
        yield made


def entry(
    kind: ResourceType,
    name: str,
    operation: Operation,
    *,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    permission: Permission = Permission.ALLOW,
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


ALICE = ("--allow-principal", "User:alice")
PRODUCER = {entry(TOPIC, "p", operation) for operation in (WRITE, DESCRIBE, CREATE)}
KINDS: dict[str, tuple[tuple[str, ...], set[AclBinding]]] = {
    "literal": (
        (*ALICE, "--operation", "Read", "--operation", "AlterConfigs", "--topic", "t"),
        {entry(TOPIC, "t", READ), entry(TOPIC, "t", Operation.ALTER_CONFIGS)},
    ),
    "wildcard": ((*ALICE, "--operation", "Describe", "--group", "*"), {entry(GROUP, "*", DESCRIBE)}),
    "prefixed": (
        (*ALICE, "--operation", "All", "--topic", "flights-", "--resource-pattern-type", "prefixed"),
        {entry(TOPIC, "flights-", ALL, pattern=PatternType.PREFIXED)},
    ),
    "producer": ((*ALICE, "--producer", "--topic", "p"), PRODUCER),
    "consumer": (
        (*ALICE, "--consumer", "--topic", "c", "--group", "g"),
        {entry(TOPIC, "c", READ), entry(TOPIC, "c", DESCRIBE), entry(GROUP, "g", READ)},
    ),
    "transactional": (
        (*ALICE, "--producer", "--topic", "p", "--transactional-id", "x", "--idempotent"),
        {
            *PRODUCER,
            entry(TRANSACTIONAL_ID, "x", WRITE),
            entry(TRANSACTIONAL_ID, "x", DESCRIBE),
            entry(CLUSTER, "kafka-cluster", Operation.IDEMPOTENT_WRITE),
        },
    ),
    "hosts": (
        (*ALICE, "--allow-host", "10.0.0.1", "--allow-host", "10.0.0.2", "--operation", "Read", "--topic", "t"),
        {entry(TOPIC, "t", READ, host="10.0.0.1"), entry(TOPIC, "t", READ, host="10.0.0.2")},
    ),
    "deny": (
        ("--deny-principal", "User:bob", "--deny-host", "10.0.0.9", "--operation", "Alter", "--cluster"),
        {
            entry(
                CLUSTER,
                "kafka-cluster",
                Operation.ALTER,
                principal="User:bob",
                host="10.0.0.9",
                permission=Permission.DENY,
            )
        },
    ),
}


class TestAcls:
    @pytest.mark.parametrize(("arguments", "added"), KINDS.values(), ids=KINDS)
    def test_each_kind_is_added_and_removed(
        self, secured: Secured, arguments: tuple[str, ...], added: set[AclBinding]
    ) -> None:
        secured.acls("--add", *arguments)
        wait_until(lambda: secured.entries() == added)
        secured.acls("--remove", "--force", *arguments)
        wait_until(lambda: secured.entries() == set())

    def test_they_are_listed(self, secured: Secured) -> None:
        secured.acls("--add", *ALICE, "--operation", "Read", "--topic", "t")
        secured.acls(
            "--add", *ALICE, "--operation", "Write", "--topic", "flights-", "--resource-pattern-type", "prefixed"
        )
        wait_until(lambda: len(secured.entries()) == 2)
        everything = secured.acls("--list")
        assert "name=t, patternType=LITERAL" in everything
        assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in everything
        assert "name=flights-, patternType=PREFIXED" in everything
        matching = secured.acls("--list", "--topic", "flights-7", "--resource-pattern-type", "match")
        assert "operation=WRITE" in matching
        assert "operation=READ" not in matching
        assert "operation=READ" in secured.acls("--list", "--principal", "User:alice", "--topic", "t")
        secured.acls("--remove", "--force", "--topic", "*", "--resource-pattern-type", "any")
        secured.acls("--remove", "--force", "--topic", "t", "--topic", "flights-", "--resource-pattern-type", "any")
        wait_until(lambda: secured.entries() == set())

    def test_a_user_without_the_right_is_refused(self, secured: Secured) -> None:
        with pytest.raises(AssertionError, match="ClusterAuthorizationException"):
            secured.acls("--list", user="alice")
        assert secured.entries() == set()

    def test_a_removed_right_is_refused_with_the_next_request(self, secured: Secured) -> None:
        right = (*ALICE, "--producer", "--topic", "p")
        secured.acls("--add", *right)
        wait_until(lambda: len(secured.entries()) == 3)
        errors: list[KafkaError | None] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            errors.append(error)

        producer = Producer(secured.librdkafka("alice"))
        for removed in (False, True):
            if removed:
                secured.acls("--remove", "--force", *right)
                wait_until(lambda: secured.entries() == set())
            producer.produce("p", b"x", on_delivery=delivered)
            assert producer.flush(HANG_SECONDS) == 0
        assert errors[0] is None
        assert errors[1] is not None
        assert errors[1].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


class TestConfigs:
    def test_users(self, secured: Secured) -> None:
        bob = ("--entity-type", "users", "--entity-name", "bob")
        secured.add_user("bob")
        assert "SCRAM-SHA-512=iterations=8192" in secured.configs("--describe", *bob)
        assert "ClusterAuthorizationException" in self.refusal(secured, "bob"), "bob can log in, and may do nothing"
        secured.configs("--alter", *bob, "--delete-config", "SCRAM-SHA-512")
        assert "iterations" not in secured.configs("--describe", *bob)
        assert "SaslAuthenticationException" in self.refusal(secured, "bob")

    def refusal(self, secured: Secured, user: str) -> str:
        with pytest.raises(AssertionError) as refused:
            secured.configs("--describe", "--entity-type", "users", user=user)
        return str(refused.value)

    @pytest.mark.parametrize("entity", [("--entity-name", "0"), ("--entity-default",)], ids=["one", "default"])
    def test_brokers(self, secured: Secured, entity: tuple[str, ...]) -> None:
        brokers = ("--entity-type", "brokers", *entity)
        secured.configs("--alter", *brokers, "--add-config", "log.retention.ms=123456789")
        assert "log.retention.ms=123456789" in secured.configs("--describe", *brokers)
        secured.configs("--alter", *brokers, "--delete-config", "log.retention.ms")
        assert "123456789" not in secured.configs("--describe", *brokers)

    def test_topics(self, secured: Secured) -> None:
        connection = ("--bootstrap-server", secured.servers, "--command-config", secured.properties("admin"))
        java("org.apache.kafka.tools.TopicCommand", *connection, "--create", "--topic", "configured")
        topic = ("--entity-type", "topics", "--entity-name", "configured")
        secured.configs("--alter", *topic, "--add-config", "retention.ms=1000,max.message.bytes=5000")
        described = secured.configs("--describe", *topic)
        assert "retention.ms=1000" in described
        assert "max.message.bytes=5000" in described
        secured.configs("--alter", *topic, "--delete-config", "retention.ms")
        assert "retention.ms=1000" not in secured.configs("--describe", *topic)

    def test_quotas(self, secured: Secured) -> None:
        alice = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-default")
        secured.configs("--alter", *alice, "--add-config", "producer_byte_rate=1024")
        assert "producer_byte_rate=1024.0" in secured.configs("--describe", *alice)
        secured.configs("--alter", *alice, "--delete-config", "producer_byte_rate")
        assert "producer_byte_rate" not in secured.configs("--describe", *alice)

    def test_keys_of_a_listener(self, secured: Secured) -> None:
        before = secured.certificate()
        secured.certificates.issue("renewed", "127.0.0.1")
        broker = ("--entity-type", "brokers", "--entity-name", "0")
        prefix = "listener.name.sasl_ssl.ssl.keystore."
        keys = {"type": "PKCS12", "location": str(secured.certificates.pkcs12("renewed")), "password": STORE_PASSWORD}
        added = ",".join(f"{prefix}{name}={value}" for name, value in keys.items())
        for entity, wrong, reason in (
            (broker, added.replace(STORE_PASSWORD, "wrong"), "no PKCS12 file that ssl.keystore.password opens"),
            (("--entity-type", "brokers", "--entity-default"), added, "Can only be changed for single brokers"),
        ):
            with pytest.raises(AssertionError, match="InvalidRequestException") as refused:
                secured.configs("--alter", *entity, "--add-config", wrong)
            assert reason in str(refused.value)
        assert secured.certificate() == before
        secured.configs("--alter", *broker, "--add-config", added)
        assert secured.shows("CN=renewed")
        described = secured.configs("--describe", *broker)
        assert f"{prefix}password=null sensitive=true" in described
        assert STORE_PASSWORD not in described
        secured.configs("--alter", *broker, "--delete-config", ",".join(f"{prefix}{name}" for name in keys))
        assert secured.shows(before)
