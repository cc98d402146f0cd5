"""Over real sockets, with real identities, each request is refused without the right, and served with it."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from raylog.config.authorization import STANDARD_AUTHORIZER
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from raylog.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from raylog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.schema import Message
from raylog.security.acl import Operation, PatternType, Permission, Resource
from raylog.security.sasl.mechanism import SaslClient
from raylog.security.sasl.plain import PlainClient
from raylog.security.sasl.scram import ScramClient, ScramMechanism, salted_password
from tests.broker.required_operations import ANY_ACL, TOPIC, Required, commit, produce
from tests.broker.test_authorization import CASE_NAMES, CASES, codes_in, refusals_in
from tests.broker.test_tls_listener import dial
from tests.support.certificates import Certificates
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.connection import BlockingConnection, SocketStream
from tests.support.hang import HANG_SECONDS

PASSWORD = Password("wonderland")
SALT = b"0123456789"
SHA_256 = ScramMechanism.SHA_256


class Connection(BlockingConnection):
    def ask(self, request: Message, version: int | None = None) -> Any:
        if version is not None:
            assert self._core._served is not None
            self._core._served[request.api.key] = (version, version)
        return self.call(request)


@dataclass(frozen=True, slots=True)
class Door:
    """A listener, and how a user is authenticated there."""

    listener: str
    login: Callable[[str], SaslClient] | None = None
    """None: by a certificate."""

    def principal(self, user: str) -> str:
        return f"User:{user}" if self.login is not None else f"User:CN={user}"


def plain(user: str) -> SaslClient:
    return PlainClient(user, PASSWORD)


def scram(user: str) -> SaslClient:
    return ScramClient(SHA_256, user, PASSWORD, nonce=b"of the client")


DOORS = {
    "password": Door("SASL_PLAINTEXT", plain),
    "scram": Door("SASL_SSL", scram),
    "certificate": Door("SSL"),
}
MEMBERS = {
    f"{name}-{number}-{kind}": (door, asks, kind)
    for name, door in DOORS.items()
    for number, (_, asks) in enumerate(CASES)
    for kind in ("with", "without")
}
"""By name: two users for each case at each door, with all rights that it requires, and without one of them."""
REVOKED = [f"{name}-revoked" for name in DOORS]


def check_password(user: str, password: str) -> bool:
    """Named in the configuration."""
    return password == PASSWORD.reveal()


def resource_of(asks: Required) -> Resource:
    return asks.of("t" if asks.of is TOPIC else "g")


def right(principal: str, operation: Operation, resource: Resource) -> AclCreation:
    return AclCreation(
        resource_type=resource.type,
        resource_name=resource.name,
        resource_pattern_type=PatternType.LITERAL,
        principal=principal,
        host="127.0.0.1",
        operation=operation,
        permission_type=Permission.ALLOW,
    )


def rights_of_all() -> Iterator[AclCreation]:
    for user, (door, asks, kind) in MEMBERS.items():
        given = [*asks.beside, (asks.operation, resource_of(asks))] if kind == "with" else asks.beside
        yield from (right(door.principal(user), *each) for each in given)
    for user, door in zip(REVOKED, DOORS.values(), strict=True):
        yield right(door.principal(user), Operation.DESCRIBE, TOPIC("t"))


class Guarded:
    """A cluster with an authorizer."""

    def __init__(self, running: RunningCluster, certificates: Certificates) -> None:
        self.running = running
        self.certificates = certificates

    @contextmanager
    def connected(self, door: Door, user: str) -> Iterator[Connection]:
        sock = dial(self.running, door.listener)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if door.listener.endswith("SSL"):
            context = ssl.create_default_context(cafile=str(self.certificates.trusted))
            if door.login is None:
                context.load_cert_chain(self.certificates.folder / f"{user}.pem")
            sock = context.wrap_socket(sock, server_hostname="127.0.0.1")
        login = None if door.login is None else partial(door.login, user)
        with closing(Connection(SocketStream(sock, "the broker", login), client_id="test")) as connection:
            yield connection

    def prepare(self, root: Connection) -> None:
        """Topic t and group g: earlier cases may have deleted them."""
        if "t" not in self.running.broker.image.topics:
            made = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            root.ask(CreateTopicsRequest(topics=(made,)))
            until_served(lambda: root.ask(produce("t"), 12))
        root.ask(commit("t"), 9)


def until_served(ask: Callable[[], Any]) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while set(codes_in(ask())) != {ErrorCode.NONE}:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("identities")
    certificates = Certificates.new(folder / "certificates")
    certificates.issue("broker", "127.0.0.1")
    for user in (*MEMBERS, *REVOKED):
        if user.startswith("certificate"):
            certificates.issue(user)
    config = {
        "listeners": ",".join(f"{door.listener}://127.0.0.1:0" for door in DOORS.values()),
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": f"{__name__}:check_password",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.trusted),
        "listener.name.ssl.ssl.client.auth": "required",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:root",
        "group.initial.rebalance.delay.ms": 0,
    }
    with cluster_thread(config, folder / "data") as running:
        made = Guarded(running, certificates)
        with made.connected(DOORS["password"], "root") as root:
            salted = salted_password(SHA_256, PASSWORD.reveal(), SALT, 4096)
            users = tuple(
                ScramCredentialUpsertion(name=user, mechanism=1, iterations=4096, salt=SALT, salted_password=salted)
                for user in (*MEMBERS, *REVOKED)
                if user.startswith("scram")
            )
            stored = root.ask(AlterUserScramCredentialsRequest(upsertions=users))
            assert set(codes_in(stored)) == {ErrorCode.NONE}
            created = root.ask(CreateAclsRequest(creations=tuple(rights_of_all())))
            assert set(codes_in(created)) == {ErrorCode.NONE}
            made.prepare(root)
            until_served(lambda: root.ask(FindCoordinatorRequest(coordinator_keys=("g",))))
            until_served(lambda: root.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=("x",))))
            until_served(lambda: root.ask(commit("t"), 9))
        yield made


@pytest.fixture
def root(guarded: Guarded) -> Iterator[Connection]:
    with guarded.connected(DOORS["password"], "root") as connection:
        guarded.prepare(connection)
        yield connection


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("number", "asks"), [(i, asks) for i, (_, asks) in enumerate(CASES)], ids=CASE_NAMES)
def test_a_request_is_refused_without_the_right_and_served_with_it(
    guarded: Guarded, root: Connection, door: str, number: int, asks: Required
) -> None:
    request = asks.request(resource_of(asks).name)
    with guarded.connected(DOORS[door], f"{door}-{number}-without") as connection:
        assert asks.code in refusals_in(connection.ask(request, asks.version))
    with guarded.connected(DOORS[door], f"{door}-{number}-with") as connection:
        assert not refusals_in(connection.ask(request, asks.version))


@pytest.mark.parametrize("door", DOORS)
def test_a_revoked_right_ends_with_the_next_request(guarded: Guarded, root: Connection, door: str) -> None:
    described = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
    principal = DOORS[door].principal(f"{door}-revoked")
    with guarded.connected(DOORS[door], f"{door}-revoked") as connection:
        assert not refusals_in(connection.ask(described))
        removed = root.ask(DeleteAclsRequest(filters=(DeleteAclsFilter(**{**ANY_ACL, "principal_filter": principal}),)))
        assert [len(result.matching_acls) for result in removed.filter_results] == [1]
        assert refusals_in(connection.ask(described))


@pytest.mark.parametrize("door", ["password", "scram"])
def test_before_the_login_no_request_is_served(guarded: Guarded, door: str) -> None:
    nobody = replace(DOORS["certificate"], listener=DOORS[door].listener)
    with guarded.connected(nobody, "certificate-revoked") as connection, pytest.raises(KafkaError):
        connection.ask(MetadataRequest(topics=None))
