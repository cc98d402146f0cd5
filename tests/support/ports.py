"""Ports for those who must name one before they listen on it."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

LOWEST = 10_000


def free_ports(count: int = 1) -> range:
    """Ports of 127.0.0.1 in a row that are free, below those that the system gives to whoever asks for any.

    So no connection that is made meanwhile, by this process or another, can be given one of them.
    """
    end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        first = random.randrange(LOWEST, end - count)
        ports = range(first, first + count)
        with ExitStack() as held:
            try:
                for port in ports:
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
        return ports


def free_port() -> int:
    return free_ports()[0]
