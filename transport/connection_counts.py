"""Counts of the connections of one listener through one door: TCP, the Unix socket, or the actor's handle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raylog.transport.endpoints import HANDLE_PEER, UNIX_PEER

TCP: Final = "tcp"
UNIX: Final = "unix"
HANDLE: Final = "handle"


@dataclass(slots=True)
class ConnectionCounts:
    """Since the node started."""

    opened: int = 0
    closed: int = 0
    refused: int = 0
    """Not opened, because of a limit."""
    authenticated: int = 0
    """Successful authentications, repeated ones included."""
    unauthenticated: int = 0
    """Failed authentications."""
    bytes_in: int = 0
    bytes_out: int = 0
    """Of responses."""


def door_of(peer_host: str) -> str:
    """The door by which a peer came."""
    if peer_host.startswith(UNIX_PEER):
        return UNIX
    return HANDLE if peer_host == HANDLE_PEER else TCP
