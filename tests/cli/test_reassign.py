"""`raylog reassign` executes Kafka's plans, shows their progress, and removes its throttles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, Result
from tests.support.cluster_thread import RunningCluster, cluster_thread


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    config = {"num.partitions": 1, "replica.fetch.max.bytes": 1000, "replica.fetch.wait.max.ms": 50}
    with cluster_thread(config, tmp_path_factory.mktemp("cli-reassign"), brokers=3) as running:
        yield running


@pytest.fixture
def home(cli: Cli, topic: str) -> int:
    """The only broker of the topic, whose partition 0 has three large batches."""
    assert cli("topics", "create", topic).code == 0
    for letter in (b"a", b"b", b"c"):
        assert cli("produce", topic, stdin=letter * 50_000 + b"\n").code == 0
    return replicas(cli, topic)[0]


def replicas(cli: Cli, topic: str) -> list[int]:
    line = cli("topics", "describe", topic).out.splitlines()[1]
    return [int(one) for one in line.split("Replicas: ")[1].split("\t")[0].split(",")]


def plan_file(path: Path, topic: str, *brokers: int, partition: int = 0) -> str:
    entry = {"topic": topic, "partition": partition, "replicas": list(brokers)}
    file = path / f"{topic}-to-{'-'.join(map(str, brokers))}.json"
    file.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    return str(file)


def carry_out(cli: Cli, action: str, plan: str, *more: str) -> Result:
    return cli("reassign", action, "--reassignment-json-file", plan, *more)


def status(cli: Cli, plan: str) -> dict[str, Any]:
    [found] = json.loads(carry_out(cli, "verify", plan, "--json", "--preserve-throttles").out)
    assert isinstance(found, dict)
    return found


def throttles(cli: Cli, topic: str) -> list[str]:
    """Everything that is set of them, by the topic and by the brokers."""
    found = json.loads(cli("configs", "describe", "--topic", topic, "--json").out)
    for broker in range(3):
        found += json.loads(cli("configs", "describe", "--broker", str(broker), "--json").out)
    return sorted(f"{entry['name']}={entry['value']}" for entry in found if "throttled" in entry["name"])


def test_a_plan_is_generated_executed_and_verified(cli: Cli, topic: str, home: int, tmp_path: Path) -> None:
    others = sorted({0, 1, 2} - {home})
    shown = cli("reassign", "generate", "--topics", topic, "--broker-list", ",".join(map(str, others)))
    present, proposed = (json.loads(part.split("\n", 1)[1]) for part in shown.out.split("\n\n"))
    assert present["partitions"] == [{"topic": topic, "partition": 0, "replicas": [home], "log_dirs": ["any"]}]
    assert proposed["partitions"][0]["replicas"] == [others[0]]
    alone = cli("reassign", "generate", "--topics", topic, "--broker-list", str(others[0]), "--json")
    assert json.loads(alone.out) == proposed
    plan = tmp_path / "plan.json"
    plan.write_text(alone.out)
    done = carry_out(cli, "execute", str(plan), "--wait")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out.splitlines()[1]) == present
    assert done.out.endswith(f"Started reassignment of {topic}-0.\nReassignment is complete.\n")
    assert replicas(cli, topic) == [others[0]]
    verified = carry_out(cli, "verify", str(plan))
    head, line = verified.out.splitlines()
    assert head.split() == ["TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING", "STATUS"]
    assert line.split() == [topic, "0", str(others[0]), "-", "-", "complete"]
    assert len(cli("consume", topic, "--offset", "earliest", "--exit-at-end").out.splitlines()) == 3


def test_a_throttled_reassignment_can_be_listed_and_cancelled(cli: Cli, topic: str, home: int, tmp_path: Path) -> None:
    target = (home + 1) % 3
    plan = plan_file(tmp_path, topic, target)
    assert carry_out(cli, "execute", plan, "--throttle", "1").code == 0
    moving = {"topic": topic, "partition": 0, "adding": [target], "removing": [home], "status": "moving"}
    assert status(cli, plan) == {**moving, "replicas": [target, home]}
    assert throttles(cli, topic) == sorted(
        ["follower.replication.throttled.rate=1", "leader.replication.throttled.rate=1"] * 3
        + [f"follower.replication.throttled.replicas=0:{target}", f"leader.replication.throttled.replicas=0:{home}"]
    )
    assert json.loads(cli("reassign", "list", "--json").out) == [{**moving, "replicas": [target, home]}]
    assert cli("reassign", "list").out.splitlines()[1].split() == [
        *(topic, "0", f"{target},{home}", str(target), str(home), "moving")
    ]
    other = plan_file(tmp_path, topic, home, (home + 2) % 3)
    refused = carry_out(cli, "execute", other)
    assert (refused.code, refused.err.split(":")[1].strip()) == (1, "REASSIGNMENT_IN_PROGRESS")
    assert status(cli, other)["status"] == "superseded"
    verified = carry_out(cli, "verify", plan)
    assert verified.out.splitlines()[1].split()[-1] == "moving"
    assert throttles(cli, topic), "it is not over"
    assert carry_out(cli, "cancel", plan).out == f"Cancelled reassignment of {topic}-0.\n"
    assert replicas(cli, topic) == [home]
    assert throttles(cli, topic) == []
    assert status(cli, plan)["status"] == "different"
    assert carry_out(cli, "cancel", plan).out == "Cancelled reassignment of no partitions.\n"
    assert cli("reassign", "list").out == "No reassignments are in progress.\n"


def test_an_ongoing_reassignment_can_be_replaced(cli: Cli, topic: str, home: int, tmp_path: Path) -> None:
    carry_out(cli, "execute", plan_file(tmp_path, topic, (home + 1) % 3), "--throttle", "1")
    other = plan_file(tmp_path, topic, (home + 2) % 3, home)
    begun = carry_out(cli, "execute", other, "--additional", "--throttle", "1000000000", "--wait")
    assert (begun.code, begun.err) == (0, "")
    assert replicas(cli, topic) == [(home + 2) % 3, home]
    assert throttles(cli, topic) == []


def test_preserve_throttles_keeps_the_throttles(cli: Cli, topic: str, home: int, tmp_path: Path) -> None:
    plan = plan_file(tmp_path, topic, (home + 1) % 3)
    carry_out(cli, "execute", plan, "--throttle", "1")
    carry_out(cli, "cancel", plan, "--preserve-throttles")
    assert len(throttles(cli, topic)) == 8
    carry_out(cli, "verify", plan)
    assert throttles(cli, topic) == []


def test_errors_are_one_line_with_kafkas_code(cli: Cli, topic: str, home: int, tmp_path: Path) -> None:
    for plan, code in (
        (plan_file(tmp_path, f"{topic}-x", 0), "UNKNOWN_TOPIC_OR_PARTITION"),
        (plan_file(tmp_path, topic, home, partition=4), "UNKNOWN_TOPIC_OR_PARTITION"),
        (plan_file(tmp_path, topic, 0, 9), "INVALID_REPLICA_ASSIGNMENT"),
        (plan_file(tmp_path, topic), "INVALID_REQUEST"),
    ):
        refused = carry_out(cli, "execute", plan)
        assert refused.code == 1
        assert refused.err.startswith(f"raylog: {code}: ")
        assert refused.err.count("\n") == 1
    assert carry_out(cli, "verify", str(tmp_path / "none.json")).code == 1
    assert cli("reassign", "generate", "--broker-list", "0,9").err.startswith("raylog: BROKER_ID_NOT_REGISTERED: ")
    assert cli("reassign", "generate", "--broker-list", "a").code == 2
    assert replicas(cli, topic) == [home]


def test_topics_to_move_have_kafkas_format(cli: Cli, topic: str, home: int, tmp_path: Path) -> None:
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    shown = cli("reassign", "generate", "--topics-to-move-json-file", str(file), "--json")
    assert [entry["topic"] for entry in json.loads(shown.out)["partitions"]] == [topic]
    for wrong in (
        "{}",
        "[" * 100_000,
        '{"topics": 1}',
        '{"topics": [{"topic": 1}]}',
        '{"topics": [{"topic": "\\ud800"}]}',
    ):
        file.write_text(wrong)
        refused = cli("reassign", "generate", "--topics-to-move-json-file", str(file), "--json")
        assert refused.err.startswith("raylog: INVALID_REQUEST: --topics-to-move-json-file: must be JSON"), wrong
        assert "Error(" not in refused.err, "no exception of Python"
        assert refused.err.count("\n") == 1
    file.write_bytes(b"\xff")
    for arguments in (("generate", "--topics-to-move-json-file"), ("execute", "--reassignment-json-file")):
        refused = cli("reassign", *arguments, str(file))
        assert refused.err == f"raylog: INVALID_CONFIG: {file}: is not UTF-8 text\n"
