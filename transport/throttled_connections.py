"""The connections of a node that are throttled, and until when.

Clients decide how many there are: a change takes time for the connections that it concerns, and none for the others.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from raylog.transport.accepted_connection import AcceptedConnection

_ENDS_KEPT: Final = 64
"""So many ends of forgotten connections are kept in any case."""


class ThrottledConnections:
    """Each is throttled until the last of the times that were set for it."""

    def __init__(self) -> None:
        self._places: dict[AcceptedConnection, tuple[int, int]] = {}
        """Until when each is throttled, and its number in `_ends`."""
        self._numbered: dict[int, AcceptedConnection] = {}
        self._ends: list[tuple[int, int]] = []
        """A heap of times and numbers, some of connections that are forgotten: it holds no connection itself."""
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._places)

    def add(self, connection: AcceptedConnection, until_ms: int) -> None:
        """Throttle the connection until this time (monotonic), if it is not throttled for longer already."""
        connection.throttled = True
        place = self._places.get(connection)
        if place is not None and place[0] >= until_ms:
            return
        self.forget(connection)
        self._last_number += 1
        self._places[connection] = until_ms, self._last_number
        self._numbered[self._last_number] = connection
        heapq.heappush(self._ends, (until_ms, self._last_number))

    def forget(self, connection: AcceptedConnection) -> None:
        """The connection is closed; it need not be throttled."""
        place = self._places.pop(connection, None)
        if place is None:
            return
        del self._numbered[place[1]]
        if len(self._ends) > _ENDS_KEPT and len(self._ends) > 4 * len(self._numbered):
            self._ends = [end for end in self._ends if end[1] in self._numbered]
            heapq.heapify(self._ends)

    def take_ended(self, now_ms: int) -> list[AcceptedConnection]:
        """Those that are not throttled any longer, in the order of their times."""
        ended = []
        while self._ends and self._ends[0][0] <= now_ms:
            connection = self._numbered.pop(heapq.heappop(self._ends)[1], None)
            if connection is not None:
                del self._places[connection]
                connection.throttled = False
                ended.append(connection)
        return ended

    def next_deadline_ms(self) -> int | None:
        """The earliest time at which `take_ended` returns one."""
        while self._ends and self._ends[0][1] not in self._numbered:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None
