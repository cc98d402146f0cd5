"""`raylog audit` counts logs, prints what the check finds, and exits with code 1 if records are lost."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from raylog.cli.main import main
from raylog.client.audit.interceptors import ConsumerAudit, ProducerAudit
from raylog.client.consumer.consumer import Consumer
from raylog.client.consumer.fetched import ConsumerRecord
from raylog.client.consumer.interceptors import ConsumerInterceptor
from raylog.client.producer.producer import Producer
from tests.cli.conftest import Cli
from tests.support.cluster_thread import RunningCluster

BUCKET_SECONDS = 0.01


class Without(ConsumerInterceptor):
    def __init__(self, lost: bytes) -> None:
        self._lost = lost

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return [record for record in records if record.value != self._lost]


def flow(cluster: RunningCluster, topic: str, *, lost: bytes = b"none") -> None:
    """Ten records from a producer to a consumer."""
    servers: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
    names: dict[str, Any] = {"audit_topic": f"{topic}-audit", "bucket_seconds": BUCKET_SECONDS, **servers}
    with Producer(interceptors=[ProducerAudit(**names)], **servers) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0)
    interceptors = [Without(lost), ConsumerAudit("billing", **names)]
    with Consumer(interceptors=interceptors, auto_offset_reset="earliest", **servers) as consumer:
        consumer.assign([(topic, 0)])
        while consumer.position((topic, 0)) < 10:
            consumer.poll(5.0)


def check(cli: Cli, topic: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Once all buckets are closed."""
    while True:
        result = cli("audit", "check", "--audit-topic", f"{topic}-audit", "--grace", "0", "--json", *options)
        found = json.loads(result.out)
        if not any(tier["pending"] for tier in found["tiers"]):
            return result.code, found


def test_nothing_is_lost(cli: Cli, cluster: RunningCluster, topic: str) -> None:
    cli("topics", "create", topic)
    flow(cluster, topic)
    logged = cli("audit", "log", topic, "--audit-topic", f"{topic}-audit")
    assert logged.code == 0
    assert logged.out.splitlines()[1].split() == [topic, "0", "0", "10", "10"]
    code, found = check(cli, topic)
    assert (code, found["lost"], found["findings"], found["unstamped"]) == (0, 0, [], [])
    assert {tier["tier"]: tier["counted"] for tier in found["tiers"]} == {"producer": 10, "log": 10, "billing": 10}


def test_a_lost_record(cli: Cli, cluster: RunningCluster, topic: str) -> None:
    cli("topics", "create", topic)
    flow(cluster, topic, lost=b"3")
    code, found = check(cli, topic)
    assert (code, found["lost"]) == (1, 1)
    (lost,) = found["findings"]
    assert (lost["topic"], lost["tier"], lost["finding"], lost["records"]) == (topic, "billing", "lost", 1)
    assert lost["first_ranges"] == [{"first": 3, "last": 3, "times": 1}]
    text = cli("audit", "check", "--audit-topic", f"{topic}-audit", "--grace", "0")
    assert text.code == 1
    assert text.out.splitlines()[-1].split() == [topic, lost["bucket"], lost["client"], "billing", "lost", "1", "3"]


def test_topics_and_times_limit_the_check(cli: Cli, cluster: RunningCluster, topic: str) -> None:
    cli("topics", "create", topic)
    flow(cluster, topic, lost=b"3")
    for options in (("--topic", "other"), ("--from", "9999-01-01T00:00:00"), ("--to", "2001-01-01T00:00:00")):
        assert check(cli, topic, *options)[1]["tiers"] == []
    assert check(cli, topic, "--topic", topic, "--from", "2001-01-01T00:00:00")[0] == 1
    shown = cli("audit", "check", "--audit-topic", f"{topic}-audit", "--topic", "other").out
    assert shown.startswith("nothing was counted (")


def test_errors(cli: Cli, topic: str) -> None:
    assert "UNKNOWN_TOPIC_OR_PARTITION" in cli("audit", "check", "--audit-topic", "missing").err
    assert "UNKNOWN_TOPIC_OR_PARTITION" in cli("audit", "log", topic + "-missing").err
    assert cli("audit", "check", "--from", "yesterday").code == 2
    assert cli("audit", "check", "--grace", "-1").code == 2


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="argparse of later Pythons breaks lines in other places")
@pytest.mark.parametrize("action", ["check", "log"])
def test_the_help_is_in_the_documentation(
    action: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/audit.md shows it."""
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        main(["audit", action, "--help"])
    with open("docs/audit.md", encoding="utf-8") as page:
        assert capsys.readouterr().out in page.read()
