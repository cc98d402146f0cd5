"""(shell) A real Apache Kafka for tests: one combined broker and controller, in the test's own folder.

Formatted at construction; `start`, then `stop` or `kill`, any number of times, on the same data. All listeners are on
127.0.0.1. `kafka_peer` ends the process by its id, so that it does not outlive the test.
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

ROOT = Path(__file__).resolve().parent.parent.parent
NODE_ID = 1
PROBE_SECONDS = 1.0
START_SECONDS = 120.0
STOP_SECONDS = 120.0
TOOL_SECONDS = 120.0

KAFKA_VERSION = "4.1.0"
NEWER_KAFKA_VERSION = "4.2.0"
"""The first one with streams groups that are ready for use."""
JAVA_OPTIONS = ("-Xmx384m", "-XX:TieredStopAtLevel=1")
"""They start quickly, and use little memory."""
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.index.size.max.bytes": "65536",  # while a segment is active its indexes have this size
    "log.retention.ms": "-1",  # the timestamps of tests are old
    "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
}


class KafkaPeer:
    """Its data is in `log_dir`, the controller's next to it. For one test at a time."""

    def __init__(
        self, path: Path, settings: Mapping[str, str] | None = None, java_options: Sequence[str] = JAVA_OPTIONS
    ) -> None:
        self.path = path
        self.log_dir = path / "logs"
        self.cluster_id = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        self._settings = dict(settings or {})
        self._java_options = java_options
        self._config = path / "server.properties"
        self._output = path / "server.out"
        self._process: subprocess.Popen[bytes] | None = None
        path.mkdir(parents=True, exist_ok=True)
        self._configure()
        java("kafka.tools.StorageTool", "format", f"--cluster-id={self.cluster_id}", "-c", str(self._config))

    def _configure(self) -> None:
        port, controller_port = _free_ports()
        self.bootstrap_servers = f"127.0.0.1:{port}"
        settings = _SETTINGS | {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller_port}",
            "log.dirs": str(self.log_dir),
            "metadata.log.dir": str(self.path / "metadata"),
            **self._settings,
        }
        self._config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def start(self) -> None:
        """Start the broker; it serves when this returns. Uses new ports, since the old ones may be taken."""
        assert self._process is None
        self._configure()
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                java_command("kafka.Kafka", str(self._config), options=self._java_options),
                cwd=self.path,
                stdout=output,
                stderr=output,
                env=os.environ | {"LC_ALL": "C.UTF-8"},
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"Kafka does not start:\n{self.log()[-4000:]}")

    def _serves(self) -> bool:
        host, _, port = self.bootstrap_servers.partition(":")
        try:
            socket.create_connection((host, int(port)), timeout=PROBE_SECONDS).close()
            return NODE_ID in self.admin().list_topics(timeout=PROBE_SECONDS).brokers
        except (OSError, KafkaException):
            time.sleep(0.1)
            return False

    def stop(self) -> None:
        """Stop the broker cleanly."""
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(signal.SIGTERM)
        code = process.wait(STOP_SECONDS)
        assert code == 128 + signal.SIGTERM, f"Kafka ended with {code}:\n{self.log()[-4000:]}"

    def kill(self) -> None:
        """Kill the broker with SIGKILL if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int:
        """Of the running broker."""
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """All of its output."""
        return self._output.read_text(errors="replace")

    def partition_path(self, topic: str, partition: int = 0) -> Path:
        return self.log_dir / f"{topic}-{partition}"


@contextmanager
def kafka_peer(
    path: Path, settings: Mapping[str, str] | None = None, java_options: Sequence[str] = JAVA_OPTIONS
) -> Iterator[KafkaPeer]:
    """Formatted and not yet started. It is stopped at the end of the block in any case."""
    peer = KafkaPeer(path, settings, java_options)
    try:
        yield peer
    finally:
        peer.kill()


def dump_log_segments(*files: Path, options: tuple[str, ...] = ()) -> str:
    """The output of Kafka's own tool for the files: first their content, then errors, if any.

    It reports errors on stderr, not by its exit code.
    """
    names = ",".join(map(str, files))
    return java("kafka.tools.DumpLogSegments", "--files", names, *options)


def java(main_class: str, *arguments: str) -> str:
    """Runs one of Kafka's tools, which must succeed. Returns its output without its log."""
    done = subprocess.run(
        java_command(main_class, *arguments), capture_output=True, text=True, timeout=TOOL_SECONDS, check=False
    )
    assert done.returncode == 0, f"{main_class} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout + "".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("["))


def java_command(
    main_class: str,
    *arguments: str,
    class_paths: Sequence[str] = (),
    options: Sequence[str] = JAVA_OPTIONS,
    version: str = KAFKA_VERSION,
) -> list[str]:
    """With `class_paths` before Kafka's own, and these options of the virtual machine."""
    return ["java", *options, "-cp", ":".join([*class_paths, class_path(version)]), main_class, *arguments]


@cache
def class_path(version: str = KAFKA_VERSION) -> str:
    """The class path from script/kafka, which needs Maven only the first time."""
    command = [str(ROOT / "script" / "kafka"), version]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
