"""The performance and verifiable commands print what Kafka's tools print, and agree with what a stock client counts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as StockPartition

from raylog.cli.perf_statistics import SAMPLES_MAX, ProducerStatistics, percentile, wait_seconds
from tests.cli.conftest import Cli
from tests.support.cluster_thread import RunningCluster
from tests.support.hang import HANG_SECONDS

SENT = re.compile(
    r"100 records sent, \d+\.\d{6} records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency,"
    r" \d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th\.\n"
)


def stock_count(cluster: RunningCluster, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none"})
    try:
        ends = [consumer.get_watermark_offsets(StockPartition(topic, number), timeout=30) for number in range(3)]
    finally:
        consumer.close()
    return sum(high - low for low, high in ends)


def events(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


class TestStatistics:
    def test_percentiles(self) -> None:
        assert percentile([], 0.5) == 0
        assert percentile([7.0], 0.999) == 7
        assert [percentile(range(100), share) for share in (0.0, 0.5, 0.99, 1.0)] == [0, 50, 99, 99]

    def test_a_rate_is_kept_on_average(self) -> None:
        assert wait_seconds(10, -1, 0) == 0
        assert wait_seconds(10, 5, 0.5) == 1.5
        assert wait_seconds(10, 5, 3) == 0

    def test_a_line_every_five_seconds_about_these_seconds(self) -> None:
        statistics = ProducerStatistics(10, 100.0)
        statistics.record(1 << 20, 4.0)
        statistics.record(1 << 20, 8.0)
        assert statistics.progress(104.9) is None
        assert statistics.progress(105.0) == (
            "2 records sent, 0.4 records/sec (0.40 MB/sec), 6.0 ms avg latency, 8.0 ms max latency."
        )
        statistics.record(1 << 20, 3.0)
        assert statistics.progress(109.0) is None
        assert statistics.progress(110.0) == (
            "1 records sent, 0.2 records/sec (0.20 MB/sec), 3.0 ms avg latency, 3.0 ms max latency."
        )
        assert statistics.last_line(110.0) == (
            "3 records sent, 0.300000 records/sec (0.30 MB/sec), 5.00 ms avg latency, 8.00 ms max latency,"
            " 4 ms 50th, 8 ms 95th, 8 ms 99th, 8 ms 99.9th."
        )

    def test_the_latencies_that_are_kept_are_bounded(self) -> None:
        count = 4 * SAMPLES_MAX
        statistics = ProducerStatistics(count, 0.0)
        for number in range(100_000):
            statistics.record(1, float(number))
        assert len(statistics._latencies) <= 100_000 / 4
        assert statistics.summary(1.0)["max_latency_ms"] == 99_999


def test_producer_and_consumer(cli: Cli, cluster: RunningCluster, topic: str) -> None:
    cli("topics", "create", topic)
    sent = cli("producer-perf", topic, "--num-records", "100", "--record-size", "1000", "--throughput", "2000")
    assert (sent.code, sent.err) == (0, "")
    assert SENT.fullmatch(sent.out), sent.out
    assert stock_count(cluster, topic) == 100

    read = cli("consumer-perf", topic, "--num-records", "100")
    assert (read.code, read.err) == (0, "")
    head, line = read.out.splitlines()
    found = dict(zip(head.split(", "), line.split(", "), strict=True))
    assert (found["data.consumed.in.nMsg"], found["data.consumed.in.MB"]) == ("100", f"{100_000 / 2**20:.4f}")
    few = cli("consumer-perf", topic, "--num-records", "101", "--timeout", "300", "--json")
    assert (few.code, json.loads(few.out)["records"]) == (0, 100)
    assert few.err == "Only 100 of 101 records within 300 ms.\n"


def test_a_producer_with_transactions_commits_all(cli: Cli, cluster: RunningCluster, topic: str) -> None:
    cli("topics", "create", topic)
    arguments = ("--num-records", "50", "--record-size", "10", "--transactional-id", topic)
    sent = cli("producer-perf", topic, *arguments, "--transaction-duration-ms", "1", "--json")
    assert (sent.code, sent.err) == (0, "")
    assert json.loads(sent.out)["records"] == 50
    assert len(cli("consume", topic, "--exit-at-end", "--json").out.splitlines()) == 50
    assert stock_count(cluster, topic) > 50  # the markers of several transactions


def test_latency(cli: Cli, topic: str) -> None:
    cli("topics", "create", topic)
    cli("produce", topic, stdin=b"another record\n")
    measured = cli("e2e-latency", topic, "--num-records", "20", "--json")
    assert measured.code == 0
    found = json.loads(measured.out)
    assert found["records"] == 20
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["p99.9_ms"]
    assert re.fullmatch(r"0\t\d+\.\d+\n", measured.err)
    assert re.fullmatch(
        r"0\t\d+\.\d+\nAvg latency: \d+\.\d{4} ms\nPercentiles: 50th = \d+, 99th = \d+, 99.9th = \d+\n",
        cli("e2e-latency", topic, "--num-records", "1", "--acks", "1").out,
    )


def test_what_is_acknowledged_is_read(cli: Cli, topic: str) -> None:
    cli("topics", "create", topic)
    arguments = ("--max-messages", "30", "--value-prefix", "7", "--repeating-keys", "5")
    produced = events(cli("verifiable-producer", topic, *arguments).out)
    assert [each["name"] for each in produced[:1] + produced[-2:]] == [
        "startup_complete",
        "shutdown_complete",
        "tool_data",
    ]
    assert (produced[-1]["sent"], produced[-1]["acked"]) == (30, 30)
    acknowledged = {
        (each["partition"], each["offset"], each["key"], each["value"])
        for each in produced
        if each["name"] == "producer_send_success"
    }
    assert {value for *_, value in acknowledged} == {f"7.{number}" for number in range(30)}

    consumed = events(cli("verifiable-consumer", topic, "--group-id", topic, "--max-messages", "30", "--verbose").out)
    names = [each["name"] for each in consumed]
    assert (names[0], names[-1]) == ("startup_complete", "shutdown_complete")
    assert "partitions_assigned" in names
    read = [each for each in consumed if each["name"] == "record_data"]
    assert {(each["partition"], each["offset"], each["key"], each["value"]) for each in read} == acknowledged
    assert sum(each["count"] for each in consumed if each["name"] == "records_consumed") == 30
    assert all(each["success"] for each in consumed if each["name"] == "offsets_committed")
    described = json.loads(cli("groups", "describe", topic, "--json").out)
    assert sum(each["current_offset"] or 0 for each in described[0]["partitions"]) == 30


def test_a_closed_output_ends_the_verifiable_producer(cluster: RunningCluster, cli: Cli, topic: str) -> None:
    cli("topics", "create", topic)
    command = f"{sys.executable} -m raylog.cli.main verifiable-producer {topic} -b {cluster.bootstrap_servers}"
    piped = subprocess.run(
        ["bash", "-c", f"{command} --max-messages 1000000 | head -n 2; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        timeout=HANG_SECONDS,
        check=False,
        env=os.environ,
    )
    assert (piped.returncode, piped.stderr) == (141, b"")
    assert [each["name"] for each in events(piped.stdout.decode())] == ["startup_complete", "producer_send_success"]
    assert stock_count(cluster, topic) < 1_000_000


@pytest.mark.parametrize(
    "arguments",
    [
        ("producer-perf", "t", "--num-records", "0", "--record-size", "1"),
        ("producer-perf", "t", "--num-records", "1"),
        ("producer-perf", "t", "--num-records", "1", "--record-size", "1", "--throughput", "nan"),
        ("producer-perf", "t", "--num-records", "1", "--record-size", "1", "--throughput", "1e-10"),
        ("consumer-perf", "t", "--num-records", "-1"),
        ("e2e-latency", "t", "--acks", "0"),
        ("verifiable-consumer", "t"),
    ],
)
def test_wrong_usage(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert cli(*arguments).code == 2


def test_errors_are_one_line(cli: Cli, topic: str) -> None:
    for arguments, code in (
        (("--payload-file", "/dev/null"), "INVALID_CONFIG"),
        (("--record-size", "1", "--property", "no.such.key=1"), "INVALID_CONFIG"),
        (("--record-size", "2000000", "--property", "max.request.size=3000000"), "MESSAGE_TOO_LARGE"),
    ):
        cli("topics", "create", topic, "--if-not-exists")
        refused = cli("producer-perf", topic, "--num-records", "1", *arguments)
        assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1), refused
        assert refused.err.startswith(f"raylog: {code}: "), refused.err
    for size in (2**28, 2**31):
        assert cli("producer-perf", topic, "--num-records", "1", "--record-size", str(size)).code == 2
