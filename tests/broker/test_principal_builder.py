"""A function of the operator builds the principals of clients: what it is given, and its failures refuse them."""

from __future__ import annotations

import logging
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raylog.config.table import broker_configs
from raylog.core.errors import ConfigError, ErrorCode
from raylog.core.password import Password
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from raylog.security.principal import ANONYMOUS, Principal
from raylog.security.principal_builder import AuthenticationContext
from raylog.security.sasl.plain import PlainClient
from raylog.transport.authentication import check_authentication
from raylog.transport.endpoints import HANDLE_PEER, UNIX_PEER
from raylog.transport.node import Job, JobKind
from tests.broker.test_delegation_tokens import by_token, create
from tests.broker.test_sasl import CONFIG, PREFIX, alter, connect, handshake, log_in, scram, serves, upsertion
from tests.broker.test_tls_listener import dial, is_closed, metadata_of
from tests.support.certificates import Certificates
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.connection import BlockingConnection, SocketStream
from tests.support.direct_broker import DirectBroker
from tests.support.hang import HANG_SECONDS

HERE = f"{__name__}:build"
ALICE = PlainClient("alice", Password("wonderland"))
contexts: list[AuthenticationContext] = []
behaviour: list[Callable[[AuthenticationContext], str]] = []


def build(context: AuthenticationContext) -> str:
    """Named in the configurations of this file."""
    contexts.append(context)
    return behaviour[0](context)


def role(context: AuthenticationContext) -> str:
    return f"Role:{context.authorization_id or context.certificate_subject or context.client_address}"


@pytest.fixture(autouse=True)
def reset() -> None:
    contexts.clear()
    behaviour[:] = [role]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates.new(tmp_path_factory.mktemp("certificates"))
    made.issue("broker", "127.0.0.1")
    made.issue("alice", unit="Users")
    return made


@pytest.fixture
def broker() -> DirectBroker:
    return DirectBroker({**CONFIG, f"{PREFIX}principal.builder.class": HERE})


def exits(context: AuthenticationContext) -> str:
    sys.exit(3)


def raises(context: AuthenticationContext) -> str:
    raise LookupError("mallory is in no directory")


FAILURES: list[tuple[Callable[[AuthenticationContext], object], str]] = [
    (raises, "mallory is in no directory"),
    (exits, "SystemExit(3)"),
    (lambda context: None, "in place of a text"),
    (lambda context: "alice", "must be Type:name"),
    (lambda context: "Cluster:raylog", "reserved for the nodes"),
]


