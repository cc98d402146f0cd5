"""`raylog quotas` sets, lists and removes client quotas, as kafka-configs does."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli


@pytest.fixture(autouse=True)
def empty(cli: Cli) -> None:
    for entry in json.loads(cli("quotas", "list", "--json").out):
        named = [
            part
            for kind, name in entry["entity"].items()
            for part in ([f"--{kind}-default"] if name is None else [f"--{kind}", name])
        ]
        assert cli("quotas", "remove", *named).code == 0
    assert cli("quotas", "list").out == "No quotas found.\n"


def test_table_and_json(cli: Cli) -> None:
    done = cli("quotas", "set", "--user", "alice", "producer_byte_rate=1048576", "request_percentage=12.5")
    assert (done.code, done.err) == (0, "")
    cli("quotas", "set", "--user-default", "--client-id", "c", "consumer_byte_rate=5")
    cli("quotas", "set", "--ip-default", "connection_creation_rate=7")
    assert [line.split() for line in cli("quotas", "list").out.splitlines()] == [
        ["USER", "CLIENT", "ID", "IP", "QUOTA", "VALUE"],
        ["alice", "-", "-", "producer_byte_rate", "1048576"],
        ["alice", "-", "-", "request_percentage", "12.5"],
        ["<default>", "c", "-", "consumer_byte_rate", "5"],
        ["-", "-", "<default>", "connection_creation_rate", "7"],
    ]
    assert json.loads(cli("quotas", "list", "--json", "--client-id", "c").out) == [
        {"entity": {"client-id": "c", "user": None}, "quotas": {"consumer_byte_rate": 5.0}}
    ]
    assert json.loads(cli("quotas", "list", "--json", "--user", "nobody").out) == []


def test_quotas_are_removed_one_by_one_or_all_together(cli: Cli) -> None:
    cli("quotas", "set", "--client-id", "c", "producer_byte_rate=1", "consumer_byte_rate=2", "request_percentage=3")
    cli("quotas", "set", "--client-id", "c", "--user", "u", "producer_byte_rate=1")
    removed = cli("quotas", "remove", "--client-id", "c", "consumer_byte_rate", "--json")
    assert json.loads(removed.out) == [
        {"entity": {"client-id": "c"}, "quotas": {"producer_byte_rate": 1.0, "request_percentage": 3.0}}
    ]
    assert cli("quotas", "remove", "--client-id", "c").out == "No quotas found.\n"
    assert [entry["entity"] for entry in json.loads(cli("quotas", "list", "--json").out)] == [
        {"client-id": "c", "user": "u"}
    ]
    assert cli("quotas", "remove", "--client-id", "c") == (0, "No quotas found.\n", ""), "there is none any more"
    assert cli("quotas", "remove", "--client-id", "c", "--json") == (0, "[]\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set", "--user", "u", "producer_byte_rate=-1"), "must be greater than 0"),
        (("set", "--user", "u", "no_such=1"), "Invalid configuration key no_such"),
        (("set", "--user", "u", "--ip", "::1", "connection_creation_rate=1"), "Invalid empty client quota entity"),
        (("set", "--ip", "localhost", "connection_creation_rate=1"), "not a valid IP address"),
    ],
)
def test_errors(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    done = cli("quotas", *arguments)
    assert done.code == 1
    assert message in done.err


@pytest.mark.parametrize("wrong", ["producer_byte_rate", "producer_byte_rate=x"])
def test_wrong_usage(cli: Cli, wrong: str) -> None:
    assert cli("quotas", "set", "--user", "u", wrong).code == 2


@pytest.mark.parametrize("arguments", [("set", "producer_byte_rate=1"), ("remove",)])
def test_an_entity_is_required(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = cli("quotas", *arguments)
    assert (done.code, done.out) == (2, "")
    assert "--user, --client-id or --ip is required" in done.err
