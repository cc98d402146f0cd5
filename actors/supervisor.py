"""Creates the actors of lost hosts again when these are back: Ray restarts an actor only on a node that is alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import ray

from raylog.actors.broker import BrokerActor, GroupCoordinatorActor, TransactionCoordinatorActor
from raylog.actors.controller import ControllerActor
from raylog.actors.names import namespace_of
from raylog.actors.node_actor import NodeSpec
from raylog.actors.placement import Host, alive_hosts, placed_on
from raylog.core.logs import log_to_stderr
from raylog.metadata.node_roles import NodeRole

log = logging.getLogger("raylog.actors")
CHECK_SECONDS = 1.0
ACTORS: Final[Mapping[NodeRole, Any]] = {
    NodeRole.BROKER: BrokerActor,
    NodeRole.CONTROLLER: ControllerActor,
    NodeRole.GROUP_COORDINATOR: GroupCoordinatorActor,
    NodeRole.TRANSACTION_COORDINATOR: TransactionCoordinatorActor,
}


def make_actor(node: str, spec: NodeSpec, host: Host) -> Any:
    """Create an actor. Raises ValueError if one with this name exists."""
    options = ACTORS[spec.role].options(
        name=node, namespace=namespace_of(spec.cluster), lifetime="detached", scheduling_strategy=placed_on(host)
    )
    return options.remote(spec)


@ray.remote(num_cpus=0, max_restarts=-1)
class Supervisor:
    """Checks for missing actors every second. An actor that Ray is restarting is not missing."""

    def __init__(self, specs: Mapping[str, NodeSpec]) -> None:
        log_to_stderr()
        self._specs = specs
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def ready(self) -> None:
        """Returns when the supervisor is running."""

    async def specs(self) -> Mapping[str, NodeSpec]:
        """The specs of all actors, by name. They cannot be changed: Ray restarts a supervisor with its arguments."""
        return self._specs

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await loop.run_in_executor(None, self._check_hosts)
            except (ray.exceptions.RayError, ValueError) as error:
                log.warning("actor check failed", extra={"reason": str(error)})

    def _check_hosts(self) -> None:
        hosts: Mapping[str, Host] | None = None
        for node, spec in self._specs.items():
            try:
                ray.get_actor(node, namespace=namespace_of(spec.cluster))
            except ValueError:
                hosts = alive_hosts() if hosts is None else hosts
                if spec.host in hosts:
                    make_actor(node, spec, hosts[spec.host])
                    log.info("actor recreated", extra={"node": node, "host": spec.host})
