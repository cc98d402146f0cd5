"""Brokers and coordinators as Ray actors: their lifecycle only."""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from uuid import uuid4

import ray

from raylog.actors.data_dir import ClusterFiles, create_log_dirs
from raylog.actors.earlier_versions import set_state
from raylog.actors.former_process import wait_until_unlocked
from raylog.actors.names import STOPPED
from raylog.actors.node_actor import NodeActor, NodeSpec, PeerDirectory, exit_after_violation, new_nonce
from raylog.broker.broker import Broker
from raylog.broker.server import BrokerServer
from raylog.config.log import log_dir_settings
from raylog.config.network import socket_options
from raylog.core.config import Configs
from raylog.core.errors import ErrorCode, KafkaError
from raylog.logstore.cleaner_process import CleanerProcesses
from raylog.logstore.disk import RealDisk
from raylog.logstore.recovery_threads import run_in_threads
from raylog.logstore.start_checks import check_machine
from raylog.metadata.node_roles import NodeRole, role_of
from raylog.protocol.records.record_scan import kernel
from raylog.quotas.usage import Throttled
from raylog.transport.frame_session import FrameSession
from raylog.transport.listeners import plan_listeners, with_last_ports
from raylog.transport.server import NodeServer
from raylog.transport.system_time import now

SESSION_NAME_BYTES = 32
FAILURES_SHOWN_MAX = 100


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A broker or a coordinator in the output of `raylog status`."""

    id: int
    host: str
    port: int
    pid: int
    node: str
    state: str
    cluster_id: str
    topics: dict[str, int]
    """Number of partitions by topic, of the whole cluster."""
    niceness: int = 0
    """The priority of its process: 0 is normal, 15 is Ray's default for workers."""
    record_scan: str = ""
    """What checks the records of producers: C, numba or Python."""
    throttled: list[Throttled] = field(default_factory=list)
    """The clients that it has throttled, for how long."""
    offline: dict[str, str] = field(default_factory=dict)
    """Log directories and partitions that are offline, with the reason; no more than FAILURES_SHOWN_MAX."""
    uncleanable: dict[str, str] = field(default_factory=dict)
    """Partitions that cannot be compacted, with the reason; no more than FAILURES_SHOWN_MAX."""
    metrics: str = ""
    """host:port of its metrics; empty if they are not shown."""

    __setstate__ = set_state

    @property
    def role(self) -> NodeRole:
        return role_of(self.id)


class BrokerNode(NodeActor):
    """A node that holds partitions: a broker or a coordinator."""

    def __init__(self, spec: NodeSpec) -> None:
        super().__init__(spec)
        self._broker: Broker | None = None
        self._sessions: dict[str, FrameSession] = {}

    async def ready(self) -> BrokerStatus:
        """Returns when clients can connect. Raises KafkaError if the configuration or the data prevent the start."""
        await asyncio.shield(self._starting)
        return await self.status()

    async def status(self) -> BrokerStatus:
        node = ray.get_runtime_context().get_node_id()
        if self._server is None or self._broker is None:
            state = STOPPED if self._stopped else "starting"
            return BrokerStatus(self._spec.node_id, "", 0, os.getpid(), node, state, "", {})
        shown = next(iter(self._broker.endpoints.values()))
        topics = {topic.name: len(topic.partitions) for topic in self._broker.image.topics.values()}
        cluster_id = self._broker.identity.cluster_id
        table = self._broker.table
        partitions = {str(tp): reason for tp, reason in table.offline_partitions().items()}
        offline = {**table.log_dirs.failed, **partitions}
        state = "running" if table.offline_reason is None else "disk failed"
        return BrokerStatus(
            self._spec.node_id,
            shown.host,
            shown.port,
            os.getpid(),
            node,
            state,
            cluster_id,
            topics,
            self._niceness,
            kernel().name,
            self._broker.throttled(),
            dict(islice(offline.items(), FAILURES_SHOWN_MAX)),
            {str(tp): why for tp, why in islice(self._broker.log_cleaner.uncleanable().items(), FAILURES_SHOWN_MAX)},
            self.metrics_address,
        )

    async def open_session(self, *, internal: bool = False) -> str:
        """Open a session for `request` on the first client listener, and return its unguessable name.

        With `internal` it is on the listener for nodes of the cluster, where the cluster's secret is needed. A client
        authenticates with its first frames, as on a socket. The session ends with `close_session`, or after it was idle
        for connections.max.idle.ms. Raises KafkaError.
        """
        await asyncio.shield(self._starting)
        assert self._server is not None
        self._sessions = {name: session for name, session in self._sessions.items() if not session.closed}
        name = secrets.token_urlsafe(SESSION_NAME_BYTES)
        listener = next(each for each in self._server.listeners if each.internal == internal)
        self._sessions[name] = FrameSession(self._server, listener)
        return name

    async def request(self, session: str, frame: bytes) -> bytes:
        """The response to a request of Kafka's protocol; both are frames without the length prefix.

        Empty for a request without a response (acks=0). Raises KafkaError(NETWORK_EXCEPTION) if the session does not
        exist or the broker closes it.
        """
        found = self._sessions.get(session)
        if found is None:
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION, "the session does not exist: it was closed, or the broker has restarted"
            )
        return await found.request(frame)

    async def close_session(self, session: str) -> None:
        found = self._sessions.pop(session, None)
        if found is not None:
            found.abort()

    async def serve(self, files: ClusterFiles, configs: Configs) -> NodeServer:
        name = self._spec.name
        await self.renew_certificate()
        paths = log_dir_settings(configs).paths
        create_log_dirs(files, name, paths)
        disk = RealDisk(check_machine(*paths))
        for path in paths:
            await wait_until_unlocked(disk, path)
        broker = Broker(
            self.identity(files),
            configs,
            disk,
            paths,
            new_id=uuid4,
            new_nonce=new_nonce,
            now=now(),
            run_all=partial(run_in_threads, log_dir_settings(configs).recovery_threads),
            cleaning=CleanerProcesses(),
            voters=files.controller_ids,
        )
        server = BrokerServer(
            broker,
            with_last_ports(plan_listeners(configs, internal_host=self._spec.address), files.last_ports(name)),
            options=socket_options(configs),
            resolve=PeerDirectory(self._spec.cluster).resolve,
            on_failure=exit_after_violation,
        )
        try:
            await server.start()
        except BaseException:
            broker.abandon()
            raise
        files.save_ports(name, {name: endpoint.port for name, endpoint in server.bound.items()})
        self._broker = broker
        return server


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)
class BrokerActor(BrokerNode):
    """One broker of the cluster."""


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)
class GroupCoordinatorActor(BrokerNode):
    """Leads partitions of __consumer_offsets, and so coordinates groups, apart from the work of brokers."""


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)
class TransactionCoordinatorActor(BrokerNode):
    """Leads partitions of __transaction_state, and so coordinates transactions."""
