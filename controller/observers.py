"""The observers of the metadata log, and the position of each, as their fetches show it. Soft state of a controller.

They are brokers, and controllers that are not voters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID

from raylog.core.clock import Now
from raylog.core.ids import NO_DIRECTORY_ID, NO_OFFSET, NO_TIMESTAMP_MS, BrokerId, Offset

SESSION_MS = 300_000
"""An observer that has not fetched for this long is no longer listed, as in Kafka."""


@dataclass(slots=True)
class Observer:
    """One observer. Times are of the wall clock, in milliseconds."""

    broker_id: BrokerId
    directory_id: UUID = NO_DIRECTORY_ID
    """Of a controller: that of its metadata log."""
    log_end_offset: Offset = NO_OFFSET
    """The offset of its last fetch."""
    last_fetch_ms: int = NO_TIMESTAMP_MS
    last_caught_up_ms: int = NO_TIMESTAMP_MS
    """When it was last caught up with the leader; -1 if it never was."""
    leader_end_offset: Offset = NO_OFFSET
    """Log end offset of the leader at its last fetch."""
    caught_up_ms: int | None = None
    """As `last_caught_up_ms`, on the monotonic clock."""
    fetched_ms: int = 0
    """On the monotonic clock."""


class Observers:
    """One entry for each node that fetches."""

    def __init__(self) -> None:
        self._observers: dict[BrokerId, Observer] = {}

    def fetched(
        self,
        broker_id: BrokerId,
        fetch_offset: Offset,
        *,
        leader_end_offset: Offset,
        now: Now,
        directory_id: UUID = NO_DIRECTORY_ID,
    ) -> None:
        """The node has fetched from `fetch_offset` on.

        It is caught up if that is the end of the leader's log. If it is at least the end at the fetch before, it was
        caught up at that time (KIP-836): in a log that grows all the time a follower may never reach the end.
        """
        observer = self._observers.get(broker_id)
        if observer is None or observer.directory_id != directory_id:
            observer = self._observers[broker_id] = Observer(broker_id, directory_id)
        if fetch_offset >= leader_end_offset:
            observer.last_caught_up_ms, observer.caught_up_ms = now.wall_ms, now.monotonic_ms
        elif fetch_offset >= observer.leader_end_offset:
            observer.last_caught_up_ms, observer.caught_up_ms = observer.last_fetch_ms, observer.fetched_ms
        observer.log_end_offset = fetch_offset
        observer.leader_end_offset = leader_end_offset
        observer.last_fetch_ms = now.wall_ms
        observer.fetched_ms = now.monotonic_ms

    def caught_up_ms(self, node_id: BrokerId, directory_id: UUID) -> int | None:
        """When the node, with this log directory, was last caught up, on the monotonic clock; None if it never was."""
        observer = self._observers.get(node_id)
        return observer.caught_up_ms if observer is not None and observer.directory_id == directory_id else None

    def forget(self, node_id: BrokerId) -> None:
        """It has become a voter."""
        self._observers.pop(node_id, None)

    def min_log_end_offset(self, broker_ids: Iterable[BrokerId], offset: Offset) -> Offset:
        """The largest offset, up to `offset`, below which all these brokers have every record."""
        for broker_id in broker_ids:
            observer = self._observers.get(broker_id)
            offset = min(offset, NO_OFFSET if observer is None else observer.log_end_offset)
        return offset

    def following(self, *, now_ms: int) -> Iterator[Observer]:
        """The current observers, by id. Expired ones are removed."""
        self._observers = {key: each for key, each in self._observers.items() if each.fetched_ms + SESSION_MS > now_ms}
        for broker_id in sorted(self._observers):
            yield self._observers[broker_id]
