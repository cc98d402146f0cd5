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
from raylog.config.network import SocketOptions
from raylog.config.tls import TlsSettings, tls_settings
from raylog.core.errors import ConfigError
from raylog.transport import unix
from raylog.transport.endpoints import UNIX_PEER, Endpoint, Listener
from raylog.transport.listener_tls import ListenerTls
from raylog.transport.server import AcceptedEndpoint, NodeServer
from raylog.transport.tls_endpoint import TlsEndpoint

TLS_REFRESH_SECONDS = 2.0
"""How often the files with TLS keys are checked."""

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
        super().__init__(broker, listeners, options=options, resolve=resolve, on_failure=on_failure)
        self._broker = broker
        self._tls = {
            listener.name: ListenerTls(listener.name, partial(self._tls_settings, listener.name))
            for listener in listeners
            if listener.security.by_tls
        }
        self._refreshing: asyncio.Task[None] | None = None
        self._local_endpoint: LocalEndpoint | None = None
        self._stream_server: asyncio.Server | None = None
        self._stream_path: Path | None = None

    def endpoint_factory(self, listener: Listener) -> Callable[[], AcceptedEndpoint]:
        tls = self._tls.get(listener.name)
        return super().endpoint_factory(listener) if tls is None else partial(TlsEndpoint, self, listener, tls)

    def _tls_settings(self, listener: str) -> TlsSettings:
        return tls_settings(self._broker.configs.for_listener(listener))

    async def _refresh_tls(self) -> None:
        """Use new keys soon after their files or the configuration have changed."""
        while True:
            await asyncio.sleep(TLS_REFRESH_SECONDS)
            for tls in self._tls.values():
                await asyncio.get_running_loop().run_in_executor(None, tls.refresh)

    async def open_more(self) -> None:
        if self._tls:
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh_tls())
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
        if self._refreshing is not None:
            self._refreshing.cancel()
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
