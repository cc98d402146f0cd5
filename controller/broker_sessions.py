"""Which brokers have been heard of lately. Soft state of one controller.

Brokers keep a connection to every controller. One that is not active notes whose connection breaks, so that, when it
becomes active, it knows who has gone with its predecessor's machine; it gives every other broker time anew.
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
    """A session lasts `timeout_ms` from the last heartbeat, or until the connection that brought it is lost."""

    def __init__(self, *, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._sessions: dict[BrokerId, _Session] = {}

    def begin_all(self, broker_ids: Iterable[BrokerId], *, now_ms: int, gone: Container[BrokerId] = ()) -> None:
        """For a controller that becomes active: these brokers were alive, and may still be, but for those `gone`."""
        for broker_id in broker_ids:
            self._sessions[broker_id] = _Session(None, now_ms + (0 if broker_id in gone else self._timeout_ms))

    def heard(self, broker_id: BrokerId, connection: Hashable, *, now_ms: int) -> None:
        self._sessions[broker_id] = _Session(connection, now_ms + self._timeout_ms)

    def forget(self, broker_id: BrokerId) -> None:
        """It is no broker any more: nothing is to be done when it falls silent."""
        self._sessions.pop(broker_id, None)

    def is_alive(self, broker_id: BrokerId) -> bool:
        """Whether this controller has heard of it. A broker that only its predecessor has heard of may be gone."""
        session = self._sessions.get(broker_id)
        return session is not None and session.connection is not None

    def connection_lost(self, connection: Hashable) -> list[BrokerId]:
        """End the sessions that came by this connection: a process that is killed is noticed at once."""
        lost = [broker_id for broker_id, session in self._sessions.items() if session.connection == connection]
        return self._end(lost)

    def expire(self, *, now_ms: int) -> list[BrokerId]:
        """End the sessions that have not been heard of for too long: a process that hangs is noticed so."""
        return self._end([broker_id for broker_id, session in self._sessions.items() if now_ms >= session.expires_ms])

    def next_expiry_ms(self) -> int | None:
        return min((session.expires_ms for session in self._sessions.values()), default=None)

    def _end(self, broker_ids: list[BrokerId]) -> list[BrokerId]:
        for broker_id in broker_ids:
            del self._sessions[broker_id]
        return broker_ids


class BrokerPresence:
    """Whose connection to a controller that is not active has broken, and was not made again."""

    def __init__(self) -> None:
        self.gone: set[BrokerId] = set()
        self._connections: dict[BrokerId, Hashable] = {}

    def heard(self, broker_id: BrokerId, connection: Hashable) -> None:
        self._connections[broker_id] = connection
        self.gone.discard(broker_id)

    def connection_lost(self, connection: Hashable) -> None:
        lost = [broker_id for broker_id, its in self._connections.items() if its == connection]
        for broker_id in lost:
            del self._connections[broker_id]
        self.gone.update(lost)
