"""Every door asks who comes in: without the right each operation is refused, with it served, and revoked at once.

Doors are listeners by each mechanism, Unix sockets and mapped files. Handles are in tests/ray/test_secure.py.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from raylog.client.client_config import ClientConfig
from raylog.client.local_broker import open_local
from raylog.config.authorization import STANDARD_AUTHORIZER
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.core.password import Password
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.security.acl import CLUSTER, AclBinding, AclFilter, Operation, PatternType, Permission, Resource
from raylog.security.sasl.scram import ScramMechanism
from tests.support import administration
from tests.support import administration as admin
from tests.support.certificates import Certificates
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.connection import BlockingConnection, connect
from tests.support.raw_client import RawClient

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
USER, SECRET = "alice", "wonderland"
SESSION_MS = 1500
TP = TopicPartition("guarded", 0)
GROUP = "readers"
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
numbers = itertools.count()


def jaas(module: str, **options: str) -> str:
    return f"{module} required " + " ".join(f'{name}="{value}"' for name, value in options.items()) + ";"


@dataclass(frozen=True, slots=True)
class Guarded:
    running: RunningCluster
    certificates: Certificates
    folder: Path

    def client(self, protocol: str, mechanism: str = "", user: str = USER, password: str = SECRET) -> RawClient:
        endpoint = self.running.broker.endpoints[protocol]
        properties: dict[str, Any] = {"security.protocol": protocol, "sasl.mechanism": mechanism or "PLAIN"}
        if protocol.endswith("SSL"):
            properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.certificates.trusted)}
        if protocol == "SSL":
            own = self.certificates.folder / f"{user}.pem"
            properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(own)}
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        properties["sasl.jaas.config"] = jaas(module, username=user, password=password)
        if mechanism == "OAUTHBEARER":
            token = self.folder / "token"
            token.write_text(unsecured_token(user))
            properties |= {"sasl.oauthbearer.token.endpoint.url": token.as_uri()}
        return RawClient(ClientConfig.of(f"localhost:{endpoint.port}", properties), client_id="test")

    @contextmanager
    def administrator(self) -> Iterator[RawClient]:
        with self.client("SASL_PLAINTEXT", "PLAIN", "admin", "secret") as client:
            yield client


def unsecured_token(user: str) -> str:
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + 3600})
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    certificates = Certificates.new(folder / "certificates")
    certificates.issue(USER)
    names = ("SASL_PLAINTEXT", "SASL_SSL", "SSL", "PLAINTEXT")
    config: dict[str, Any] = {
        "listeners": ",".join(f"{name}://localhost:0" for name in names),
        "advertised.listeners": ",".join(f"{name}://localhost:0" for name in names),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.issue("broker", "localhost")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.trusted),
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
        "local.principal.mapping": f"{os.geteuid()}:{USER}",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
        "listener.name.sasl_plaintext.connections.max.reauth.ms": SESSION_MS,
        "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": 0,
    }
    for name in ("sasl_plaintext", "sasl_ssl"):
        config[f"listener.name.{name}.plain.sasl.jaas.config"] = jaas(
            PLAIN_MODULE, user_admin="secret", **{f"user_{USER}": SECRET}
        )
        config[f"listener.name.{name}.oauthbearer.sasl.server.callback.handler.class"] = UNSECURED
    with cluster_thread(config, folder / "data") as running:
        made = Guarded(running, certificates, folder)
        with made.administrator() as client:
            admin.create_topic(client, TP.topic, num_partitions=1)
            administration.set_password(client, USER, Password(SECRET))
        yield made


def write(client: RawClient) -> None:
    client.produce(TP, build_batch([NewRecord(None, b"value", int(time.time() * 1000))]))


def read(client: RawClient) -> None:
    client.fetch(TP, 0, max_bytes=1000, max_wait_ms=0)


def commit(client: RawClient) -> None:
    administration.commit_offsets(client, GROUP, {TP: 0})


def create(client: RawClient) -> None:
    admin.create_topic(client, f"guarded-{next(numbers)}", num_partitions=1)


def administer(client: RawClient) -> None:
    administration.list_users(client)


OPERATIONS: dict[Callable[[RawClient], None], list[tuple[Operation, Resource]]] = {
    write: [(Operation.WRITE, Resource.topic(TP.topic))],
    read: [(Operation.READ, Resource.topic(TP.topic))],
    commit: [(Operation.READ, Resource.topic(TP.topic)), (Operation.READ, Resource.group(GROUP))],
    create: [(Operation.CREATE, CLUSTER)],
    administer: [(Operation.DESCRIBE, CLUSTER)],
}
"""What each needs."""


def code_of(operation: Callable[[RawClient], None], client: RawClient) -> ErrorCode:
    try:
        operation(client)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def acl(principal: str, operation: Operation, resource: Resource) -> AclBinding:
    return AclBinding(resource.type, resource.name, PatternType.LITERAL, principal, "*", operation, Permission.ALLOW)


@contextmanager
def granted(
    guarded: Guarded, rights: list[tuple[Operation, Resource]], principal: str = f"User:{USER}"
) -> Iterator[None]:
    entries = {acl(principal, *right) for right in rights}
    with guarded.administrator() as client:
        admin.create_acls(client, entries)
        wait_for_entries(guarded, lambda found: entries <= found)
        yield
        admin.delete_acls(client, [AclFilter(principal=principal)])
        wait_for_entries(guarded, lambda found: not entries & found)


def wait_for_entries(guarded: Guarded, holds: Callable[[set[AclBinding]], bool]) -> None:
    broker = guarded.running.broker
    while not guarded.running.do(lambda: holds(set(broker.image.acls.entries.values()))):
        pass


def at_listener(protocol: str, mechanism: str = "") -> Callable[[Guarded], RawClient]:
    return lambda guarded: guarded.client(protocol, mechanism)


def at_unix_socket(guarded: Guarded) -> RawClient:
    """After Metadata over TCP, by a listener without a login: requests to leaders and coordinators take the socket."""
    servers = f"localhost:{guarded.running.broker.endpoints['PLAINTEXT'].port}"
    return RawClient(servers, client_id="test")


MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
DOORS: dict[str, Callable[[Guarded], RawClient]] = {
    **{f"{name}, {each}": at_listener(name, each) for name in ("SASL_PLAINTEXT", "SASL_SSL") for each in MECHANISMS},
    "SSL, certificate": at_listener("SSL"),
}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("door", DOORS)
def test_each_door_serves_who_has_the_right_and_nobody_else(
    guarded: Guarded, door: str, operation: Callable[[RawClient], None]
) -> None:
    with DOORS[door](guarded) as client:
        assert code_of(operation, client) in REFUSALS
        with granted(guarded, OPERATIONS[operation]):
            assert code_of(operation, client) == ErrorCode.NONE
        assert code_of(operation, client) in REFUSALS  # the same connection, the next request


def test_the_unix_socket_serves_the_user_of_the_operating_system(guarded: Guarded) -> None:
    everyone = [(Operation.DESCRIBE, Resource.topic(TP.topic))]
    with at_unix_socket(guarded) as client, granted(guarded, everyone, principal="User:ANONYMOUS"):
        assert code_of(read, client) in REFUSALS
        with granted(guarded, OPERATIONS[read]):
            assert code_of(read, client) == ErrorCode.NONE


def test_mapped_files_are_opened_for_the_user_of_the_operating_system(guarded: Guarded) -> None:
    def opened() -> ErrorCode:
        local = open_local(guarded.running.cluster_id, 0)
        assert local is not None
        with local:
            try:
                local.open(TP, 0).close()
            except KafkaError as error:
                return error.code
            return ErrorCode.NONE

    assert opened() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with granted(guarded, OPERATIONS[read]):
        assert opened() == ErrorCode.NONE
    assert opened() == ErrorCode.TOPIC_AUTHORIZATION_FAILED


class TestChangedUsers:
    """What has changed takes effect at the next log-in, and on open connections at the next re-authentication."""

    def open(self, guarded: Guarded, stack: ExitStack, password: str) -> BlockingConnection:
        port = guarded.running.broker.endpoints["SASL_PLAINTEXT"].port
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": jaas(SCRAM_MODULE, username="carol", password=password),
        }
        config = ClientConfig.of("localhost:1", properties)
        connection = BlockingConnection(connect(config, "localhost", port), client_id="test")
        stack.callback(connection.close)
        return connection

    @pytest.fixture
    def carol(self, guarded: Guarded) -> Iterator[RawClient]:
        """The administrator's connection, with a user who is removed again."""
        with guarded.administrator() as client:
            administration.set_password(client, "carol", Password("first"))
            wait_for_credential(guarded, "carol", known=True)
            yield client
            if "carol" in administration.list_users(client):
                administration.remove_user(client, "carol")

    def test_a_deleted_user(self, guarded: Guarded, carol: RawClient) -> None:
        with ExitStack() as stack:
            connection = self.open(guarded, stack, "first")
            administration.remove_user(carol, "carol")
            wait_for_credential(guarded, "carol", known=False)
            assert connection.call(MetadataRequest(topics=())).brokers
            with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
                self.open(guarded, stack, "first")
            time.sleep(SESSION_MS / 1000)
            with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
                connection.call(MetadataRequest(topics=()))

    def test_a_changed_password(self, guarded: Guarded, carol: RawClient) -> None:
        with ExitStack() as stack:
            connection = self.open(guarded, stack, "first")
            before = guarded.running.do(lambda: dict(guarded.running.broker.image.scram_credentials))
            administration.set_password(carol, "carol", Password("second"))
            broker = guarded.running.broker
            while guarded.running.do(lambda: dict(broker.image.scram_credentials)) == before:
                pass
            assert connection.call(MetadataRequest(topics=())).brokers
            with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
                self.open(guarded, stack, "first")
            self.open(guarded, stack, "second")
            time.sleep(SESSION_MS / 1000)
            with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
                connection.call(MetadataRequest(topics=()))


def wait_for_credential(guarded: Guarded, user: str, *, known: bool) -> None:
    broker = guarded.running.broker
    key = (user, ScramMechanism.SHA_256)
    while guarded.running.do(lambda: key in broker.image.scram_credentials) != known:
        pass