class TestSasl:
    def test_a_password(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        assert log_in(broker, connection, ALICE).error_code == ErrorCode.NONE
        assert connection.client.principal == Principal("Role", "alice")
        assert serves(broker, connection)
        assert contexts == [
            AuthenticationContext(
                "SASL_PLAINTEXT", "SASL_PLAINTEXT", "127.0.0.1", sasl_mechanism="PLAIN", authorization_id="alice"
            )
        ]

    def test_an_exchange_of_several_messages(self, broker: DirectBroker) -> None:
        alter(broker, upsertion("carol", "pencil"))
        connection = connect(broker)
        assert log_in(broker, connection, scram("carol", "pencil")).error_code == ErrorCode.NONE
        assert connection.client.principal == Principal("Role", "carol")
        assert [(each.sasl_mechanism, each.authorization_id) for each in contexts] == [("SCRAM-SHA-256", "carol")]

    def test_messages_in_frames_of_their_own(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        handshake(broker, connection, "PLAIN", version=0)
        broker.send_bytes(b"\0\0\0\x11\0alice\0wonderland"[:3] + b"\x11\0alice\0wonderland", connection=connection)
        broker.settle()
        assert connection.client.principal == Principal("Role", "alice")

    def test_a_function_that_checks_passwords_comes_first(self) -> None:
        check = {f"{PREFIX}plain.sasl.server.callback.handler.class": "tests.broker.test_sasl:check_password"}
        broker = DirectBroker({**CONFIG, **check, f"{PREFIX}principal.builder.class": HERE})
        refused, served = connect(broker), connect(broker)
        assert log_in(broker, refused, PlainClient("bob", Password("wrong"))).error_code != ErrorCode.NONE
        assert contexts == []
        assert log_in(broker, served, PlainClient("bob", Password("bob"[::-1]))).error_code == ErrorCode.NONE
        assert served.client.principal == Principal("Role", "bob")

    def test_a_delegation_token_stands_for_the_principal_of_its_owner(self) -> None:
        key = {"delegation.token.secret.key": "a-secret-of-this-test"}
        broker = DirectBroker({**CONFIG, **key, f"{PREFIX}principal.builder.class": HERE})
        behaviour[:] = [lambda context: f"User:built-{context.authorization_id}"]
        owner, connection = connect(broker), connect(broker)
        log_in(broker, owner, ALICE)
        assert log_in(broker, connection, by_token(create(broker, owner))).error_code == ErrorCode.NONE
        assert connection.client.principal == Principal("User", "built-alice")
        assert len(contexts) == 1

    def test_a_wrong_password_is_refused_without_it(self, broker: DirectBroker) -> None:
        assert log_in(broker, connect(broker), PlainClient("alice", Password("x"))).error_code != ErrorCode.NONE
        assert contexts == []

    def test_the_principal_cannot_change_on_a_connection(self, broker: DirectBroker) -> None:
        connection = connect(broker)
        log_in(broker, connection, ALICE)
        broker.pass_time(2_000)
        behaviour[:] = [lambda context: "Role:admin"]
        answer = log_in(broker, connection, ALICE)
        assert "Cannot change principals" in answer.error_message
        assert connection.closing

    @pytest.mark.parametrize("before", [False, True])
    def test_a_connection_is_closed_if_it_does_not_return(
        self, broker: DirectBroker, monkeypatch: pytest.MonkeyPatch, before: bool
    ) -> None:
        """At the first login, and at a later one of the same connection."""
        connection, other = connect(broker), connect(broker)
        for each in (connection, other) if before else (other,):
            assert log_in(broker, each, ALICE).error_code == ErrorCode.NONE
        broker.pass_time(1000)
        hanging: list[Job] = []
        monkeypatch.setattr(broker.broker, "add_job", hanging.append)
        assert handshake(broker, connection, "PLAIN").error_code == ErrorCode.NONE
        broker.send(SaslAuthenticateRequest(auth_bytes=ALICE.first_message), connection=connection)
        broker.pass_time(25_000)
        assert not connection.closing
        broker.pass_time(16_000)
        assert connection.close_reason == "not authenticated within 30 s"
        [job] = [job for job in hanging if job.kind is JobKind.AUTHENTICATE]
        job.run()
        broker.broker.job_ended(job, None, broker.now())
        assert serves(broker, other)

    @pytest.mark.parametrize(("failing", "reason"), FAILURES, ids=[reason for _, reason in FAILURES])
    def test_a_failure_refuses_the_login_and_is_logged(
        self,
        broker: DirectBroker,
        failing: Callable[[AuthenticationContext], str],
        reason: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        behaviour[:] = [failing]
        connection = connect(broker)
        answer = log_in(broker, connection, ALICE)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: the principal cannot be determined"
        assert connection.closing
        (logged,) = (each for each in caplog.records if each.getMessage() == "principal builder failed")
        assert reason in str(vars(logged)["error"])
        assert vars(logged)["listener"] == "SASL_PLAINTEXT"
        behaviour[:] = [role]
        assert log_in(broker, connect(broker), ALICE).error_code == ErrorCode.NONE

    def test_other_listeners_are_not_affected(self, broker: DirectBroker) -> None:
        assert serves(broker, broker.connection)
        assert broker.connection.client.principal == ANONYMOUS
        assert contexts == []


class TestWithoutAuthentication:
    @pytest.fixture
    def broker(self) -> DirectBroker:
        made = DirectBroker({**CONFIG, "listener.name.plaintext.principal.builder.class": HERE})
        made.settle()
        contexts.clear()  # of its own connection
        return made

    def test_requests_wait_for_the_principal(self, broker: DirectBroker) -> None:
        connection = broker.broker.connection_opened(broker.listeners[0], "10.0.0.7", broker.now())
        assert connection is not None
        sent = broker.send(MetadataRequest(topics=None), connection=connection)
        assert contexts == [AuthenticationContext("PLAINTEXT", "PLAINTEXT", "10.0.0.7")]
        assert connection.client.principal == Principal("Role", "10.0.0.7")
        assert broker.answer(sent, connection=connection) is not None

    @pytest.mark.parametrize(("failing", "reason"), FAILURES, ids=[reason for _, reason in FAILURES])
    def test_a_failure_closes_the_connection(
        self,
        broker: DirectBroker,
        failing: Callable[[AuthenticationContext], str],
        reason: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        behaviour[:] = [failing]
        connection = broker.connect()
        broker.settle()
        assert "the principal cannot be determined" in (connection.close_reason or "")
        assert connection.client.principal == ANONYMOUS
        assert not serves(broker, connection)
        (logged,) = (each for each in caplog.records if each.getMessage() == "principal builder failed")
        assert reason in str(vars(logged)["error"])

    def test_it_is_not_called_for_a_client_that_has_gone(self, broker: DirectBroker) -> None:
        connection = broker.connect()
        broker.broker.connection_closed(connection, broker.now())
        broker.settle()
        assert contexts == []

    @pytest.mark.parametrize("peer", [f"{UNIX_PEER}1000", HANDLE_PEER])
    def test_it_is_not_called_for_clients_without_an_address(self, broker: DirectBroker, peer: str) -> None:
        connection = broker.connect(host=peer)
        assert serves(broker, connection)
        assert connection.client.principal == ANONYMOUS

    def test_it_is_not_called_for_nodes_of_the_cluster(self) -> None:
        broker = DirectBroker({**CONFIG, "principal.builder.class": HERE})
        broker.connect(internal=True)
        broker.settle()
        assert {each.listener for each in contexts} == {"PLAINTEXT"}, "of the test's own connection"


class TestTls:
    @pytest.fixture
    def cluster(self, certificates: Certificates, tmp_path: Path) -> Iterator[RunningCluster]:
        config = {
            **CONFIG,
            "listeners": "SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": CONFIG[f"{PREFIX}plain.sasl.jaas.config"],
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.folder / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates.trusted),
            "listener.name.ssl.ssl.client.auth": "requested",
            "listener.name.sasl_ssl.ssl.client.auth": "requested",
            "principal.builder.class": HERE,
        }
        config = {key: value for key, value in config.items() if not key.startswith(PREFIX)}
        with cluster_thread(config, tmp_path / "data") as running:
            yield running

    def secured(
        self, cluster: RunningCluster, certificates: Certificates, listener: str, name: str = "alice"
    ) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=str(certificates.trusted))
        if name:
            context.load_cert_chain(certificates.folder / f"{name}.pem")
        return context.wrap_socket(dial(cluster, listener), server_hostname="127.0.0.1")

    def test_the_certificate_of_the_client(self, cluster: RunningCluster, certificates: Certificates) -> None:
        with self.secured(cluster, certificates, "SSL") as sock:
            assert metadata_of(sock) == 1
            (context,) = contexts
            assert (context.security_protocol, context.client_address) == ("SSL", "127.0.0.1")
            assert context.certificate_subject == "CN=alice,OU=Users"
            assert b"alice" in (context.certificate or b"")
            assert self.principals(cluster) == {Principal("Role", "CN=alice,OU=Users")}

    def test_a_client_without_a_certificate(self, cluster: RunningCluster, certificates: Certificates) -> None:
        with self.secured(cluster, certificates, "SSL", name="") as sock:
            assert metadata_of(sock) == 1
            assert (contexts[0].certificate, contexts[0].certificate_subject) == (None, None)

    def test_the_certificate_beside_a_login(self, cluster: RunningCluster, certificates: Certificates) -> None:
        with self.secured(cluster, certificates, "SASL_SSL") as sock:
            bob = PlainClient("bob", Password("builder"))
            connection = BlockingConnection(SocketStream(sock, "the broker", lambda: bob), client_id="test")
            assert len(connection.call(MetadataRequest(topics=None)).brokers) == 1
            (context,) = contexts
            assert (context.authorization_id, context.certificate_subject) == ("bob", "CN=alice,OU=Users")

    def test_a_failure_closes_the_connection(self, cluster: RunningCluster, certificates: Certificates) -> None:
        behaviour[:] = [raises]
        with self.secured(cluster, certificates, "SSL") as sock:
            assert is_closed(sock)
        behaviour[:] = [role]
        with self.secured(cluster, certificates, "SSL") as sock:
            assert metadata_of(sock) == 1

    def test_a_slow_one_delays_no_other_client(self, cluster: RunningCluster, certificates: Certificates) -> None:
        release = threading.Event()
        with dial(cluster, "PLAINTEXT") as open_before:
            assert metadata_of(open_before) == 1

            def slow(context: AuthenticationContext) -> str:
                release.wait(HANG_SECONDS)
                return role(context)

            behaviour[:] = [slow]
            with self.secured(cluster, certificates, "SSL") as waiting:
                assert metadata_of(open_before) == 1
                assert self.principals(cluster) == {Principal("Role", "127.0.0.1")}
                release.set()
                assert metadata_of(waiting) == 1

    def test_a_stop_does_not_wait_for_it(self, tmp_path: Path) -> None:
        release, called = threading.Event(), threading.Event()

        def hanging(context: AuthenticationContext) -> str:
            called.set()
            release.wait()
            return role(context)

        behaviour[:] = [hanging]
        try:
            config = {"principal.builder.class": HERE}
            with cluster_thread(config, tmp_path / "data") as running, dial(running, "PLAINTEXT"):
                assert called.wait(HANG_SECONDS)
        finally:
            release.set()

    def principals(self, cluster: RunningCluster) -> set[Principal]:
        """Those of the clients that are authenticated."""
        return cluster.do(
            lambda: {
                connection.client.principal
                for connection in cluster.broker._connections
                if not connection.listener.internal and connection.authenticated
            }
        )


class TestConfiguration:
    def install(self, folder: Path, package: str, value: str) -> None:
        metadata = folder / f"{package}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[raylog.principal_builders]\nby_role = {value}\n")

    def test_an_entry_point_of_an_installed_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(tmp_path))
        self.install(tmp_path, "roles", HERE)
        broker = DirectBroker({**CONFIG, f"{PREFIX}principal.builder.class": "by_role"})
        connection = connect(broker)
        log_in(broker, connection, ALICE)
        assert connection.client.principal == Principal("Role", "alice")
        self.install(tmp_path, "other_roles", "os:getcwd")
        with pytest.raises(ConfigError, match=r"'by_role': 2 entry points of installed packages have this name"):
            check_authentication(broker_configs({"principal.builder.class": "by_role"}))

    @pytest.mark.parametrize(
        ("value", "rule"),
        [
            ("no_such_module:f", r"'no_such_module:f': cannot be imported"),
            ("os:no_such", r"'os:no_such': cannot be imported"),
            ("os:sep", r"'os:sep': is not a function"),
            ("no_such_entry_point", r"'no_such_entry_point': 0 entry points"),
            ("org.example.Builder", r"'org.example.Builder': 0 entry points"),
            (":f", "must be module:name or the name of an entry point"),
            ("a:b:c", "must be module:name or the name of an entry point"),
            ("", "must be module:name or the name of an entry point"),
        ],
    )
    def test_what_cannot_be_used_is_one_line(self, value: str, rule: str) -> None:
        with pytest.raises(ConfigError, match=rf"principal.builder.class=.*{rule}") as refusal:
            check_authentication(broker_configs({"principal.builder.class": value}))
        assert "\n" not in refusal.value.message

    def test_a_module_that_fails_while_it_is_imported(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(tmp_path))
        (tmp_path / "broken_builder.py").write_text("1 / 0\n")
        with pytest.raises(ConfigError, match="cannot be imported: ZeroDivisionError"):
            check_authentication(broker_configs({"principal.builder.class": "broken_builder:f"}))

    def test_kafkas_default_by_name(self, caplog: pytest.LogCaptureFixture) -> None:
        default = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
        with caplog.at_level(logging.WARNING):
            broker = DirectBroker({**CONFIG, "principal.builder.class": default})
        connection = connect(broker)
        log_in(broker, connection, ALICE)
        assert connection.client.principal == Principal("User", "alice")
