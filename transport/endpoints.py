"""Where nodes listen, and where other nodes and clients reach them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.security.security_protocol import SecurityProtocol

UNIX_PEER: Final = "unix:"
"""Prefix of a user id in place of a peer's address: a process of this machine, at a Unix socket."""
HANDLE_PEER: Final = "ray"
"""In place of an address: all callers by the handle of a Ray actor, who share the limits of one host."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A host and a port. An empty host means every interface; port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener: its name, its bind address, and the address advertised to clients."""

    name: str
    bind: Endpoint
    advertised: Endpoint | None
    internal: bool
    security: SecurityProtocol = SecurityProtocol.PLAINTEXT
    last_port: int = 0
    """The port of the last start, if any port will do now; 0 for none."""

    def advertised_to_clients(self, bound: Endpoint, *, host_name: str) -> Endpoint:
        """The endpoint Metadata shows: the advertised one, else the bound one with a host that others can reach.

        An advertised port of 0 means the bound port; an empty or wildcard host means this machine's name.
        """
        chosen = self.advertised or bound
        host = chosen.host if chosen.host not in ("", "0.0.0.0", "::") else host_name
        return Endpoint(host, chosen.port or bound.port)
