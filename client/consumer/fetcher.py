"""Fetches the records of a consumer's partitions, from leaders or the replicas they name. Sans-IO.

Each broker is asked for all partitions that it serves and of which nothing is buffered, one request at a time, in a
fetch session (KIP-227): a request names the partitions that have changed since the one before. Each fetch names the
leader epoch of the record before its offset: a leader whose log has another one there says where they diverge
(KIP-595), and the consumer goes back to that offset if it is before its position.

While records of a broker are buffered, a Fetch that waits there for others would delay the next one of these
partitions. As in Kafka's consumer since KAFKA-17182 it is not sent; but a broker is asked without waiting once a
partition that has more records is read to the end of its buffer, and for the others at least every HELD_MS_MAX.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from raylog.client.consumer.fetched import FetchedBatches
from raylog.client.consumer.positions import Positions
from raylog.client.consumer.subscription import PartitionState, Subscription
from raylog.client.network_client import NetworkClient
from raylog.config.consumer import NO_RESET, ConsumerSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, NO_LEADER_EPOCH, TopicPartition
from raylog.protocol.fetch import FetchPartition, FetchRequest
from raylog.protocol.fetch_session import SESSION_ERRORS, FetchSession, PartitionKey, SessionRequest
from raylog.protocol.records.isolation import READ_COMMITTED, READ_UNCOMMITTED, Aborted
from raylog.protocol.registry import FETCH
from raylog.protocol.schema import Message
from raylog.transport.peer_link import VersionFor

log = logging.getLogger("raylog.client")
TOPICS_BY_ID_SINCE: Final = 13
HELD_MS_MAX: Final = 500
"""For so long a broker is not asked for other partitions while records of it are buffered; fetch.max.wait.ms if that is
shorter."""
CLOSE_MS_MAX: Final = 500
"""How long a broker may take to remove the session of a consumer that closes."""
RAISED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Errors of a partition that poll() raises. After all others the metadata is asked for again."""


@dataclass(slots=True)
class _Broker:
    """The fetches from one broker."""

    session: FetchSession = field(default_factory=FetchSession)
    busy: bool = False
    """A request is in flight."""
    answered_ms: int = 0
    """When the last one ended."""


class _Asked(NamedTuple):
    """A partition as a request asks for it."""

    moves: int
    leader_epoch: int


class _Request(NamedTuple):
    """What to ask a broker for."""

    states: list[PartitionState]
    wait_ms: int


class _Due(NamedTuple):
    """What there is to do."""

    requests: dict[int, _Request]
    """Those to send now, by broker id."""
    deadline_ms: int | None
    """When there is more to do, if nothing else happens."""
    leaders_missing: bool


