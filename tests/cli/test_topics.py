"""`raylog topics` creates, lists, describes, alters and deletes as kafka-topics does; errors are one line."""

from __future__ import annotations

import json

from raylog.cli.topics import FILTERS
from raylog.client.admin.topics import PartitionDescription
from tests.cli.conftest import Cli, wait_until_led
from tests.support.cluster_thread import RunningCluster


def test_a_topic_is_created_described_and_deleted(cluster: RunningCluster, cli: Cli, topic: str) -> None:
    arguments = ("--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=5000")
    assert cli("topics", "create", topic, *arguments) == (0, f"Created topic {topic}.\n", "")
    wait_until_led(cluster, topic)
    code, out, err = cli("topics", "describe", topic)
    assert (code, err) == (0, "")
    head, *partitions = out.splitlines()
    assert head.split("\t")[0] == f"Topic: {topic}"
    assert head.split("\t")[2:] == ["PartitionCount: 2", "ReplicationFactor: 1", "Configs: retention.ms=5000"]
    leaders = [int(line.split("\t")[3].removeprefix("Leader: ")) for line in partitions]
    assert sorted(leaders) == [0, 1]
    assert partitions == [
        f"\tTopic: {topic}\tPartition: {number}\tLeader: {leader}\tReplicas: {leader}\tIsr: {leader}"
        for number, leader in enumerate(leaders)
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


def test_a_mistyped_key_is_not_deleted(cli: Cli, topic: str) -> None:
    cli("topics", "create", topic, "--config", "retention.ms=5000")
    error = f"raylog: INVALID_CONFIG: retentionms is not a key of topic '{topic}'\n"
    assert cli("topics", "alter", topic, "--delete-config", "retentionms") == (1, "", error)
    assert cli("configs", "alter", "--topic", topic, "--delete", "retentionms") == (1, "", error)
    error = f"raylog: INVALID_CONFIG: foo.bar is not a key of group '{topic}'\n"
    assert cli("configs", "alter", "--group", topic, "--delete", "foo.bar") == (1, "", error)


def test_existing_and_missing_topics_can_be_tolerated(cli: Cli, topic: str) -> None:
    assert cli("topics", "create", topic, "--if-not-exists").code == 0
    assert cli("topics", "create", topic, "--if-not-exists") == (0, "", "")
    assert cli("topics", "delete", f"{topic}-2", "--if-exists") == (0, "", "")


def test_a_usage_error_has_exit_code_2(cli: Cli, topic: str) -> None:
    for arguments in (("create",), ("create", topic, "--partitions", "0"), ("create", topic, "--config", "novalue")):
        wrong = cli("topics", *arguments)
        assert (wrong.code, wrong.out) == (2, "")
        assert wrong.err.startswith("raylog topics create: ")
        assert wrong.err.endswith(" (see raylog topics create --help)\n")
        assert wrong.err.count("\n") == 1


def test_a_number_that_no_request_can_hold_is_a_usage_error(cli: Cli, topic: str) -> None:
    for option, number, most in (
        ("--partitions", 99_999_999_999, 2**31 - 1),
        ("--replication-factor", 2**15, 2**15 - 1),
    ):
        wrong = cli("topics", "create", topic, option, str(number))
        assert (wrong.code, wrong.out) == (2, "")
        assert f"argument {option}: '{number}': must be at most {most} " in wrong.err


class TestAlter:
    def test_partitions_and_configuration(self, cli: Cli, topic: str) -> None:
        cli("topics", "create", topic, "--partitions", "1", "--config", "flush.ms=9")
        arguments = ("--partitions", "4", "--config", "retention.ms=5000", "--delete-config", "flush.ms")
        assert cli("topics", "alter", topic, *arguments) == (0, f"Altered topic {topic}.\n", "")
        head = cli("topics", "describe", topic).out.splitlines()[0]
        assert head.split("\t")[2:] == ["PartitionCount: 4", "ReplicationFactor: 1", "Configs: retention.ms=5000"]

    def test_nothing_is_changed_if_a_value_is_refused(self, cli: Cli, topic: str) -> None:
        cli("topics", "create", topic, "--partitions", "1")
        refused = cli("topics", "alter", topic, "--partitions", "2", "--config", "retention.ms=soon")
        assert (refused.code, refused.out) == (1, "")
        assert refused.err.startswith("raylog: INVALID_CONFIG: ")
        assert "PartitionCount: 1\t" in cli("topics", "describe", topic).out

    def test_errors(self, cli: Cli, topic: str) -> None:
        cli("topics", "create", topic, "--partitions", "2")
        for arguments, code in (
            ((topic, "--partitions", "1"), "INVALID_PARTITIONS"),
            ((f"{topic}-x", "--partitions", "3"), "UNKNOWN_TOPIC_OR_PARTITION"),
        ):
            refused = cli("topics", "alter", *arguments)
            assert (refused.code, refused.out) == (1, "")
            assert refused.err.startswith(f"raylog: {code}: "), refused.err
        assert cli("topics", "alter", f"{topic}-x", "--partitions", "3", "--if-exists") == (0, "", "")
        wrong = cli("topics", "alter", topic)
        sentence = "--partitions, --config or --delete-config is required (see raylog topics alter --help)"
        assert wrong == (2, "", f"raylog topics alter: {sentence}\n")
        assert cli("topics", "alter", topic, "--config", "flush.ms=1", "--delete-config", "flush.ms").code == 2


class TestFilters:
    """min.insync.replicas above the number of replicas takes a healthy partition below it."""

    def test_partitions_are_chosen_by_their_state(self, cluster: RunningCluster, cli: Cli, topic: str) -> None:
        cli("topics", "create", topic, "--partitions", "2", "--config", "min.insync.replicas=2")
        cli("topics", "create", f"{topic}-1", "--partitions", "1", "--config", "min.insync.replicas=1")
        both = (topic, f"{topic}-1")
        wait_until_led(cluster, *both)
        for option, chosen in (
            ("--under-min-isr-partitions", {topic}),
            ("--at-min-isr-partitions", {f"{topic}-1"}),
            ("--under-replicated-partitions", set()),
            ("--unavailable-partitions", set()),
        ):
            found = json.loads(cli("topics", "describe", *both, option, "--json").out)
            assert {each["topic"] for each in found} == chosen, option
            lines = cli("topics", "describe", *both, option).out.splitlines()
            assert len(lines) == sum(len(each["partitions"]) for each in found)
            assert all(line.startswith("\tTopic: ") for line in lines)

    def test_the_state_of_a_partition_decides(self) -> None:
        healthy = PartitionDescription(0, 1, 0, (1, 2, 3), (1, 2, 3), ())
        for partition, min_isr, names in (
            (healthy, 2, set()),
            (healthy, 3, {"at_min_isr_partitions"}),
            (healthy._replace(isr=(1,)), 1, {"under_replicated_partitions", "at_min_isr_partitions"}),
            (healthy._replace(isr=(1,)), 2, {"under_replicated_partitions", "under_min_isr_partitions"}),
            (healthy._replace(leader=None), 1, {"unavailable_partitions", "under_min_isr_partitions"}),
        ):
            assert {name for name, (chosen, _) in FILTERS.items() if chosen(partition, min_isr)} == names

    def test_topics_with_values_of_their_own(self, cli: Cli, topic: str) -> None:
        cli("topics", "create", topic, "--config", "flush.ms=9")
        cli("topics", "create", f"{topic}-1")
        (line,) = cli("topics", "describe", topic, f"{topic}-1", "--topics-with-overrides").out.splitlines()
        assert line.startswith(f"Topic: {topic}\t")
        assert line.endswith("Configs: flush.ms=9")

    def test_internal_topics_can_be_left_out(self, cli: Cli, topic: str) -> None:
        cli("topics", "create", topic)
        cli("groups", "reset-offsets", "g", "--topic", topic, "--to-earliest", "--execute")
        internal = {each["topic"]: each["internal"] for each in json.loads(cli("topics", "describe", "--json").out)}
        assert (internal["__consumer_offsets"], internal[topic]) == (True, False)
        others = json.loads(cli("topics", "describe", "--exclude-internal", "--json").out)
        assert {each["topic"] for each in others} == internal.keys() - {"__consumer_offsets"}


def test_json_names_what_was_done(cli: Cli, topic: str) -> None:
    assert json.loads(cli("topics", "create", topic, "--json").out) == {"created": [topic]}
    assert json.loads(cli("topics", "create", topic, "--if-not-exists", "--json").out) == {"created": []}
    assert topic in json.loads(cli("topics", "list", "--json").out)
    assert json.loads(cli("topics", "alter", topic, "--partitions", "5", "--json").out) == {"altered": [topic]}
    assert json.loads(cli("topics", "delete", topic, "--json").out) == {"deleted": [topic]}
