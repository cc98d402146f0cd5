"""(shell) Drives a NetworkClient on an asyncio loop: sockets by TCP, TLS and Unix domain, timers and log-ins."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from raylog.client.client_config import Dialer
from raylog.client.network_client import Address, NetworkClient
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.security.sasl.mechanism import SaslClient
from raylog.security.tls import tls_failure
from raylog.transport import unix
from raylog.transport.peer_link import PeerLink
from raylog.transport.socket_endpoints import LinkEndpoint, ServedEndpoint, SocketEndpoint
from raylog.transport.system_time import now

log = logging.getLogger("raylog.client")
TICK_SECONDS_MAX: Final = 3600.0
UNIX_SECONDS: Final = 1.0
"""A Unix socket connects at once unless its broker has stopped accepting."""
SEND_BUFFER_BYTES: Final = 1 << 20
"""Of a Unix socket, for the usual requests in flight of a producer; what it cannot take is copied once more."""
NETWORK_SECONDS: Final = 3.0
"""A broker of a named cluster that cannot be reached within this time is reached by its actor."""


class NetworkLoop:
    """Drives a NetworkClient on an asyncio loop. All methods but `poke_threadsafe` are called on the loop."""

    def __init__(
        self,
        network: NetworkClient,
        dialer: Dialer,
        loop: asyncio.AbstractEventLoop,
        *,
        lock: AbstractContextManager[object],
        after_event: Callable[[], None],
    ) -> None:
        """`lock` is held while the network is used; `after_event` is called without it after each event."""
        self.node = network
        self._dialer = dialer
        self._loop = loop
        self._lock = lock
        self._after_event = after_event
        self._endpoints: dict[PeerLink, LinkEndpoint] = {}
        self._tasks: dict[PeerLink, asyncio.Task[None]] = {}
        """Connections and log-ins that are being made."""
        self._logins: dict[PeerLink, SaslClient] = {}
        self._unix: dict[LinkEndpoint, int] = {}
        """The broker ids of connections by Unix sockets."""
        self._tcp_only: set[int] = set()
        """Brokers whose Unix socket, that of their first listener, does not serve this client."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        self._poked = False
        self._closed = False

    def poke_threadsafe(self) -> None:
        """Another thread has changed something: run the services soon. The caller holds the lock."""
        if not self._poked:
            self._poked = True
            self._loop.call_soon_threadsafe(self.poke)

    def poke_soon(self) -> None:
        """As `poke_threadsafe`, on the loop, which then need not be woken."""
        if not self._poked:
            self._poked = True
            self._loop.call_soon(self.poke)

    def poke(self) -> None:
        """Run the services."""
        self._poked = False
        self.event(self._run)

    def event(self, report: Callable[[], None], *, endpoint: ServedEndpoint | SocketEndpoint | None = None) -> None:
        """Report to the network, and carry out what it wants done."""
        if self._closed:
            return
        with self._lock:
            try:
                report()
            finally:  # after an error too, else all other requests would wait for ever
                for link in self.node.take_touched():
                    self._update(link)
                self._wake_at(self.node.next_tick_ms())
        self._after_event()

    def close(self) -> None:
        """Close all connections at once."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks.values():
            task.cancel()
        for endpoint in list(self._endpoints.values()):
            endpoint.abort()

    # --- the endpoints of links

    def link_connected(self, link: PeerLink, endpoint: LinkEndpoint) -> None:
        if self._closed:
            endpoint.abort()
            return
        self._endpoints[link] = endpoint
        login = self._logins.pop(link, None)
        self.event(lambda: self.node.link_connected(link, login, now()), endpoint=endpoint)

    def link_lost(self, link: PeerLink, endpoint: LinkEndpoint, reason: str) -> None:
        self._endpoints.pop(link, None)
        broker_id = self._unix.pop(endpoint, None)
        if broker_id is not None and not link.has_served:
            self._tcp_only.add(broker_id)
        self.event(lambda: self.node.link_lost(link, reason, now()))

    # --- effects

    def _run(self) -> None:
        self.node.run(now())

    def _update(self, link: PeerLink) -> None:
        if link.wants_connection and link not in self._tasks:
            self._tasks[link] = self._loop.create_task(self._dial(link, self.node.address(link)))
        if link.wants_login and link not in self._tasks:
            self._tasks[link] = self._loop.create_task(self._log_in_again(link, self.node.address(link)))
        endpoint = self._endpoints.get(link)
        if endpoint is not None:
            endpoint.flush()

    def _wake_at(self, due_ms: int) -> None:
        if self._timer is not None:
            if self._timer_due_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_due_ms = due_ms
        delay = (due_ms - now().monotonic_ms) / 1000
        self._timer = self._loop.call_later(min(max(delay, 0.0), TICK_SECONDS_MAX), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.event(lambda: self.node.tick(now()))

    async def _dial(self, link: PeerLink, address: Address) -> None:
        endpoint = LinkEndpoint(self, link)
        end: Callable[[], None] | None = None
        try:
            async with asyncio.timeout(self.node.settings.setup_timeout_ms / 1000):
                await self._connect(link, address, endpoint)
        except (KafkaError, ConfigError) as error:
            end = partial(self._refused, link, error)
        except ssl.SSLError as error:
            text = f"the TLS handshake with {link.peer} failed: {tls_failure(error)}"
            refused = KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
            end = partial(self._refused, link, refused)
        except TimeoutError as error:
            reason = str(error) or "connecting took longer than socket.connection.setup.timeout.ms"
            end = partial(self._not_connected, link, reason)
        except (OSError, ValueError) as error:  # ValueError is raised for a malformed name of a host
            during = " during the TLS handshake; its listener may not use TLS" if self._dialer.uses_tls else ""
            end = partial(self._not_connected, link, str(error) or f"closed by the peer{during}")
        finally:
            self._tasks.pop(link, None)
            self._logins.pop(link, None)
        if end is not None and not endpoint.connected:
            self.event(end)

    async def _connect(self, link: PeerLink, address: Address, endpoint: LinkEndpoint) -> None:
        """By the network; if that fails, by the door of a named cluster."""
        context = None
        if not self._dialer.is_plain:
            context, login = await self._loop.run_in_executor(None, self._dialer.prepare, address.host)
            if login is not None:
                self._logins[link] = login
        door = self._dialer.door
        if door is None:
            await self._connect_by_network(address, endpoint, context)
        elif not await self._is_reached(address, endpoint, context):
            session = await door.open(
                address.host, address.port, None if address.node is None else address.node.broker_id
            )
            if await self._is_reached(address, endpoint, context):  # it has just been restarted
                session.close()
            else:
                session.start(endpoint)

    async def _is_reached(self, address: Address, endpoint: LinkEndpoint, context: ssl.SSLContext | None) -> bool:
        """Connect by the network. False if there is no path to the broker."""
        if not self._dialer.by_network:
            return False
        try:
            async with asyncio.timeout(NETWORK_SECONDS):
                await self._connect_by_network(address, endpoint, context)
        except ssl.SSLError:
            raise
        except (OSError, TimeoutError):
            if endpoint.connected:
                raise
            return False
        return True

    async def _connect_by_network(
        self, address: Address, endpoint: LinkEndpoint, context: ssl.SSLContext | None
    ) -> None:
        node = address.node
        if self._dialer.is_plain and node is not None and node.broker_id not in self._tcp_only:
            name = unix.kafka_socket_name(node.broker_id)
            sock = unix.connect_in_runtime_dir(node.cluster_id, name, unix.STREAM, timeout_seconds=UNIX_SECONDS)
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                self._unix[endpoint] = node.broker_id
                await self._loop.create_unix_connection(lambda: endpoint, sock=sock)
                return
        name_in_certificate = address.host if context is not None else None
        await self._loop.create_connection(
            lambda: endpoint, address.host, address.port, ssl=context, server_hostname=name_in_certificate
        )

    async def _log_in_again(self, link: PeerLink, address: Address) -> None:
        try:
            _, login = await self._loop.run_in_executor(None, self._dialer.prepare, address.host)
        except (KafkaError, ConfigError, OSError) as error:
            self._tasks.pop(link, None)
            self.event(partial(self._refused, link, error))
        else:
            self._tasks.pop(link, None)
            assert login is not None
            self.event(lambda: self.node.login_renewed(link, login, now()))
        with self._lock:
            self._update(link)  # its connection may have been lost meanwhile

    def _refused(self, link: PeerLink, error: Exception) -> None:
        if not isinstance(error, KafkaError):
            error = KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
        self.node.link_refused(link, error, now())

    def _not_connected(self, link: PeerLink, reason: str) -> None:
        self.node.link_lost(link, reason, now())
