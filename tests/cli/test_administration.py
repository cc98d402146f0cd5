"""`raylog configs`, `elect` and `quorum` send their requests and print the responses, as tables and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raylog.metadata.levels import LATEST_LEVEL
from tests.cli.conftest import Cli
from tests.support.cluster_thread import CONTROLLER_ID


class TestConfigs:
    def test_topic(self, cli: Cli, topic: str) -> None:
        cli("topics", "create", topic)
        assert cli("configs", "describe", "--topic", topic).out == "No values are set.\n"
        changed = cli("configs", "alter", "--topic", topic, "--add", "retention.ms=5000", "--add", "flush.ms=9")
        assert changed == (0, "Updated the configuration.\n", "")
        shown = cli("configs", "describe", "--topic", topic).out.splitlines()
        assert [line.split() for line in shown] == [
            ["KEY", "VALUE", "SOURCE"],
            ["flush.ms", "9", "DYNAMIC_TOPIC_CONFIG"],
            ["retention.ms", "5000", "DYNAMIC_TOPIC_CONFIG"],
        ]
        cli("configs", "alter", "--topic", topic, "--delete", "flush.ms,retention.ms", "--add", "segment.bytes=2000000")
        (entry,) = json.loads(cli("configs", "describe", "--topic", topic, "--json").out)
        assert entry == {
            "name": "segment.bytes",
            "value": "2000000",
            "source": "DYNAMIC_TOPIC_CONFIG",
            "read_only": False,
        }
        everything = json.loads(cli("configs", "describe", "--topic", topic, "--all", "--json").out)
        assert {"retention.ms", "segment.bytes"} < {each["name"] for each in everything}

    def test_groups(self, cli: Cli) -> None:
        assert cli("configs", "describe", "--group", "billing").out == "No values are set.\n"
        cli("configs", "alter", "--group", "billing", "--add", "consumer.session.timeout.ms=50000")
        (entry,) = json.loads(cli("configs", "describe", "--group", "billing", "--json").out)
        assert (entry["name"], entry["value"], entry["source"]) == (
            "consumer.session.timeout.ms",
            "50000",
            "DYNAMIC_GROUP_CONFIG",
        )
        cli("configs", "alter", "--group", "billing", "--delete", "consumer.session.timeout.ms")
        assert cli("configs", "describe", "--group", "billing").out == "No values are set.\n"

    def test_one_broker_and_all_brokers(self, cli: Cli) -> None:
        cli("configs", "alter", "--broker-defaults", "--add", "log.retention.ms=7000")
        cli("configs", "alter", "--broker", "1", "--add", "log.retention.ms=8000")
        sources = {}
        for which in (("--broker", "0"), ("--broker", "1"), ("--broker-defaults",)):
            (entry,) = json.loads(cli("configs", "describe", *which, "--json").out)
            assert entry["name"] == "log.retention.ms"
            sources[which] = (entry["value"], entry["source"])
        assert list(sources.values()) == [
            ("7000", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
            ("8000", "DYNAMIC_BROKER_CONFIG"),
            ("7000", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ]
        cli("configs", "alter", "--broker-defaults", "--delete", "log.retention.ms")
        cli("configs", "alter", "--broker", "1", "--delete", "log.retention.ms")
        assert cli("configs", "describe", "--broker", "1").out == "No values are set.\n"

    def test_passwords_come_from_a_file(self, cli: Cli, tmp_path: Path) -> None:
        """They are set for the listener of one broker, which is asked itself."""
        name = "listener.name.plaintext.ssl.keystore.password"
        path = tmp_path / "keys.properties"
        path.write_text(f"{name}=do not show this\n")
        refused = cli("configs", "alter", "--broker", "1", "--add", f"{name}=do not show this")
        assert "set it in a file (--add-config-file)" in refused.err
        added = cli("configs", "alter", "--broker", "1", "--add-config-file", str(path))
        assert added == (0, "Updated the configuration.\n", "")
        described = cli("configs", "describe", "--broker", "1", "--json").out
        (entry,) = json.loads(described)
        assert entry == {"name": name, "value": None, "source": "DYNAMIC_BROKER_CONFIG", "read_only": False}
        assert cli("configs", "alter", "--broker", "1", "--delete", name).code == 0
        assert cli("configs", "describe", "--broker", "1").out == "No values are set.\n"

    def test_errors(self, cli: Cli, topic: str) -> None:
        cli("topics", "create", topic)
        for arguments, code in (
            (("--topic", topic, "--add", "retention.ms=soon"), "INVALID_CONFIG"),
            (("--topic", topic, "--add", "no.such=1"), "INVALID_CONFIG"),
            (("--topic", f"{topic}-x", "--add", "flush.ms=1"), "UNKNOWN_TOPIC_OR_PARTITION"),
            (("--broker", "0", "--add", "listeners=x"), "INVALID_REQUEST"),
        ):
            refused = cli("configs", "alter", *arguments)
            assert (refused.code, refused.out) == (1, "")
            assert refused.err.startswith(f"raylog: {code}: ")
        assert cli("configs", "describe", "--topic", f"{topic}-x").code == 1
        assert cli("configs", "describe", "--broker", "9").code == 1
        assert cli("configs", "describe").code == 2
        assert cli("configs", "alter", "--topic", topic).code == 2
        assert cli("configs", "alter", "--topic", topic, "--add", "flush.ms=1", "--delete", "flush.ms").code == 2
        assert cli("configs", "alter", "--topic", topic, "--add", "novalue").code == 2


class TestElect:
    def test_no_election_needed(self, cli: Cli, topic: str) -> None:
        cli("topics", "create", topic)
        shown = cli("elect", "--topic", f"{topic}:0,2")
        assert (shown.code, shown.err) == (0, "")
        assert [line.split(maxsplit=2) for line in shown.out.splitlines()] == [
            ["TOPIC", "PARTITION", "RESULT"],
            [topic, "0", "not needed"],
            [topic, "2", "not needed"],
        ]
        found = json.loads(cli("elect", "--topic", topic, "--election-type", "unclean", "--json").out)
        assert found == [{"topic": topic, "partition": number, "result": "not needed"} for number in range(3)]
        assert cli("elect", "--all-topic-partitions").out == "No election was needed.\n"
        assert cli("elect", "--all-topic-partitions", "--json").out == "[]\n"

    def test_errors(self, cli: Cli, topic: str) -> None:
        cli("topics", "create", topic)
        refused = cli("elect", "--topic", f"{topic}:7")
        assert refused.code == 1
        assert refused.out.splitlines()[1].split() == [topic, "7", "UNKNOWN_TOPIC_OR_PARTITION"]
        assert refused.err.startswith(f"raylog: UNKNOWN_TOPIC_OR_PARTITION: {topic}-7: ")
        assert cli("elect").code == cli("elect", "--topic", topic, "--all-topic-partitions").code == 2


class TestQuorum:
    def test_status(self, cli: Cli) -> None:
        shown = cli("quorum", "describe")
        assert (shown.code, shown.err) == (0, "")
        found = dict(line.split(":") for line in shown.out.splitlines())
        told = {name: value.strip() for name, value in found.items()}
        assert int(told.pop("HighWatermark")) > 0
        assert told == {
            "LeaderId": str(CONTROLLER_ID),
            "LeaderEpoch": "1",
            "MaxFollowerLag": "0",
            "CurrentVoters": str(CONTROLLER_ID),
            "CurrentObservers": "0,1",
        }

    def test_replication(self, cli: Cli) -> None:
        described = json.loads(cli("quorum", "describe", "--json").out)
        assert [(one["id"], one["status"]) for one in described["replicas"]] == [
            (CONTROLLER_ID, "leader"),
            (0, "observer"),
            (1, "observer"),
        ]
        assert all(one["lag"] == described["high_watermark"] - one["log_end_offset"] for one in described["replicas"])
        shown = cli("quorum", "describe", "--replication").out.splitlines()
        assert shown[0].split()[:4] == ["NODE", "DIRECTORY", "LOG-END-OFFSET", "LAG"]
        assert [line.split()[-1] for line in shown[1:]] == ["leader", "observer", "observer"]

    def test_voters_do_not_change_before_kraft_version_1(self, cli: Cli) -> None:
        endpoint = ("--endpoint", "CONTROLLER://[::1]:9093")
        for command in (
            ("add", "1001", *endpoint, "--directory-id", "AAAAAAAAAAAAAAAAAAAAAQ"),
            ("add", "1001", *endpoint, "--directory-id", "00000000-0000-0000-0000-000000000001"),
            ("remove", str(CONTROLLER_ID)),
        ):
            refused = cli("quorum", *command)
            assert refused.code == 1
            assert "UNSUPPORTED_VERSION" in refused.err
        unknown = cli("quorum", "add", "1001", *endpoint)
        assert (unknown.code, unknown.out) == (1, "")
        assert "controller 1001 does not follow the metadata log" in unknown.err

    @pytest.mark.parametrize("endpoint", ["", "host:9093", "C://host", "C://host:0", "C://host:65536", "C://:1"])
    def test_endpoints_that_are_none(self, cli: Cli, endpoint: str) -> None:
        refused = cli("quorum", "add", "1001", "--endpoint", endpoint)
        assert refused.code == 2
        assert "must be NAME://HOST:PORT" in refused.err

    @pytest.mark.parametrize("directory_id", ["", "x", "A" * 23, "A" * 21 + "!", "A" * 100_000])
    def test_directory_ids_that_are_none(self, cli: Cli, directory_id: str) -> None:
        refused = cli("quorum", "remove", "1001", "--directory-id", directory_id)
        assert refused.code == 2
        assert "must be the id of a log directory" in refused.err


class TestFeatures:
    def test_the_level_of_a_new_cluster_is_the_latest(self, cli: Cli) -> None:
        shown = cli("features", "describe").out.splitlines()
        assert [line.split() for line in shown] == [
            ["FEATURE", "SUPPORTED-MIN", "SUPPORTED-MAX", "FINALIZED"],
            ["raylog.metadata", "1", str(LATEST_LEVEL), str(LATEST_LEVEL)],
            ["transaction.version", "0", "2", "2"],
            ["group.version", "0", "1", "1"],
            ["share.version", "0", "1", "1"],
            ["streams.version", "0", "1", "1"],
            ["kraft.version", "0", "1", "0"],
            ["metadata.version", "25", "25", "25"],
        ]
        assert json.loads(cli("features", "describe", "--json").out)[0] == {
            "feature": "raylog.metadata",
            "supported_min": 1,
            "supported_max": LATEST_LEVEL,
            "finalized": LATEST_LEVEL,
        }

    def test_an_upgrade_to_the_level_in_force_does_nothing(self, cli: Cli) -> None:
        in_force = f"level {LATEST_LEVEL}\n"
        checked = cli("features", "upgrade", "--dry-run")
        others = "transaction.version {0} level 2\ngroup.version {0} level 1\n"
        others += "share.version {0} level 1\nstreams.version {0} level 1\nkraft.version {0} level 1\n"
        expected = f"raylog.metadata can be set to {in_force}" + others.format("can be set to")
        assert checked == (0, expected, "")
        raised = cli("features", "upgrade", "--level", str(LATEST_LEVEL))
        assert raised == (0, f"raylog.metadata is at {in_force}", "")

    def test_errors(self, cli: Cli) -> None:
        refused = cli("features", "upgrade", "--level", "1")
        assert refused.code == 1
        assert f"It is at level {LATEST_LEVEL} and cannot be lowered." in refused.err
        for level in ("-40000", "32768", "two"):
            assert cli("features", "upgrade", "--level", level).code == 2, level
            assert cli("features", "downgrade", "--feature", f"group.version={level}").code == 2, level
        refused = cli("features", "upgrade", "--release-version", "4.2")
        assert refused.code == 2
        assert "releases of Kafka do not name levels of raylog" in refused.err
        refused = cli("features", "disable", "--feature", "raylog.metadata")
        assert refused.code == 1
        assert "cannot be lowered" in refused.err

    def test_levels_are_lowered_and_raised_again(self, cli: Cli) -> None:
        lowered = cli("features", "downgrade", "--feature", "transaction.version=1", "--dry-run")
        assert lowered == (0, "transaction.version can be set to level 1\n", "")
        lowered = cli("features", "downgrade", "--feature", "transaction.version=1")
        assert lowered == (0, "transaction.version is at level 1\n", "")
        disabled = cli("features", "disable", "--feature", "transaction.version", "--unsafe")
        assert disabled == (0, "transaction.version is at level 0\n", "")
        assert cli("features", "downgrade", "--feature", "transaction.version=1").code == 1
        raised = cli("features", "upgrade", "--feature", "transaction.version=2")
        assert raised == (0, "transaction.version is at level 2\n", "")
