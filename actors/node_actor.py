"""The base of broker and controller actors: start, readiness, stop, and restart after a crash."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

import ray

from raylog.actors.certificates import certificate_path, ensure_certificate, with_certificates
from raylog.actors.data_dir import ClusterFiles, open_data_dir
from raylog.actors.given_config import LOOPBACK, GivenConfig, with_passwords
from raylog.actors.log_file import LogTail, log_tail
from raylog.actors.names import controller_name, namespace_of, node_name
from raylog.actors.placement import check_host
from raylog.actors.priority import raise_priority
from raylog.config.delegation_tokens import DELEGATION_TOKEN_SECRET_KEY
from raylog.config.log import LOG_DIR, LOG_DIRS
from raylog.config.membership import BROKER_RACK
from raylog.config.table import broker_configs
from raylog.config.tls import listener_tls_settings
from raylog.core.config import Configs
from raylog.core.errors import ConfigError, KafkaError
from raylog.core.ids import BrokerId
from raylog.core.journal import JournalEvent
from raylog.core.logs import log_to_stderr
from raylog.metadata.node_roles import NodeRole, role_of
from raylog.metadata.voters import FIRST_VOTER_ID, voter_named
from raylog.security.cluster_secret import token_secret
from raylog.security.tls import server_context
from raylog.transport.endpoints import Endpoint, Listener
from raylog.transport.listeners import hosts_of, plan_controller_listeners, plan_listeners
from raylog.transport.node import NodeIdentity
from raylog.transport.server import NodeServer
from raylog.transport.turn_times import TurnTimes

log = logging.getLogger("raylog.actors")
RESTART_PAUSE_SECONDS = 0.2
RESTART_PAUSE_SECONDS_MAX = 5.0
RENEWAL_CHECK_SECONDS = 3600.0
EXIT_AFTER_VIOLATION = 70
"""EX_SOFTWARE: Ray restarts the actor, which recovers from its log."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """The arguments of an actor, which Ray stores and uses again when it restarts the actor."""

    cluster: str
    node_id: int
    data_dir: str
    host: str
    """The host that has its data."""
    address: str = LOOPBACK
    """The address of that host for other nodes."""
    given: GivenConfig = field(default_factory=GivenConfig)

    @property
    def role(self) -> NodeRole:
        return role_of(self.node_id)

    @property
    def name(self) -> str:
        """That of the actor."""
        return node_name(self.node_id)

    def configs(self, files: ClusterFiles) -> Configs:
        """The configuration of the node, with passwords and certificates in the data directory. Raises ConfigError."""
        if self.role is not NodeRole.CONTROLLER:
            of_node = self.given.of_broker if self.role is NodeRole.BROKER else self.given.of_coordinator
            given = of_node(self.node_id, self.address)
            own = {} if LOG_DIR.name in given else {LOG_DIRS.name: ",".join(files.log_paths(self.node_id))}
            texts = {BROKER_RACK.name: self.host, **own, **given}
        else:
            texts = self.given.of_controller(self.node_id - FIRST_VOTER_ID, self.address)
        texts = {**with_passwords(texts, files.passwords), "node.id": self.node_id}
        if self.given.secure:
            own_keys, several_machines = self.given.has_own_keys, self.address != LOOPBACK
            texts = {DELEGATION_TOKEN_SECRET_KEY.name: token_secret(files.secret), **texts}
            texts = with_certificates(texts, files.path, self.name, clients=not own_keys, nodes=several_machines)
        return broker_configs(texts)

    def listeners(self, configs: Configs) -> list[Listener]:
        """Those that the node opens, the one for other nodes last. Raises ConfigError."""
        plan = plan_controller_listeners if self.role is NodeRole.CONTROLLER else plan_listeners
        return plan(configs, internal_host=self.address)


class NodeActor:
    """Starts on creation; `ready` returns when it is running, or raises the reason. It contains no broker logic."""

    def __init__(self, spec: NodeSpec) -> None:
        log_to_stderr()
        self._niceness = raise_priority()
        self._spec = spec
        self._server: NodeServer | None = None
        self._stopped = False
        self._starting = asyncio.get_running_loop().create_task(self._start())
        self._renewing = asyncio.get_running_loop().create_task(self._keep_certificate())

    async def serve(self, files: ClusterFiles, configs: Configs) -> NodeServer:
        """Create the node and its server, which is open on return. Raises KafkaError."""
        raise NotImplementedError

    async def spec(self) -> NodeSpec:
        return self._spec

    async def events(self) -> list[JournalEvent]:
        """What the node has noted last, oldest first; nothing while it starts."""
        return [] if self._server is None else self._server.node.journal.events()

    async def log_tail(self, line_count: int) -> LogTail:
        """Where its log goes, and the last lines of it. Raises OSError."""
        return await asyncio.to_thread(log_tail, line_count)

    async def take_turn_times(self) -> TurnTimes:
        """How long turns of the event loop took since the last call, or since the start."""
        return TurnTimes() if self._server is None else self._server.turns.take()

    @property
    def metrics_address(self) -> str:
        """host:port of its metrics; empty while they are not shown."""
        bound = None if self._server is None else self._server.metrics.bound
        return "" if bound is None else str(bound)

    async def stop(self) -> None:
        """Stop cleanly: everything is on disk on return. The actor remains, but serves no requests."""
        self._stopped = True
        self._starting.cancel()
        self._renewing.cancel()
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    async def check(self, spec: NodeSpec) -> None:
        """Check that the node could start with these arguments on this host. Raises ConfigError.

        What can only be found out by starting it is not checked, such as ports in use.
        """
        files = open_data_dir(spec.data_dir, name=spec.cluster)
        configs = spec.configs(files)
        for listener in spec.listeners(configs):
            settings = listener_tls_settings(configs, listener.name, by_sasl=listener.security.by_sasl)
            own_certificate = str(certificate_path(files.path, spec.name))  # which it gets when it starts
            if listener.security.by_tls and settings.keys.location != own_certificate:
                server_context(settings)

    async def renew_certificate(self) -> bool:
        """Renew the node's certificate if it is time to; returns whether it is new. Raises ConfigError."""
        if not self._spec.given.secure:
            return False
        files = open_data_dir(self._spec.data_dir, name=self._spec.cluster)
        hosts = hosts_of(self._spec.listeners(self._spec.configs(files)))
        ensure = partial(ensure_certificate, files, self._spec.name, hosts)
        return await asyncio.get_running_loop().run_in_executor(None, ensure)

    async def _keep_certificate(self) -> None:
        while True:
            await asyncio.sleep(RENEWAL_CHECK_SECONDS)
            try:
                await self.renew_certificate()
            except Exception as error:
                log.error("certificate not renewed", extra={"node": self._spec.node_id, "reason": str(error)})

    def identity(self, files: ClusterFiles) -> NodeIdentity:
        return NodeIdentity(BrokerId(self._spec.node_id), files.cluster_id, uuid4(), files.secret)

    async def _start(self) -> None:
        """Start once, or retry until it succeeds if Ray has restarted the actor."""
        restarted = ray.get_runtime_context().was_current_actor_reconstructed
        pause_seconds = RESTART_PAUSE_SECONDS
        while True:
            try:
                await check_host(self._spec.host)
            except ConfigError as error:
                log.error("actor misplaced", extra={"node": self._spec.node_id, "reason": error.message})
                ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
                await asyncio.Event().wait()  # callers get an error when the actor ends, and wait for the next one
            try:
                files = open_data_dir(self._spec.data_dir, name=self._spec.cluster)
                self._server = await self.serve(files, self._spec.configs(files))
                return
            except Exception as error:
                if not restarted:
                    raise
                log.error(
                    "start failed, retrying",
                    exc_info=None if isinstance(error, KafkaError) else error,
                    extra={"node": self._spec.node_id, "reason": str(error)},
                )
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, RESTART_PAUSE_SECONDS_MAX)


def exit_after_violation(_: BaseException) -> None:
    os._exit(EXIT_AFTER_VIOLATION)


def new_nonce(size: int) -> bytes:
    return secrets.token_bytes(size)


class PeerDirectory:
    """Finds the addresses of peers through Ray. For an actor that is restarting it waits until it is back."""

    def __init__(self, cluster: str) -> None:
        self._namespace = namespace_of(cluster)
        self._handles: dict[str, Any] = {}

    async def resolve(self, peer: str) -> Endpoint:
        """The address of a controller's inter-broker listener. Raises OSError if there is none."""
        try:
            if peer not in self._handles:
                voter = voter_named(peer)
                if voter is None:
                    raise OSError(f"{peer} is not a controller")
                actor = controller_name(voter - FIRST_VOTER_ID)
                loop = asyncio.get_running_loop()
                self._handles[peer] = await loop.run_in_executor(
                    None, lambda: ray.get_actor(actor, namespace=self._namespace)
                )
            endpoint: Endpoint = await self._handles[peer].internal_endpoint.remote()
        except (ray.exceptions.RayError, ValueError) as error:
            self._handles.pop(peer, None)
            raise OSError(f"{peer} cannot be found: {error}") from error
        return endpoint
