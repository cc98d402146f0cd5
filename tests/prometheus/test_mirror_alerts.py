"""Each alert for mirrors fires under the fault that it describes, and no other does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from confluent_kafka import Producer

from raylog.client.admin.admin_client import AdminClient
from raylog.core.ids import TopicPartition
from raylog.mirror.metrics import scrape
from tests.client.served import Target
from tests.mirror.conftest import CONFIG
from tests.mirror.flows import RunningFlow, create, ends, flow_between, running
from tests.prometheus.server import Prometheus, prometheus, why_not
from tests.support.cluster_thread import cluster_thread

pytestmark = [pytest.mark.prometheus, pytest.mark.skipif(bool(why_not()), reason=why_not())]
QUIET_SECONDS = 6.0


@contextmanager
def shown() -> Iterator[tuple[str, list[RunningFlow]]]:
    """(host:port, the flows whose metrics are there)."""
    flows: list[RunningFlow] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = "".join(scrape(0, [flow.status() for flow in flows])).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", flows
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def produce(cluster: Target, topic: str, count: int = 1) -> None:
    producer = Producer({"bootstrap.servers": cluster.plain})
    for _ in range(count):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(20) == 0


def write_until(ended: threading.Event, cluster: Target, topic: str) -> None:
    while not ended.wait(0.2):
        produce(cluster, topic)


def expect(server: Prometheus, *alerts: str) -> None:
    server.wait_for(f"expected {sorted(alerts)}", lambda: server.firing() == set(alerts))


def test_each_fault_of_a_mirror_fires_its_alert(tmp_path: Path) -> None:
    with (
        cluster_thread(CONFIG, tmp_path / "east") as one,
        cluster_thread(CONFIG, tmp_path / "west") as other,
        shown() as (address, flows),
        prometheus(tmp_path, [address]) as server,
    ):
        east, west = Target(one.bootstrap_servers), Target(other.bootstrap_servers)
        topic = east.new_topic()
        create(west, f"A.{topic}")
        flow = flow_between(east, west, topics=topic, exactly_once_source_support="enabled")

        produce(east, topic, 3)
        with running(flow) as run:
            flows[:] = [run]
            run.wait_for_end(topic, ends(east, topic))
            server.wait_for("the mirror is scraped", lambda: bool(server.query("raylog_mirror_lag")))
            time.sleep(QUIET_SECONDS)  # idle: the last record is old, and there is no other
            assert server.firing() == set()
            flows.clear()

        with AdminClient(bootstrap_servers=west.plain) as admin:
            admin.delete_topics([f"A.{topic}"])
        with running(flow, has_control=False) as run:
            flows[:] = [run]
            expect(server, "RaylogMirrorNotCopying")
            flows.clear()
        create(west, f"A.{topic}")
        expect(server)

        beats = {"emit_heartbeats_enabled": "true", "heartbeats_topic_replication_factor": "3"}
        with running(flow_between(east, west, topics=topic, aliases=("A", "B"), **beats)) as run:
            flows[:] = [run]
            expect(server, "RaylogMirrorFlowError")
            flows.clear()
        expect(server)

        with running(flow, commit_interval_ms=12_000) as run:
            flows[:] = [run]
            ended = threading.Event()
            writer = threading.Thread(target=write_until, args=(ended, east, topic))
            writer.start()
            try:
                expect(server, "RaylogMirrorBehind")
            finally:
                ended.set()
                writer.join()
                flows.clear()
        expect(server)

        produce(east, topic, 20)
        (end,) = ends(east, topic).values()
        with AdminClient(bootstrap_servers=east.plain) as admin:
            admin.delete_records({TopicPartition(topic, 0): end - 5})
        with running(flow) as run:
            flows[:] = [run]
            expect(server, "RaylogMirrorLostRecords")
            flows.clear()
