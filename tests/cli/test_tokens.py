"""`raylog tokens` creates, describes, renews and expires delegation tokens, and prints a secret only where it must."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest

from raylog.cli import tokens
from raylog.client.cluster_client import ClusterClient
from raylog.client.cluster_view import Node
from raylog.client.connectors import TcpConnector
from raylog.core.config import LONG_MAX
from raylog.core.errors import KafkaError
from raylog.core.password import Password
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.security.principal import Principal
from raylog.security.sasl.mechanism import SaslClient
from raylog.security.sasl.plain import PlainClient
from raylog.security.sasl.scram import ScramClient, ScramMechanism
from raylog.transport.blocking import BlockingConnection, Stream, connect_tcp
from tests.cli.conftest import Cli
from tests.support.cluster_thread import RunningCluster, cluster_thread

DAY = 86_400_000
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonderland" user_bob="builder";'
LISTENERS = ("SASL_PLAINTEXT", "PLAINTEXT")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    config = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "delegation.token.secret.key": "secret-of-this-test",
    }
    with cluster_thread(config, tmp_path_factory.mktemp("tokens")) as running:
        yield running


class LoggedIn(TcpConnector):
    """Streams on which a user has logged in."""

    def __init__(self, servers: str, sasl: Callable[[], SaslClient]) -> None:
        super().__init__(servers)
        self._sasl = sasl

    def bootstrap(self, timeout_seconds: float) -> Iterator[Callable[[], Stream]]:
        for connect in super().bootstrap(timeout_seconds):
            yield partial(self._logged_in, connect)

    def open(self, node: Node, timeout_seconds: float) -> Stream:
        return self._logged_in(partial(super().open, node, timeout_seconds))

    def _logged_in(self, connect: Callable[[], Stream]) -> Stream:
        stream = connect()
        BlockingConnection(stream, client_id="login", sasl=self._sasl)
        return stream


@pytest.fixture
def be(cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> Callable[[SaslClient | None], None]:
    """Decides who runs the commands; None: nobody logs in."""

    def choose(sasl: SaslClient | None) -> None:
        def open_client(options: Namespace) -> ClusterClient:
            endpoint = cluster.broker.endpoints["PLAINTEXT" if sasl is None else "SASL_PLAINTEXT"]
            servers = f"{endpoint.host}:{endpoint.port}"
            return ClusterClient(servers if sasl is None else LoggedIn(servers, lambda: sasl), client_id="test")

        monkeypatch.setattr(tokens, "open_client", open_client)

    choose(ALICE)
    return choose


ALICE = PlainClient("alice", Password("wonderland"))
BOB = PlainClient("bob", Password("builder"))
_NONCES = count()


def by_token(token: dict[str, Any]) -> ScramClient:
    nonce = b"nonce-%d" % next(_NONCES)
    return ScramClient(ScramMechanism.SHA_512, token["token_id"], Password(token["hmac"]), nonce=nonce, is_token=True)


def created(cli: Cli, *arguments: str) -> dict[str, Any]:
    done = cli("tokens", "create", "--json", *arguments)
    assert (done.code, done.err) == (0, "")
    (token,) = json.loads(done.out)
    assert isinstance(token, dict)
    return token


def listed(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    found = json.loads(cli("tokens", "describe", "--json", *arguments).out)
    assert isinstance(found, list)
    return found


def test_a_token_logs_its_owner_in(cluster: RunningCluster, cli: Cli, be: object) -> None:
    token = created(cli, "--owner-principal", "User:carol")
    endpoint = cluster.broker.endpoints["SASL_PLAINTEXT"]
    connection = BlockingConnection(
        connect_tcp(endpoint.host, endpoint.port), client_id="test", sasl=lambda: by_token(token)
    )
    assert connection.call(MetadataRequest(topics=None)).brokers
    principals = cluster.do(lambda: {each.client[::2] for each in cluster.broker._connections})
    assert (Principal("User", "carol"), True) in principals
    connection.close()


def test_json(cli: Cli, be: object) -> None:
    before = time.time() * 1000
    token = created(cli, "--renewer-principal", "User:bob", "--renewer-principal", "User:c:d")
    assert (token["owner"], token["requester"], token["renewers"]) == (
        "User:alice",
        "User:alice",
        ["User:bob", "User:c:d"],
    )
    issued = token["issue_timestamp_ms"]
    assert before - 1000 <= issued <= time.time() * 1000
    assert (token["expiry_timestamp_ms"], token["max_timestamp_ms"]) == (issued + DAY, issued + 7 * DAY)
    assert token in listed(cli)
    assert token in listed(cli, "--owner-principal", "User:zoe", "--owner-principal", "User:bob")
    assert listed(cli, "--owner-principal", "User:zoe") == []


def test_table(cli: Cli, be: object) -> None:
    token = created(cli, "--max-life-time-period", "60000", "--owner-principal", "User:dora")
    head, row = (line.split() for line in cli("tokens", "describe", "--owner-principal", "User:dora").out.splitlines())
    assert head[:5] == ["ID", "HMAC", "OWNER", "REQUESTER", "RENEWERS"]
    assert row[:5] == [token["token_id"], token["hmac"], "User:dora", "User:alice", "-"]
    expiry = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(token["max_timestamp_ms"] // 1000))
    assert row[6:] == [expiry, expiry]
    assert cli("tokens", "describe", "--owner-principal", "User:zoe").out == "No delegation tokens found.\n"


def test_renew_and_expire_name_a_token_by_its_id(cli: Cli, be: Callable[[SaslClient], None]) -> None:
    token = created(cli, "--renewer-principal", "User:bob")
    be(BOB)
    renewed = cli("tokens", "renew", token["token_id"], "--renew-time-period", "3600000")
    assert (renewed.code, renewed.err) == (0, "")
    assert renewed.out.startswith(f"Token {token['token_id']} expires at 2")
    assert token["hmac"] not in renewed.out
    (found,) = (each for each in listed(cli) if each["token_id"] == token["token_id"])
    assert found["expiry_timestamp_ms"] < token["expiry_timestamp_ms"]
    be(ALICE)
    ended = cli("tokens", "expire", token["token_id"], "--expiry-time-period", "5000")
    assert ended.out.startswith(f"Token {token['token_id']} expires at 2")
    assert cli("tokens", "expire", token["token_id"]).out == f"Token {token['token_id']} was removed.\n"
    gone = cli("tokens", "expire", token["token_id"])
    assert (gone.code, gone.out) == (1, "")
    assert "no delegation token" in gone.err


def test_without_a_login_every_command_is_refused(cli: Cli, be: Callable[[SaslClient | None], None]) -> None:
    token = created(cli)
    be(None)
    for arguments in (("create",), ("describe",), ("renew", token["token_id"]), ("expire", token["token_id"])):
        refused = cli("tokens", *arguments)
        assert (refused.code, refused.out) == (1, "")
        assert "not allowed on this connection" in refused.err
    be(by_token(token))
    assert "not allowed on this connection" in cli("tokens", "create").err


def test_a_removed_token_logs_nobody_in(cluster: RunningCluster, cli: Cli, be: object) -> None:
    token = created(cli)
    cli("tokens", "expire", token["token_id"])
    endpoint = cluster.broker.endpoints["SASL_PLAINTEXT"]
    with pytest.raises(KafkaError, match="invalid credentials"):
        BlockingConnection(connect_tcp(endpoint.host, endpoint.port), client_id="test", sasl=lambda: by_token(token))


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "--owner-principal", "alice"),
        ("create", "--renewer-principal", "User:"),
        ("create", "--max-life-time-period", "-2"),
        ("create", "--max-life-time-period", "1h"),
        ("renew",),
        ("renew", "id", "--renew-time-period", str(LONG_MAX + 1)),
        ("expire", "id", "--expiry-time-period", "x"),
    ],
)
def test_wrong_usage(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert cli("tokens", *arguments).code == 2


def test_the_longest_times_are_shown(cli: Cli, be: object) -> None:
    assert tokens._shown(LONG_MAX) == str(LONG_MAX)
    assert tokens._shown(1_700_000_000_999) == "2023-11-14T22:13:20Z"
