"""The addresses of brokers, as a user gives them and as a Metadata response shows them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from raylog.client.given_values import shown
from raylog.core.errors import ConfigError

_SERVER = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\[\]/]+):(?P<port>\d{1,5})")


def parse_servers(bootstrap_servers: str) -> list[tuple[str, int]]:
    """`host:port,host:port` as pairs. Raises ConfigError."""
    servers = []
    for text in bootstrap_servers.split(","):
        match = _SERVER.fullmatch(text.strip())
        if match is None or not 0 < int(match["port"]) <= 65535:
            raise ConfigError(
                f"bootstrap.servers={shown(bootstrap_servers)}: must be host:port[,host:port...] or ray://<cluster>"
            )
        servers.append((match["host"].strip("[]"), int(match["port"])))
    return servers


@dataclass(frozen=True, slots=True)
class Node:
    """A broker in a Metadata response."""

    cluster_id: str
    broker_id: int
    host: str
    port: int
