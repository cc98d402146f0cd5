"""Free ports for processes whose port must be known before they listen on it."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

LOWEST = 10_000


def free_ports(count: int = 1) -> range:
    """Consecutive free ports of 127.0.0.1, below the system's ephemeral port range.

    So no connection that is opened meanwhile, by this process or another, can get one of them.
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
