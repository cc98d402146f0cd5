"""The controller as a Ray actor: its lifecycle only."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

import ray

from raylog.actors.data_dir import ClusterFiles
from raylog.actors.earlier_versions import set_state
from raylog.actors.former_process import wait_until_unlocked
from raylog.actors.names import controller_name
from raylog.actors.node_actor import (
    NodeActor,
    NodeSpec,
    PeerDirectory,
    exit_after_violation,
    new_nonce,
)
from raylog.config.network import socket_options
from raylog.controller.controller import Controller
from raylog.controller.metrics import scrape
from raylog.core.config import Configs
from raylog.logstore.disk import RealDisk
from raylog.logstore.start_checks import check_machine
from raylog.metadata.voters import FIRST_VOTER_ID, QuorumVoter
from raylog.transport.endpoints import Endpoint
from raylog.transport.listeners import with_last_ports
from raylog.transport.server import NodeServer
from raylog.transport.system_time import now


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """A controller in the output of `raylog status`."""

    id: int
    pid: int
    """0 while it is restarting."""
    active: bool
    """Whether it is the active controller."""
    metrics: str = ""
    """host:port of its metrics; empty if they are not shown."""
    address: str = ""
    """host:port of its first listener for clients; empty if there is none."""

    __setstate__ = set_state


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)
class ControllerActor(NodeActor):
    """One controller: a voter of the metadata quorum, or an observer that may become one."""

    def __init__(self, spec: NodeSpec) -> None:
        self._controller: Controller | None = None
        super().__init__(spec)

    async def ready(self) -> ControllerStatus:
        """Returns when brokers can connect. Raises KafkaError if the data prevent the start."""
        await asyncio.shield(self._starting)
        return await self.status()

    async def status(self) -> ControllerStatus:
        controller = self._controller
        is_active = controller is not None and controller.is_active
        address = ""
        if controller is not None:
            of_clients = controller.listener_reports.of_clients(controller.as_voter)
            address = "".join(str(Endpoint(host, port)) for _, host, port in of_clients[:1])
        return ControllerStatus(self._spec.node_id, os.getpid(), is_active, self.metrics_address, address)

    async def internal_endpoint(self) -> Endpoint:
        """The address for brokers, as soon as they can connect."""
        await asyncio.shield(self._starting)
        assert self._server is not None
        return self._server.bound[self._server.listeners[-1].name]

    async def voter(self) -> QuorumVoter:
        """Its key and its listeners in the quorum."""
        await asyncio.shield(self._starting)
        assert self._controller is not None
        return self._controller.as_voter

    async def serve(self, files: ClusterFiles, configs: Configs) -> NodeServer:
        number = self._spec.node_id - FIRST_VOTER_ID
        await self.renew_certificate()
        path = files.controller_path(number)
        disk = RealDisk(check_machine(path))
        await wait_until_unlocked(disk, path)
        controller = Controller(
            self.identity(files),
            configs,
            disk,
            path,
            may_be_new=not files.is_controller_started(number),
            new_id=uuid4,
            new_nonce=new_nonce,
            now=now(),
            voters=files.voters_at_first(number),
            known=files.controller_ids,
        )
        name = controller_name(number)
        server = NodeServer(
            controller,
            with_last_ports(self._spec.listeners(configs), files.last_ports(name)),
            options=socket_options(configs),
            resolve=PeerDirectory(self._spec.cluster).resolve,
            on_failure=exit_after_violation,
            configs=lambda: controller.configs,
            scrape=partial(scrape, controller),
        )
        try:
            await server.start()
        except BaseException:
            controller.abandon()
            raise
        files.mark_controller_started(number)
        files.save_ports(name, {listener: endpoint.port for listener, endpoint in server.bound.items()})
        self._controller = controller
        return server
