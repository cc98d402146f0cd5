"""The gateway: an actor that serves the web console of its cluster, and how it is started and found."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import ray

from raylog.actors.cluster_actors import current_handles
from raylog.actors.names import GATEWAY_NAME, namespace_of
from raylog.actors.placement import alive_hosts, placed_on
from raylog.actors.waiting import wait_until_done
from raylog.client.admin.admin_client import admin_client
from raylog.client.client_config import ClientConfig
from raylog.config.client import SASL_JAAS_CONFIG
from raylog.console.application import ConsoleOptions
from raylog.console.logins import needs_login
from raylog.console.server import ConsoleServer
from raylog.core.errors import ConfigError, KafkaError
from raylog.core.logs import log_to_stderr
from raylog.core.password import Password

log = logging.getLogger("raylog.actors")
ANSWER_SECONDS: Final = 5.0
STOP_SECONDS: Final = 30.0


@ray.remote(num_cpus=0, max_restarts=-1)
class GatewayActor:
    """Serves with its creation. Ray restarts it; a free port may then be another one."""

    def __init__(self, options: ConsoleOptions) -> None:
        log_to_stderr()
        self._options = options
        self._refused: ConfigError | None = None
        try:
            self._server = ConsoleServer(options)
        except ConfigError as error:
            self._refused = error
        else:
            self._serving = asyncio.get_running_loop().create_task(self._server.serve())

    async def url(self) -> str:
        """Raises the ConfigError for which it cannot serve."""
        if self._refused is not None:
            raise self._refused
        return self._server.url

    async def options(self) -> ConsoleOptions:
        """Those with which it serves, with the port on which it does. Raises ConfigError."""
        return replace(self._options, port=int((await self.url()).rpartition(":")[2]))

    async def stop(self) -> None:
        """Returns when every session is closed."""
        if self._refused is None:
            self._server.stop()
            await self._serving


def start_gateway(
    name: str, bootstrap_servers: str, properties: Mapping[str, str | Password], *, port: int
) -> tuple[Any, str]:
    """Create the actor on this host; returns its handle and the URL of the console. Raises ConfigError.

    `properties` are those of a client; who logs in is not taken from them.
    """
    config = ClientConfig(
        bootstrap_servers, {key: value for key, value in properties.items() if key != SASL_JAAS_CONFIG.name}
    )
    if not needs_login(properties):
        try:
            with admin_client(config, client_id="raylog-start") as client:
                client.describe_cluster(timeout=ANSWER_SECONDS)
        except KafkaError as error:
            rule = f"the first listener cannot be used without a login ({error.message}): use `raylog console`"
            raise ConfigError(f"console: {rule}") from error
    made: Any = GatewayActor
    options = {"name": GATEWAY_NAME, "namespace": namespace_of(name), "lifetime": "detached"}
    host = next(iter(alive_hosts().values()))
    handle = made.options(scheduling_strategy=placed_on(host), **options).remote(
        ConsoleOptions(config, title=name, port=port)
    )
    try:
        return handle, ray.get(handle.url.remote())
    except BaseException as error:
        ray.kill(handle, no_restart=True)
        if isinstance(error, ray.exceptions.RayTaskError) and isinstance(error.cause, ConfigError):
            raise ConfigError(f"console: {error.cause.message}") from None
        raise


def replace_gateway(name: str, bootstrap_servers: str, properties: Mapping[str, str | Password] | None) -> None:
    """Serve the console of a cluster that was started with one by other brokers, on the same port.

    `properties` are those of a client; None: those that it has. Raises ConfigError if it cannot be served any more.
    """
    former = current_handles(name, [GATEWAY_NAME])[GATEWAY_NAME]
    if former is None:
        return
    try:
        options: ConsoleOptions = ray.get(former.options.remote(), timeout=ANSWER_SECONDS)
        ray.get(former.stop.remote(), timeout=ANSWER_SECONDS)
    except ray.exceptions.RayError as error:
        raise ConfigError(f"console: it does not answer: {type(error).__name__}") from error
    ray.kill(former, no_restart=True)

    def name_is_taken() -> str:
        return "" if current_handles(name, [GATEWAY_NAME])[GATEWAY_NAME] is None else "its process has not ended"

    wait_until_done(name_is_taken, "the console was stopped", time.monotonic() + STOP_SECONDS)
    used = options.config.properties if properties is None else properties
    start_gateway(name, bootstrap_servers, used, port=options.port)


def gateway_url(handle: Any) -> str | None:
    """None if the gateway does not answer, as while Ray restarts it."""
    with suppress(ray.exceptions.RayError):
        url: str = ray.get(handle.url.remote(), timeout=ANSWER_SECONDS)
        return url
    return None
