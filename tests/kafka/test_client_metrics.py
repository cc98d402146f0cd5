"""kafka-client-metrics makes a subscription, and Kafka's own producer pushes what it asks for (KIP-714)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.test_client_metrics import shown
from tests.support.cluster_thread import cluster_thread
from tests.support.kafka_peer import java

pytestmark = pytest.mark.kafka


def test_the_tool_and_the_producer(tmp_path: Path) -> None:
    with cluster_thread({"raylog.metrics.address": "127.0.0.1:0"}, tmp_path / "raylog") as running:
        servers = running.bootstrap_servers

        def tool(*arguments: str) -> str:
            return java("org.apache.kafka.tools.ClientMetricsCommand", "--bootstrap-server", servers, *arguments)

        producing = ("--metrics", "org.apache.kafka.producer.", "--interval", "60000")
        tool("--alter", "--name", "own", *producing, "--match", "client_software_name=apache-kafka-java")
        described = tool("--describe", "--name", "own")
        assert "interval.ms=60000" in described
        assert "metrics=org.apache.kafka.producer." in described
        assert tool("--list").splitlines()[0] == "own"
        java(
            *("org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", servers),
            *("--topic", "t", "--max-messages", "100"),
        )
        names = {name for _, name in shown(running)}  # of the push with which the producer ends
        assert names
        assert all(name.startswith("kafka_client_producer_") for name in names)
        tool("--delete", "--name", "own")
        assert "own" not in tool("--list").splitlines()
