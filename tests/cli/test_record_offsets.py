"""`get-offsets`, `delete-records`, `api-versions` and `cluster-id` agree with a stock client and with the code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as StockPartition

from raylog.broker.api_handlers import TELEMETRY_HANDLERS
from raylog.cli.delete_records import parse_offsets
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.registry import APIS
from tests.cli.conftest import Cli
from tests.support.cluster_thread import RunningCluster


def filled(cli: Cli, topic: str, *, partition: int, lines: int) -> None:
    records = b"".join(b"%d\n" % number for number in range(lines))
    assert cli("produce", topic, "--partition", str(partition), stdin=records).code == 0


def stock_earliest(cluster: RunningCluster, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none"})
    try:
        earliest, _ = consumer.get_watermark_offsets(StockPartition(topic, partition), timeout=30)
    finally:
        consumer.close()
    return earliest


class TestGetOffsets:
    def test_the_lines_are_kafkas(self, cli: Cli, topic: str) -> None:
        cli("topics", "create", topic)
        filled(cli, topic, partition=1, lines=5)
        assert cli("get-offsets", topic) == (0, f"{topic}:0:0\n{topic}:1:5\n{topic}:2:0\n", "")
        assert cli("get-offsets", f"{topic}:1", "--time", "earliest").out == f"{topic}:1:0\n"
        assert cli("get-offsets", f"{topic}:0,1", "--time", "-1").out == f"{topic}:0:0\n{topic}:1:5\n"
        (only,) = cli("get-offsets", f"{topic}:0,1", "--time", "max-timestamp").out.splitlines()
        assert only.startswith(f"{topic}:1:")  # partition 0 has no record

    def test_a_time_without_a_record_has_no_offset(self, cli: Cli, topic: str) -> None:
        cli("topics", "create", topic)
        filled(cli, topic, partition=1, lines=1)
        assert cli("get-offsets", f"{topic}:1", "--time", str(2**42)).out == ""
        entry, later = (
            json.loads(cli("get-offsets", f"{topic}:1", "--time", each, "--json").out)[0] for each in ("0", str(2**42))
        )
        assert (entry["offset"], entry["timestamp_ms"] > 0) == (0, True)
        assert later == {"topic": topic, "partition": 1, "offset": None, "timestamp_ms": None}

    def test_all_topics_with_or_without_internal_ones(self, cli: Cli, topic: str) -> None:
        cli("topics", "create", topic)
        cli("groups", "reset-offsets", "g", "--topic", topic, "--to-earliest", "--execute")  # makes __consumer_offsets
        everything = cli("get-offsets").out
        assert f"{topic}:0:0\n" in everything
        assert "__consumer_offsets:0:" in everything
        others = cli("get-offsets", "--exclude-internal-topics").out
        assert f"{topic}:0:0\n" in others
        assert "__consumer_offsets" not in others

    def test_errors(self, cli: Cli, topic: str) -> None:
        assert cli("get-offsets", topic).err.startswith("raylog: UNKNOWN_TOPIC_OR_PARTITION: ")
        for time in ("yesterday", "-4", "9" * 5000):
            assert cli("get-offsets", "--time", time).code in (1, 2), time


class TestDeleteRecords:
    def test_a_stock_client_finds_the_new_first_offset(
        self, cli: Cli, cluster: RunningCluster, topic: str, tmp_path: Path
    ) -> None:
        cli("topics", "create", topic)
        filled(cli, topic, partition=0, lines=5)
        filled(cli, topic, partition=1, lines=4)
        path = tmp_path / "offsets.json"
        offsets = {0: 3, 1: -1}
        entries = [{"topic": topic, "partition": number, "offset": offset} for number, offset in offsets.items()]
        path.write_text(json.dumps({"version": 1, "partitions": entries}))
        done = cli("delete-records", "--offset-json-file", str(path))
        assert (done.code, done.err) == (0, "")
        assert [line.split() for line in done.out.splitlines()] == [
            ["TOPIC", "PARTITION", "LOW-WATERMARK", "ERROR"],
            [topic, "0", "3", "-"],
            [topic, "1", "4", "-"],
        ]
        assert [stock_earliest(cluster, topic, number) for number in range(3)] == [3, 4, 0]

    def test_what_was_refused_is_said_besides_what_was_done(self, cli: Cli, topic: str, tmp_path: Path) -> None:
        cli("topics", "create", topic)
        filled(cli, topic, partition=0, lines=2)
        path = tmp_path / "offsets.json"
        entries = [{"topic": topic, "partition": number, "offset": 2} for number in range(2)]
        path.write_text(json.dumps({"partitions": entries}))
        refused = cli("delete-records", "--offset-json-file", str(path), "--json")
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert refused.err.startswith("raylog: OFFSET_OUT_OF_RANGE: ")
        assert json.loads(refused.out) == [
            {"topic": topic, "partition": 0, "low_watermark": 2, "error": None},
            {"topic": topic, "partition": 1, "low_watermark": None, "error": "OFFSET_OUT_OF_RANGE"},
        ]

    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"\xff",
            b"[]",
            b"null",
            b"{}",
            b'{"partitions": []}',
            b'{"partitions": 3}',
            b'{"partitions": [7]}',
            b'{"partitions": [{"topic": "t", "partition": 0}]}',
            b'{"partitions": [{"topic": 1, "partition": 0, "offset": 1}]}',
            b'{"partitions": [{"topic": "t", "partition": true, "offset": 1}]}',
            b'{"partitions": [{"topic": "t", "partition": 0, "offset": 1.5}]}',
            b'{"partitions": [{"topic": "t", "partition": -1, "offset": 1}]}',
            b'{"partitions": [{"topic": "t", "partition": 0, "offset": -2}]}',
            b'{"version": 2, "partitions": [{"topic": "t", "partition": 0, "offset": 1}]}',
            b'{"partitions": [' + b",".join([b'{"topic": "t", "partition": 0, "offset": 1}'] * 2) + b"]}",
            b"[" * 100_000,
            b'{"partitions": [{"topic": "\\ud800", "partition": 0, "offset": 1}]}',
            b'{"partitions": [{"topic": "\xed\xa0\x80", "partition": 0, "offset": 1}]}',
        ],
    )
    def test_a_malformed_file_is_refused_as_a_whole(self, text: bytes) -> None:
        with pytest.raises(KafkaError, match="--offset-json-file: "):
            parse_offsets(text)

    def test_the_entry_and_the_field_are_named(self) -> None:
        entries = [{"topic": "t", "partition": 0, "offset": 1}, {"topic": "t", "partition": 1}]
        with pytest.raises(KafkaError, match=r"partitions\[1\] has no field 'offset'"):
            parse_offsets(json.dumps({"partitions": entries}).encode())

    def test_a_thousand_partitions(self) -> None:
        entries = [{"topic": "t", "partition": number, "offset": number} for number in range(1000)]
        offsets = parse_offsets(json.dumps({"version": 1, "partitions": entries}).encode())
        assert offsets == {TopicPartition("t", number): number for number in range(1000)}


def test_api_versions_are_those_of_every_broker(cli: Cli) -> None:
    found = json.loads(cli("api-versions", "--json").out)
    assert [broker["id"] for broker in found] == [0, 1]
    served = {
        spec.key: (spec.name, spec.advertised_from, spec.highest) for spec in APIS if spec.key not in TELEMETRY_HANDLERS
    }
    for broker in found:
        assert {each["key"]: (each["api"], each["min_version"], each["max_version"]) for each in broker["apis"]} == (
            served
        )
    lines = cli("api-versions").out.splitlines()
    assert lines[0].endswith(" (id: 0 rack: null isFenced: false) -> (")
    assert "\tProduce(0): 0 to 13 [usable: 13]," in lines
    assert lines.count(")") == 2


def test_cluster_id(cli: Cli, cluster: RunningCluster) -> None:
    assert cli("cluster-id") == (0, f"Cluster ID: {cluster.cluster_id}\n", "")
    assert json.loads(cli("cluster-id", "--json").out) == {"cluster_id": cluster.cluster_id}
