"""Production brokers and their controller with real sockets, in a thread of this process with one event loop."""

from __future__ import annotations

import asyncio
import secrets
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import uvloop

from raylog.broker.broker import Broker
from raylog.broker.server import BrokerServer
from raylog.config.log import log_dir_settings
from raylog.config.network import SocketOptions
from raylog.controller.controller import Controller
from raylog.core.config import Configs
from raylog.core.ids import BrokerId
from raylog.logstore.disk import RealDisk
from raylog.transport.endpoints import Endpoint
from raylog.transport.listeners import plan_controller_listeners, plan_listeners
from raylog.transport.node import NodeIdentity
from raylog.transport.server import NodeServer, no_peers
from raylog.transport.system_time import now
from tests.support.small_segments import with_small_segments

START_SECONDS = 60.0
STOP_SECONDS = 60.0
CONTROLLER_ID = BrokerId(1000)
T = TypeVar("T")


def cluster_id_of(path: Path) -> str:
    """Each directory has its own cluster id: several brokers with id 0 may run on one machine, even in one process."""
    return urlsafe_b64encode(sha256(str(path).encode()).digest()[:16]).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """`brokers` belong to their thread: read them freely, and change them only by `do`."""

    brokers: Sequence[Broker]
    controller: Controller
    path: Path
    loop: asyncio.AbstractEventLoop

    @property
    def cluster_id(self) -> str:
        return cluster_id_of(self.path)

    @property
    def broker(self) -> Broker:
        """The first broker."""
        return self.brokers[0]

    @property
    def log_path(self) -> Path:
        """The log directory of the first broker."""
        return self.path / "broker-0"

    def do(self, act: Callable[[], T]) -> T:
        """Run `act` in the brokers' thread, between two of their events."""

        async def acting() -> T:
            return act()

        return asyncio.run_coroutine_threadsafe(acting(), self.loop).result(START_SECONDS)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.servers.values())

    @property
    def servers(self) -> dict[int, str]:
        """host:port of each broker."""
        return {broker.identity.node_id: str(next(iter(broker.endpoints.values()))) for broker in self.brokers}

    @property
    def bootstrap_controllers(self) -> str:
        """host:port of the first listener of the controller."""
        return str(next(iter(self.controller.endpoints.values())))

    def partition_path(self, topic: str, partition: int) -> Path:
        """The directory of the partition, on a broker that has a replica."""
        (path,) = self.path.glob(f"broker-*/{topic}-{partition}")
        return path


@contextmanager
def cluster_thread(
    config: Mapping[str, Any],
    path: Path,
    *,
    brokers: int = 1,
    racks: Sequence[str | None] | None = None,
    secret: bytes | None = None,
) -> Iterator[RunningCluster]:
    """A cluster with its log directories in `path`, on free ports of 127.0.0.1; stopped cleanly when the block ends.

    With `log.dirs` there is one broker, which uses them. `racks[i]` is the rack of broker i; `secret` is the
    cluster's, a new one by default.

    An invariant violation while it runs is raised at the end of the block.
    """
    violations: list[BaseException] = []
    secret = secrets.token_bytes(32) if secret is None else secret
    path.mkdir(exist_ok=True)

    def identity(node_id: int) -> NodeIdentity:
        return NodeIdentity(BrokerId(node_id), cluster_id_of(path), uuid4(), secret)

    def configs_on(rack: str | None) -> Configs:
        own = {} if rack is None else {"broker.rack": rack}
        return with_small_segments({"listeners": "PLAINTEXT://127.0.0.1:0", **own, **config})

    configs = configs_on(None)
    listeners, controller_listeners = plan_listeners(configs), plan_controller_listeners(configs)
    controller = Controller(
        identity(CONTROLLER_ID),
        configs,
        RealDisk(),
        str(path / "controller-0"),
        may_be_new=True,
        new_id=uuid4,
        new_nonce=secrets.token_bytes,
        now=now(),
    )
    controller_server = NodeServer(
        controller,
        controller_listeners,
        options=SocketOptions(),
        resolve=no_peers,
        on_failure=violations.append,
        configs=lambda: configs,
    )

    async def resolve(peer: str) -> Endpoint:
        return controller_server.bound[controller_listeners[-1].name]

    made = [
        Broker(
            identity(broker_id),
            configs_on(racks[broker_id] if racks else None),
            RealDisk(),
            log_dir_settings(configs).paths or [str(path / f"broker-{broker_id}")],
            new_id=uuid4,
            new_nonce=secrets.token_bytes,
            now=now(),
        )
        for broker_id in range(brokers)
    ]
    servers = [
        BrokerServer(broker, listeners, options=SocketOptions(), resolve=resolve, on_failure=violations.append)
        for broker in made
    ]
    with _loop_in_thread() as loop, ExitStack() as stops:
        for server in (controller_server, *servers):
            asyncio.run_coroutine_threadsafe(server.start(), loop).result(START_SECONDS)
            stops.callback(
                lambda each: asyncio.run_coroutine_threadsafe(each.stop(), loop).result(STOP_SECONDS), server
            )
        yield RunningCluster(made, controller, path, loop)
    if violations:
        raise violations[0]


@contextmanager
def _loop_in_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="cluster", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_SECONDS)
        loop.close()
