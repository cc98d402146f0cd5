"""`raylog topics` creates, lists, describes and deletes as kafka-topics does; errors are one line."""

from __future__ import annotations

from tests.cli.conftest import Cli


def test_a_topic_is_created_described_and_deleted(cli: Cli, topic: str) -> None:
    arguments = ("--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=5000")
    assert cli("topics", "create", topic, *arguments) == (0, f"Created topic {topic}.\n", "")
    code, out, err = cli("topics", "describe", topic)
    assert (code, err) == (0, "")
    head, *partitions = out.splitlines()
    assert head.split("\t")[0] == f"Topic: {topic}"
    assert head.split("\t")[2:] == ["PartitionCount: 2", "ReplicationFactor: 1", "Configs: retention.ms=5000"]
    assert partitions == [
        f"\tTopic: {topic}\tPartition: {number}\tLeader: {number}\tReplicas: {number}\tIsr: {number}"
        for number in range(2)
    ]
    assert topic in cli("topics", "list").out.splitlines()
    assert cli("topics", "delete", topic) == (0, f"Deleted topic {topic}.\n", "")
    assert topic not in cli("topics", "list").out.splitlines()


def test_omitted_settings_use_the_brokers_defaults(cli: Cli, topic: str) -> None:
    cli("topics", "create", topic)
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: \n" in cli("topics", "describe", topic).out


def test_errors_are_one_line_with_kafkas_code(cli: Cli, topic: str) -> None:
    unknown = cli("topics", "describe", topic)
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err.startswith("raylog: UNKNOWN_TOPIC_OR_PARTITION: ")
    assert unknown.err.count("\n") == 1
    cli("topics", "create", topic)
    assert cli("topics", "create", topic).err.startswith("raylog: TOPIC_ALREADY_EXISTS: ")
    assert cli("topics", "create", f"{topic}-2", "--config", "segment.bytes=1").err.startswith(
        "raylog: INVALID_CONFIG: "
    )
    assert cli("topics", "create", f"{topic}-2", "--replication-factor", "3").err.startswith(
        "raylog: INVALID_REPLICATION_FACTOR: "
    )
    assert cli("topics", "delete", f"{topic}-2").err.startswith("raylog: UNKNOWN_TOPIC_OR_PARTITION: ")


def test_existing_and_missing_topics_can_be_tolerated(cli: Cli, topic: str) -> None:
    assert cli("topics", "create", topic, "--if-not-exists").code == 0
    assert cli("topics", "create", topic, "--if-not-exists") == (0, "", "")
    assert cli("topics", "delete", f"{topic}-2", "--if-exists") == (0, "", "")


def test_a_usage_error_has_exit_code_2(cli: Cli, topic: str) -> None:
    for arguments in (("create",), ("create", topic, "--partitions", "0"), ("create", topic, "--config", "novalue")):
        wrong = cli("topics", *arguments)
        assert (wrong.code, wrong.out) == (2, "")
        assert wrong.err.startswith("usage: raylog topics create")
