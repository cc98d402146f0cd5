"""The controller as a Ray actor: lifecycle and nothing else."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from uuid import uuid4

import ray

from raylog.actors.data_dir import ClusterFiles
from raylog.actors.node_actor import CONTROLLER_NAME, NodeActor, exit_after_violation, new_nonce, socket_options
from raylog.broker.listeners import plan_listeners, with_ports
from raylog.controller.controller import Controller
from raylog.core.config import Configs
from raylog.logstore.disk import RealDisk
from raylog.logstore.start_checks import check_machine
from raylog.transport.endpoints import Endpoint
from raylog.transport.server import NodeServer, no_peers, now


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """One controller as `raylog status` shows it."""

    id: int
    pid: int
    active: bool


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)
class ControllerActor(NodeActor):
    """The one voter of the metadata log."""

    async def ready(self) -> ControllerStatus:
        """Returns once brokers can connect. Raises KafkaError where the data forbid it."""
        await asyncio.shield(self._starting)
        return await self.status()

    async def status(self) -> ControllerStatus:
        return ControllerStatus(self._spec.node_id, os.getpid(), self._server is not None)

    async def internal_endpoint(self) -> Endpoint:
        """Where the brokers reach it, once they can."""
        await asyncio.shield(self._starting)
        assert self._server is not None
        return next(iter(self._server.bound.values()))

    async def serve(self, files: ClusterFiles, configs: Configs) -> NodeServer:
        check_machine(files.controller_path)
        internal = [listener for listener in plan_listeners(configs) if listener.internal]
        controller = Controller(
            self.identity(files),
            configs,
            RealDisk(),
            files.controller_path,
            may_be_new=not files.has_metadata_log,
            new_id=uuid4,
            new_nonce=new_nonce,
            now=now(),
        )
        server = NodeServer(
            controller,
            with_ports(internal, files.last_ports(CONTROLLER_NAME)),
            options=socket_options(configs),
            resolve=no_peers,
            on_failure=exit_after_violation,
        )
        try:
            await server.start()
        except BaseException:
            controller.abandon()
            raise
        files.remember_controller()
        files.remember_ports(CONTROLLER_NAME, {name: endpoint.port for name, endpoint in server.bound.items()})
        return server
