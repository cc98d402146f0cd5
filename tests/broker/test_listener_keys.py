"""TLS keys and SASL settings of a listener are changed by AlterConfigs, for new connections, and stay secret."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from raylog.broker.broker import Broker
from raylog.core.config import ConfigSource
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId
from raylog.core.outcome import Outcome
from raylog.core.password import Password
from raylog.metadata.records import BrokerConfigsChanged
from raylog.protocol.messages import alter_configs as replacing
from raylog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from raylog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from raylog.transport import server as transport_server
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.node import Job, JobKind
from tests.support.certificates import STORE_PASSWORD, Certificates
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.connection import BlockingConnection, SocketStream
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster, DirectMember
from tests.support.hang import HANG_SECONDS

BROKER = 4
SET, DELETE, APPEND, SUBTRACT = range(4)
PREFIX = "listener.name.ssl.ssl."
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECRET = "do not show this"


class Result(NamedTuple):
    code: ErrorCode
    message: str | None


def request(
    *changes: tuple[str, str | None], of_broker: str = "0", validate_only: bool = False, operation: int = SET
) -> IncrementalAlterConfigsRequest:
    """None deletes a key."""
    entries = tuple(
        AlterableConfig(name=name, config_operation=DELETE if value is None else operation, value=value)
        for name, value in changes
    )
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=of_broker, configs=entries)
    return IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)


def described_by(call: Callable[[Any], Any], broker: str = "0") -> dict[str, Any]:
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name=broker, configuration_keys=None)
    (result,) = call(DescribeConfigsRequest(resources=(resource,), include_synonyms=True)).results
    assert result.error_code == ErrorCode.NONE
    return {entry.name: entry for entry in result.configs}


class TestSasl:
    """Without sockets."""

    @pytest.fixture
    def broker(self) -> DirectBroker:
        return DirectBroker(
            {
                "listeners": "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                JAAS: f'{LOGIN} user_alice="wonderland";',
            }
        )

    def alter(self, broker: DirectBroker, *changes: tuple[str, str | None], **options: Any) -> Result:
        sent = broker.send(request(*changes, **options))
        broker.settle()
        (result,) = broker.answer(sent).responses
        return Result(result.error_code, result.error_message)

    def logs_in(
        self, broker: DirectMember, user: str, password: str, connection: AcceptedConnection | None = None
    ) -> bool:
        connection = connection or broker.connect(listener_name="SASL_PLAINTEXT")
        handshake = SaslHandshakeRequest(mechanism="PLAIN")
        assert broker.call(handshake, connection=connection).error_code == ErrorCode.NONE
        sent = broker.send(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), connection=connection)
        broker.cluster.pass_time(100)
        code: ErrorCode = broker.answer(sent, connection=connection).error_code
        return code == ErrorCode.NONE

    def test_new_users_log_in_and_former_ones_do_not(self, broker: DirectBroker) -> None:
        before = broker.connect(listener_name="SASL_PLAINTEXT")
        assert self.logs_in(broker, "alice", "wonderland", before)
        assert self.alter(broker, (JAAS, f'{LOGIN} user_bob="{SECRET}";')).code == ErrorCode.NONE
        assert self.logs_in(broker, "bob", SECRET)
        assert not self.logs_in(broker, "alice", "wonderland")
        assert broker.call(MetadataRequest(topics=None), connection=before).brokers
        broker.pass_time(1000)
        assert not self.logs_in(broker, "alice", "wonderland", before), "on the open connection too"

    @pytest.mark.parametrize("clean", [True, False])
    def test_they_are_there_after_a_restart(self, broker: DirectBroker, clean: bool) -> None:
        self.alter(broker, (JAAS, f'{LOGIN} user_bob="{SECRET}";'))
        broker.restart(clean=clean)
        assert self.logs_in(broker, "bob", SECRET)
        assert not self.logs_in(broker, "alice", "wonderland")

    def test_listeners_open_after_the_stored_users_are_known(self, broker: DirectBroker) -> None:
        self.alter(broker, (JAAS, f'{LOGIN} user_bob="{SECRET}";'))
        broker.stop()
        with pytest.MonkeyPatch.context() as patch:
            hanging: list[Job] = []
            patch.setattr(Broker, "add_job", lambda broker, job: hanging.append(job))
            broker.start(accepting=False)
            assert not broker.broker.accepting
        [job] = [job for job in hanging if job.kind is JobKind.CHECK_KEYS]
        job.run()
        broker.broker.job_ended(job, None, broker.now())
        assert broker.broker.accepting
        assert self.logs_in(broker, "bob", SECRET)

    def test_after_a_delete_the_static_users_log_in(self, broker: DirectBroker) -> None:
        self.alter(broker, (JAAS, f'{LOGIN} user_bob="{SECRET}";'))
        assert self.alter(broker, (JAAS, None)).code == ErrorCode.NONE
        assert self.logs_in(broker, "alice", "wonderland")
        assert not self.logs_in(broker, "bob", SECRET)

    @pytest.mark.parametrize("kept", [True, False])
    def test_alter_configs_replaces_the_configuration(self, broker: DirectBroker, kept: bool) -> None:
        self.alter(broker, (JAAS, f'{LOGIN} user_bob="{SECRET}";'))
        names = {"log.retention.ms": "5000", **({JAAS: f'{LOGIN} user_bob="{SECRET}";'} if kept else {})}
        entries = tuple(replacing.AlterableConfig(name=name, value=value) for name, value in names.items())
        resource = replacing.AlterConfigsResource(resource_type=BROKER, resource_name="0", configs=entries)
        sent = broker.send(replacing.AlterConfigsRequest(resources=(resource,)))
        broker.settle()
        assert broker.answer(sent).responses[0].error_code == ErrorCode.NONE
        assert self.logs_in(broker, "bob", SECRET) is kept
        assert self.logs_in(broker, "alice", "wonderland") is not kept

    @pytest.mark.parametrize(("sent_to", "named"), [(0, "00"), (1, "0")])
    def test_only_the_broker_itself_removes_its_listener_keys(self, sent_to: int, named: str) -> None:
        """By a replacement that does not contain them: the static ones must be validated, which only it can do."""
        listeners = "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093"
        static = {"sasl.enabled.mechanisms": "PLAIN", JAAS: f'{LOGIN} user_alice="wonderland";'}
        cluster = DirectCluster(2, {"listeners": listeners, **static})
        member = cluster.brokers[0]
        sent = member.send(request((JAAS, f'{LOGIN} user_bob="{SECRET}";')))
        cluster.settle()
        assert member.answer(sent).responses[0].error_code == ErrorCode.NONE
        entry = replacing.AlterableConfig(name="log.retention.ms", value="5000")
        resource = replacing.AlterConfigsResource(resource_type=BROKER, resource_name=named, configs=(entry,))
        other = cluster.brokers[sent_to]
        sent = other.send(replacing.AlterConfigsRequest(resources=(resource,)))
        cluster.settle()
        [response] = other.answer(sent).responses
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert "must be changed by a request to that broker" in response.error_message
        assert set(cluster.active.image.broker_passwords[BrokerId(0)]) == {JAAS}

    @pytest.mark.parametrize(
        "invalid", ["", "garbage", f'{LOGIN} user_bob="{SECRET}"', f"{LOGIN};", f'{LOGIN} user_bob="";', SECRET * 1000]
    )
    def test_an_invalid_value_is_refused_and_not_stored(self, broker: DirectBroker, invalid: str) -> None:
        result = self.alter(broker, (JAAS, invalid))
        assert result.code == ErrorCode.INVALID_REQUEST
        assert f"{JAAS}: must" in str(result.message) or "sasl.jaas.config: " in str(result.message)
        assert SECRET not in str(result.message)
        assert broker.controller.image.broker_configs == {}
        assert self.logs_in(broker, "alice", "wonderland")

    def test_a_thousand_changes(self, broker: DirectBroker) -> None:
        for number in range(1000):
            assert self.alter(broker, (JAAS, f'{LOGIN} user_bob="{number}";')).code == ErrorCode.NONE
        assert self.logs_in(broker, "bob", "999")
        assert not self.logs_in(broker, "bob", "998")

    def test_validate_only_changes_nothing(self, broker: DirectBroker) -> None:
        changes = (JAAS, f'{LOGIN} user_bob="{SECRET}";')
        assert self.alter(broker, changes, validate_only=True).code == ErrorCode.NONE
        assert self.alter(broker, (JAAS, "garbage"), validate_only=True).code == ErrorCode.INVALID_REQUEST
        assert broker.controller.image.broker_passwords == {}
        assert self.logs_in(broker, "alice", "wonderland")

    @pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
    def test_append_and_subtract_are_refused(self, broker: DirectBroker, operation: int) -> None:
        result = self.alter(broker, (JAAS, SECRET), operation=operation)
        assert result == (ErrorCode.INVALID_CONFIG, f"{JAAS} is not a list: APPEND and SUBTRACT do not apply to it.")

    @pytest.mark.parametrize(
        ("resource", "code", "message"),
        [
            ("1", ErrorCode.INVALID_REQUEST, "must be changed by a request to that broker; this is broker 0"),
            ("00", ErrorCode.INVALID_REQUEST, "must be changed by a request to that broker; this is broker 0"),
            ("x", ErrorCode.INVALID_REQUEST, "must be changed by a request to that broker; this is broker 0"),
            ("", ErrorCode.INVALID_REQUEST, "Can only be changed for single brokers"),
        ],
    )
    def test_only_the_broker_itself_can_be_changed(
        self, broker: DirectBroker, resource: str, code: ErrorCode, message: str
    ) -> None:
        result = self.alter(broker, (JAAS, f'{LOGIN} user_bob="{SECRET}";'), of_broker=resource)
        assert result.code == code
        assert message in str(result.message)

    def test_an_invalid_resource_beside_it_does_not_skip_the_validation(self, broker: DirectBroker) -> None:
        """The second change is refused by the controller, the first by the broker."""
        one, two = request((JAAS, "garbage")), request(("no.such.key", "1"), (JAAS, f'{LOGIN} user_bob="x";'))
        sent = broker.send(IncrementalAlterConfigsRequest(resources=(*two.resources, *one.resources)))
        broker.settle()
        assert {each.error_code for each in broker.answer(sent).responses} == {ErrorCode.INVALID_REQUEST}
        assert broker.controller.image.broker_configs == {}

    def test_it_is_described_as_a_sensitive_dynamic_value(self, broker: DirectBroker) -> None:
        def described() -> Any:
            return described_by(broker.call)[JAAS]

        assert described().config_source == ConfigSource.STATIC_BROKER_CONFIG
        self.alter(broker, (JAAS, f'{LOGIN} user_bob="{SECRET}";'))
        entry = described()
        assert (entry.value, entry.is_sensitive, entry.read_only) == (None, True, False)
        assert entry.config_source == ConfigSource.DYNAMIC_BROKER_CONFIG
        assert [each.value for each in entry.synonyms] == [None] * len(entry.synonyms)
        assert described_by(broker.call)["sasl.jaas.config"].read_only, "without the prefix"

    def test_a_value_that_another_secret_encrypted_is_not_used(
        self, broker: DirectBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        changed = BrokerConfigsChanged(BrokerId(0), (), ((JAAS, b"\1" + bytes(40)),))
        broker.controller.decide(Outcome(None, [changed]), broker.now())
        broker.controller.run(broker.now())
        broker.settle()
        for _ in range(2):
            assert self.logs_in(broker, "alice", "wonderland")
            broker.restart()
        assert [vars(record)["key"] for record in caplog.records if record.msg == "stored password unreadable"] == [
            JAAS
        ]

    def test_a_stored_value_that_cannot_be_used_leaves_the_users_as_they_were(
        self, broker: DirectBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Two valid changes at once may not be valid together."""
        encrypted = broker.controller.cipher.encrypt
        for text in (f'{LOGIN} user_bob="{SECRET}";', f"{SECRET}"):
            password = encrypted(Password(text), broker_id=BrokerId(0), key=JAAS)
            changed = BrokerConfigsChanged(BrokerId(0), (), ((JAAS, password),))
            broker.controller.decide(Outcome(None, [changed]), broker.now())
            broker.controller.run(broker.now())
            broker.settle()
        assert self.logs_in(broker, "bob", SECRET)
        assert [record.levelname for record in caplog.records if record.msg == "SASL settings not changed"] == ["ERROR"]
        assert SECRET not in caplog.text


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates.new(tmp_path_factory.mktemp("certificates"))
    for name in ("static", "first", "second"):
        made.issue(name, "127.0.0.1")
        made.pkcs12(name)
    return made


