"""`raylog groups` prints groups, and resets offsets with --execute only, as kafka-consumer-groups does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from raylog.cli.reset_offsets import _duration_ms
from raylog.client.admin.admin_client import AdminClient
from raylog.client.share.acquired import ShareRecord
from raylog.client.share.share_consumer import ShareConsumer
from raylog.protocol.messages.streams_group_heartbeat import (
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.cli.conftest import Cli
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import HANG_SECONDS
from tests.support.streams_group_member import StreamsMember

DRY_RUN = "This was a dry run; --execute resets the offsets.\n"
HEAD = "GROUP  TOPIC  PARTITION  NEW-OFFSET"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    config = {
        "num.partitions": 2,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 4,
        "group.share.min.heartbeat.interval.ms": 100,
        "group.share.heartbeat.interval.ms": 100,
        "share.coordinator.state.topic.num.partitions": 2,
        "group.streams.initial.rebalance.delay.ms": 0,
    }
    with cluster_thread(config, tmp_path_factory.mktemp("cli-groups"), brokers=2) as running:
        yield running


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


@pytest.fixture
def records(cli: Cli, topic: str) -> None:
    """Five in partition 0; none in partition 1."""
    cli("topics", "create", topic)
    produced = cli("produce", topic, "--partition", "0", stdin=b"1\n2\n3\n4\n5\n")
    assert produced.code == 0, produced.err


def commit(cluster: RunningCluster, group: str, topic: str, offset: int, partition: int = 0) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
    consumer.close()


def described(cli: Cli, group: str) -> Any:
    result = cli("groups", "describe", group, "--json")
    assert result.code == 0, result.err
    (only,) = json.loads(result.out)
    return only


def table(cli: Cli, *command: str) -> tuple[list[str], dict[str, list[str]]]:
    """The titles, and the last row of each group."""
    head, *rows = cli("groups", *command).out.splitlines()
    return head.split(), {row.split()[0]: row.split() for row in rows}


def committed(cli: Cli, group: str) -> dict[int, int]:
    return {each["partition"]: each["current_offset"] for each in described(cli, group)["partitions"]}


@pytest.fixture
def member(cluster: RunningCluster, group: str, topic: str, records: None) -> Iterator[Consumer]:
    """One that has joined, and read and committed three records."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    messages = [consumer.poll(20) for _ in range(3)]
    assert messages[2] is not None
    consumer.commit(message=messages[2], asynchronous=False)
    yield consumer
    consumer.close()


