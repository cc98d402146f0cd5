"""Sessions of brokers with the controller: soft state, rebuilt by each new active controller.

Brokers keep a connection to every controller. A standby controller records which of these connections have broken. When
it becomes active it ends the sessions of those brokers at once, and starts new sessions for all others.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from dataclasses import dataclass

from raylog.core.ids import BrokerId


@dataclass(slots=True)
class _Session:
    connection: Hashable | None
    expires_ms: int


class BrokerSessions:
    """A session ends `timeout_ms` after the last heartbeat, or when the connection of that heartbeat is lost."""

    def __init__(self, *, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._sessions: dict[BrokerId, _Session] = {}

    def start_all(self, broker_ids: Iterable[BrokerId], *, now_ms: int, disconnected: Container[BrokerId] = ()) -> None:
        """For a controller that becomes active: start all sessions; those of `disconnected` brokers expire at once."""
        for broker_id in broker_ids:
            self._sessions[broker_id] = _Session(None, now_ms + (0 if broker_id in disconnected else self._timeout_ms))

    def heartbeat_received(self, broker_id: BrokerId, connection: Hashable, *, now_ms: int) -> None:
        self._sessions[broker_id] = _Session(connection, now_ms + self._timeout_ms)

    def forget(self, broker_id: BrokerId) -> None:
        """Remove the session of an unregistered broker without fencing it."""
        self._sessions.pop(broker_id, None)

    def is_alive(self, broker_id: BrokerId) -> bool:
        """Whether this controller has received a heartbeat of the broker. A session from `start_all` does not count."""
        session = self._sessions.get(broker_id)
        return session is not None and session.connection is not None

    def connection_lost(self, connection: Hashable) -> list[BrokerId]:
        """End the sessions of this connection, and return their brokers: this detects a killed process at once."""
        lost = [broker_id for broker_id, session in self._sessions.items() if session.connection == connection]
        return self._end(lost)

    def expire(self, *, now_ms: int) -> list[BrokerId]:
        """End the sessions that have timed out, and return their brokers: this detects a process that hangs."""
        return self._end([broker_id for broker_id, session in self._sessions.items() if now_ms >= session.expires_ms])

    def next_expiry_ms(self) -> int | None:
        return min((session.expires_ms for session in self._sessions.values()), default=None)

    def _end(self, broker_ids: list[BrokerId]) -> list[BrokerId]:
        for broker_id in broker_ids:
            del self._sessions[broker_id]
        return broker_ids


class BrokerPresence:
    """The brokers whose connections to a standby controller have all broken, and none was re-established.

    While a broker looks for the active controller it has a second connection for a moment, which it closes itself.
    """

    def __init__(self) -> None:
        self.disconnected: set[BrokerId] = set()
        self._connections: dict[BrokerId, set[Hashable]] = {}

    def heartbeat_received(self, broker_id: BrokerId, connection: Hashable) -> None:
        self._connections.setdefault(broker_id, set()).add(connection)
        self.disconnected.discard(broker_id)

    def connection_lost(self, connection: Hashable) -> None:
        lost = []
        for broker_id, connections in self._connections.items():
            connections.discard(connection)
            if not connections:
                lost.append(broker_id)
        for broker_id in lost:
            del self._connections[broker_id]
        self.disconnected.update(lost)
