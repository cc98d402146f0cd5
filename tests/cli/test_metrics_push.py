"""Metrics are pushed to OTLP receivers; one that fails costs nothing, and gets new values when it works again."""

from __future__ import annotations

import asyncio
import gzip
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from raylog.actors import ray_metrics
from raylog.cli.metrics_push import OtlpTarget, otlp_target, push, send_otlp
from raylog.core.errors import ConfigError
from raylog.protocol import otlp_export
from raylog.protocol.otlp_messages import message_class
from raylog.transport.cluster_metrics import ClusterMetrics
from tests.support.cluster_thread import cluster_thread
from tests.support.hang import HANG_SECONDS
from tests.support.ports import free_port, free_ports

TEXT = """# HELP process_start_time_seconds Start.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1700000000.5
# HELP read_total Bytes
# TYPE read_total counter
read_total{topic="a \\"b\\"\\\\",node="x"} 7
read_total{topic="c"} 8.5
# TYPE nothing gauge
nothing NaN
"""
Point = tuple[str, str, bool, dict[str, str], float]


class Receiver:
    """Keeps what it was sent, and answers with `status`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.status = 200
        self.received: list[tuple[Mapping[str, str], Any]] = []
        self.arrived = threading.Event()

    def points(self) -> list[Point]:
        return [point for _, request in self.received for point in points_of(request)]


def points_of(request: Any) -> Iterator[Point]:
    """(node, metric, is a counter, labels, value) of each data point."""
    for resource in request.resource_metrics:
        own = {each.key: each.value.string_value for each in resource.resource.attributes}
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            is_counter = metric.WhichOneof("data") == "sum"
            for point in (metric.sum if is_counter else metric.gauge).data_points:
                labels = {each.key: each.value.string_value for each in point.attributes}
                yield own["service.instance.id"], metric.name, is_counter, labels, point.as_double


@contextmanager
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = gzip.decompress(self.rfile.read(int(self.headers["content-length"])))
            found.received.append((dict(self.headers), message_class("MetricsData").FromString(body)))
            found.arrived.set()
            self.send_response(found.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Receiver(f"http://127.0.0.1:{server.server_address[1]}/v1/metrics")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_series_become_data_points() -> None:
    with receiver() as target:
        send_otlp(OtlpTarget(target.url, {"authorization": "Bearer t"}), "shop", {"broker-0": TEXT})
        assert target.points() == [
            ("broker-0", "process_start_time_seconds", False, {}, 1_700_000_000.5),
            ("broker-0", "read_total", True, {"topic": 'a "b"\\', "node": "x"}, 7),
            ("broker-0", "read_total", True, {"topic": "c"}, 8.5),
        ]
        headers, request = target.received[0]
        assert headers["Authorization"] == "Bearer t"
        assert headers["Content-Type"] == "application/x-protobuf"
        counter = request.resource_metrics[0].scope_metrics[0].metrics[1]
        assert (counter.description, counter.sum.is_monotonic, counter.sum.aggregation_temporality) == (
            "Bytes",
            True,
            2,
        )
        assert counter.sum.data_points[0].start_time_unix_nano == 1_700_000_000_500_000_000
        assert counter.sum.data_points[0].time_unix_nano > 1_700_000_000_500_000_000


def test_many_series_are_sent_in_requests_of_bounded_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_export, "POINTS_MAX", 10)
    text = "# TYPE a gauge\n" + "".join(f'a{{x="{number}"}} {number}\n' for number in range(25))
    with receiver() as target:
        send_otlp(OtlpTarget(target.url, {}), "shop", {"broker-0": text})
        assert [len(list(points_of(request))) for _, request in target.received] == [10, 10, 5]
        assert [value for *_, value in target.points()] == list(range(25))


@pytest.mark.parametrize("status", [500, 429])
def test_a_receiver_that_fails_is_sent_the_newest_later(status: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="raylog.cli")

    async def run(target: Receiver) -> None:
        metrics, sent = ClusterMetrics(), 0
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def send(texts: Mapping[str, str]) -> None:
            nonlocal sent
            sent += 1
            if sent == 4:
                loop.call_soon_threadsafe(ended.set)
            target.status = status if sent <= 2 else 200
            send_otlp(OtlpTarget(target.url, {}), "shop", {**texts, "broker-0": f"a {sent}\n"})

        pushing = asyncio.create_task(push(metrics, 0.0, target.url, send))
        async with asyncio.timeout(HANG_SECONDS):
            await ended.wait()
        pushing.cancel()

    with receiver() as target:
        asyncio.run(run(target))
        assert 3.0 in [point[-1] for point in target.points()]
    shown = [record.message for record in caplog.records]
    assert shown == ["metrics not pushed", "metrics pushed again"]


@pytest.mark.parametrize(
    ("url", "headers", "message"),
    [
        ("collector:4318", "", "--otlp collector:4318: must be a URL"),
        ("file:///etc/passwd", "", "must be a URL"),
        ("http://h/v1/metrics", "token", "OTEL_EXPORTER_OTLP_HEADERS: must be key=value"),
    ],
)
def test_refused_targets(url: str, headers: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        otlp_target(url, headers)


def test_headers_are_read_as_by_the_exporters_of_opentelemetry() -> None:
    assert otlp_target("https://h/x", "a=b%20c, d=e=f ").headers == {"a": "b c", "d": "e=f"}


def test_the_command_pushes_what_nodes_show(tmp_path_factory: pytest.TempPathFactory) -> None:
    ports = free_ports(2)  # the broker takes one of them, and the controller the other
    config = {"raylog.metrics.address": f"127.0.0.1:{ports[0]}-{ports[-1]}"}
    with cluster_thread(config, tmp_path_factory.mktemp("push")), receiver() as target:
        nodes = {f"node-{number}": f"127.0.0.1:{port}" for number, port in enumerate(ports)}
        nodes["gone"] = f"127.0.0.1:{free_port()}"
        options = [option for node, address in nodes.items() for option in ("--target", f"{node}={address}")]
        command = [sys.executable, "-m", "raylog.cli.main", "metrics", "--name", "shop", "--otlp", target.url, *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                while len({node for node, *_ in target.points()}) < 3:
                    target.arrived.clear()
                    assert target.arrived.wait(HANG_SECONDS)
                process.terminate()
                assert process.wait(HANG_SECONDS) == 0
            finally:
                process.kill()
        points = target.points()
    shown = {(node, name, *labels.values()): (is_counter, value) for node, name, is_counter, labels, value in points}
    assert [shown["cluster", "raylog_node_up", node] for node in nodes] == [(False, 1), (False, 1), (False, 0)]
    names = {name: is_counter for _, name, is_counter, _, _ in points}
    assert names["kafka_server_brokertopicmetrics_bytesin_total"] is True


def test_ray_is_shown_what_nodes_have_and_not_what_there_are_many_of(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: dict[tuple[str, ...], float] = {}

    class Gauge:
        """As ray.util.metrics.Gauge."""

        def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
            self._name, self._keys = name, set(tag_keys)

        def set(self, value: float, tags: dict[str, str]) -> None:
            assert tags.keys() == self._keys
            shown[self._name, *sorted(tags.values())] = value

    monkeypatch.setattr("ray.util.metrics.Gauge", Gauge)
    monkeypatch.setattr(ray_metrics, "SERIES_MAX", 4)
    text = '# HELP kafka_x X\n# TYPE kafka_x gauge\nkafka_x{door="tcp"} 7\nkafka_x{door="unix"} 8\n'
    text += 'kafka_y{topic="a"} 1\nraylog_z 5\n'
    metrics = ray_metrics.RayMetrics("shop")
    metrics.show({"cluster": 'raylog_node_up{node="broker-0"} 1\n', "broker-0": text, "broker-1": text})
    metrics.show({"broker-0": text.replace("7", "9")})
    assert shown == {
        ("raylog_node_up", "broker-0", "shop"): 1,
        ("raylog_kafka_x", "broker-0", "shop", "tcp"): 9,
        ("raylog_kafka_x", "broker-0", "shop", "unix"): 8,
        ("raylog_z", "broker-0", "shop"): 5,
    }
