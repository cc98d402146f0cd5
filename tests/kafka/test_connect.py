"""Three workers of Kafka Connect copy files through topics, while workers and brokers are killed.

Sources are exactly-once: each line of a file is in its topic once. Sinks write each line at least once. Connectors are
made, stopped and removed by REST at any worker, and their offsets are read and reset.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from raylog.logstore.checkpoint import CLEANER_OFFSET_FILE
from tests.kafka.history import consume
from tests.support.forms import by_form
from tests.support.hang import wait_until
from tests.support.java_process import JavaProcess, killed_at_the_end, write_properties
from tests.support.node_cluster import COUNT, NodeCluster
from tests.support.ports import free_ports

pytestmark = pytest.mark.kafka

ROUNDS = by_form(1, long=10)
PAIRS = 3
"""Sources, each with a file and a topic, and sinks, each with a topic and a file."""
PARTITIONS = 3
LINES_PER_SECOND = 100
"""Of each file."""
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
TRANSFORMS = "org.apache.kafka.connect.transforms"
REST_SECONDS = 30.0


def worker_settings(cluster: NodeCluster, port: int) -> dict[str, object]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "workers",
        "listeners": f"http://127.0.0.1:{port}",
        "rest.advertised.host.name": "127.0.0.1",
        "plugin.discovery": "service_load",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "exactly.once.source.support": "enabled",
        "config.storage.topic": "connect-configs",
        "offset.storage.topic": "connect-offsets",
        "offset.storage.partitions": PARTITIONS,
        "offset.storage.segment.ms": 1000,
        "offset.storage.min.cleanable.dirty.ratio": 0.01,
        "status.storage.topic": "connect-status",
        "offset.flush.interval.ms": 1000,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "scheduled.rebalance.max.delay.ms": 1000,
        "consumer.session.timeout.ms": 6000,
        "consumer.heartbeat.interval.ms": 1000,
    }


class Workers:
    """Three of them, and the REST interface of each."""

    def __init__(self, cluster: NodeCluster, path: Path) -> None:
        self.ports = list(free_ports(COUNT))
        self.restarted = 0
        """Connectors with failed tasks."""
        self.processes = []
        for number, port in enumerate(self.ports):
            folder = path / f"worker-{number}"
            file = write_properties(folder / "worker.properties", worker_settings(cluster, port))
            self.processes.append(JavaProcess(folder, "org.apache.kafka.connect.cli.ConnectDistributed", file))

    def call(self, method: str, path: str, body: object = None, *, worker: int | None = None) -> Any:
        """The answer of this worker, or of any that runs, once it has one: while the workers rebalance they refuse."""
        if worker is None:
            worker = next(number for number, process in enumerate(self.processes) if process.running)
        found: list[Any] = []
        problem = ""

        def answered() -> bool:
            nonlocal problem
            request = urllib.request.Request(
                f"http://127.0.0.1:{self.ports[worker]}/{path}",
                data=None if body is None else json.dumps(body).encode(),
                headers={"Content-Type": "application/json"},
                method=method,
            )
            try:
                with urllib.request.urlopen(request, timeout=REST_SECONDS) as response:
                    text = response.read()
            except urllib.error.HTTPError as error:
                problem = f"{error.code}: {error.read().decode()}"
                return False
            except OSError as error:
                problem = repr(error)
                return False
            found.append(json.loads(text) if text else None)
            return True

        wait_until(answered, lambda: f"{method} {path} at worker {worker}: {problem}", pause=0.5)
        return found[0]

    def restart_failed(self) -> None:
        """As an operator does: the task of a source fails if a broker ends while it starts."""
        for connector, told in self.call("GET", "connectors?expand=status").items():
            if any(task["state"] == "FAILED" for task in told["status"]["tasks"]):
                self.restarted += 1
                self.call("POST", f"connectors/{connector}/restart?includeTasks=true&onlyFailed=true")

    def wait_until_running(self, connector: str) -> int:
        """The number of the worker that runs its task."""
        status: dict[str, Any] = {}

        def running() -> bool:
            self.restart_failed()
            status.update(self.call("GET", f"connectors/{connector}/status"))
            states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
            return states == ["RUNNING"] * 2 and self.processes[self._number(status)].running

        wait_until(running, lambda: f"{connector}: {status}", pause=0.5)
        return self._number(status)

    def _number(self, status: dict[str, Any]) -> int:
        return self.ports.index(int(status["tasks"][0]["worker_id"].rpartition(":")[2]))


class Files:
    """Lines are added to each source's file until `stop`."""

    def __init__(self, path: Path) -> None:
        self.sources = [path / f"source-{number}.txt" for number in range(PAIRS)]
        self.sinks = [path / f"sink-{number}.txt" for number in range(PAIRS)]
        self.given = 0
        """Lines in each file."""
        for path in self.sources:
            path.touch()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for number, path in enumerate(self.sources):
                with path.open("a") as file:
                    file.writelines(f"{number}-{self.given + line}\n" for line in range(LINES_PER_SECOND // 10))
            self.given += LINES_PER_SECOND // 10

    def expected(self, number: int) -> list[str]:
        return [f"{number}-{line}" for line in range(self.given)]

    def written(self, number: int) -> list[str]:
        path = self.sinks[number]
        return path.read_text().splitlines() if path.exists() else []

    def until_written(self, workers: Workers, numbers: Sequence[int] = range(PAIRS)) -> None:
        """Until all that was given before the call is in the files of the sinks."""
        given = {number: set(self.expected(number)) for number in numbers}
        missing: list[str] = []

        def written() -> bool:
            workers.restart_failed()
            missing[:] = [line for number in numbers for line in given[number] - set(self.written(number))]
            return not missing

        wait_until(written, lambda: f"not written: {sorted(missing)[:10]}", pause=0.5)


def source_config(files: Files, number: int) -> dict[str, object]:
    """Lines become objects with a second field; another transform changes the topic's name."""
    return {
        "connector.class": FILE_SOURCE,
        "tasks.max": 1,
        "file": str(files.sources[number]),
        "topic": f"source-{number}",
        "exactly.once.support": "required",
        "topic.creation.default.replication.factor": COUNT,
        "topic.creation.default.partitions": PARTITIONS,
        "transforms": "object,origin,topic",
        "transforms.object.type": f"{TRANSFORMS}.HoistField$Value",
        "transforms.object.field": "line",
        "transforms.origin.type": f"{TRANSFORMS}.InsertField$Value",
        "transforms.origin.static.field": "origin",
        "transforms.origin.static.value": f"file {number}",
        "transforms.topic.type": f"{TRANSFORMS}.RegexRouter",
        "transforms.topic.regex": "source-(.*)",
        "transforms.topic.replacement": "lines-$1",
    }


def sink_config(files: Files, number: int) -> dict[str, object]:
    return {
        "connector.class": FILE_SINK,
        "tasks.max": 1,
        "file": str(files.sinks[number]),
        "topics": f"lines-{number}",
        "consumer.override.isolation.level": "read_committed",
        "consumer.override.auto.offset.reset": "earliest",
        "consumer.override.allow.auto.create.topics": "false",  # the source creates it, as it wants it
        "consumer.override.metadata.max.age.ms": 1000,
        "transforms": "line",
        "transforms.line.type": f"{TRANSFORMS}.ExtractField$Value",
        "transforms.line.field": "line",
    }


def test_files_are_copied_through_topics(cluster: NodeCluster, tmp_path: Path, say: Callable[[str], None]) -> None:
    workers, files = Workers(cluster, tmp_path), Files(tmp_path)
    began = time.monotonic()
    with killed_at_the_end(workers.processes):
        for process in workers.processes:
            process.start()
        plugins = {plugin["class"] for plugin in workers.call("GET", "connector-plugins")}
        assert {FILE_SOURCE, FILE_SINK} <= plugins
        for number in range(PAIRS):
            workers.call("PUT", f"connectors/source-{number}/config", source_config(files, number), worker=number)
            workers.call("PUT", f"connectors/sink-{number}/config", sink_config(files, number), worker=number - 1)
        files.until_written(workers)
        for _ in range(ROUNDS):
            kill_a_worker(workers, files)
            kill_a_broker(cluster, workers, files)
        files.stop()
        files.until_written(workers)
        reset_a_sink(workers, files)
        check_offsets_of_a_source(workers, files)
        for number in range(PAIRS):
            workers.call("DELETE", f"connectors/source-{number}", worker=number)
        wait_until(
            lambda: not any(name.startswith("source") for name in workers.call("GET", "connectors", worker=2)),
            lambda: "connectors are left",
        )
        for process in workers.processes:
            process.stop()
    seconds = time.monotonic() - began
    repeated = sum(len(files.written(number)) for number in range(1, PAIRS)) - (PAIRS - 1) * files.given
    kills = f"{ROUNDS} workers and {ROUNDS} brokers killed in {seconds:.0f} s"
    say(
        f"{kills}, {workers.restarted} failed tasks restarted; {PAIRS} files of {files.given} lines; "
        f"sinks repeated {repeated} lines"
    )
    cluster.wait_until_healthy("connect-offsets")
    for number in range(PAIRS):
        assert lines_in_topic(cluster, number) == Counter(files.expected(number))
        assert set(files.written(number)) == set(files.expected(number))
    cleaned = "".join(path.read_text() for path in cluster.data_dir.glob(f"broker-*/{CLEANER_OFFSET_FILE}"))
    assert "connect-offsets" in cleaned


def kill_a_worker(workers: Workers, files: Files) -> None:
    """The one that runs a source; another takes over."""
    victim = workers.wait_until_running("source-0")
    workers.processes[victim].kill()
    assert workers.wait_until_running("source-0") != victim
    files.until_written(workers)
    workers.processes[victim].start()
    files.until_written(workers)


def kill_a_broker(cluster: NodeCluster, workers: Workers, files: Files) -> None:
    broker = cluster.leader("connect-offsets")
    broker.kill()
    files.until_written(workers)
    cluster.start([broker])
    files.until_written(workers)


def reset_a_sink(workers: Workers, files: Files) -> None:
    """Without its offsets a sink writes its whole topic again."""
    workers.call("PUT", "connectors/sink-0/stop")
    wait_until(
        lambda: workers.call("GET", "connectors/sink-0/status")["connector"]["state"] == "STOPPED",
        lambda: "the sink was not stopped",
    )
    files.sinks[0].unlink()
    workers.call("DELETE", "connectors/sink-0/offsets", worker=1)
    assert workers.call("GET", "connectors/sink-0/offsets", worker=2) == {"offsets": []}
    workers.call("PUT", "connectors/sink-0/resume", worker=2)
    files.until_written(workers, [0])


def check_offsets_of_a_source(workers: Workers, files: Files) -> None:
    """They are the position in the file."""
    [offset] = workers.call("GET", "connectors/source-1/offsets", worker=1)["offsets"]
    assert offset["offset"] == {"position": files.sources[1].stat().st_size}


def lines_in_topic(cluster: NodeCluster, number: int) -> Counter[str]:
    values = [
        json.loads(row.value or b"")
        for partition in range(PARTITIONS)
        for row in consume(cluster, f"lines-{number}", isolation_level="read_committed", partition=partition)
    ]
    assert {value["origin"] for value in values} == {f"file {number}"}
    return Counter(value["line"] for value in values)
