"""`raylog acls` adds, lists and removes the entries that kafka-acls would with the same arguments."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from raylog.cli import acls
from raylog.client.admin.admin_client import AdminClient
from raylog.config.authorization import STANDARD_AUTHORIZER
from raylog.security.acl import Operation
from tests.cli.conftest import Cli
from tests.security.acls import binding
from tests.support.cluster_thread import RunningCluster, cluster_thread


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    config = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with cluster_thread(config, tmp_path_factory.mktemp("acls")) as running:
        yield running


@pytest.fixture(autouse=True)
def empty(cli: Cli) -> None:
    for resource in ("--topic", "--group", "--transactional-id"):
        cli("acls", "remove", resource, "*", "--resource-pattern-type", "match")
    for entry in json.loads(cli("acls", "list", "--json").out):
        kind = (
            "user-principal" if entry["resource_type"] == "USER" else entry["resource_type"].lower().replace("_", "-")
        )
        named = (f"--{kind}",) if kind == "cluster" else (f"--{kind}", entry["resource_name"])
        cli("acls", "remove", *named, "--resource-pattern-type", "any")
    assert cli("acls", "list").out == "No ACLs found.\n"


def listed(cli: Cli, *arguments: str) -> set[tuple[str, ...]]:
    found = json.loads(cli("acls", "list", *arguments, "--json").out)
    return {
        (entry["resource_name"], entry["pattern_type"], entry["principal"], entry["host"], entry["operation"])
        for entry in found
        if entry["permission"] == "ALLOW"
    }


def test_table_and_json(cli: Cli) -> None:
    added = cli("acls", "add", "--topic", "t", "--allow-principal", "User:alice", "--operation", "Read")
    assert (added.code, added.err) == (0, "")
    assert [line.split() for line in cli("acls", "list").out.splitlines()] == [
        ["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"],
        ["TOPIC", "t", "LITERAL", "User:alice", "*", "READ", "ALLOW"],
    ]
    assert json.loads(cli("acls", "list", "--json").out) == [
        {
            "resource_type": "TOPIC",
            "resource_name": "t",
            "pattern_type": "LITERAL",
            "principal": "User:alice",
            "host": "*",
            "operation": "READ",
            "permission": "ALLOW",
        }
    ]
    assert json.loads(cli("acls", "list", "--json", "--principal", "User:bob").out) == []


def test_every_combination_is_one_entry_and_the_same_arguments_remove_it(cli: Cli) -> None:
    arguments = (
        *("--topic", "a", "--topic", "b", "--allow-principal", "User:x", "--allow-principal", "User:y"),
        *("--allow-host", "10.0.0.1", "--operation", "Write", "--operation", "DescribeConfigs"),
        *("--deny-principal", "User:z", "--deny-host", "10.0.0.2"),
    )
    cli("acls", "add", *arguments)
    assert len(json.loads(cli("acls", "list", "--json").out)) == 2 * (2 * 1 * 2 + 1 * 1 * 2)
    assert ("a", "LITERAL", "User:y", "10.0.0.1", "DESCRIBE_CONFIGS") in listed(cli)
    cli("acls", "add", "--topic", "a", "--allow-principal", "User:x", "--operation", "Read")
    removed = json.loads(cli("acls", "remove", *arguments, "--json").out)
    assert len(removed) == 12
    assert listed(cli) == {("a", "LITERAL", "User:x", "*", "READ")}


def test_entries_for_producers_and_consumers(cli: Cli) -> None:
    cli("acls", "add", "--producer", "--idempotent", "--topic", "t", "--allow-principal", "User:p")
    assert {(name, operation) for name, _, _, _, operation in listed(cli)} == {
        ("t", "WRITE"),
        ("t", "DESCRIBE"),
        ("t", "CREATE"),
        ("kafka-cluster", "IDEMPOTENT_WRITE"),
    }
    consumer = ("--consumer", "--topic", "t", "--group", "g", "--allow-principal", "User:c")
    cli("acls", "add", *consumer, "--resource-pattern-type", "prefixed")
    assert {entry[:3] + entry[4:] for entry in listed(cli, "--principal", "User:c")} == {
        ("t", "PREFIXED", "User:c", "READ"),
        ("t", "PREFIXED", "User:c", "DESCRIBE"),
        ("g", "PREFIXED", "User:c", "READ"),
    }


def test_patterns_and_removing_all_entries_of_a_resource(cli: Cli) -> None:
    for name, pattern in (("ab", "literal"), ("ab", "prefixed"), ("a", "prefixed"), ("*", "literal"), ("b", "literal")):
        right = ("--allow-principal", "User:x", "--resource-pattern-type", pattern)
        cli("acls", "add", "--topic", name, *right)
    patterns = {
        pattern: {entry[:2] for entry in listed(cli, "--topic", "ab", "--resource-pattern-type", pattern)}
        for pattern in ("literal", "prefixed", "any", "match")
    }
    assert patterns == {
        "literal": {("ab", "LITERAL")},
        "prefixed": {("ab", "PREFIXED")},
        "any": {("ab", "LITERAL"), ("ab", "PREFIXED")},
        "match": {("ab", "LITERAL"), ("ab", "PREFIXED"), ("a", "PREFIXED"), ("*", "LITERAL")},
    }
    cli("acls", "remove", "--topic", "ab", "--resource-pattern-type", "match")
    assert {entry[:2] for entry in listed(cli)} == {("b", "LITERAL")}
    assert cli("acls", "remove", "--topic", "ab").out == "No ACLs matched.\n"


@pytest.mark.parametrize(("answer", "removes"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_all_entries_of_a_resource_are_removed_on_a_terminal_if_the_user_confirms(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, answer: str, *, removes: bool
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    cli("acls", "add", "--topic", "t", "--allow-principal", "User:x")
    with monkeypatch.context() as patch:
        patch.setattr(acls, "sys", SimpleNamespace(stdin=Terminal(answer), stderr=sys.stderr))
        asked = cli("acls", "remove", "--topic", "t", "--json")
        assert (asked.code, asked.err) == (0, "Delete all ACLs of topic t (pattern type literal)? (y/N) ")
        assert len(json.loads(asked.out)) == removes
        assert len(listed(cli)) == (not removes)
        assert cli("acls", "remove", "--topic", "t", "--force").err == ""
        assert listed(cli) == set()


def test_the_cluster_resource(cli: Cli) -> None:
    cli("acls", "add", "--cluster", "--allow-principal", "User:x", "--operation", "alter_configs")
    assert listed(cli, "--cluster") == {("kafka-cluster", "LITERAL", "User:x", "*", "ALTER_CONFIGS")}


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "--topic", "t"),
        ("add", "--allow-principal", "User:x"),
        ("add", "--producer", "--group", "g", "--topic", "t", "--allow-principal", "User:x"),
        ("add", "--consumer", "--topic", "t", "--allow-principal", "User:x"),
        ("add", "--producer", "--transactional-id", "t", "--allow-principal", "User:x"),
        ("add", "--idempotent", "--topic", "t", "--allow-principal", "User:x"),
        ("add", "--topic", "t", "--allow-principal", "User:x", "--operation", "CreateTokens"),
        ("add", "--topic", "t", "--group", "g", "--allow-principal", "User:x", "--operation", "Write"),
        ("add", "--topic", "t", "--allow-principal", "User:x", "--allow-host", ""),
        ("add", "--topic", "t", "--deny-principal", "User:x", "--deny-host", "client.example.com"),
        ("add", "--topic", "t", "--deny-principal", "User:x", "--deny-host", "10.0.0.0/8"),
        ("remove",),
        ("remove", "--topic", "t", "--operation", "Read"),
        ("remove", "--topic", "t", "--consumer", "--group", "g"),
    ],
)
def test_incomplete_or_contradictory_arguments_are_refused(cli: Cli, arguments: tuple[str, ...]) -> None:
    cli("acls", "add", "--topic", "t", "--allow-principal", "User:kept")
    refused = cli("acls", *arguments)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert len(listed(cli)) == 1


@pytest.mark.parametrize(("topic", "principal"), [("t", "x"), ("", "User:x")])
def test_impossible_names_are_refused(cli: Cli, topic: str, principal: str) -> None:
    refused = cli("acls", "add", "--topic", topic, "--allow-principal", principal)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("raylog: INVALID_REQUEST: ")
    assert listed(cli) == set()


def test_every_operation_of_a_resource_and_every_kind_of_host_is_possible(cli: Cli) -> None:
    rights = ("--allow-principal", "User:x", "--operation", "AlterConfigs", "--operation", "All")
    hosts = ("*", "10.0.0.1", "2001:DB8:0:0:0:0:0:7", "ray")
    added = cli("acls", "add", "--group", "g", *rights, *(word for host in hosts for word in ("--allow-host", host)))
    assert (added.code, added.err) == (0, "")
    assert listed(cli) == {
        ("g", "LITERAL", "User:x", host, operation) for host in hosts for operation in ("ALTER_CONFIGS", "ALL")
    }


def test_entries_of_other_tools_that_have_no_effect_can_be_removed(cli: Cli, cluster: RunningCluster) -> None:
    useless = binding(host="client.example.com", operation=Operation.CREATE_TOKENS)
    with AdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_acls(useless)
    what = ("--topic", useless.resource_name, "--operation", "CreateTokens")
    removed = cli("acls", "remove", *what, "--allow-principal", useless.principal, "--allow-host", useless.host)
    assert (removed.code, len(listed(cli))) == (0, 0)


def test_an_unknown_operation_is_a_usage_error(cli: Cli) -> None:
    for word in ("Reed", "any", "unknown"):
        assert cli("acls", "add", "--topic", "t", "--allow-principal", "User:x", "--operation", word).code == 2


def test_rights_on_delegation_tokens(cli: Cli) -> None:
    rights = ("--operation", "CreateTokens", "--operation", "DescribeTokens")
    assert cli("acls", "add", "--user-principal", "User:bob", "--allow-principal", "User:alice", *rights).code == 0
    cli("acls", "add", "--delegation-token", "id", "--allow-principal", "User:alice", "--operation", "Describe")
    assert listed(cli) == {
        ("User:bob", "LITERAL", "User:alice", "*", "CREATE_TOKENS"),
        ("User:bob", "LITERAL", "User:alice", "*", "DESCRIBE_TOKENS"),
        ("id", "LITERAL", "User:alice", "*", "DESCRIBE"),
    }
    assert len(listed(cli, "--user-principal", "User:bob")) == 2
    assert len(listed(cli, "--delegation-token", "id")) == 1
