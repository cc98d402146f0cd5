"""raylog's own client logs in with the properties of Kafka's Java client, and says why it cannot."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import raylog
from raylog.client import range_reader
from raylog.client.admin.partitions import OffsetSpec
from raylog.client.client_config import ClientConfig
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.transport.endpoints import UNIX_PEER
from tests.support.certificates import STORE_PASSWORD, Certificates
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.raw_client import RawClient
from tests.support.token_issuer import http_endpoint

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SESSION_MS = 1500
PASSWORD = "wonder;land"


def credentials(module: str, **options: str) -> str:
    return f"{module} required " + " ".join(f'{name}="{value}"' for name, value in options.items()) + ";"


ALICE = credentials(PLAIN_MODULE, username="alice", password=PASSWORD)


@dataclass(frozen=True, slots=True)
class SecureCluster:
    running: RunningCluster
    certificates: Certificates

    def config(self, protocol: str, properties: Mapping[str, Any]) -> ClientConfig:
        servers = f"localhost:{self.running.broker.endpoints[protocol].port}"
        given = {"security.protocol": protocol, "bootstrap.servers": servers}
        if protocol.endswith("SSL"):
            given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.certificates.trusted)}
        return ClientConfig.of(None, {**given, **properties})

    def principals(self) -> set[str]:
        broker = self.running.broker
        return self.running.do(
            lambda: {str(each.client.principal) for each in broker._connections if not each.listener.internal}
        )


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    folder = tmp_path_factory.mktemp("login")
    certificates = Certificates.new(folder / "certificates")
    certificates.issue("carol", unit="Users")
    names = ("SASL_SSL", "SSL", "SASL_PLAINTEXT", "PLAINTEXT")
    config = {
        "listeners": ",".join(f"{name}://localhost:0" for name in names),
        "advertised.listeners": ",".join(f"{name}://localhost:0" for name in names),
        "sasl.enabled.mechanisms": "PLAIN",
        "local.principal.mapping": f"nobody:no one,{os.geteuid()}:alice,*:others",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.issue("broker", "localhost")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.trusted),
        "listener.name.ssl.ssl.client.auth": "requested",
        "listener.name.sasl_plaintext.connections.max.reauth.ms": SESSION_MS,
        **{
            f"listener.name.{name}.plain.sasl.jaas.config": credentials(
                PLAIN_MODULE, user_alice=PASSWORD, user_bob=PASSWORD
            )
            for name in ("sasl_ssl", "sasl_plaintext")
        },
    }
    with cluster_thread(config, folder / "data") as running:
        producer = Producer({"bootstrap.servers": f"localhost:{running.broker.endpoints['PLAINTEXT'].port}"})
        producer.produce("read", b"value")
        assert producer.flush(30) == 0
        yield SecureCluster(running, certificates)


def test_log_in_by_sasl_over_tls(secure: SecureCluster) -> None:
    config = secure.config("SASL_SSL", {"sasl.mechanism": "PLAIN", "sasl.jaas.config": ALICE})
    with RawClient(config, client_id="test") as client:
        assert client.metadata([]).brokers
        assert "User:alice" in secure.principals()


@pytest.mark.parametrize("store", ["PEM", "PKCS12"])
def test_log_in_by_a_certificate(secure: SecureCluster, store: str) -> None:
    certificates = secure.certificates
    path = certificates.folder / "carol.pem" if store == "PEM" else certificates.pkcs12("carol")
    properties = {
        "ssl.keystore.type": store,
        "ssl.keystore.location": str(path),
        "ssl.keystore.password": STORE_PASSWORD,
    }
    with RawClient(secure.config("SSL", properties), client_id="test") as client:
        assert client.metadata([]).brokers
        assert "User:CN=carol,OU=Users" in secure.principals()


def test_readers_log_in(secure: SecureCluster) -> None:
    config = secure.config("SASL_SSL", {"sasl.mechanism": "PLAIN", "sasl.jaas.config": ALICE})
    servers, properties = config.bootstrap_servers, dict(config.properties)
    with raylog.PartitionReader(servers, "read", 0, mapped=False, client_config=properties) as reader:
        assert [record.value for record in reader.read_records(max_wait_ms=30_000)] == [b"value"]
    assert range_reader.partition_counts(config, ["read", "none"]) == {"read": 1}
    assert range_reader.offsets_at(config, {TopicPartition("read", 0): OffsetSpec.LATEST}) == {
        TopicPartition("read", 0): 1
    }
    read = range_reader.fetch_range(config, "read", 0, start_offset=0, end_offset=1, mapped=False)
    assert [record.value for records in read for record in records] == [b"value"]


@pytest.mark.parametrize(("user", "reads_files"), [("alice", True), ("bob", False)])
def test_files_are_read_by_the_user_whom_the_broker_takes_this_process_for(
    secure: SecureCluster, user: str, reads_files: bool
) -> None:
    """Another one reads over TCP, with his own rights."""
    jaas = credentials(PLAIN_MODULE, username=user, password=PASSWORD)
    config = secure.config("SASL_SSL", {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas})
    with raylog.PartitionReader(config.bootstrap_servers, "read", 0, client_config=dict(config.properties)) as reader:
        assert [record.value for record in reader.read_records(max_wait_ms=30_000)] == [b"value"]
        assert reader.reads_files is reads_files


def test_a_process_at_a_unix_socket_is_whom_the_mapping_says(secure: SecureCluster) -> None:
    servers = secure.config("PLAINTEXT", {}).bootstrap_servers
    with RawClient(servers, client_id="at-unix-socket") as client:
        topic = TopicPartition("read", 0)
        assert client.offset_for(topic, OffsetSpec.EARLIEST) == 0  # asks the leader by its Unix socket
        broker = secure.running.broker
        found = secure.running.do(
            lambda: {str(each.client.principal) for each in broker._connections if each.peer_host.startswith(UNIX_PEER)}
        )
    assert found == {"User:alice"}


def test_a_session_that_ends_is_renewed(secure: SecureCluster) -> None:
    """The same connection is used for longer than connections.max.reauth.ms, with pauses and without."""
    config = secure.config("SASL_PLAINTEXT", {"sasl.mechanism": "PLAIN", "sasl.jaas.config": ALICE})
    port = secure.running.broker.endpoints["SASL_PLAINTEXT"].port
    broker = secure.running.broker

    def connections() -> set[object]:
        return secure.running.do(lambda: {each for each in broker._connections if not each.listener.internal})

    of_others = connections()  # the broker may still be closing those of the tests before
    with RawClient(ClientConfig.of(f"localhost:{port}", config.properties)) as client:
        assert client.metadata().brokers
        before = connections() - of_others
        assert before
        for pause_ms in (SESSION_MS * 0.9, SESSION_MS * 0.9, SESSION_MS * 1.1):
            time.sleep(pause_ms / 1000)
            assert client.metadata().brokers
        assert connections() - of_others == before


@pytest.mark.parametrize(
    ("protocol", "changed", "message"),
    [
        ("SASL_SSL", {"sasl.jaas.config": ALICE.replace("wonder", "other")}, "Invalid username or password"),
        (
            "SASL_SSL",
            {"ssl.truststore.location": "{stranger}"},
            "TLS handshake .* failed: .*certificate",
        ),
        ("SASL_SSL", {"bootstrap.servers": "127.0.0.1:{port}"}, "IP address mismatch"),
        ("SASL_SSL", {"sasl.mechanism": "SCRAM-SHA-512"}, "localhost:.* offers PLAIN"),
        (
            "SASL_PLAINTEXT",
            {"security.protocol": "SASL_SSL"},
            "cannot connect to localhost:.* during the TLS handshake; its listener may not use TLS",
        ),
        (
            "SASL_SSL",
            {"security.protocol": "SASL_PLAINTEXT"},
            "received a TLS alert, .*; its listener uses TLS",
        ),
        (
            "SASL_SSL",
            {"security.protocol": "PLAINTEXT"},
            "received a TLS alert, .*; its listener uses TLS",
        ),
        ("SASL_SSL", {"security.protocol": "SSL"}, "before its first response; its listener may require a login"),
        ("SSL", {"security.protocol": "SASL_SSL"}, "offers no SASL mechanism; its listener may have no logins"),
        ("SASL_PLAINTEXT", {"security.protocol": "PLAINTEXT"}, "its listener may require a login"),
    ],
)
def test_a_login_that_fails_ends_at_once_with_the_reason(
    secure: SecureCluster, protocol: str, changed: dict[str, str], message: str, tmp_path: Path
) -> None:
    words = {
        "stranger": Certificates.new(tmp_path / "s").trusted,
        "port": secure.running.broker.endpoints[protocol].port,
    }
    changed = {name: value.format(**words) if "{" in value else value for name, value in changed.items()}
    config = secure.config(protocol, {"sasl.mechanism": "PLAIN", "sasl.jaas.config": ALICE, **changed})
    with RawClient(config, client_id="test") as client, pytest.raises(KafkaError, match=message) as failed:
        client.metadata([])
    assert failed.value.code.retriable is ("its listener" in message and "offers" not in message)
    assert PASSWORD not in str(failed.value)


def test_any_host_name_is_accepted_if_it_is_not_to_be_checked(secure: SecureCluster) -> None:
    port = secure.running.broker.endpoints["SSL"].port
    properties = {"bootstrap.servers": f"127.0.0.1:{port}", "ssl.endpoint.identification.algorithm": ""}
    with RawClient(secure.config("SSL", properties), client_id="test") as client:
        assert client.metadata([]).brokers


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config: must be set, since sasl.mechanism is PLAIN"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "x"}, "sasl.jaas.config: must be one login module"),
        (
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": credentials(SCRAM_MODULE, username="alice")},
            'sasl.jaas.config: must contain password="..."',
        ),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": "m required;"}, "token.endpoint.url: must be set"),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/nowhere.pem"},
            "ssl.truststore.location='/nowhere.pem': [Errno 2]",
        ),
        ({"sasl.mechanism": ["PLAIN"]}, "sasl.mechanism: a client's properties must be texts, numbers or booleans"),
    ],
)
def test_bad_properties_are_refused_before_any_connection(properties: dict[str, Any], message: str) -> None:
    base = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.truststore.type": "PEM"}
    with pytest.raises(ConfigError) as refused:
        ClientConfig.of("nowhere:9092", {**base, **properties})
    assert message in refused.value.message


def test_an_empty_text_is_no_server() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers: must be set"):
        ClientConfig.of("", {"bootstrap.servers": "127.0.0.1:9092"})


@pytest.mark.parametrize("properties", ["bootstrap.servers=nowhere:9092", [("security.protocol", "SSL")]])
def test_properties_are_a_mapping(properties: Any) -> None:
    with pytest.raises(ConfigError, match="the properties of a client must be a mapping of Kafka's keys"):
        ClientConfig.of("nowhere:9092", properties)


def test_values_of_a_wrong_type_are_refused_by_name() -> None:
    servers: Any = ["nowhere:9092"]
    with pytest.raises(ConfigError, match=r"bootstrap\.servers=\['nowhere:9092'\]: must be text"):
        ClientConfig.of(servers)
    properties: Any = {7: "x"}
    with pytest.raises(ConfigError, match="7: the key of a configuration must be text"):
        ClientConfig.of("nowhere:9092", properties)


def test_servers_are_required() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers: must be set"):
        ClientConfig.of(None, {})


def test_passwords_travel_and_are_never_shown() -> None:
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": ALICE}
    config = ClientConfig.of("somewhere:9092", properties)
    assert PASSWORD not in repr(config)
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_token_from_a_file_is_read_again_for_each_login(tmp_path: Path) -> None:
    path = tmp_path / "token"
    url = path.as_uri()
    config = ClientConfig.of(
        "somewhere:9092",
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": url,
        },
    )
    login = partial(first_message, config)
    for token in ("one", "two"):
        path.write_text(f"{token}\n")
        assert f"Bearer {token}\x01".encode() in login()
    path.write_text("not a\x01token")
    with pytest.raises(KafkaError, match="invalid characters"):
        login()
    path.unlink()
    with pytest.raises(KafkaError, match=r"no token: .*No such file") as failed:
        login()
    assert failed.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_token_by_the_client_credentials_grant() -> None:
    with http_endpoint() as issuer:
        issuer.serve(b'{"access_token": "granted", "expires_in": 600}')
        config = ClientConfig.of(
            "somewhere:9092",
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": issuer.url,
                "sasl.jaas.config": credentials(OAUTH_MODULE, clientId="me", clientSecret="secret"),
            },
        )
        assert b"Bearer granted" in first_message(config)


def first_message(config: ClientConfig) -> bytes:
    _, login = config.dialer().prepare("host")
    assert login is not None
    return login.first_message
