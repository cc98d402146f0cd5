"""librdkafka pushes the metrics that a subscription asks for, and stops when it is removed (KIP-714)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from raylog.broker.telemetry_payload import ClientSeries
from raylog.cli.main import main
from raylog.core.metrics import Kind
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import HANG_SECONDS

pytestmark = pytest.mark.compat


def shown(running: RunningCluster) -> dict[tuple[str, str], ClientSeries]:
    """By client id and name."""

    def read() -> dict[tuple[str, str], ClientSeries]:
        found = running.broker.telemetry.shown(running.broker.now_ms)
        return {(dict(labels)["client_id"], each.name): each for labels, series in found for each in series}

    return running.do(read)


def until(done: Callable[[], bool], work: Callable[[], object]) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while not done():
        assert time.monotonic() < deadline
        work()


def test_a_producer_pushes_what_is_asked_for(tmp_path: Path) -> None:
    with cluster_thread({"raylog.metrics.address": "127.0.0.1:0"}, tmp_path / "raylog") as running:
        servers = running.bootstrap_servers
        subscription = ["configs", "alter", "-b", servers, "--client-metrics", "own"]
        values = ["--add", "metrics=*", "--add", "interval.ms=200", "--add", "match=client_id=asked-.*"]
        assert main([*subscription, *values]) == 0
        producers = tuple(Producer({"bootstrap.servers": servers, "client.id": name}) for name in ("asked-1", "other"))

        def work() -> None:
            for producer in producers:
                producer.produce("t", b"x")
                producer.flush(HANG_SECONDS)

        created = "kafka_client_producer_connection_creation_total"
        until(lambda: ("asked-1", created) in shown(running), work)
        found = shown(running)
        assert {client for client, _ in found} == {"asked-1"}
        assert found["asked-1", created].kind is Kind.COUNTER
        assert found["asked-1", created].value >= 1
        assert main([*subscription, *("--delete", "metrics", "--delete", "interval.ms", "--delete", "match")]) == 0
        until(lambda: not shown(running), work)
