"""Incremental fetches (KIP-227): after the first full request, client and broker exchange only what changed.

A session is identified by (id, epoch). Epoch 0 requests a new session, -1 none. Each later request carries the next
epoch, so a lost or repeated request is detected. An incremental response omits every partition without new data.

    request (id 0, epoch 0, all partitions)   ->  response (id 17, all partitions)
    request (id 17, epoch 1, changes)         ->  response (id 17, partitions with new data)
    request (id 17, epoch 2, nothing)         ->  ...

Nor does the broker read every partition for each request. A partition is settled once its reader has all of it and
knows its offsets: nothing is read of it before the broker reports a change of it, or the request asks for another
offset. A request thus costs what has changed in its session, however many partitions that has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_BROKER_ID, NO_LEADER_EPOCH, BrokerId, TopicPartition
from raylog.protocol.fetch import UNKNOWN_HIGH_WATERMARK, FetchPartition, FetchPartitionResponse, FetchRequest
from raylog.protocol.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION_ID,
    SESSION_ID_LIMIT,
    PartitionKey,
    next_epoch,
)

EVICTION_IDLE_MS = 120_000
"""Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS: a session used more recently than this is not evicted."""


class _Reader(NamedTuple):
    """What else a request says that decides what can be read."""

    api_version: int
    isolation_level: int
    rack_id: str
    replica_id: int
    broker_epoch: int


@dataclass(slots=True)
class _Entry:
    """What the client requests for a partition, and the values it was last sent."""

    wanted: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    watched: TopicPartition | None = None
    """The partition whose changes are reported to the session."""

    @property
    def hears_of_commits(self) -> bool:
        return self.wanted.high_watermark != UNKNOWN_HIGH_WATERMARK


@dataclass(slots=True)
class _Session:
    session_id: int
    uses_topic_ids: bool
    reader: _Reader
    generation: int
    next_epoch: int
    last_used_ms: int
    partitions: OrderedDict[PartitionKey, _Entry]
    unsettled: dict[PartitionKey, None]
    """In the order in which they are read next."""

    @property
    def of_replica(self) -> bool:
        return self.reader.replica_id >= 0


Results = list[tuple[PartitionKey, FetchPartitionResponse]]


@dataclass(slots=True)
class FetchContext:
    """One request in its session: which partitions to read, and which results to send."""

    session_id: int
    _named: list[tuple[PartitionKey, FetchPartition]]
    _sessions: FetchSessions
    _session: _Session | None = None
    is_incremental: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no partitions are requested, by the request or its session."""
        return not (self._named if self._session is None else self._session.partitions)

    def to_read(self) -> list[tuple[PartitionKey, FetchPartition]]:
        """The partitions that may have news for the client, in their order."""
        if self._session is None or not self.is_incremental:
            return self._named
        partitions = self._session.partitions
        return [(key, partitions[key].wanted) for key in self._session.unsettled]

    @property
    def hears_of_commits(self) -> bool:
        """Whether a follower asks to be told of each commit at once."""
        if self._session is None:
            return any(wanted.high_watermark != UNKNOWN_HIGH_WATERMARK for _, wanted in self._named)
        return any(entry.hears_of_commits for entry in self._session.partitions.values())

    def settle(self, key: PartitionKey, tp: TopicPartition, result: FetchPartitionResponse) -> None:
        """The reader has all of the partition, as `result` says. With offsets that were sent it is settled."""
        entry = None if self._session is None or not self.is_incremental else self._session.partitions.get(key)
        if (
            self._session is not None
            and entry is not None
            and (result.high_watermark, result.log_start_offset) == (entry.high_watermark, entry.log_start_offset)
            and self._sessions.watch(self._session, key, tp)
        ):
            self._session.unsettled.pop(key, None)

    def watch(self, key: PartitionKey, tp: TopicPartition) -> None:
        """Changes of `tp` complete a Fetch that waits for its session."""
        if self._session is not None:
            self._sessions.watch(self._session, key, tp)

    def raises_log_start(self, key: PartitionKey, result: FetchPartitionResponse) -> bool:
        """Whether the reader's log starts before that of the leader, which has not sent this log start offset yet."""
        entry = None if self._session is None else self._session.partitions.get(key)
        return entry is not None and entry.wanted.log_start_offset < result.log_start_offset != entry.log_start_offset

    def changed(self, results: Results) -> Results:
        """The results to send, which the session records. Partitions with records move to the end of the order."""
        if self._session is None:
            return results
        sent: Results = []
        for key, result in results:
            entry = self._session.partitions.get(key)
            if entry is None:
                continue
            has_changed = (
                bool(result.records)
                or result.error_code != ErrorCode.NONE
                or result.preferred_read_replica != NO_BROKER_ID
                or result.diverging_epoch.epoch != NO_LEADER_EPOCH
                or result.high_watermark != entry.high_watermark
                or result.log_start_offset != entry.log_start_offset
            )
            if result.error_code == ErrorCode.NONE:
                entry.high_watermark = result.high_watermark
                entry.log_start_offset = result.log_start_offset
            else:
                entry.high_watermark = entry.log_start_offset = -1
            if result.records:
                self._session.partitions.move_to_end(key)
                self._session.unsettled.pop(key, None)
                self._session.unsettled[key] = None
            if has_changed or not self.is_incremental:
                sent.append((key, result))
        return sent