class TlsCluster:
    """A broker with a TLS listener, and clients of it."""

    def __init__(self, running: RunningCluster, certificates: Certificates) -> None:
        self.running = running
        self.certificates = certificates

    def dial(self, listener: str) -> socket.socket:
        port = self.running.broker.endpoints[listener].port
        return socket.create_connection(("127.0.0.1", port), timeout=HANG_SECONDS)

    def secured(self) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=str(self.certificates.trusted))
        return context.wrap_socket(self.dial("SSL"), server_hostname="127.0.0.1")

    def shown(self) -> str:
        """The name in the certificate that a new connection gets."""
        with closing(self.secured()) as sock:
            subject = (sock.getpeercert() or {})["subject"]
            return str(dict(pair for names in subject for pair in names)["commonName"])  # type: ignore[misc]

    def shows(self, name: str) -> bool:
        """Waits for it."""
        until = time.monotonic() + HANG_SECONDS
        while self.shown() != name:
            if time.monotonic() > until:
                return False
        return True

    def call(self, message: Any) -> Any:
        with closing(self.dial("PLAINTEXT")) as sock:
            return BlockingConnection(SocketStream(sock, "the broker"), client_id="test").call(message)

    def alter(self, *changes: tuple[str, str | None], **options: Any) -> Result:
        (result,) = self.call(request(*changes, **options)).responses
        return Result(result.error_code, result.error_message)

    def store(self, name: str) -> list[tuple[str, str | None]]:
        return [
            (f"{PREFIX}keystore.type", "PKCS12"),
            (f"{PREFIX}keystore.location", str(self.certificates.folder / f"{name}.p12")),
            (f"{PREFIX}keystore.password", STORE_PASSWORD),
        ]


