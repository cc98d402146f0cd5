"""(shell) What bootstrap.servers stands for: addresses as they are, or `<scheme>://<name>` with a resolver of its own.

`raylog/__init__.py` sets the resolver of `ray://`, which depends on Ray and therefore is in `raylog.actors`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from raylog.core.errors import ConfigError

if TYPE_CHECKING:
    import asyncio


class Session(Protocol):
    """A session at a broker that is running."""

    def start(self, protocol: asyncio.BufferedProtocol) -> None:
        """Be the transport of this protocol, which is connected from now on."""

    def close(self) -> None:
        """End a session that was not started."""


class Door(Protocol):
    """A way to brokers besides their addresses, for clients to which no network path leads. It is slow."""

    async def open(self, host: str, port: int, broker_id: int | None) -> Session:
        """Open a session at a broker, which is not None for an address of the bootstrap servers.

        Returns when the broker is running. Raises OSError.
        """


class Bootstrap(NamedTuple):
    """How to find a cluster."""

    servers: str
    """host:port[,host:port...], not checked."""
    door: Door | None = None


Resolver = Callable[[str], Bootstrap]
"""Finds the cluster of a name. Raises ConfigError, and KafkaError if its brokers do not respond."""

resolvers: dict[str, Resolver] = {}
"""By their schemes."""


def resolve(bootstrap_servers: str) -> Bootstrap:
    """Raises ConfigError, and KafkaError."""
    scheme, mark, name = bootstrap_servers.strip().partition("://")
    resolver = resolvers.get(scheme)
    if not mark or resolver is None:
        return Bootstrap(bootstrap_servers)
    try:
        return resolver(name)
    except ConfigError as error:
        raise ConfigError(f"bootstrap.servers={bootstrap_servers!r}: {error.message}") from error
