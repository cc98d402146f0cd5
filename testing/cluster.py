"""(shell) A cluster for tests on this machine: a controller and brokers in processes, with faults on demand."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from raylog.actors.data_dir import make_data_dir
from raylog.client.admin.admin_client import AdminClient
from raylog.config.table import broker_configs
from raylog.core.errors import KafkaError
from raylog.metadata.voters import FIRST_VOTER_ID
from raylog.testing.proxy import HOST, Proxy

NAME = "tests"
HEALTHY_SECONDS = 60.0
"""How long to wait for brokers that were told to serve."""
CONFIG: Mapping[str, str] = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "2000",
}
"""What makes small clusters quick, below the configuration of the test."""
T = TypeVar("T")


class Node:
    """A process. `begin` starts it, `serve` gives it its work."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def begin(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "raylog.testing.node"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def serve(self, spec: Mapping[str, Any]) -> int:
        """The port of its first listener. Raises RuntimeError with the end of its log if it does not start."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(spec) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the node did not start: {self._log.read_text()[-2000:]}")
        return int(line)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, *, kill: bool) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        if kill:
            process.kill()
        else:
            process.send_signal(signal.SIGCONT)
            with suppress(BrokenPipeError):
                process.stdin.close()
        try:
            process.wait(HEALTHY_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        self._process = None


class TestCluster:
    """A cluster of raylog without Ray, a process for each node.

    Open from `__init__`, when all brokers serve, to `stop`; a context manager.

    Clients connect through a proxy for each broker, so that its address stays while it is killed and started again.
    """

    __test__ = False  # this is no test

    def __init__(self, path: Path, *, brokers: int = 1, config: Mapping[str, str] | None = None) -> None:
        """`path` is an empty directory. `config` is Kafka's broker configuration. Raises ConfigError, RuntimeError."""
        replicas = str(min(brokers, 3))
        internal = {"offsets.topic.replication.factor": replicas, "transaction.state.log.replication.factor": replicas}
        self._config = {**CONFIG, **internal, "transaction.state.log.min.isr": "1", **(config or {})}
        broker_configs(self._config)  # before anything is started
        self._data_dir = path / "data"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="raylog-proxies", daemon=True)
        self._controller = Node(path / "controller-0.log")
        self._brokers = [Node(path / f"broker-{number}.log") for number in range(brokers)]
        self._proxies = [Proxy() for _ in range(brokers)]
        self._paused: set[int] = set()
        self._thread.start()
        try:
            make_data_dir(str(self._data_dir), name=NAME, brokers=brokers, controllers=1)
            for node in (self._controller, *self._brokers):
                node.begin()
            for proxy in self._proxies:
                self._run(proxy.start())
            self._controller_port = self._controller.serve(self._spec(FIRST_VOTER_ID))
            for number in range(brokers):
                self._serve(number)
            self._wait_until_healthy()
        except BaseException:
            self.stop(kill=True)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """host:port of each broker, for any client."""
        return ",".join(f"{HOST}:{proxy.port}" for proxy in self._proxies)

    @property
    def broker_ids(self) -> Sequence[int]:
        return range(len(self._brokers))

    def stop(self, *, kill: bool = False) -> None:
        """End all processes: brokers first, cleanly unless `kill`."""
        for node in (*self._brokers, self._controller):
            node.end(kill=kill)
        for proxy in self._proxies:
            self._run(proxy.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- faults

    def kill(self, broker: int = 0) -> None:
        """Kill the process with SIGKILL. `start` starts it again, with its data."""
        self._brokers[broker].end(kill=True)
        self._paused.discard(broker)
        self._proxies[broker].target = 0
        self._call(self._proxies[broker].drop)

    def start(self, broker: int = 0) -> None:
        """Start a broker that was killed; does nothing if it runs."""
        if not self._brokers[broker].is_running:
            self._brokers[broker].begin()
            self._serve(broker)

    def pause(self, broker: int = 0) -> None:
        """Stop the process with SIGSTOP: connections stay open, and nothing is answered, until `resume`."""
        self._brokers[broker].signal(signal.SIGSTOP)
        self._paused.add(broker)

    def resume(self, broker: int = 0) -> None:
        self._brokers[broker].signal(signal.SIGCONT)
        self._paused.discard(broker)

    def slow(self, broker: int = 0, *, seconds: float) -> None:
        """Delay what is sent to the broker and by it by so many seconds each, until it is 0 again."""
        self._proxies[broker].delay_seconds = seconds

    def refuse(self, broker: int = 0) -> None:
        """Close all connections of clients and refuse new ones, until `accept`; other brokers reach it."""
        self._call(self._proxies[broker].refuse)

    def accept(self, broker: int = 0) -> None:
        self._run(self._proxies[broker].start())

    def heal(self) -> None:
        """End all faults, and wait until every broker serves."""
        for broker in self.broker_ids:
            if broker in self._paused:
                self.resume(broker)
            self.slow(broker, seconds=0)
            self.accept(broker)
            self.start(broker)
        self._wait_until_healthy()

    # --- internals

    def _spec(self, node_id: int, **more: Any) -> dict[str, Any]:
        config = {"listeners": f"PLAINTEXT://{HOST}:0", **self._config}
        return {"name": NAME, "data_dir": str(self._data_dir), "node_id": node_id, "config": config, **more}

    def _serve(self, broker: int) -> None:
        proxy = self._proxies[broker]
        spec = self._spec(broker, controller_port=self._controller_port)
        spec["config"]["advertised.listeners"] = f"PLAINTEXT://{HOST}:{proxy.port}"
        proxy.target = self._brokers[broker].serve(spec)

    def _wait_until_healthy(self) -> None:
        """Raises TimeoutError."""
        deadline = time.monotonic() + HEALTHY_SECONDS
        with AdminClient(bootstrap_servers=self.bootstrap_servers, client_id="raylog-testing") as admin:
            while True:
                with suppress(KafkaError):
                    if len(admin.describe_cluster(timeout=5).nodes) == len(self._brokers):
                        return
                if time.monotonic() > deadline:
                    raise TimeoutError("brokers do not serve")
                time.sleep(0.02)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(HEALTHY_SECONDS)

    def _call(self, work: Any) -> None:
        async def calling() -> None:
            work()

        self._run(calling())