def tls_config(certificates: Certificates) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.folder / "static.pem"),
    }


@pytest.fixture
def cluster(certificates: Certificates, tmp_path: Path) -> Iterator[TlsCluster]:
    with cluster_thread(tls_config(certificates), tmp_path / "data") as running:
        yield TlsCluster(running, certificates)


@pytest.fixture
def never_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read when the configuration changes only."""
    monkeypatch.setattr(transport_server, "TLS_REFRESH_SECONDS", 3600)


@pytest.mark.usefixtures("never_polled")
class TestTls:
    def test_new_connections_get_the_new_certificate_and_open_ones_stay(self, cluster: TlsCluster) -> None:
        with closing(cluster.secured()) as before:
            connection = BlockingConnection(SocketStream(before, "the broker"), client_id="test")
            assert cluster.shown() == "static"
            for name in ("first", "second"):
                assert cluster.alter(*cluster.store(name)) == (ErrorCode.NONE, None)
                assert cluster.shows(name)
                assert len(connection.call(MetadataRequest(topics=None)).brokers) == 1
            nothing = [(name, None) for name, _ in cluster.store("")]
            assert cluster.alter(*nothing) == (ErrorCode.NONE, None)
            assert cluster.shows("static")

    def test_texts_in_place_of_files(self, cluster: TlsCluster) -> None:
        folder = cluster.certificates.folder
        result = cluster.alter(
            (f"{PREFIX}keystore.location", ""),
            (f"{PREFIX}keystore.key", (folder / "first.key").read_text()),
            (f"{PREFIX}keystore.certificate.chain", (folder / "first.crt").read_text()),
        )
        assert result == (ErrorCode.NONE, None)
        assert cluster.shows("first")

    def test_setting_the_same_location_reads_the_file_again(self, cluster: TlsCluster, tmp_path: Path) -> None:
        path = Path(shutil.copy(cluster.certificates.folder / "first.pem", tmp_path / "keys.pem"))
        location = (f"{PREFIX}keystore.location", str(path))
        cluster.alter(location)
        assert cluster.shows("first")
        found = path.stat()
        path.write_bytes((cluster.certificates.folder / "second.pem").read_bytes())
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
        assert cluster.shown() == "first"
        assert cluster.alter(location) == (ErrorCode.NONE, None)
        assert cluster.shows("second")

    def test_what_cannot_be_used_is_refused(self, cluster: TlsCluster, tmp_path: Path) -> None:
        folder = cluster.certificates.folder
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        second = (folder / "second.crt").read_text()
        no_file = (f"{PREFIX}keystore.location", "")
        for changes, message in (
            ([*cluster.store("first")[:2], (f"{PREFIX}keystore.password", SECRET)], "that ssl.keystore.password opens"),
            (cluster.store("absent"), "this broker has no such file"),
            ([(f"{PREFIX}keystore.location", str(pipe))], "this broker has no such file"),
            ([(f"{PREFIX}keystore.location", str(tmp_path))], "this broker has no such file"),
            ([(f"{PREFIX}keystore.location", str(folder / "first.crt"))], "no private key in PEM format"),
            ([no_file], "ssl.keystore.location: must be set for a listener with TLS"),
            (
                [
                    no_file,
                    (f"{PREFIX}keystore.key", (folder / "first.key").read_text()),
                    (f"{PREFIX}keystore.certificate.chain", second),
                ],
                "the private key does not belong to the certificate",
            ),
            (
                [no_file, (f"{PREFIX}keystore.key", SECRET), (f"{PREFIX}keystore.certificate.chain", second)],
                "ssl.keystore.key: no private key in PEM format",
            ),
        ):
            result = cluster.alter(*changes)
            assert result.code == ErrorCode.INVALID_REQUEST, changes
            assert message in str(result.message)
            assert SECRET not in str(result.message)
        assert described_by(cluster.call).keys().isdisjoint({f"{PREFIX}keystore.location"})
        assert cluster.shown() == "static"

    def test_static_keys_that_are_gone_cannot_be_returned_to(self, certificates: Certificates, tmp_path: Path) -> None:
        static = Path(shutil.copy(certificates.folder / "static.pem", tmp_path))
        config = {**tls_config(certificates), "ssl.keystore.location": str(static)}
        with cluster_thread(config, tmp_path / "data") as running:
            cluster = TlsCluster(running, certificates)
            assert cluster.alter(*cluster.store("first")).code == ErrorCode.NONE
            static.unlink()
            assert cluster.alter(*[(name, None) for name, _ in cluster.store("")]).code == ErrorCode.INVALID_REQUEST
            nothing = replacing.AlterConfigsResource(resource_type=BROKER, resource_name="0", configs=())
            (result,) = cluster.call(replacing.AlterConfigsRequest(resources=(nothing,))).responses
            assert result.error_code == ErrorCode.INVALID_REQUEST
            assert cluster.shows("first")

    def test_it_applies_from_the_first_connection_after_a_restart(
        self, certificates: Certificates, tmp_path: Path
    ) -> None:
        with cluster_thread(tls_config(certificates), tmp_path / "data", secret=b"s" * 32) as running:
            cluster = TlsCluster(running, certificates)
            cluster.alter(*cluster.store("first"))
        with cluster_thread(tls_config(certificates), tmp_path / "data", secret=b"s" * 32) as running:
            assert TlsCluster(running, certificates).shown() == "first"
        with cluster_thread(tls_config(certificates), tmp_path / "data", secret=b"t" * 32) as running:
            assert TlsCluster(running, certificates).shown() == "static", "the password cannot be read"

    def test_hostile_values(self, cluster: TlsCluster) -> None:
        certificate = "-----BEGIN CERTIFICATE-----\n"
        no_file = (f"{PREFIX}keystore.location", "")
        for garbage in ("", certificate + "A" * 32_000, "-----BEGIN PRIVATE KEY-----\n", "\1\ud7ff" * 8000):
            for name in ("keystore.key", "keystore.password", "keystore.certificate.chain", "truststore.certificates"):
                result = cluster.alter(no_file, (f"{PREFIX}{name}", garbage))
                assert result.code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)
                assert len(str(result.message)) < 500
        with pytest.raises(KafkaError, match="closed the connection"):  # no string of the protocol may be so long
            cluster.alter((f"{PREFIX}keystore.key", certificate + "A" * 1_000_000))
        assert cluster.shown() == "static"

    def test_many_changes(self, cluster: TlsCluster) -> None:
        with closing(cluster.dial("PLAINTEXT")) as sock:
            connection = BlockingConnection(SocketStream(sock, "the broker"), client_id="test")
            for number in range(30):
                path = cluster.certificates.folder / ("first.pem", "second.pem")[number % 2]
                changes = (f"{PREFIX}keystore.location", str(path)), (f"{PREFIX}keystore.password", str(number))
                (result,) = connection.call(request(*changes)).responses
                assert result.error_code == ErrorCode.NONE
        assert cluster.shows("second")

    def test_the_password_is_shown_nowhere(
        self, cluster: TlsCluster, caplog: pytest.LogCaptureFixture, tmp_path: Path
    ) -> None:
        caplog.set_level(logging.DEBUG)
        cluster.alter(*cluster.store("first"))
        cluster.alter(*cluster.store("absent"))
        cluster.alter(("listener.name.other.ssl.keystore.password", STORE_PASSWORD))
        cluster.alter((f"{PREFIX}keystore.password", STORE_PASSWORD + "\0"))
        cluster.alter((f"{PREFIX}no.such.key", STORE_PASSWORD))
        assert cluster.shows("first")
        entry = described_by(cluster.call)[f"{PREFIX}keystore.password"]
        assert (entry.value, entry.is_sensitive) == (None, True)
        assert entry.config_source == ConfigSource.DYNAMIC_BROKER_CONFIG
        broker = cluster.running.broker
        assert STORE_PASSWORD not in str(described_by(cluster.call))
        assert STORE_PASSWORD not in str(cluster.running.do(broker.journal.story))
        assert STORE_PASSWORD not in repr(cluster.running.do(lambda: broker.configs.layers))
        assert STORE_PASSWORD not in caplog.text
        assert not any(STORE_PASSWORD in str(vars(record)) for record in caplog.records)
        files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
        assert any(b"keystore.location" in path.read_bytes() for path in files), "the metadata log is among them"
        assert not any(STORE_PASSWORD.encode() in path.read_bytes() for path in files)


def test_the_internal_listener_keeps_keys_that_its_nodes_accept(certificates: Certificates, tmp_path: Path) -> None:
    others = Certificates.new(tmp_path / "others", "Another authority")
    prefix = "listener.name.internal.ssl."
    config = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SSL",
        f"{prefix}keystore.type": "PEM",
        f"{prefix}keystore.location": str(certificates.folder / "static.pem"),
        f"{prefix}truststore.type": "PEM",
        f"{prefix}truststore.location": str(certificates.trusted),
        f"{prefix}client.auth": "required",
    }
    with cluster_thread(config, tmp_path / "data") as running:
        cluster = TlsCluster(running, certificates)
        for name, path in (
            ("keystore.location", others.issue("stranger", "127.0.0.1")),
            ("truststore.location", others.trusted),
        ):
            result = cluster.alter((f"{prefix}{name}", str(path)))
            assert result.code == ErrorCode.INVALID_REQUEST
            assert "is not accepted by ssl.truststore" in str(result.message)
        location = (f"{prefix}keystore.location", str(certificates.folder / "first.pem"))
        assert cluster.alter(location) == (ErrorCode.NONE, None)


def test_the_defaults_of_all_brokers_contain_no_listener_keys(cluster: TlsCluster) -> None:
    result = cluster.alter(*cluster.store("first"), of_broker="")
    assert result.code == ErrorCode.INVALID_REQUEST
    assert NO_BROKER_ID not in cluster.running.broker.image.broker_configs
