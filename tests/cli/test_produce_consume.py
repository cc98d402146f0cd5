"""`raylog consume` prints what `raylog produce` reads from stdin, with keys, nulls, headers and order."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from confluent_kafka import Producer

from raylog.cli.consume import before_ends
from raylog.cli.main import main
from raylog.client.consumer.fetched import ConsumerRecord
from raylog.core.ids import TopicPartition
from raylog.logstore import record_set
from tests.cli.conftest import Cli
from tests.protocol.records.raw_batches import raw_batch, raw_record
from tests.support.cluster_thread import RunningCluster
from tests.support.stable_offset import wait_until_stable
from tests.support.wire import produce


def test_lines_with_keys_headers_and_nulls(cli: Cli, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "1")
    arguments = ("--key-separator", ":", "--null-marker", "NULL", "--header", "source=test", "--header", "e=a=b")
    assert cli("produce", topic, *arguments, stdin=b"k1:v1\nk2:a:b\nNULL:\nk3:NULL") == (0, "", "")
    shown = ("--print-key", "--print-offset", "--print-headers", "--print-partition", "--key-separator", "|")
    assert cli("consume", topic, "--exit-at-end", *shown).out.splitlines() == [
        "Partition:0|Offset:0|source:test,e:a=b|k1|v1",
        "Partition:0|Offset:1|source:test,e:a=b|k2|a:b",
        "Partition:0|Offset:2|source:test,e:a=b|null|",
        "Partition:0|Offset:3|source:test,e:a=b|k3|null",
    ]


def test_lines_end_with_lf_or_crlf(cli: Cli, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "1")
    cli("produce", topic, stdin=b"a\r\nb\n\r\nc\r\r\nd\re\nf\r")
    shown = [json.loads(line)["value"] for line in cli("consume", topic, "-e", "--json").out.splitlines()]
    assert shown == ["a", "b", "", "c\r", "d\re", "f"]


def test_json_keeps_every_byte(cli: Cli, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "1")
    cli("produce", topic, "--key-separator", "=", stdin="ключ=zwei\n".encode() + b"\xff=\x00\xfe\n")
    first, second = (json.loads(line) for line in cli("consume", topic, "-e", "--json").out.splitlines())
    assert (first["topic"], first["partition"], first["offset"]) == (topic, 0, 0)
    assert (first["key"], first["value"], first["headers"], first["timestamp_type"]) == (
        "ключ",
        "zwei",
        [],
        "CreateTime",
    )
    assert (second["key_base64"], second["value_base64"]) == ("/w==", "AP4=")
    assert "value" not in second


def test_keys_choose_the_partitions_of_kafkas_default_partitioner(cli: Cli, topic: str) -> None:
    """Partitions of 21, 22, 23... by Kafka's own murmur2; kafka-python's is a port of it and the judge of more keys."""
    from kafka.partitioner.default import murmur2

    cli("topics", "create", topic, "--partitions", "5")
    keys = [f"key-{number}" * (number % 4) for number in range(40)]
    cli("produce", topic, "--key-separator", ":", stdin="".join(f"{key}:x\n" for key in keys).encode())
    lines = [json.loads(line) for line in cli("consume", topic, "-e", "--json").out.splitlines()]
    assert len(lines) == len(keys)
    for line in lines:
        assert line["partition"] == (murmur2(line["key"].encode()) & 0x7FFFFFFF) % 5


def test_isolation_levels(cli: Cli, cluster: RunningCluster, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "1")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for value, end in (("committed", producer.commit_transaction), ("aborted", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(30) == 0
        end()
    wait_until_stable(cluster.bootstrap_servers, topic)
    cli("produce", topic, stdin=b"plain")
    producer.begin_transaction()
    producer.produce(topic, "open")
    assert producer.flush(30) == 0
    every = ["committed", "aborted", "plain", "open"]
    for level, expected in (((), every[::2]), (("read_committed",), every[::2]), (("read_uncommitted",), every)):
        option = ("--isolation-level", *level) if level else ()
        assert cli("consume", topic, "-e", *option).out.splitlines() == expected
    assert cli("consume", topic, "-e", "--isolation-level", "serializable").code == 2


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_lines_keep_their_order(cli: Cli, topic: str, codec: str) -> None:
    cli("topics", "create", topic, "--partitions", "1")
    text = "".join(f"line {number}\n" for number in range(50_000))
    assert cli("produce", topic, "--compression", codec, stdin=text.encode()).code == 0
    assert cli("consume", topic, "-e").out == text


def test_batches_above_max_message_bytes_are_halved_down_to_one_record(cli: Cli, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "1", "--config", "max.message.bytes=1000")
    lines = [b"%d" % number * 20 for number in range(500)]
    assert cli("produce", topic, stdin=b"\n".join(lines)).code == 0
    assert cli("consume", topic, "-e").out.encode().split() == lines
    refused = cli("produce", topic, stdin=b"x" * 2000)
    assert (refused.code, refused.err.split(": ")[:2]) == (1, ["raylog", "MESSAGE_TOO_LARGE"])


def test_reading_starts_and_ends_where_requested(cli: Cli, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "2")
    for partition in ("0", "1"):
        cli("produce", topic, "--partition", partition, stdin=f"{partition}a\n{partition}b\n{partition}c\n".encode())

    def values(*arguments: str) -> list[str]:
        return sorted(cli("consume", topic, "-e", *arguments).out.split())

    assert values() == ["0a", "0b", "0c", "1a", "1b", "1c"]
    assert values("--partition", "1", "--offset", "1") == ["1b", "1c"]
    assert values("--offset", "-1") == ["0c", "1c"]
    assert values("--offset", "latest") == []
    assert values("--partition", "0", "--max-messages", "2") == ["0a", "0b"]
    assert len(cli("consume", topic, "--max-messages", "5").out.split()) == 5
    assert cli("consume", topic, "--max-messages", "0") == (0, "", "")


def test_records_appended_after_the_start_are_left_out() -> None:
    records = [ConsumerRecord("t", number % 2, number // 2, 0, 0, None, b"", ()) for number in range(8)]
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    assert before_ends({first: 4, second: 4}, {first: 4, second: 4}, records) == records
    left = before_ends({first: 2, second: 4}, {first: 4, second: 4}, records)
    assert [(each.partition, each.offset) for each in left] == [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2), (1, 3)]


def test_without_an_end_it_waits_for_records(cluster: RunningCluster, cli: Cli, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "3")
    command = [sys.executable, "-m", "raylog.cli.main", "consume", topic, "-b", cluster.bootstrap_servers]
    with subprocess.Popen([*command, "--max-messages", "2"], stdout=subprocess.PIPE) as waiting:
        cli("produce", topic, "--partition", "2", stdin=b"first\n")
        cli("produce", topic, "--partition", "0", stdin=b"second\n")
        out, _ = waiting.communicate(timeout=20)
    assert (waiting.returncode, sorted(out.split())) == (0, [b"first", b"second"])


def test_produce_creates_an_unknown_topic_and_consume_refuses_it(cli: Cli, topic: str) -> None:
    unknown = cli("consume", topic, "-e")
    assert (unknown.code, unknown.out, unknown.err.count("\n")) == (1, "", 1)
    assert unknown.err.startswith("raylog: UNKNOWN_TOPIC_OR_PARTITION: ")
    assert cli("produce", topic, stdin=b"made\n").code == 0
    assert cli("consume", topic, "-e").out == "made\n"


def test_malformed_batches_end_it_or_are_skipped(
    cli: Cli, cluster: RunningCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two partitions holds one that an earlier version has accepted, at the same offsets."""
    cli("topics", "create", topic, "--partitions", "2")
    for partition in range(2):
        cli("produce", topic, "--partition", f"{partition}", stdin=b"before\n")
        with monkeypatch.context() as without_scan:
            without_scan.setattr(
                record_set,
                "_check_records",
                lambda batch, header, *_: record_set.CheckedRecordSet(batch, [(0, header)]),
            )
            malformed = bytearray(raw_batch(raw_record(0) + b"garbage", 2))
            produce(cluster, TopicPartition(topic, partition), [malformed])
        cli("produce", topic, "--partition", f"{partition}", stdin=b"behind\n")
    ended = cli("consume", topic, "-e", "--partition", "0")
    assert (ended.code, ended.out) == (1, "before\n")
    assert ended.err.startswith("raylog: CORRUPT_MESSAGE: the batch of offsets 1 to 2 is malformed: ")
    skipped = cli("consume", topic, "-e", "--skip-malformed")
    assert (skipped.code, sorted(skipped.out.split())) == (0, ["before", "before", "behind", "behind"])
    named = {line.split(": skipped: ")[0] for line in skipped.err.splitlines()}
    assert named == {f"raylog: {topic}-0", f"raylog: {topic}-1"}