class TestListAndDescribe:
    def test_list(self, cli: Cli, cluster: RunningCluster, group: str, topic: str, records: None) -> None:
        commit(cluster, group, topic, 1)
        commit(cluster, f"{group}-b", topic, 1)
        names = cli("groups", "list").out.splitlines()
        assert [name for name in names if name.startswith(group)] == [group, f"{group}-b"]
        head, *rows = cli("groups", "list", "--state").out.splitlines()
        assert head.split() == ["GROUP", "STATE"]
        assert [group, "Empty"] in [row.split() for row in rows]

    def test_a_group_with_a_member(self, cli: Cli, group: str, topic: str, member: Consumer) -> None:
        shown = described(cli, group)
        (reader,) = shown["members"]
        assert (shown["group"], shown["state"], shown["protocol"]) == (group, "Stable", "range")
        assert (reader["client_id"], reader["host"], reader["instance_id"]) == ("reader", "/127.0.0.1", None)
        places = [{"topic": topic, "partition": number} for number in range(2)]
        assert reader["partitions"] == places
        mine = {"topic": topic, "member_id": reader["id"]}
        assert shown["partitions"] == [
            {**mine, "partition": 0, "current_offset": 3, "log_end_offset": 5, "lag": 2},
            {**mine, "partition": 1, "current_offset": None, "log_end_offset": 0, "lag": None},
        ]
        head, titles, first, second = cli("groups", "describe", group).out.splitlines()
        assert head == f"group {group} (Stable, 1 members)"
        assert titles.split()[:5] == ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
        assert first.split() == [topic, "0", "3", "5", "2", reader["id"], "/127.0.0.1", "reader"]
        assert second.split() == [topic, "1", "-", "0", "-", reader["id"], "/127.0.0.1", "reader"]

    def test_a_group_without_members(
        self, cli: Cli, cluster: RunningCluster, group: str, topic: str, records: None
    ) -> None:
        commit(cluster, group, topic, 4)
        assert cli("groups", "describe", group).out.splitlines()[0] == f"group {group} (Empty, 0 members)"
        assert described(cli, group)["partitions"] == [
            {"topic": topic, "partition": 0, "current_offset": 4, "log_end_offset": 5, "lag": 1, "member_id": None}
        ]

    def test_a_group_of_the_consumer_protocol(
        self, cli: Cli, cluster: RunningCluster, group: str, topic: str, records: None
    ) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "group.protocol": "consumer"}
        consumer = Consumer({**settings, "client.id": "reader", "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        assert consumer.poll(20) is not None
        shown = described(cli, group)
        (member,) = shown["members"]
        epoch = shown["group_epoch"]
        assert (shown["type"], shown["protocol"], shown["state"]) == ("consumer", "uniform", "Stable")
        assert shown["target_assignment_epoch"] == member["epoch"] == epoch > 0
        assert (
            member["partitions"]
            == member["target_partitions"]
            == [{"topic": topic, "partition": number} for number in range(2)]
        )
        assert member["is_classic"] is False
        assert table(cli, "list", "--verbose")[1][group] == [group, "consumer", "consumer", "Stable"]
        titles, rows = table(cli, "describe", group, "--state")
        assert titles == ["GROUP", "TYPE", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
        assert rows[group] == [group, "consumer", "uniform", "Stable", "1"]
        titles, rows = table(cli, "describe", group, "--state", "--verbose")
        assert titles[5:] == ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        assert rows[group][5:] == [str(epoch)] * 2
        titles, rows = table(cli, "describe", group, "--members")
        assert titles == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
        assert rows[group] == [group, member["id"], "/127.0.0.1", "reader", "2"]
        titles, rows = table(cli, "describe", group, "--members", "--verbose")
        assert titles[5:] == ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT", "UPGRADED"]
        assert rows[group][5:] == [str(epoch), f"{topic}:0,1", str(epoch), f"{topic}:0,1", "true"]
        consumer.close()
        assert cli("groups", "describe", group, "--members").out == "No members.\n"

    def test_states_and_members_of_a_classic_group(self, cli: Cli, group: str, topic: str, member: Consumer) -> None:
        assert table(cli, "describe", group, "--state", "--verbose")[1][group] == [
            group,
            "classic",
            "range",
            "Stable",
            "1",
            "-",
            "-",
        ]
        row = table(cli, "describe", group, "--members", "--verbose")[1][group]
        assert row[3:] == ["reader", "2", "-", f"{topic}:0,1", "-", "-", "-"]

    def test_members_without_partitions_are_shown(
        self, cli: Cli, cluster: RunningCluster, group: str, topic: str
    ) -> None:
        cli("topics", "create", topic, "--partitions", "1")
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}
        consumers = [Consumer({**settings, "client.id": f"c{number}"}) for number in range(2)]
        for consumer in consumers:
            consumer.subscribe([topic])
        for _ in range(200):
            for consumer in consumers:
                consumer.poll(0.05)
            if group in cli("groups", "list").out.splitlines():  # once the first has joined
                shown = described(cli, group)
                if shown["state"] == "Stable" and len(shown["members"]) == 2:
                    break
        lines = cli("groups", "describe", group).out.splitlines()
        assert len(lines) == 4
        assert sorted(line.split()[1] for line in lines[2:]) == ["-", "0"]
        for consumer in consumers:
            consumer.close()

    def test_all_groups(self, cli: Cli, cluster: RunningCluster, group: str, topic: str, records: None) -> None:
        commit(cluster, group, topic, 1)
        assert group in {each["group"] for each in json.loads(cli("groups", "describe", "--json").out)}

    def test_all_groups_need_one_look_at_the_topics_and_may_vanish(
        self,
        cli: Cli,
        cluster: RunningCluster,
        group: str,
        topic: str,
        records: None,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        commit(cluster, group, topic, 1)
        commit(cluster, f"{group}-b", topic, 1)
        describe_topics, list_groups = AdminClient.describe_topics, AdminClient.list_groups
        looks: list[None] = []

        def described(client: AdminClient, *arguments: Any, **options: Any) -> Any:
            looks.append(None)
            return describe_topics(client, *arguments, **options)

        def listed(client: AdminClient, **options: Any) -> Any:
            found = list_groups(client, **options)
            return [*found, found[0]._replace(group_id="deleted meanwhile")]

        monkeypatch.setattr(AdminClient, "describe_topics", described)
        monkeypatch.setattr(AdminClient, "list_groups", listed)
        shown = cli("groups", "describe", "--json")
        assert (shown.code, shown.err) == (0, "")
        assert {group, f"{group}-b"} <= {each["group"] for each in json.loads(shown.out)}
        assert len(looks) == 1

    def test_names_with_control_characters_are_escaped(
        self, cli: Cli, cluster: RunningCluster, group: str, topic: str, records: None
    ) -> None:
        hostile = f"{group}\x1b[2J\nanother"
        escaped = f"{group}\\x1b[2J\\nanother"
        commit(cluster, hostile, topic, 1)
        try:
            for command in (("list",), ("list", "--state"), ("describe", hostile), ("describe", hostile, "--state")):
                out = cli("groups", *command).out
                assert escaped in out
                assert out.replace("\n", "").isprintable()
        finally:
            cli("groups", "delete", hostile)

    def test_an_unknown_group(self, cli: Cli, group: str) -> None:
        assert cli("groups", "describe", group) == (
            1,
            "",
            f"raylog: GROUP_ID_NOT_FOUND: group '{group}' does not exist\n",
        )


@pytest.fixture
def share_group(cli: Cli, cluster: RunningCluster, group: str, topic: str, records: None) -> Iterator[ShareConsumer]:
    """A member of a share group, which has accepted two records of the topic and holds three."""
    configured = cli("configs", "alter", "--group", group, "--add", "share.auto.offset.reset=earliest")
    assert configured.code == 0, configured.err
    settings: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group}
    with ShareConsumer(**settings, client_id="worker", share_acknowledgement_mode="explicit") as member:
        member.subscribe(topic)
        held: list[ShareRecord] = []
        deadline = time.monotonic() + HANG_SECONDS
        while len(held) < 5:
            assert time.monotonic() < deadline
            held += member.poll()
        for record in held[:2]:
            member.acknowledge(record)
        assert set(member.commit_sync().values()) == {None}
        yield member


class TestShareGroups:
    def test_they_are_listed_by_type(self, cli: Cli, share_group: ShareConsumer, group: str) -> None:
        assert cli("groups", "list", "--type", "share").out.splitlines()[-1:] == [group]
        assert group not in cli("groups", "list", "--type", "classic", "--type", "consumer").out
        assert table(cli, "list", "--verbose")[1][group] == [group, "share", "share", "Stable"]
        assert cli("groups", "list", "--type", "other").code == 2

    def test_members_assignments_and_offsets_with_lag(
        self, cli: Cli, share_group: ShareConsumer, group: str, topic: str
    ) -> None:
        shown = described(cli, group)
        (member,) = shown["members"]
        assert (shown["type"], shown["state"], shown["protocol"]) == ("share", "Stable", "simple")
        assert shown["group_epoch"] == shown["target_assignment_epoch"] == member["epoch"]
        assert member["client_id"] == "worker"
        assert member["partitions"] == [{"topic": topic, "partition": number} for number in range(2)]
        first, second = shown["partitions"]
        assert first == {
            "topic": topic,
            "partition": 0,
            "current_offset": 2,
            "log_end_offset": 5,
            "lag": 3,
            "member_id": None,
        }
        assert (second["partition"], second["log_end_offset"], second["lag"]) == (1, 0, 0)
        head, titles, row, _ = cli("groups", "describe", group).out.splitlines()
        assert head == f"group {group} (Stable, 1 members)"
        assert titles.split() == ["TOPIC", "PARTITION", "START-OFFSET", "LOG-END-OFFSET", "LAG"]
        assert row.split() == [topic, "0", "2", "5", "3"]
        _, rows = table(cli, "describe", group, "--members", "--verbose")
        assert rows[group][:5] == [group, member["id"], member["host"], "worker", "2"]
        assert f"{topic}:0,1" in rows[group]

    def test_offsets_are_reset_and_deleted_while_there_are_no_members(
        self, cli: Cli, share_group: ShareConsumer, group: str, topic: str
    ) -> None:
        reset = ("groups", "reset-offsets", group, "--topic", f"{topic}:0")
        refused = cli(*reset, "--to-earliest", "--execute")
        assert (refused.code, "is Stable" in refused.err) == (1, True)
        share_group.close()
        assert cli(*reset, "--to-latest").out.splitlines()[1].split() == [group, topic, "0", "5"]
        assert committed(cli, group)[0] == 2, "a dry run"
        assert cli(*reset, "--shift-by", "-1", "--execute").code == 0
        assert committed(cli, group)[0] == 1
        some = cli("groups", "delete-offsets", group, "--topic", f"{topic}:0")
        assert (some.code, "whole topics" in some.err) == (1, True)
        assert cli("groups", "delete-offsets", group, "--topic", topic).out.split()[-2:] == [topic, "deleted"]
        assert described(cli, group)["partitions"] == []
        assert "no start offsets" in cli("groups", "describe", group).out
        assert cli("groups", "delete", group).code == 0
        assert cli("groups", "describe", group).code == 1


class TestDelete:
    def test_a_group(self, cli: Cli, cluster: RunningCluster, group: str, topic: str, records: None) -> None:
        commit(cluster, group, topic, 1)
        assert cli("groups", "delete", group) == (0, f"Deleted group {group}.\n", "")
        assert cli("groups", "delete", group).err.startswith("raylog: GROUP_ID_NOT_FOUND: ")

    def test_a_group_with_members_is_refused(self, cli: Cli, group: str, member: Consumer) -> None:
        assert cli("groups", "delete", group).err.startswith("raylog: NON_EMPTY_GROUP: ")

    def test_offsets(self, cli: Cli, cluster: RunningCluster, group: str, topic: str, records: None) -> None:
        commit(cluster, group, topic, 1)
        commit(cluster, group, topic, 0, partition=1)
        result = cli("groups", "delete-offsets", group, "--topic", f"{topic}:1")
        assert (result.code, result.err) == (0, "")
        assert result.out.splitlines()[1].split() == [topic, "1", "deleted"]
        assert committed(cli, group) == {0: 1}

    def test_offsets_of_a_subscribed_topic_are_refused(
        self, cli: Cli, group: str, topic: str, member: Consumer
    ) -> None:
        result = cli("groups", "delete-offsets", group, "--topic", topic)
        assert result.code == 1
        assert [row.split() for row in result.out.splitlines()[1:]] == [
            [topic, "0", "GROUP_SUBSCRIBED_TO_TOPIC"],
            [topic, "1", "GROUP_SUBSCRIBED_TO_TOPIC"],
        ]
        assert result.err.startswith(f"raylog: GROUP_SUBSCRIBED_TO_TOPIC: {topic}-0: ")


class TestReset:
    @pytest.mark.parametrize(
        ("target", "offset"),
        [
            (("--to-offset", "2"), 2),
            (("--to-offset", "99"), 5),
            (("--to-earliest",), 0),
            (("--to-latest",), 5),
            (("--to-datetime", "2000-01-01T00:00:00"), 0),
            (("--to-datetime", "2100-01-01T00:00:00+01:00"), 5),
            (("--by-duration", "PT0S"), 5),
            (("--by-duration", "P99999D"), 0),
            (("--to-current",), 3),
            (("--shift-by", "1"), 4),
            (("--shift-by", "-2"), 1),
            (("--shift-by", "-9"), 0),
        ],
    )
    def test_targets(
        self,
        cli: Cli,
        cluster: RunningCluster,
        group: str,
        topic: str,
        records: None,
        target: tuple[str, ...],
        offset: int,
    ) -> None:
        commit(cluster, group, topic, 3)
        asked = ("groups", "reset-offsets", group, "--topic", f"{topic}:0", *target)
        for dry in (asked, (*asked, "--dry-run")):
            result = cli(*dry)
            assert (result.code, result.err) == (0, "")
            assert result.out.splitlines()[1].split() == [group, topic, "0", str(offset)]
            assert result.out.endswith(DRY_RUN)
            assert committed(cli, group) == {0: 3}
        result = cli(*asked, "--execute")
        assert DRY_RUN not in result.out
        assert committed(cli, group) == {0: offset}

    def test_every_partition_of_a_topic_for_a_new_group(self, cli: Cli, group: str, topic: str, records: None) -> None:
        cli("groups", "reset-offsets", group, "--topic", topic, "--to-latest", "--execute")
        assert committed(cli, group) == {0: 5, 1: 0}

    def test_every_partition_with_a_committed_offset(
        self, cli: Cli, cluster: RunningCluster, group: str, topic: str, records: None
    ) -> None:
        commit(cluster, group, topic, 3)
        cli("groups", "reset-offsets", group, "--all-topics", "--to-earliest", "--execute")
        assert committed(cli, group) == {0: 0}

    def test_current_offsets_are_kept_and_others_begin_at_the_end(
        self, cli: Cli, cluster: RunningCluster, group: str, topic: str, records: None
    ) -> None:
        commit(cluster, group, topic, 3)
        cli("groups", "reset-offsets", group, "--topic", topic, "--to-current", "--execute")
        assert committed(cli, group) == {0: 3, 1: 0}

    def test_what_is_exported_can_be_read_again(
        self, cli: Cli, cluster: RunningCluster, group: str, topic: str, records: None, tmp_path: Path
    ) -> None:
        commit(cluster, group, topic, 3)
        exported = cli("groups", "reset-offsets", group, "--topic", topic, "--to-current", "--export", "--execute")
        assert exported == (0, f"{topic},0,3\n{topic},1,0\n", "")
        cli("groups", "reset-offsets", group, "--topic", topic, "--to-latest", "--execute")
        path = tmp_path / "offsets.csv"
        path.write_text(exported.out)
        cli("groups", "reset-offsets", group, "--from-file", str(path), "--execute")
        assert committed(cli, group) == {0: 3, 1: 0}

    def test_durations(self) -> None:
        found = [_duration_ms(text) for text in ("P1D", "PT1H30M", "PT0.5S", "P1DT1S")]
        assert found == [86_400_000, 5_400_000, 500, 86_401_000]

    def test_from_a_file(self, cli: Cli, group: str, topic: str, records: None, tmp_path: Path) -> None:
        path = tmp_path / "offsets.csv"
        path.write_text(f"{topic},0,2\n\n{topic},1,7\n")
        cli("groups", "reset-offsets", group, "--from-file", str(path), "--execute")
        assert committed(cli, group) == {0: 2, 1: 0}
        path.write_text(f"{topic},0\n")
        refused = cli("groups", "reset-offsets", group, "--from-file", str(path), "--execute")
        assert refused.err == "raylog: INVALID_REQUEST: line 1: must be topic,partition,offset\n"
        path.write_text("x" * 200_000)
        refused = cli("groups", "reset-offsets", group, "--from-file", str(path))
        assert refused.err == "raylog: INVALID_REQUEST: line 1: field larger than field limit (131072)\n"
        path.write_bytes(b"\xff,0,1\n")
        refused = cli("groups", "reset-offsets", group, "--from-file", str(path))
        assert refused.err.startswith("raylog: 'utf-8' codec can't decode byte 0xff")

    def test_a_group_with_members_is_refused(self, cli: Cli, group: str, topic: str, member: Consumer) -> None:
        refused = cli("groups", "reset-offsets", group, "--topic", topic, "--to-earliest", "--execute")
        assert refused.code == 1
        assert refused.err.startswith(f"raylog: NON_EMPTY_GROUP: group '{group}' is Stable")
        assert committed(cli, group) == {0: 3, 1: None}

    def test_errors(self, cli: Cli, group: str, topic: str, records: None) -> None:
        def error(*arguments: str, code: int = 1) -> str:
            result = cli("groups", "reset-offsets", group, *arguments)
            assert (result.code, result.out) == (code, "")
            return result.err

        assert "either --topic or --all-topics" in error("--to-latest", code=2)
        assert "the group has no offset there to shift" in error("--topic", topic, "--shift-by", "1")
        assert "UNKNOWN_TOPIC_OR_PARTITION" in error("--topic", "missing", "--to-latest")
        assert "UNKNOWN_TOPIC_OR_PARTITION" in error("--topic", f"{topic}:7", "--to-offset", "1")

    @pytest.mark.parametrize(
        "arguments",
        [
            (),
            ("--to-latest", "--to-earliest"),
            ("--to-latest", "--dry-run", "--execute"),
            ("--to-datetime", "yesterday"),
            ("--by-duration", "1h"),
            ("--by-duration", "P"),
            ("--by-duration", "PT"),
            ("--by-duration", "P1DT"),
            ("--by-duration", "PT" + "9" * 5000 + "H"),
            ("--shift-by", "far"),
            ("--to-offset", "-1"),
            ("--to-latest", "--topic", "t:x"),
        ],
    )
    def test_usage_errors(self, cli: Cli, group: str, arguments: tuple[str, ...]) -> None:
        wrong = cli("groups", "reset-offsets", group, *arguments)
        assert (wrong.code, wrong.out) == (2, "")
        assert wrong.err.startswith("raylog groups reset-offsets: ")


@pytest.fixture
def streams_group(cluster: RunningCluster, group: str, topic: str, records: None) -> StreamsMember:
    """A member with all tasks of a group whose topology has a changelog."""
    changelog = TopicInfo(name=f"{group}-changelog")
    stored = Subtopology(subtopology_id="0", source_topics=(topic,), state_changelog_topics=(changelog,))
    member = StreamsMember(cluster.bootstrap_servers, group, Topology(subtopologies=(stored,)))
    member.settle()
    return member


class TestStreamsGroups:
    def test_they_are_listed_by_type(self, cli: Cli, streams_group: StreamsMember, group: str) -> None:
        assert cli("groups", "list", "--type", "streams").out.splitlines()[-1:] == [group]
        assert table(cli, "list", "--verbose")[1][group] == [group, "streams", "streams", "Stable"]

    def test_members_and_tasks(self, cli: Cli, streams_group: StreamsMember, group: str, topic: str) -> None:
        shown = described(cli, group)
        (member,) = shown["members"]
        assert (shown["type"], shown["state"], shown["protocol"]) == ("streams", "Stable", "sticky")
        assert shown["group_epoch"] == shown["target_assignment_epoch"] == member["epoch"] == streams_group.epoch
        assert member["tasks"] == member["target_tasks"] == {"active": ["0_0", "0_1"], "standby": [], "warmup": []}
        assert member["partitions"] == [{"topic": topic, "partition": number} for number in range(2)]
        assert [(each["partition"], each["member_id"]) for each in shown["partitions"]] == [
            (0, "worker"),
            (1, "worker"),
        ]
        _, rows = table(cli, "describe", group, "--members", "--verbose")
        assert "active:0_0,0_1" in rows[group]

    def test_offsets_and_deletion_while_there_are_no_members(
        self, cli: Cli, streams_group: StreamsMember, group: str, topic: str
    ) -> None:
        reset = ("groups", "reset-offsets", group, "--topic", f"{topic}:0", "--to-latest", "--execute")
        assert "is Stable" in cli(*reset).err
        assert "NON_EMPTY_GROUP" in cli("groups", "delete", group).err
        streams_group.epoch = -1
        streams_group.beat()
        assert cli(*reset).code == 0
        assert committed(cli, group)[0] == 5
        assert cli("groups", "delete-offsets", group, "--topic", f"{topic}:0").code == 0
        assert cli("groups", "delete", group).code == 0
        assert group not in cli("groups", "list").out
