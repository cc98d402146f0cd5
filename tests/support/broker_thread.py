"""The production broker behind its real sockets, in a thread of this process with an event loop of its own."""

from __future__ import annotations

import asyncio
import secrets
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import uvloop

from raylog.broker.broker import Broker, BrokerIdentity
from raylog.broker.config import broker_configs
from raylog.broker.listener import BrokerServer, now
from raylog.broker.listeners import plan_listeners
from raylog.core.ids import BrokerId
from raylog.logstore.disk import RealDisk

T = TypeVar("T")
START_SECONDS = 10.0
STOP_SECONDS = 10.0


def cluster_id_of(path: Path) -> str:
    """Each directory is a cluster of its own: several brokers with the id 0 may run on a machine, even in a process."""
    return urlsafe_b64encode(sha256(str(path).encode()).digest()[:16]).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """`broker` belongs to its thread: look at it, and change nothing but by `do`."""

    bootstrap_servers: str
    broker: Broker
    log_path: Path
    loop: asyncio.AbstractEventLoop

    @property
    def cluster_id(self) -> str:
        return self.broker.identity.cluster_id

    def do(self, act: Callable[[], T]) -> T:
        """`act` in the broker's thread, between two of its events."""

        async def acting() -> T:
            return act()

        return asyncio.run_coroutine_threadsafe(acting(), self.loop).result(START_SECONDS)


@contextmanager
def broker_thread(config: Mapping[str, Any], path: Path) -> Iterator[RunningBroker]:
    """A broker over the log directory `path`, on a free port of 127.0.0.1; stopped cleanly when the block ends.

    An invariant that breaks while it runs is raised at the end of the block.
    """
    violations: list[BaseException] = []
    configs = broker_configs({"listeners": "PLAINTEXT://127.0.0.1:0", **config})
    identity = BrokerIdentity(BrokerId(0), cluster_id_of(path), uuid4(), secrets.token_bytes(32))
    broker = Broker(identity, configs, RealDisk(), str(path), new_id=uuid4, new_nonce=secrets.token_bytes, now=now())
    server = BrokerServer(broker, plan_listeners(configs), on_failure=violations.append)
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="broker", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(START_SECONDS)
        try:
            shown = next(iter(broker.endpoints.values()))
            yield RunningBroker(f"{shown.host}:{shown.port}", broker, path, loop)
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(STOP_SECONDS)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_SECONDS)
        loop.close()
    if violations:
        raise violations[0]
