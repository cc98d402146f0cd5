"""Requests of a share group's member to the leaders of its partitions: records are acquired and acknowledged. Sans-IO.

Each leader has a share session with the member, which knows the partitions: a request carries the session's next epoch,
what has changed, and the acknowledgements that wait. One request to each leader is in flight. A session ends with its
connection, and the leader then releases what the member has acquired: what is buffered of it is dropped.

Records are acquired only when the program wants some and none are left, because their locks do not wait for it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from raylog.client.backoff import backoff_ms
from raylog.client.consumer.fetched import FetchedBatches
from raylog.client.network_client import NEVER_MS, NetworkClient
from raylog.client.share.acquired import AcquiredRange, AcquiredRecords, Leader
from raylog.client.share.in_flight import Acknowledgement, InFlight
from raylog.client.share.leader_requests import Partition, acknowledge_request, fetch_request
from raylog.config.share_consumer import ShareConsumerSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.share import AcknowledgeType
from raylog.protocol.wire import ERROR_CODES
from raylog.transport.peer_link import RequestFor

log = logging.getLogger("raylog.client")
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = (1 << 31) - 1
ACQUIRED_MAX: Final = 1 << 20
"""The largest number of offsets that a leader may say to be acquired of a partition at once."""
RAISED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED)
"""Errors that poll() raises. After all others the metadata is asked for again."""
MOVED: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors of an acknowledgement after which it cannot be sent again: the new leader has not given the records out."""


@dataclass(slots=True, eq=False)
class _Session:
    """A share session with one leader."""

    epoch: int = INITIAL_EPOCH
    """Of the next request."""
    partitions: frozenset[Partition] = frozenset()
    """What the leader knows."""
    busy: bool = False
    """A request is in flight."""
    attempts: int = 0
    due_ms: int = 0
    """The pause after an error."""
    waiting: list[Acknowledgement] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return self.epoch != INITIAL_EPOCH

    def next_epoch(self) -> int:
        epoch = self.epoch
        self.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return epoch

    def end(self) -> None:
        self.epoch = INITIAL_EPOCH
        self.partitions = frozenset()


