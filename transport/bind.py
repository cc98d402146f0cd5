"""(shell) The sockets of listeners, before they accept connections."""

from __future__ import annotations

import asyncio
import logging
import socket

from raylog.config.network import SocketOptions
from raylog.core.errors import ConfigError
from raylog.transport.endpoints import Endpoint, Listener

log = logging.getLogger("raylog.transport")
LAST_PORT_SECONDS = 5.0
"""How long the process that had the port before may take to end."""
LAST_PORT_POLL_SECONDS = 0.05


async def bind(listener: Listener, options: SocketOptions) -> socket.socket:
    """A bound socket for the listener.

    If any port will do, it is the one of the last start, for which it waits a little; if another process keeps that
    one, it is any free port. Raises ConfigError.
    """
    if not listener.last_port:
        return _bind_to(listener, listener.bind.port, options)
    deadline = asyncio.get_running_loop().time() + LAST_PORT_SECONDS
    while True:
        try:
            return _bind_to(listener, listener.last_port, options)
        except ConfigError as error:
            if asyncio.get_running_loop().time() >= deadline:
                log.warning("last port not used again", extra={"listener": listener.name, "reason": error.message})
                return _bind_to(listener, 0, options)
        await asyncio.sleep(LAST_PORT_POLL_SECONDS)


def listen(listener: Listener, sock: socket.socket, options: SocketOptions) -> None:
    """Accept connections from now on. Raises ConfigError.

    Two sockets can be bound to one port as long as neither listens, and uvloop reports no error for the second one.
    """
    try:
        sock.listen(options.backlog)
    except OSError as error:
        where = Endpoint(listener.bind.host, sock.getsockname()[1])
        raise ConfigError(f"listeners: cannot listen on {listener.name}://{where}: {error}") from error


def _bind_to(listener: Listener, port: int, options: SocketOptions) -> socket.socket:
    host = listener.bind.host
    family = socket.AF_INET6 if ":" in host or not host else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError:  # a machine without IPv6: the empty host then means every IPv4 interface
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not host else 1)
        for size, option in (
            (options.send_buffer_bytes, socket.SO_SNDBUF),
            (options.receive_buffer_bytes, socket.SO_RCVBUF),
        ):
            if size != -1:
                sock.setsockopt(socket.SOL_SOCKET, option, size)  # accepted connections inherit it
        sock.bind((host, port))
    except (OSError, socket.gaierror) as error:
        sock.close()
        raise ConfigError(f"listeners: cannot listen on {listener.name}://{Endpoint(host, port)}: {error}") from error
    return sock
