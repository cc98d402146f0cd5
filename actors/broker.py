"""The broker as a Ray actor: lifecycle and nothing else. It decides nothing that a client could notice."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from dataclasses import dataclass, field
from uuid import uuid4

import ray

from raylog.actors.data_dir import ClusterFiles, open_data_dir
from raylog.broker import config
from raylog.broker.broker import Broker, BrokerIdentity
from raylog.broker.config import broker_configs
from raylog.broker.listener import BrokerServer, now
from raylog.broker.listeners import plan_listeners, with_ports
from raylog.core.errors import KafkaError
from raylog.core.ids import BrokerId
from raylog.core.logs import log_to_stderr
from raylog.logstore.disk import RealDisk

log = logging.getLogger("raylog.actors.broker")
RESTART_PAUSE_SECONDS = 0.2
RESTART_PAUSE_SECONDS_MAX = 5.0
EXIT_AFTER_VIOLATION = 70
"""EX_SOFTWARE: Ray starts the actor again, and it reloads from its log."""


@dataclass(frozen=True, slots=True)
class BrokerSpec:
    """All a broker actor is made from; Ray keeps it and makes the actor anew from it after a crash."""

    cluster: str
    broker_id: int
    data_dir: str
    config: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker as `raylog status` shows it."""

    id: int
    host: str
    port: int
    pid: int
    node: str
    state: str
    cluster_id: str
    topics: dict[str, int]
    """Partitions by topic."""


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)
class BrokerActor:
    """Starts when it is made; `ready` tells when it serves, or why it cannot."""

    def __init__(self, spec: BrokerSpec) -> None:
        log_to_stderr()
        self._spec = spec
        self._server: BrokerServer | None = None
        self._broker: Broker | None = None
        self._cluster_id = ""
        self._starting = asyncio.get_running_loop().create_task(self._start())

    async def ready(self) -> BrokerStatus:
        """Returns once clients can connect. Raises KafkaError where the configuration or the data forbid it."""
        await asyncio.shield(self._starting)
        return await self.status()

    async def status(self) -> BrokerStatus:
        node = ray.get_runtime_context().get_node_id()
        if self._server is None or self._broker is None:
            return BrokerStatus(self._spec.broker_id, "", 0, os.getpid(), node, "starting", self._cluster_id, {})
        shown = next(iter(self._broker.endpoints.values()))
        topics = {topic.name: len(topic.partitions) for topic in self._broker.image.topics.values()}
        return BrokerStatus(
            self._spec.broker_id,
            shown.host,
            shown.port,
            os.getpid(),
            node,
            "running",
            self._cluster_id,
            topics,
        )

    async def stop(self) -> None:
        """Stop cleanly: everything is on disk when this returns. The actor then serves nothing."""
        self._starting.cancel()
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    async def _start(self) -> None:
        """Once for a new actor; again and again for one that Ray has restarted, since nobody else would."""
        restarted = ray.get_runtime_context().was_current_actor_reconstructed
        pause_seconds = RESTART_PAUSE_SECONDS
        while True:
            try:
                files = open_data_dir(self._spec.data_dir, name=self._spec.cluster, must_exist=restarted)
                await self._serve(files)
                return
            except Exception as error:
                if not restarted:
                    raise
                log.error(
                    "broker cannot start yet",
                    exc_info=None if isinstance(error, KafkaError) else error,
                    extra={"reason": str(error)},
                )
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, RESTART_PAUSE_SECONDS_MAX)

    async def _serve(self, files: ClusterFiles) -> None:
        spec = self._spec
        configs = broker_configs(
            {config.BROKER_RACK.name: socket.gethostname(), **spec.config, "node.id": spec.broker_id}
        )
        listeners = with_ports(plan_listeners(configs), files.last_ports(spec.broker_id))
        identity = BrokerIdentity(BrokerId(spec.broker_id), files.cluster_id, uuid4(), files.secret)
        broker = Broker(
            identity,
            configs,
            RealDisk(),
            files.log_path(spec.broker_id),
            new_id=uuid4,
            new_nonce=secrets.token_bytes,
            now=now(),
        )
        server = BrokerServer(broker, listeners, on_failure=lambda _: os._exit(EXIT_AFTER_VIOLATION))
        try:
            await server.start()
        except BaseException:
            broker.abandon()
            raise
        files.remember_ports(spec.broker_id, {name: endpoint.port for name, endpoint in server.bound.items()})
        self._cluster_id, self._broker, self._server = files.cluster_id, broker, server
