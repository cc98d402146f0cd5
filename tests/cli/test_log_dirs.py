"""`raylog log-dirs describe` prints what kafka-log-dirs prints, as a table or as its JSON; `move` says what is
refused."""

from __future__ import annotations

import json
import os

from tests.cli.conftest import Cli, wait_until_led
from tests.support.cluster_thread import RunningCluster


def test_json_is_that_of_kafka_log_dirs_with_the_sizes_on_disk(cli: Cli, cluster: RunningCluster, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "2")
    cli("produce", topic, "--partition", "1", stdin=b"hello\n")
    code, out, err = cli("log-dirs", "describe", "--topic-list", topic, "--json")
    assert (code, err) == (0, "")
    described = json.loads(out)
    assert (described["version"], [broker["broker"] for broker in described["brokers"]]) == (1, [0, 1])
    disk = os.statvfs(cluster.path)
    numbers = set()
    for broker in described["brokers"]:
        (found,) = broker["logDirs"]
        assert (found["logDir"], found["error"]) == (str(cluster.path / f"broker-{broker['broker']}"), None)
        assert found["totalBytes"] == disk.f_blocks * disk.f_frsize
        assert 0 < found["usableBytes"] < found["totalBytes"]
        (partition,) = found["partitions"]
        number = int(partition["partition"].removeprefix(f"{topic}-"))
        size = (cluster.partition_path(topic, number) / "00000000000000000000.log").stat().st_size
        assert (size > 0) == (number == 1)
        assert partition == {"partition": f"{topic}-{number}", "size": size, "offsetLag": 0, "isFuture": False}
        numbers.add(number)
    assert numbers == {0, 1}


def test_tables_of_directories_and_of_partitions(cli: Cli, cluster: RunningCluster, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "2")
    wait_until_led(cluster, topic)
    code, out, err = cli("log-dirs", "describe", "--broker-list", "1", "--topic-list", topic)
    assert (code, err) == (0, "")
    directories, partitions = (part.splitlines() for part in out.split("\n\n"))
    assert directories[0].split() == ["BROKER", "PARTITIONS", "SIZE", "USABLE", "TOTAL", "ERROR", "LOG", "DIR"]
    (line,) = directories[1:]
    cells = line.split()
    assert (cells[:3], cells[5:]) == (["1", "1", "0"], ["-", str(cluster.path / "broker-1")])
    assert [line.split() for line in partitions[1:]] == [["1", "0", "0", f"{topic}-1", "current"]]


def test_everything_is_shown_by_default(cli: Cli, cluster: RunningCluster, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "2")
    wait_until_led(cluster, topic)
    brokers = json.loads(cli("log-dirs", "describe", "--json").out)["brokers"]
    shown = {each["partition"] for broker in brokers for found in broker["logDirs"] for each in found["partitions"]}
    assert shown >= {f"{topic}-0", f"{topic}-1"}


def test_unknown_brokers_and_topics_are_refused_in_one_line(cli: Cli, topic: str) -> None:
    unknown = cli("log-dirs", "describe", "--topic-list", topic)
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err.startswith("raylog: UNKNOWN_TOPIC_OR_PARTITION: ")
    of_no_broker = cli("log-dirs", "describe", "--broker-list", "0,9")
    assert (of_no_broker.code, of_no_broker.out) == (1, "")
    assert "broker 9" in of_no_broker.err
    assert cli("log-dirs", "describe", "--broker-list", "zero").code == 2


def test_a_move_begins_or_is_refused_in_one_line(cli: Cli, cluster: RunningCluster, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "2")
    wait_until_led(cluster, topic)
    here = str(cluster.path / "broker-1")
    began = cli("log-dirs", "move", "--broker", "1", "--to", here, topic)
    assert (began.code, began.out, began.err) == (0, f"moving 1 replica(s) to {here}\n", "")
    nowhere = cli("log-dirs", "move", "--broker", "1", "--to", "/nowhere", f"{topic}:1")
    assert (nowhere.code, nowhere.out) == (1, "")
    refusal = f"raylog: LOG_DIR_NOT_FOUND: {topic}-1 cannot be moved to /nowhere of broker 1: "
    assert nowhere.err.startswith(refusal)
    assert nowhere.err.count("\n") == 1


def test_a_move_of_no_replica_is_refused(cli: Cli, cluster: RunningCluster, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "1")
    [partition] = json.loads(cli("topics", "describe", topic, "--json").out)[0]["partitions"]
    other = 1 - partition["replicas"][0]
    move = ("log-dirs", "move", "--to", str(cluster.path / f"broker-{other}"), topic, "--broker")
    unknown = cli(*move, "7")
    assert unknown == (1, "", "raylog: BROKER_ID_NOT_REGISTERED: broker 7 is not registered\n")
    elsewhere = cli(*move, str(other))
    assert elsewhere == (1, "", f"raylog: REPLICA_NOT_AVAILABLE: broker {other} has no replica of topic {topic}\n")
