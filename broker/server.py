"""(shell) A broker's sockets: those of any node, and two Unix sockets for processes of the same machine.

broker-<id>.sock         the local endpoint: descriptors of pages and segment files (local_endpoint.py)
broker-<id>-kafka.sock   a stream of the same frames as over TCP
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from raylog.broker.broker import Broker
from raylog.broker.local_endpoint import LocalEndpoint, open_local_endpoint
from raylog.broker.metrics import scrape
from raylog.config.network import SocketOptions
from raylog.core.errors import ConfigError
from raylog.transport import unix
from raylog.transport.endpoints import UNIX_PEER, Endpoint, Listener
from raylog.transport.server import NodeServer
from raylog.transport.socket_endpoints import AcceptedEndpoint

log = logging.getLogger("raylog.broker")


class BrokerServer(NodeServer):
    """If a Unix socket cannot be opened, a warning is logged and clients use TCP."""

    def __init__(
        self,
        broker: Broker,
        listeners: Sequence[Listener],
        *,
        options: SocketOptions,
        resolve: Callable[[str], Awaitable[Endpoint]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Raises ConfigError if a listener's TLS keys cannot be read."""
        super().__init__(
            broker,
            listeners,
            options=options,
            resolve=resolve,
            on_failure=on_failure,
            configs=lambda: broker.configs,
            scrape=partial(scrape, broker),
        )
        self._broker = broker
        self._local_endpoint: LocalEndpoint | None = None
        self._stream_server: asyncio.Server | None = None
        self._stream_path: Path | None = None

    async def open_more(self) -> None:
        identity = self._broker.identity
        self._local_endpoint = open_local_endpoint(
            self._broker.local_readers,
            cluster_id=identity.cluster_id,
            broker_id=identity.node_id,
            on_failure=self.fail,
        )
        try:
            sock, path = unix.listen_in_runtime_dir(
                identity.cluster_id, unix.kafka_socket_name(identity.node_id), unix.STREAM
            )
        except ConfigError as error:
            log.warning("Unix socket not opened", extra={"reason": error.message})
            return
        self._stream_path = path
        factory = partial(_UnixEndpoint, self, self.listeners[0])
        loop = asyncio.get_running_loop()
        self._stream_server = await loop.create_unix_server(factory, sock=sock, backlog=self.options.backlog)

    def close_more(self) -> None:
        if self._local_endpoint is not None:
            self._local_endpoint.close()
            self._local_endpoint = None
        if self._stream_server is not None:
            self._stream_server.close()
            self._stream_server = None
        if self._stream_path is not None:
            unix.remove(self._stream_path)
            self._stream_path = None


class _UnixEndpoint(AcceptedEndpoint):
    """A process of this machine, on the first of the client listeners: only the broker's own user and root."""

    def allowed(self, transport: asyncio.BaseTransport) -> bool:
        user = unix.peer_user(transport.get_extra_info("socket"))
        self.peer = f"{UNIX_PEER}{user}"
        return user in (os.geteuid(), unix.ROOT)