class LeaderSessions:
    """A service of the network."""

    def __init__(
        self,
        network: NetworkClient,
        settings: ShareConsumerSettings,
        in_flight: InFlight,
        on_error: Callable[[KafkaError], None],
        *,
        member_id: str,
    ) -> None:
        self.assigned: frozenset[Partition] = frozenset()
        """What to acquire records of."""
        self.buffered: deque[AcquiredRecords] = deque()
        """Acquired and not returned to the program."""
        self.lock_timeout_ms: int | None = None
        """How long a record is acquired, as a leader has said last."""
        self.on_acknowledged: Callable[[Acknowledgement], None] = lambda _: None
        """Called with each acknowledgement whose result is known."""
        self._network = network
        self._settings = settings
        self._in_flight = in_flight
        self._on_error = on_error
        self._member_id = member_id
        self._sessions: dict[int, _Session] = {}
        self._paused: dict[Partition, int] = {}
        """Partitions with an error, and when they are fetched again."""
        self._polling = False
        self._has_asked = True
        """Whether records were asked for since the program began to poll, or others were there."""
        self._closing = False
        self._ran_ms = 0
        self._turn = 0

    # --- the program

    def begin_poll(self) -> None:
        """The program waits for records."""
        self._polling = True
        self._has_asked = False

    def end_poll(self) -> None:
        """If no records were there, and none were asked for in so short a time, they are asked for once."""
        self._polling = False

    def returned_some(self) -> None:
        """The program has work: its locks would wait for records that are acquired now."""
        self._has_asked = True

    def add(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Send these."""
        for each in acknowledgements:
            self._session(each.leader.node_id).waiting.append(each)

    def close(self) -> None:
        """Acquire no more, and end all sessions once what waits is sent; this releases what is not acknowledged."""
        self._closing = True
        self.buffered.clear()

    @property
    def closed(self) -> bool:
        """Whether `close` has come to its end."""
        return not any(each.busy or each.is_open or each.waiting for each in self._sessions.values())

    def reopen(self) -> None:
        """After `close`, the member may go on with another subscription."""
        self._closing = False

    def abandon(self, error: KafkaError) -> None:
        """Whatever waits fails."""
        for session in self._sessions.values():
            self._finish(session, list(session.waiting), error)

    # --- as a service

    def run(self, now: Now) -> None:
        self._ran_ms = now.monotonic_ms
        by_leader = self._by_leader(now) if self._may_acquire else {}
        for node_id in sorted({*self._sessions, *by_leader}):
            session = self._session(node_id)
            self._give_up(session, now)
            if not session.busy and now.monotonic_ms >= session.due_ms:
                self._go_on(node_id, session, by_leader.get(node_id, {}), now)

    def next_deadline_ms(self) -> int | None:
        due = list(self._paused.values())
        for session in self._sessions.values():
            due.append(session.due_ms)
            due += [ms for each in session.waiting for ms in (each.deadline_ms, each.due_ms)]
        return min((ms for ms in due if ms > self._ran_ms), default=None)

    def _go_on(self, node_id: int, session: _Session, wanted: Mapping[Partition, TopicPartition], now: Now) -> None:
        if node_id not in self._network.metadata.nodes:
            self._end(node_id, session, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node_id} is gone"))
            del self._sessions[node_id]
            return
        if not session.is_open:
            self._finish(session, list(session.waiting), _session_lost(node_id))
        sent = self._to_send(session, now)
        if self._closing:
            if session.is_open and (sent or not session.waiting):
                self._acknowledge(node_id, session, sent, now)
        elif wanted:  # then nothing is being renewed
            self._has_asked = True
            self._fetch(node_id, session, sent, wanted, now)
        elif sent:
            self._acknowledge(node_id, session, sent, now)

    @property
    def _may_acquire(self) -> bool:
        """Whether the program wants records, and has none to get."""
        if self._closing or not (self._polling or not self._has_asked):
            return False
        if self.buffered or self._in_flight.renews:
            return False
        return not (self._settings.record_limit and any(each.busy for each in self._sessions.values()))

    def _by_leader(self, now: Now) -> dict[int, dict[Partition, TopicPartition]]:
        """The partitions to acquire records of, by broker; with a limit of records, of one broker after the other."""
        metadata = self._network.metadata
        self._paused = {each: ms for each, ms in self._paused.items() if ms > now.monotonic_ms}
        found: dict[int, dict[Partition, TopicPartition]] = {}
        for topic_id, number in sorted(self.assigned - self._paused.keys()):
            name = metadata.name_of(topic_id)
            leader = None if name is None else metadata.leader(TopicPartition(name, number))
            if name is not None and leader is not None:
                found.setdefault(leader.broker_id, {})[topic_id, number] = TopicPartition(name, number)
            else:
                self._pause((topic_id, number), now)
        if self._settings.record_limit and found:
            chosen = sorted(found)[self._turn % len(found)]
            return {chosen: found[chosen]}
        return found

    # --- requests

    def _to_send(self, session: _Session, now: Now) -> list[Acknowledgement]:
        """One for each partition: a request names each only once."""
        found: dict[Leader, Acknowledgement] = {}
        for each in session.waiting:
            if now.monotonic_ms >= each.due_ms:
                found.setdefault(each.leader, each)
        return list(found.values())

    def _fetch(
        self,
        node_id: int,
        session: _Session,
        sent: Sequence[Acknowledgement],
        wanted: Mapping[Partition, TopicPartition],
        now: Now,
    ) -> None:
        request = fetch_request(
            self._settings,
            self._member_id,
            session.next_epoch(),
            added=wanted.keys() - session.partitions,
            forgotten=session.partitions - wanted.keys(),
            acknowledged=sent,
        )
        session.partitions = frozenset(wanted)
        fetched = partial(self._fetched, node_id, wanted)
        self._ask(node_id, session, request, sent, fetched, now, wait_ms=self._settings.fetch_wait_ms)

    def _acknowledge(self, node_id: int, session: _Session, sent: Sequence[Acknowledgement], now: Now) -> None:
        """While closing, the last one ends the session."""
        if self._closing and len(sent) == len(session.waiting):
            session.end()
            epoch = FINAL_EPOCH
        else:
            epoch = session.next_epoch()
        request = acknowledge_request(self._settings, self._member_id, epoch, sent)
        self._ask(node_id, session, request, sent, self._acknowledged, now, wait_ms=0)

    def _ask(
        self,
        node_id: int,
        session: _Session,
        request: RequestFor,
        sent: Sequence[Acknowledgement],
        then: Callable[[Any, _Session, Sequence[Acknowledgement], Now], None],
        now: Now,
        *,
        wait_ms: int,
    ) -> None:
        session.busy = True

        def answered(response: Any, now: Now) -> None:
            code = response.error_code
            if code is not ErrorCode.NONE:
                failed(KafkaError(code, response.error_message or code.sentence), now)
                return
            session.busy = False
            session.attempts = 0
            if response.acquisition_lock_timeout_ms > 0:
                self.lock_timeout_ms = response.acquisition_lock_timeout_ms
            then(response, session, sent, now)

        def failed(error: KafkaError, now: Now) -> None:
            session.busy = False
            self._refused(node_id, session, sent, error, now)

        timeout_ms = self._settings.network.request_timeout_ms + wait_ms
        self._network.ask(node_id, request, answered, failed, now, timeout_ms=timeout_ms)

    # --- responses

    def _acknowledged(self, response: Any, session: _Session, sent: Sequence[Acknowledgement], now: Now) -> None:
        codes = {
            (topic.topic_id, each.partition_index): (each.error_code, each.error_message)
            for topic in response.responses
            for each in topic.partitions
        }
        self._settle(session, sent, codes, now)

    def _fetched(
        self,
        node_id: int,
        wanted: Mapping[Partition, TopicPartition],
        response: Any,
        session: _Session,
        sent: Sequence[Acknowledgement],
        now: Now,
    ) -> None:
        self._turn += 1
        codes: dict[Partition, tuple[ErrorCode, str | None]] = {}
        for topic in response.responses:
            for each in topic.partitions:
                partition = (topic.topic_id, each.partition_index)
                codes[partition] = (
                    ERROR_CODES.get(each.acknowledge_error_code, ErrorCode.UNKNOWN_SERVER_ERROR),
                    each.acknowledge_error_message,
                )
                if partition not in wanted:
                    continue
                if each.error_code is not ErrorCode.NONE:
                    self._pause(partition, now)
                    if each.error_code in RAISED:
                        text = f"{wanted[partition]}: {each.error_message or each.error_code.sentence}"
                        self._on_error(KafkaError(each.error_code, text))
                elif each.acquired_records:
                    self._buffer(Leader(node_id, topic.topic_id, wanted[partition]), each, now)
        self._settle(session, sent, codes, now)

    def _buffer(self, leader: Leader, result: Any, now: Now) -> None:
        if self._closing:  # the end of the session releases them
            return
        ranges = [
            AcquiredRange(each.first_offset, each.last_offset, each.delivery_count) for each in result.acquired_records
        ]
        if not _in_order(ranges):
            text = f"{leader.tp}: the broker says that it has acquired {ranges[:3]}, which cannot be"
            self._on_error(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text))
            return
        try:
            records = FetchedBatches(
                leader.tp, bytes(result.records), ranges[0].first_offset, (), check_crcs=self._settings.check_crcs
            )
        except KafkaError as error:  # a batch of another format, or garbage
            self._on_error(KafkaError(error.code, f"{leader.tp}, offset {ranges[0].first_offset}: {error.message}"))
            offsets = (offset for each in ranges for offset in range(each.first_offset, each.last_offset + 1))
            self._in_flight.settle(leader, offsets, AcknowledgeType.RELEASE)
            return
        expires_ms = NEVER_MS if self.lock_timeout_ms is None else now.monotonic_ms + self.lock_timeout_ms
        self.buffered.append(AcquiredRecords(leader, records, ranges, expires_ms=expires_ms))

    def _settle(
        self,
        session: _Session,
        sent: Sequence[Acknowledgement],
        codes: Mapping[Partition, tuple[ErrorCode, str | None]],
        now: Now,
    ) -> None:
        for each in sent:
            code, message = codes.get(
                each.leader.partition,
                (ErrorCode.UNKNOWN_SERVER_ERROR, "the response lacks the partition"),
            )
            if code is ErrorCode.NONE:
                self._finish(session, [each], None)
                continue
            each.error = KafkaError(code, f"{each.leader.tp}: {message or code.sentence}")
            if code in MOVED:
                self._network.metadata.expire()
            if code.retriable and code not in MOVED:
                each.attempts += 1
                each.due_ms = now.monotonic_ms + self._backoff_ms(each.attempts)
            else:
                self._finish(session, [each], each.error)

    def _refused(
        self, node_id: int, session: _Session, sent: Sequence[Acknowledgement], error: KafkaError, now: Now
    ) -> None:
        """The whole request: the session is lost, or in doubt, and what was acquired in it as well."""
        self._finish(session, sent, error)
        self._end(node_id, session, _session_lost(node_id))
        self._turn += 1
        session.attempts += 1
        session.due_ms = now.monotonic_ms + self._backoff_ms(session.attempts)
        if error.code in RAISED or not error.code.retriable:
            self._on_error(error)
        self._network.metadata.expire()

    def _end(self, node_id: int, session: _Session, error: KafkaError) -> None:
        log.debug("share session ended", extra={"broker": node_id})
        self._finish(session, list(session.waiting), error)
        session.end()
        self.buffered = deque(each for each in self.buffered if each.leader.node_id != node_id)

    def _pause(self, partition: Partition, now: Now) -> None:
        """Fetch it again a little later, and from where its leader is then."""
        self._paused[partition] = now.monotonic_ms + self._settings.network.retry_backoff_ms
        self._network.metadata.expire()

    # --- acknowledgements

    def _give_up(self, session: _Session, now: Now) -> None:
        for each in list(session.waiting):
            if now.monotonic_ms >= each.deadline_ms and not session.busy:
                text = f"{each.leader.tp}: the leader did not acknowledge in time"
                self._finish(session, [each], each.error or KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))

    def _finish(self, session: _Session, sent: Sequence[Acknowledgement], error: KafkaError | None) -> None:
        for each in sent:
            if each in session.waiting:
                session.waiting.remove(each)
            if not each.done:
                self._in_flight.finished(each, error)
                self.on_acknowledged(each)

    def _session(self, node_id: int) -> _Session:
        return self._sessions.setdefault(node_id, _Session())

    def _backoff_ms(self, attempts: int) -> int:
        settings = self._network.settings
        return backoff_ms(attempts, settings.retry_backoff_ms, settings.retry_backoff_ms_max, self._network.jitter)


def _session_lost(node_id: int) -> KafkaError:
    text = f"the share session with broker {node_id} has ended; its records are delivered again"
    return KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, text)


def _in_order(ranges: Sequence[AcquiredRange]) -> bool:
    """Whether a leader can have acquired this."""
    before, count = -1, 0
    for first, last, _ in ranges:
        if not before < first <= last:
            return False
        before, count = last, count + last - first + 1
    return count <= ACQUIRED_MAX