class Fetcher:
    """A service of the network."""

    def __init__(
        self, network: NetworkClient, subscription: Subscription, settings: ConsumerSettings, positions: Positions
    ) -> None:
        self._network = network
        self._subscription = subscription
        self._settings = settings
        self._positions = positions
        self.local_nodes: set[int] = set()
        """The brokers on this machine, whose files the consumer reads."""
        self._brokers: defaultdict[int, _Broker] = defaultdict(_Broker)
        self._deadline_ms: int | None = None
        self._closing = False
        self._open_closes = 0
        """Requests in flight that close sessions."""

    def run(self, now: Now) -> None:
        if self._closing:
            return
        due = self._due(now)
        self._deadline_ms = due.deadline_ms
        for node_id, request in due.requests.items():
            self._ask(node_id, request, now)

    def next_deadline_ms(self) -> int | None:
        return self._deadline_ms

    def is_due(self, now: Now) -> bool:
        """Whether `run` would send a request, or needs the metadata of a partition whose leader is not known."""
        due = self._due(now)
        return bool(due.requests) or due.leaders_missing

    def _due(self, now: Now) -> _Due:
        wanted: defaultdict[int, list[PartitionState]] = defaultdict(list)
        holding: set[int | None] = set()
        """The brokers of which records are buffered."""
        deadlines: list[int] = []
        leaders_missing = False
        for state in self._subscription.partitions.values():
            if state.asked:
                continue
            if state.buffered:
                if state.returnable:
                    holding.add(state.buffered[0].node_id)
            elif not state.fetchable:
                continue
            elif now.monotonic_ms < state.due_ms:
                deadlines.append(state.due_ms)
            elif not self.is_local(state, now):
                node_id = self._node_for(state, now)
                if node_id is None:
                    leaders_missing = True
                elif not self._brokers[node_id].busy:
                    wanted[node_id].append(state)
        requests = {}
        for node_id, states in wanted.items():
            broker = self._brokers[node_id]
            held_until_ms = broker.answered_ms + min(self._settings.fetch_wait_ms, HELD_MS_MAX)
            if node_id not in holding:
                requests[node_id] = _Request(states, self._settings.fetch_wait_ms)
            elif now.monotonic_ms >= held_until_ms or any(self._has_more(broker, state) for state in states):
                requests[node_id] = _Request(states, 0)
            else:
                deadlines.append(held_until_ms)
        return _Due(requests, min(deadlines, default=None), leaders_missing)

    def _has_more(self, broker: _Broker, state: PartitionState) -> bool:
        """Whether there are records at a position that the broker was not asked for by the last request."""
        known = broker.session.wanted(self._key(state.tp))
        if known is not None and known.fetch_offset == state.position:
            return False
        end = state.last_stable_offset if self._settings.committed else state.high_watermark
        return end is None or _position(state) < end

    def is_local(self, state: PartitionState, now: Now) -> bool:
        """Whether its records are read from files."""
        if not self.local_nodes:
            return False
        leader = self._network.metadata.leader(state.tp)
        return (
            leader is not None
            and leader.broker_id in self.local_nodes
            and state.checked_epoch == self._leader_epoch(state.tp)
            and now.monotonic_ms >= state.requested_until_ms
        )

    def _node_for(self, state: PartitionState, now: Now) -> int | None:
        replica_id, metadata = state.replica_id, self._network.metadata
        is_known = replica_id in metadata.nodes and state.tp.topic in metadata.topics
        if is_known and now.monotonic_ms < state.replica_until_ms:
            return replica_id
        state.replica_id = None
        return self._positions.leader(state)

    # --- requests

    def _ask(self, node_id: int, request: _Request, now: Now) -> None:
        broker = self._brokers[node_id]
        session = broker.session
        broker.busy = True
        asked: dict[TopicPartition, _Asked] = {}
        keys: set[PartitionKey] = set()
        names: dict[UUID, str] = {}
        for state in request.states:
            state.asked = True
            key, leader_epoch = self._key(state.tp), self._leader_epoch(state.tp)
            asked[state.tp] = _Asked(state.moves, leader_epoch)
            keys.add(key)
            names[key.topic_id] = key.topic
            known = session.wanted(key)
            if known is not None and state.high_watermark is None:  # assigned anew: the session omits what it has told
                session.reset()
            if (
                known is None
                or known.fetch_offset != state.position
                or known.last_fetched_epoch != state.epoch
                or known.current_leader_epoch != leader_epoch
            ):
                session.want(key, self._wanted(state, leader_epoch))
        session.keep_only(keys)
        self._network.ask(
            node_id,
            partial(self._request, session, request.wait_ms),
            partial(self._answered, node_id, asked, names),
            partial(self._failed, node_id, asked),
            now,
            timeout_ms=self._settings.network.request_timeout_ms + request.wait_ms,
        )

    def _request(self, session: FetchSession, wait_ms: int, version_for: VersionFor) -> Message:
        return self._message(session.request(by_id=version_for(FETCH) >= TOPICS_BY_ID_SINCE), wait_ms)

    def _message(self, request: SessionRequest, wait_ms: int) -> Message:
        settings = self._settings
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=settings.fetch_bytes_min,
            max_bytes=settings.fetch_bytes_max,
            isolation_level=READ_COMMITTED if settings.committed else READ_UNCOMMITTED,
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            topics=request.topics(),
            forgotten_topics=request.forgotten_topics(),
            rack_id=settings.rack,
        )

    def _wanted(self, state: PartitionState, leader_epoch: int) -> FetchPartition:
        return FetchPartition(
            partition=state.tp.partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=_position(state),
            last_fetched_epoch=state.epoch,
            partition_max_bytes=self._settings.partition_bytes_max,
        )

    def _key(self, tp: TopicPartition) -> PartitionKey:
        return PartitionKey(tp.topic, self._network.metadata.topics[tp.topic].topic_id, tp.partition)

    def _leader_epoch(self, tp: TopicPartition) -> int:
        topic = self._network.metadata.topic(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            return NO_LEADER_EPOCH
        return topic.partitions[tp.partition].leader_epoch

    # --- the end

    def close_sessions(self, now: Now) -> None:
        """Have the brokers that can be reached remove their sessions. Nothing is fetched any more.

        A request that waits at the broker would hold this one up on the same connection.
        """
        self._closing, self._deadline_ms = True, None
        for node_id, broker in self._brokers.items():
            request = broker.session.close()
            if request is not None and node_id in self._network.metadata.nodes and self._network.link(node_id).ready:
                self._open_closes += 1
                self._network.ask(
                    node_id,
                    self._message(request, 0),
                    self._session_closed,
                    self._session_closed,
                    now,
                    timeout_ms=CLOSE_MS_MAX,
                    coordinator=broker.busy,
                )

    @property
    def sessions_closed(self) -> bool:
        """Whether no request of `close_sessions` is in flight any more."""
        return not self._open_closes

    def _session_closed(self, _: object, now: Now) -> None:
        self._open_closes -= 1

    # --- responses

    def _answered(
        self,
        node_id: int,
        asked: Mapping[TopicPartition, _Asked],
        names: Mapping[UUID, str],
        response: Any,
        now: Now,
    ) -> None:
        broker = self._brokers[node_id]
        code, was_open = response.error_code, broker.session.is_open
        if not broker.session.answered(response):
            if code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
                self._network.metadata.expire()
            if was_open and code in SESSION_ERRORS:
                self._ended(broker, asked, now)  # the next request begins another one
            else:
                self._failed(node_id, asked, KafkaError(code, code.sentence), now)
            return
        for topic in response.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for result in topic.partitions:
                tp = TopicPartition(name, result.partition_index)
                state = self._asked_state(tp, asked)
                if state is not None:
                    self._answered_partition(state, result, topic.topic_id, asked[tp].leader_epoch, now)
                    if state.buffered:
                        state.buffered[-1].node_id = node_id
                elif tp in self._subscription.partitions and result.error_code is ErrorCode.NONE:
                    _note_offsets(self._subscription.partitions[tp], result)  # the session does not repeat them
        self._ended(broker, asked, now)  # also for those that the response omits

    def _failed(self, node_id: int, asked: Mapping[TopicPartition, _Asked], error: KafkaError, now: Now) -> None:
        broker = self._brokers[node_id]
        broker.session.reset()
        for state in self._ended(broker, asked, now):
            self._refused(state, error, now)

    def _ended(self, broker: _Broker, asked: Mapping[TopicPartition, _Asked], now: Now) -> Sequence[PartitionState]:
        """The request has ended. Returns the partitions that still waited for it."""
        broker.busy = False
        broker.answered_ms = now.monotonic_ms
        return [state for tp in asked if (state := self._asked_state(tp, asked)) is not None]

    def _asked_state(self, tp: TopicPartition, asked: Mapping[TopicPartition, _Asked]) -> PartitionState | None:
        """The partition, if it is still waiting for this response."""
        state = self._subscription.partitions.get(tp)
        if state is None or not state.asked or tp not in asked or state.moves != asked[tp].moves:
            return None
        state.asked = False
        return state

    def _answered_partition(self, state: PartitionState, result: Any, topic_id: UUID, epoch: int, now: Now) -> None:
        code = result.error_code
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and state.replica_id is None:
            self._positions.reset(state, state.position)
        elif code is not ErrorCode.NONE:
            self._refused(state, KafkaError(code, f"{state.tp}: {code.sentence}"), now)
        elif result.diverging_epoch.end_offset >= 0:
            self._truncated(state, result.diverging_epoch)
        else:
            state.attempts = 0
            state.checked_epoch = epoch
            _note_offsets(state, result)
            if result.preferred_read_replica != NO_BROKER_ID:
                state.replica_id = result.preferred_read_replica
                state.replica_until_ms = now.monotonic_ms + self._settings.network.metadata_age_ms_max
            self._buffer(state, result, topic_id, now)

    def _buffer(self, state: PartitionState, result: Any, topic_id: UUID, now: Now) -> None:
        records = b"".join(result.records or ())
        if not records:
            return
        aborted = [Aborted(each.producer_id, each.first_offset) for each in result.aborted_transactions or ()]
        position = _position(state)
        try:
            fetched = FetchedBatches(state.tp, records, position, aborted, check_crcs=self._settings.check_crcs)
            if fetched.next_offset <= position:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the response has no complete batch from there on")
        except KafkaError as error:  # a batch of another format, or garbage
            self._positions.raise_error(KafkaError(error.code, f"{state.tp}, offset {position}: {error.message}"))
            self._positions.delay(state, now)
        else:
            fetched.topic_id = topic_id
            state.buffered.append(fetched)

    def _truncated(self, state: PartitionState, diverging: Any) -> None:
        """The leader's last epoch that is not newer than that of the position ends at another offset.

        If it ends before the position, the log was truncated, and what was read behind that end is gone.
        """
        if diverging.end_offset >= _position(state):
            state.seek(_position(state), diverging.epoch)
            return
        where = f"{state.tp}: the log was truncated to offset {diverging.end_offset} before position {state.position}"
        if self._settings.reset == NO_RESET:
            state.stuck = True
            self._positions.raise_error(KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, where))
            return
        log.warning("log truncated", extra={"tp": str(state.tp), "offset": diverging.end_offset})
        start = self._positions.on_truncated(state.tp, diverging.end_offset)
        state.seek(start, diverging.epoch if start == diverging.end_offset else NO_LEADER_EPOCH)

    def _refused(self, state: PartitionState, error: KafkaError, now: Now) -> None:
        state.replica_id = None
        self._positions.delay(state, now)
        if error.code in RAISED:
            self._positions.raise_error(error)
        else:
            self._network.metadata.expire()


def _note_offsets(state: PartitionState, result: Any) -> None:
    state.high_watermark = result.high_watermark
    state.last_stable_offset = result.last_stable_offset
    state.log_start_offset = result.log_start_offset


def _position(state: PartitionState) -> int:
    assert state.position is not None  # only such partitions are fetched
    return state.position
