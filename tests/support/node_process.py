"""One broker or controller in a process of its own, as the actors start it, but without Ray.

A process finds the controllers by the addresses that it is given, so it may run in a network namespace of its own, and
with the file system of a mount namespace of its own. A test starts it again on the same directory, as Ray would.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import uvloop

from raylog.actors.data_dir import ClusterFiles, create_log_dirs, open_data_dir
from raylog.broker.broker import Broker
from raylog.broker.server import BrokerServer
from raylog.config.log import log_dir_settings
from raylog.config.network import socket_options
from raylog.controller.controller import Controller
from raylog.controller.metrics import scrape
from raylog.core.errors import KafkaError
from raylog.core.ids import BrokerId
from raylog.core.logs import log_to_stderr
from raylog.logstore.cleaner_process import CleanerProcesses
from raylog.logstore.disk import RealDisk
from raylog.logstore.recovery_threads import run_in_threads
from raylog.logstore.start_checks import check_machine
from raylog.metadata.voters import FIRST_VOTER_ID, voter_ids, voter_named
from raylog.transport.endpoints import Endpoint
from raylog.transport.listeners import plan_listeners
from raylog.transport.node import NodeIdentity
from raylog.transport.server import NodeServer
from raylog.transport.system_time import now
from tests.support.hang import HANG_SECONDS
from tests.support.small_segments import with_small_segments

ROOT = Path(__file__).resolve().parent.parent.parent
REFUSED = 3
"""The exit code of a node that cannot start; the reason is the last line of its log."""
VIOLATED = 70
"""The exit code after a broken invariant, as in the actors."""


@dataclass(frozen=True)
class NodeSpec:
    """What a node is started with."""

    cluster: str
    node_id: int
    data_dir: str
    host: str
    port: int
    """For clients; 0 for a controller, which has none."""
    internal_port: int
    controllers: Mapping[int, tuple[str, int]]
    """The internal listener of each controller."""
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        if self.is_controller:
            return f"controller-{self.node_id - FIRST_VOTER_ID}"
        return f"broker-{self.node_id}"

    @property
    def is_controller(self) -> bool:
        return self.node_id >= FIRST_VOTER_ID

    @property
    def path(self) -> Path:
        """Its log directory."""
        return Path(self.data_dir) / self.name


class NodeProcess:
    """One node, which can be started again and again."""

    def __init__(
        self,
        spec: NodeSpec,
        log_path: Path,
        *,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`prefix` is a command that executes the one that follows, such as `ip netns exec`."""
        self.spec = spec
        self.log_path = log_path
        self.prefix = prefix
        self.environment = dict(environment or {})
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process. `wait_until_started` returns when it serves."""
        assert not self.running
        command = [*self.prefix, sys.executable, "-m", "tests.support.node_process", json.dumps(asdict(self.spec))]
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **self.environment},
            )

    def wait_until_started(self) -> None:
        """Raises AssertionError with the end of its log if it does not start."""
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "started\n", f"{self.spec.name} did not start: {self.log()[-2000:]}"

    def refusal(self) -> str:
        """Start the process, which must refuse to, and return the reason that it gives."""
        before = len(self.log())
        self.start()
        code = self.wait()
        said = self.log()[before:]
        assert code == REFUSED, f"{self.spec.name} ended with {code}: {said}"
        return said

    def wait(self) -> int:
        """The exit code of a process that ends by itself."""
        assert self._process is not None
        code = self._process.wait(HANG_SECONDS)
        self._close_pipes()
        return code

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(HANG_SECONDS)
            self._close_pipes()

    def stop(self) -> None:
        """Stop the process cleanly."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self.wait()
        assert code == 0, f"{self.spec.name} ended with {code}: {self.log()[-2000:]}"

    def log(self) -> str:
        """All that its incarnations have logged."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def wait_until_logged(self, text: str, *, after: int = 0) -> str:
        """The first line with `text`, after the first `after` characters of the log."""
        deadline = time.monotonic() + HANG_SECONDS
        while True:
            found = next((line for line in self.log()[after:].splitlines() if text in line), None)
            if found is not None:
                return found
            assert time.monotonic() < deadline, f"{self.spec.name} has not logged {text!r}: {self.log()[after:]}"
            time.sleep(0.05)

    def _close_pipes(self) -> None:
        assert self._process is not None
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _main() -> int:
    log_to_stderr()
    given = json.loads(sys.argv[1])
    controllers = {int(node_id): tuple(where) for node_id, where in given.pop("controllers").items()}
    try:
        uvloop.run(_run(NodeSpec(**given, controllers=controllers)))
    except KafkaError as error:
        sys.stderr.write(f"refused: {error}\n")
        return REFUSED
    return 0


async def _run(spec: NodeSpec) -> None:
    server = await _serve(spec, open_data_dir(spec.data_dir, name=spec.cluster))
    sys.stdout.write("started\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop()


async def _serve(spec: NodeSpec, files: ClusterFiles) -> NodeServer:
    listener = f"PLAINTEXT://{spec.host}:{spec.port}"
    configs = with_small_segments({"listeners": listener, "node.id": spec.node_id, **spec.config})
    *client_listeners, internal = plan_listeners(configs, internal_host=spec.host)
    listeners = [*client_listeners, replace(internal, bind=Endpoint(spec.host, spec.internal_port))]
    identity = NodeIdentity(BrokerId(spec.node_id), files.cluster_id, uuid4(), files.secret)
    log_paths = log_dir_settings(configs).paths or (str(spec.path),)
    disk = RealDisk(check_machine(*log_paths))
    options, voters = socket_options(configs), voter_ids(files.controllers)

    async def resolve(peer: str) -> Endpoint:
        voter = voter_named(peer)
        if voter is None:
            raise OSError(f"{peer} is not a controller")
        return Endpoint(*spec.controllers[voter])

    def fail(_: BaseException) -> None:
        os._exit(VIOLATED)

    node: Broker | Controller
    server: NodeServer
    if spec.is_controller:
        number = spec.node_id - FIRST_VOTER_ID
        node = Controller(
            identity,
            configs,
            disk,
            str(spec.path),
            may_be_new=not files.is_controller_started(number),
            new_id=uuid4,
            new_nonce=secrets.token_bytes,
            now=now(),
            voters=voters,
        )
        server = NodeServer(
            node,
            listeners[-1:],
            options=options,
            resolve=resolve,
            on_failure=fail,
            configs=lambda: configs,
            scrape=partial(scrape, node),
        )
    else:
        create_log_dirs(files, spec.name, log_paths)
        node = Broker(
            identity,
            configs,
            disk,
            log_paths,
            new_id=uuid4,
            new_nonce=secrets.token_bytes,
            now=now(),
            run_all=partial(run_in_threads, log_dir_settings(configs).recovery_threads),
            cleaning=CleanerProcesses(),
            voters=voters,
        )
        server = BrokerServer(node, listeners, options=options, resolve=resolve, on_failure=fail)
    try:
        await server.start()
    except BaseException:
        node.abandon()
        raise
    if spec.is_controller:
        files.mark_controller_started(spec.node_id - FIRST_VOTER_ID)
    return server


if __name__ == "__main__":
    sys.exit(_main())
