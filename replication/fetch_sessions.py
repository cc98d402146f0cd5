"""Incremental fetches (KIP-227): after the first full request, client and broker exchange only what changed.

A session is identified by (id, epoch). Epoch 0 requests a new session, -1 none. Each later request carries the next
epoch, so a lost or repeated request is detected. An incremental response omits every partition without new data.

    request (id 0, epoch 0, all partitions)   ->  response (id 17, all partitions)
    request (id 17, epoch 1, changes)         ->  response (id 17, partitions with new data)
    request (id 17, epoch 2, nothing)         ->  ...
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_BROKER_ID, NO_LEADER_EPOCH
from raylog.protocol.fetch import FetchPartition, FetchPartitionResponse, FetchRequest

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
SESSION_ID_LIMIT = 1 << 31
EVICTION_IDLE_MS = 120_000
"""Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS: a session used more recently than this is not evicted."""


class PartitionKey(NamedTuple):
    """A partition as the client identifies it: by name up to v12, by topic id since v13; the other field is empty."""

    topic: str
    topic_id: UUID
    partition: int


@dataclass(slots=True)
class _LastSent:
    """What the client requests for a partition, and the values it was last sent."""

    wanted: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class _Session:
    uses_topic_ids: bool
    of_replica: bool
    next_epoch: int
    last_used_ms: int
    partitions: OrderedDict[PartitionKey, _LastSent] = field(default_factory=OrderedDict)


Results = list[tuple[PartitionKey, FetchPartitionResponse]]


@dataclass(slots=True)
class FetchContext:
    """One request in its session: which partitions to read, and which results to send."""

    session_id: int
    partitions: list[tuple[PartitionKey, FetchPartition]]
    _session: _Session | None = None
    is_incremental: bool = False

    def raises_log_start(self, key: PartitionKey, result: FetchPartitionResponse) -> bool:
        """Whether the reader's log starts before that of the leader, which has not sent this log start offset yet."""
        last_sent = None if self._session is None else self._session.partitions.get(key)
        return last_sent is not None and (
            last_sent.wanted.log_start_offset < result.log_start_offset != last_sent.log_start_offset
        )

    def changed(self, results: Results) -> Results:
        """The results to send, which the session records. Partitions with records move to the end of the order."""
        if self._session is None:
            return results
        sent: Results = []
        for key, result in results:
            last_sent = self._session.partitions.get(key)
            if last_sent is None:
                continue
            has_changed = (
                bool(result.records)
                or result.error_code != ErrorCode.NONE
                or result.preferred_read_replica != NO_BROKER_ID
                or result.diverging_epoch.epoch != NO_LEADER_EPOCH
                or result.high_watermark != last_sent.high_watermark
                or result.log_start_offset != last_sent.log_start_offset
            )
            if result.error_code == ErrorCode.NONE:
                last_sent.high_watermark = result.high_watermark
                last_sent.log_start_offset = result.log_start_offset
            else:
                last_sent.high_watermark = last_sent.log_start_offset = -1
            if result.records:
                self._session.partitions.move_to_end(key)
            if has_changed or not self.is_incremental:
                sent.append((key, result))
        return sent


class FetchSessions:
    """All sessions of one broker, at most `slots_max`. A new one evicts the longest idle after EVICTION_IDLE_MS.

    A replica's session, which has many partitions, evicts a consumer's session regardless of idle time, as in Kafka.
    """

    def __init__(self, *, slots_max: int, first_session_id: int) -> None:
        self._slots_max = slots_max
        self._next_id = first_session_id % (SESSION_ID_LIMIT - 1) + 1
        self._sessions: OrderedDict[int, _Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def context(self, request: FetchRequest, *, version: int, now_ms: int) -> FetchContext | ErrorCode:
        """The context of `request`, or the top-level error code if the request is refused."""
        uses_topic_ids = version >= 13
        named = list(dict(_named(request)).items())  # of one that is named twice the last counts, as in Kafka
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            if request.session_epoch == FINAL_EPOCH:
                return FetchContext(NO_SESSION_ID, named)
            return self._new_session(
                named, uses_topic_ids=uses_topic_ids, of_replica=request.from_follower, now_ms=now_ms
            )
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.next_epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        for topic in request.forgotten_topics:
            for partition in topic.partitions:
                session.partitions.pop(PartitionKey(topic.name, topic.topic_id, partition), None)
        for key, wanted in named:
            last_sent = session.partitions.get(key)
            if last_sent is None:
                session.partitions[key] = _LastSent(wanted)
            else:
                last_sent.wanted = wanted
        session.next_epoch = next_epoch(session.next_epoch)
        session.last_used_ms = now_ms
        self._sessions.move_to_end(request.session_id)
        partitions = [(key, last_sent.wanted) for key, last_sent in session.partitions.items()]
        return FetchContext(request.session_id, partitions, session, is_incremental=True)

    def of_empty_response(self, context: FetchContext) -> int:
        """The session for a response that omits all results. A new session needs a response with all of them."""
        if context.is_incremental:
            return context.session_id
        self._sessions.pop(context.session_id, None)
        return NO_SESSION_ID

    def _new_session(
        self,
        named: list[tuple[PartitionKey, FetchPartition]],
        *,
        uses_topic_ids: bool,
        of_replica: bool,
        now_ms: int,
    ) -> FetchContext:
        if not named or not self._make_room(now_ms, for_replica=of_replica):
            return FetchContext(NO_SESSION_ID, named)
        while self._next_id in self._sessions:
            self._advance_id()
        session_id = self._next_id
        self._advance_id()
        session = _Session(uses_topic_ids, of_replica, next_epoch=1, last_used_ms=now_ms)
        session.partitions.update((key, _LastSent(wanted)) for key, wanted in named)
        self._sessions[session_id] = session
        return FetchContext(session_id, named, session)

    def _make_room(self, now_ms: int, *, for_replica: bool) -> bool:
        if len(self._sessions) < self._slots_max:
            return True
        evictable = (
            session_id
            for session_id, session in self._sessions.items()
            if now_ms - session.last_used_ms >= EVICTION_IDLE_MS or (for_replica and not session.of_replica)
        )
        oldest_id = next(evictable, None)
        return oldest_id is not None and self._sessions.pop(oldest_id) is not None

    def _advance_id(self) -> None:
        self._next_id = self._next_id % (SESSION_ID_LIMIT - 1) + 1


def next_epoch(epoch: int) -> int:
    """The epoch of the request that follows the one with `epoch`."""
    return epoch % (SESSION_ID_LIMIT - 1) + 1


def _named(request: FetchRequest) -> Iterable[tuple[PartitionKey, FetchPartition]]:
    for topic in request.topics:
        for wanted in topic.partitions:
            yield PartitionKey(topic.name, topic.topic_id, wanted.partition), wanted