class FetchSessions:
    """All sessions of one broker, at most `slots_max`. A new one evicts the longest idle after EVICTION_IDLE_MS.

    A replica's session, which has many partitions, evicts a consumer's session regardless of idle time, as in Kafka.
    """

    def __init__(
        self,
        *,
        slots_max: int,
        first_session_id: int,
        on_unsettled: Callable[[TopicPartition, BrokerId, int], None],
    ) -> None:
        """`on_unsettled` is called when a follower's partition ceases to be settled, with the time in milliseconds
        (monotonic) of the last request at which the follower had all of it."""
        self._slots_max = slots_max
        self._on_unsettled = on_unsettled
        self._next_id = first_session_id % (SESSION_ID_LIMIT - 1) + 1
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        self._watchers: dict[TopicPartition, dict[int, PartitionKey]] = {}
        """By session id: how the session names the partition."""
        self._generation = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def context(self, request: FetchRequest, *, version: int, now_ms: int) -> FetchContext | ErrorCode:
        """The context of `request`, or the top-level error code if the request is refused."""
        uses_topic_ids = version >= 13
        named = list(dict(_named(request)).items())  # of one that is named twice the last counts, as in Kafka
        replica = request.replica_state
        reader = _Reader(version, request.isolation_level, request.rack_id, request.replica_id, replica.replica_epoch)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._end(request.session_id)
            if request.session_epoch == FINAL_EPOCH:
                return FetchContext(NO_SESSION_ID, named, self)
            return self._new_session(named, reader, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.next_epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        for topic in request.forgotten_topics:
            for partition in topic.partitions:
                self._forget(session, PartitionKey(topic.name, topic.topic_id, partition))
        for key, wanted in named:
            entry = session.partitions.get(key)
            if entry is None:
                session.partitions[key] = _Entry(wanted)
            else:
                entry.wanted = wanted
            self._unsettle(session, key)
        if (session.reader, session.generation) != (reader, self._generation):
            self._unsettle_all(session)
            session.reader, session.generation = reader, self._generation
        session.next_epoch = next_epoch(session.next_epoch)
        session.last_used_ms = now_ms
        self._sessions.move_to_end(request.session_id)
        return FetchContext(request.session_id, named, self, session, is_incremental=True)

    def of_empty_response(self, context: FetchContext) -> int:
        """The session for a response that omits all results. A new session needs a response with all of them."""
        if context.is_incremental:
            return context.session_id
        self._end(context.session_id)
        return NO_SESSION_ID

    # --- changes

    def changed(self, tp: TopicPartition) -> list[int]:
        """The partition has changed: it is settled no more in the sessions whose ids are returned."""
        watchers = self._watchers.get(tp)
        if watchers is None:
            return []
        for session_id, key in watchers.items():
            self._unsettle(self._sessions[session_id], key)
        return list(watchers)

    def all_changed(self) -> None:
        """What any partition shows may have changed, such as the rights of a client: none is settled any more."""
        self._generation += 1

    def watch(self, session: _Session, key: PartitionKey, tp: TopicPartition) -> bool:
        """Report the changes of `tp`, which the session knows as `key`, to the session; False if it has ended."""
        entry = session.partitions.get(key)
        if entry is None or self._sessions.get(session.session_id) is not session:
            return False
        if entry.watched != tp:
            self._unwatch(session, key, entry)
            entry.watched = tp
            self._watchers.setdefault(tp, {})[session.session_id] = key
        return True

    def _unwatch(self, session: _Session, key: PartitionKey, entry: _Entry) -> None:
        tp, entry.watched = entry.watched, None
        watchers = None if tp is None else self._watchers.get(tp)
        if tp is None or watchers is None or watchers.get(session.session_id) != key:
            return  # a topic of the same name was created anew
        del watchers[session.session_id]
        if not watchers:
            del self._watchers[tp]

    def _unsettle(self, session: _Session, key: PartitionKey) -> None:
        if key not in session.unsettled:
            session.unsettled[key] = None
            tp = session.partitions[key].watched
            if session.of_replica and tp is not None:
                self._on_unsettled(tp, BrokerId(session.reader.replica_id), session.last_used_ms)

    def _unsettle_all(self, session: _Session) -> None:
        for key in session.partitions:
            self._unsettle(session, key)
        session.unsettled = dict.fromkeys(session.partitions)

    # --- sessions

    def _forget(self, session: _Session, key: PartitionKey) -> None:
        if key in session.partitions:
            self._unsettle(session, key)
            del session.unsettled[key]
            self._unwatch(session, key, session.partitions.pop(key))

    def _end(self, session_id: int) -> None:
        """Remove a session. A request that still waits in it reads all partitions at its deadline."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._unsettle_all(session)
            for key, entry in session.partitions.items():
                self._unwatch(session, key, entry)

    def _new_session(
        self,
        named: list[tuple[PartitionKey, FetchPartition]],
        reader: _Reader,
        *,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchContext:
        if not named or not self._make_room(now_ms, for_replica=reader.replica_id >= 0):
            return FetchContext(NO_SESSION_ID, named, self)
        while self._next_id in self._sessions:
            self._advance_id()
        session_id = self._next_id
        self._advance_id()
        entries = OrderedDict((key, _Entry(wanted)) for key, wanted in named)
        session = _Session(
            session_id,
            uses_topic_ids,
            reader,
            self._generation,
            next_epoch=1,
            last_used_ms=now_ms,
            partitions=entries,
            unsettled=dict.fromkeys(entries),
        )
        self._sessions[session_id] = session
        return FetchContext(session_id, named, self, session)

    def _make_room(self, now_ms: int, *, for_replica: bool) -> bool:
        if len(self._sessions) < self._slots_max:
            return True
        evictable = (
            session_id
            for session_id, session in self._sessions.items()
            if now_ms - session.last_used_ms >= EVICTION_IDLE_MS or (for_replica and not session.of_replica)
        )
        oldest_id = next(evictable, None)
        if oldest_id is None:
            return False
        self._end(oldest_id)
        return True

    def _advance_id(self) -> None:
        self._next_id = self._next_id % (SESSION_ID_LIMIT - 1) + 1


def _named(request: FetchRequest) -> Iterable[tuple[PartitionKey, FetchPartition]]:
    for topic in request.topics:
        for wanted in topic.partitions:
            yield PartitionKey(topic.name, topic.topic_id, wanted.partition), wanted
