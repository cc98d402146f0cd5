"""Exchanges for tests that call a handler, or look at a coordinator's state, without a request on a connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raylog.core.clock import Now
from raylog.protocol.registry import api_for
from raylog.security.authenticator import NoSasl
from raylog.security.principal import Principal
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.commits import CommitSource
from raylog.transport.exchange import Exchange
from raylog.transport.node import Node


def exchange_on(
    node: Node, connection: AcceptedConnection, api_key: int, version: int, now: Now, request: Any = None
) -> Exchange:
    """The exchange of a request that has just arrived."""
    spec = api_for(api_key)
    assert spec is not None
    exchange = Exchange(
        node,
        connection,
        spec,
        version,
        correlation_id=0,
        client_id=None,
        frame=memoryview(b""),
        now=now,
        request=request,
    )
    connection.begin(exchange)
    return exchange


class Answers(Exchange):
    """Records the responses and sends nothing."""

    __slots__ = ("told",)

    def __init__(self, exchange: Exchange, told: Callable[[Any], None]) -> None:
        for name in Exchange.__slots__:
            setattr(self, name, getattr(exchange, name))
        self.told = told

    def answer(self, response: Any) -> None:
        self.told(response)


@dataclass
class Looking:
    """Reads a coordinator's state between events."""

    now: Now

    def depends_on(self, source: CommitSource) -> None:
        """Ignore that the state may not be committed."""


def log_in(connection: AcceptedConnection, principal: Principal) -> None:
    """Set the principal, as if the peer had authenticated."""
    connection.authenticator = NoSasl(principal)