def test_arguments_need_not_be_text(cli: Cli, topic: str) -> None:
    """An argument with the byte 0xff."""
    byte = os.fsdecode(b"\xff")
    assert cli("produce", topic, "--key-separator", byte, "--header", f"h={byte}", stdin=b"k\xffv\n").code == 0
    shown = json.loads(cli("consume", topic, "-e", "--json").out)
    assert (shown["key"], shown["value"], shown["headers"]) == ("k", "v", [{"key": "h", "value_base64": "/w=="}])
    refused = cli("produce", topic, "--key-separator", byte, stdin=b"v\n")
    assert refused.err == "raylog: INVALID_RECORD: line 1 has no key separator '\\udcff'\n"


def test_closed_standard_streams_are_no_error(cluster: RunningCluster) -> None:
    command = f"{sys.executable} -m raylog.cli.main topics list -b {cluster.bootstrap_servers}"
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        ended = subprocess.run(["bash", "-c", f"{command} {closed}"], capture_output=True, check=False, env=os.environ)
        assert (ended.returncode, ended.stderr) == (0, b""), closed


def test_errors_name_what_is_wrong(cli: Cli, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "1")
    no_separator = cli("produce", topic, "--key-separator", ":", stdin=b"a:1\nb\nc:3\n")
    assert (no_separator.code, no_separator.err) == (1, "raylog: INVALID_RECORD: line 2 has no key separator ':'\n")
    assert cli("consume", topic, "-e").out == "1\n", "what stood before the bad line was sent"
    assert cli("produce", topic, "--partition", "1").err.startswith("raylog: UNKNOWN_TOPIC_OR_PARTITION: ")
    assert cli("consume", topic, "--partition", "1").err.startswith("raylog: UNKNOWN_TOPIC_OR_PARTITION: ")
    beyond = cli("consume", topic, "--offset", "2").err
    assert beyond == f"raylog: OFFSET_OUT_OF_RANGE: {topic}-0: offset 2 is outside 0 to 1\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume",),
        ("consume", "t", "--offset", "somewhere"),
        ("consume", "t", "--max-messages", "-1"),
        ("produce", "t", "--compression", "rar"),
        ("produce", "t", "--header", "noequals"),
        ("unknown",),
    ],
)
def test_a_usage_error_has_exit_code_2(cli: Cli, arguments: tuple[str, ...]) -> None:
    wrong = cli(*arguments)
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("raylog")
    assert wrong.err.count("\n") == 1


@pytest.mark.parametrize("server", ["127.0.0.1:1", "foo..bar:9092", "x" * 64 + ":9092"])
def test_an_unreachable_server_is_a_one_line_error(server: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "list", "--bootstrap-server", server]) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"raylog: NETWORK_EXCEPTION: cannot connect to {server}: ")


def test_a_closed_output_is_no_error(cluster: RunningCluster, cli: Cli, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "1")
    cli("produce", topic, stdin=b"some line\n" * 100_000)
    command = f"{sys.executable} -m raylog.cli.main consume {topic} -b {cluster.bootstrap_servers} -e"
    piped = subprocess.run(
        ["bash", "-c", f"{command} | head -n 1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        timeout=30,
        check=False,
        env=os.environ,
    )
    assert (piped.returncode, piped.stdout, piped.stderr) == (141, b"some line\n", b"")
