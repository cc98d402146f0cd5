"""`raylog tokens` creates, describes, renews and expires delegation tokens, and prints a secret only where it must."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raylog.cli import tokens
from raylog.cli.main import main
from raylog.core.config import LONG_MAX
from tests.cli.conftest import Result
from tests.support.cluster_thread import RunningCluster, cluster_thread

DAY = 86_400_000
MODULES = "org.apache.kafka.common.security"
PASSWORDS = {"alice": "wonderland", "bob": "builder"}
Run = Callable[..., Result]
"""Runs `raylog tokens` with these arguments as alice, or as another user: `by`, a user or a token."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {users};",
        "delegation.token.secret.key": "secret-of-this-test",
    }
    with cluster_thread(config, tmp_path_factory.mktemp("tokens")) as running:
        yield running


@pytest.fixture
def run(cluster: RunningCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str, by: str | dict[str, Any] | None = "alice", command: str = "tokens") -> Result:
        login: tuple[str, ...] = ()
        if by is not None:
            file = tmp_path / "client.properties"
            file.write_text(properties(by))
            login = ("--command-config", str(file))
        endpoint = cluster.broker.endpoints["PLAINTEXT" if by is None else "SASL_PLAINTEXT"]
        try:
            code = main([command, *arguments, "--bootstrap-server", f"{endpoint.host}:{endpoint.port}", *login])
        except SystemExit as usage:
            code = int(usage.code or 0)
        return Result(code, *capfd.readouterr())

    return run


def properties(by: str | dict[str, Any]) -> str:
    if isinstance(by, str):
        mechanism = "PLAIN"
        login = f'{MODULES}.plain.PlainLoginModule required username="{by}" password="{PASSWORDS[by]}";'
    else:
        mechanism = "SCRAM-SHA-512"
        user = f'username="{by["token_id"]}" password="{by["hmac"]}" tokenauth="true"'
        login = f"{MODULES}.scram.ScramLoginModule required {user};"
    return f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={login}\n"


def created(run: Run, *arguments: str) -> dict[str, Any]:
    done = run("create", "--json", *arguments)
    assert (done.code, done.err) == (0, "")
    (token,) = json.loads(done.out)
    assert isinstance(token, dict)
    return token


def listed(run: Run, *arguments: str, by: str = "alice") -> list[dict[str, Any]]:
    found = json.loads(run("describe", "--json", *arguments, by=by).out)
    assert isinstance(found, list)
    return found


def test_json(run: Run) -> None:
    before = time.time() * 1000
    token = created(run, "--renewer-principal", "User:bob", "--renewer-principal", "User:c:d")
    assert (token["owner"], token["requester"]) == ("User:alice", "User:alice")
    assert token["renewers"] == ["User:bob", "User:c:d"]
    issued = token["issue_timestamp_ms"]
    assert before - 1000 <= issued <= time.time() * 1000
    assert (token["expiry_timestamp_ms"], token["max_timestamp_ms"]) == (issued + DAY, issued + 7 * DAY)
    assert token in listed(run)
    assert token in listed(run, "--owner-principal", "User:zoe", "--owner-principal", "User:bob")
    assert listed(run, "--owner-principal", "User:zoe") == []


def test_table(run: Run) -> None:
    token = created(run, "--max-life-time-period", "60000", "--owner-principal", "User:dora")
    head, row = (line.split() for line in run("describe", "--owner-principal", "User:dora").out.splitlines())
    assert head[:5] == ["ID", "HMAC", "OWNER", "REQUESTER", "RENEWERS"]
    assert row[:5] == [token["token_id"], token["hmac"], "User:dora", "User:alice", "-"]
    expiry = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(token["max_timestamp_ms"] // 1000))
    assert row[6:] == [expiry, expiry]
    assert run("describe", "--owner-principal", "User:zoe").out == "No delegation tokens found.\n"


def test_renew_and_expire_name_a_token_by_its_id(run: Run) -> None:
    token = created(run, "--renewer-principal", "User:bob")
    renewed = run("renew", token["token_id"], "--renew-time-period", "3600000", by="bob")
    assert (renewed.code, renewed.err) == (0, "")
    assert renewed.out.startswith(f"Token {token['token_id']} expires at 2")
    assert token["hmac"] not in renewed.out
    (found,) = (each for each in listed(run, by="bob") if each["token_id"] == token["token_id"])
    assert found["expiry_timestamp_ms"] < token["expiry_timestamp_ms"]
    ended = run("expire", token["token_id"], "--expiry-time-period", "5000")
    assert ended.out.startswith(f"Token {token['token_id']} expires at 2")
    assert run("expire", token["token_id"]).out == f"Token {token['token_id']} was removed.\n"
    gone = run("expire", token["token_id"])
    assert (gone.code, gone.out) == (1, "")
    assert "no delegation token" in gone.err


def test_a_token_logs_in_to_every_command_but_this_one(run: Run) -> None:
    token = created(run)
    assert run("list", command="topics", by=token).code == 0
    for arguments in (("create",), ("describe",), ("renew", token["token_id"]), ("expire", token["token_id"])):
        for by in (token, None):
            refused = run(*arguments, by=by)
            assert (refused.code, refused.out) == (1, "")
            assert "not allowed on this connection" in refused.err
    run("expire", token["token_id"])
    refused = run("list", command="topics", by=token)
    assert refused.code == 1
    assert "invalid credentials" in refused.err
    assert token["hmac"] not in refused.err


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
def test_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).code == 2


def test_the_longest_times_are_shown() -> None:
    assert tokens._shown(LONG_MAX) == str(LONG_MAX)
    assert tokens._shown(1_700_000_000_999) == "2023-11-14T22:13:20Z"
