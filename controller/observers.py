"""Who follows the metadata log, and how far each has come. Soft state of one controller, told of by their fetches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raylog.core.clock import Now
from raylog.core.ids import NO_OFFSET, NO_TIMESTAMP_MS, BrokerId, Offset

SESSION_MS = 300_000
"""Who has not fetched for so long follows no more, as in Kafka."""


@dataclass(slots=True)
class Observer:
    """One follower. Times are of the wall clock, in milliseconds."""

    broker_id: BrokerId
    log_end_offset: Offset = NO_OFFSET
    """Of the first record it has not got, by its last fetch."""
    last_fetch_ms: int = NO_TIMESTAMP_MS
    last_caught_up_ms: int = NO_TIMESTAMP_MS
    """When it had all that there was last; -1 where it is not known to have had that."""
    leader_end_offset: Offset = NO_OFFSET
    """Where the leader's log ended at its last fetch."""
    expires_ms: int = 0
    """By the monotonic clock."""


class Observers:
    """One entry for each broker that fetches."""

    def __init__(self) -> None:
        self._observers: dict[BrokerId, Observer] = {}

    def fetched(self, broker_id: BrokerId, fetch_offset: Offset, *, leader_end_offset: Offset, now: Now) -> None:
        """The broker asks for the records from `fetch_offset` on.

        It is caught up when it has all that there is. Where it has only what there was at its fetch before, it was
        caught up then (KIP-836): it may never have all in a log that grows all the time.
        """
        observer = self._observers.setdefault(broker_id, Observer(broker_id))
        if fetch_offset >= leader_end_offset:
            observer.last_caught_up_ms = now.wall_ms
        elif fetch_offset >= observer.leader_end_offset:
            observer.last_caught_up_ms = observer.last_fetch_ms
        observer.log_end_offset = fetch_offset
        observer.leader_end_offset = leader_end_offset
        observer.last_fetch_ms = now.wall_ms
        observer.expires_ms = now.monotonic_ms + SESSION_MS

    def all_know_upto(self, broker_ids: Iterable[BrokerId], offset: Offset) -> Offset:
        """All of these brokers know every record below this offset, which is no larger than `offset`."""
        for broker_id in broker_ids:
            observer = self._observers.get(broker_id)
            offset = min(offset, NO_OFFSET if observer is None else observer.log_end_offset)
        return offset

    def following(self, *, now_ms: int) -> Iterator[Observer]:
        """Those that have fetched lately, in order of their ids; the others are forgotten."""
        self._observers = {key: each for key, each in self._observers.items() if each.expires_ms > now_ms}
        for broker_id in sorted(self._observers):
            yield self._observers[broker_id]
