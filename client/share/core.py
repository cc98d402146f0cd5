"""What the blocking and the asyncio share consumer have in common. Sans-IO, for one caller at a time."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from raylog.client.cluster_view import parse_servers
from raylog.client.consumer.coordinator_requests import CoordinatorRequest, CoordinatorRequests
from raylog.client.coordinators import Coordinators
from raylog.client.given_values import check_topic_names
from raylog.client.network_client import NetworkClient, Random
from raylog.client.share.acquired import Held, Leader, Place, ShareRecord
from raylog.client.share.in_flight import Acknowledgement, InFlight
from raylog.client.share.leader_sessions import LeaderSessions
from raylog.client.share.share_group_member import ShareGroupMember
from raylog.client.unknown_topics import UnknownTopics
from raylog.config.share_consumer import ShareConsumerSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.batch import MalformedBatch
from raylog.protocol.share import AcknowledgeType

log = logging.getLogger("raylog.client")


class ShareConsumerCore:
    """The share consumer without sockets, threads and clock.

    Not thread-safe. A service of its network, which runs the others in their order.
    """

    def __init__(self, servers: str, settings: ShareConsumerSettings, random: Random) -> None:
        """Raises ConfigError."""
        self.settings = settings
        self.network = NetworkClient(
            parse_servers(servers), settings.network, random, create_topics=settings.create_topics
        )
        self.error: KafkaError | None = None
        """What the next poll() raises."""
        self.closed = False
        self.acknowledged: deque[Acknowledgement] = deque()
        """Those whose result is known and was not reported to the program, if `reports`."""
        self.reports = False
        self.in_flight = InFlight(explicit=settings.explicit)
        self.taken: list[Held] = []
        """What `take` has returned, until the program has got it."""
        member_id = str(UUID(int=random.randrange(1 << 128), version=4))
        self.coordinators = Coordinators(self.network)
        requests = CoordinatorRequests(self.network, self.coordinators, settings.group_id)
        self.member = ShareGroupMember(
            self.network, self.coordinators, requests, settings, self._failed, member_id=member_id
        )
        self.sessions = LeaderSessions(self.network, settings, self.in_flight, self._failed, member_id=member_id)
        self.sessions.on_acknowledged = self._was_acknowledged
        self._requests = requests
        self._services: tuple[Any, ...] = (self.member, self.sessions, requests, self.coordinators)
        self._unknown = UnknownTopics(self.network.metadata, settings.api_timeout_ms, self._failed)
        self.network.services.append(self)

    # --- as a service of the network

    def run(self, now: Now) -> None:
        self.network.metadata.want_only(sorted(self.member.topics))
        self._unknown.watch(self.member.topics, now)
        self.member.run(now)
        self.sessions.assigned = self.member.assigned
        for service in self._services[1:]:
            service.run(now)

    def next_deadline_ms(self) -> int | None:
        due = (service.next_deadline_ms() for service in self._services)
        return min((ms for ms in due if ms is not None), default=None)

    # --- what is read

    def subscribe(self, topics: Iterable[str]) -> None:
        """Raises KafkaError."""
        given = list(topics)
        check_topic_names(given)
        names = frozenset(given)
        if not names or "" in names:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "subscribe() needs topics by name; unsubscribe() ends it")
        self.member.topics = names
        self.sessions.reopen()

    # --- polling

    def begin_poll(self, now: Now) -> None:
        """Raises KafkaError: there is no subscription, or records are not acknowledged."""
        if not self.member.topics:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "poll() needs a subscription")
        self.in_flight.before_poll()
        self.sessions.add(self.in_flight.take(now.monotonic_ms + self.settings.api_timeout_ms))
        self.member.polling = True
        self.sessions.begin_poll()
        self.run(now)

    def end_poll(self, now: Now) -> None:
        self.member.polling = False
        self.member.polled_ms = now.monotonic_ms
        self.sessions.end_poll()

    def raise_error(self) -> None:
        """What has gone wrong since the last poll()."""
        if self.member.failure is not None:
            raise self.member.failure
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def take(self, count: int, now: Now) -> list[ShareRecord]:
        """At most `count` records: those whose locks were renewed, or else those that were acquired.

        Records of a batch that cannot be read are rejected. Raises MalformedBatch if there is nothing before it.
        They stay in `taken`, to be released if the program does not get them.
        """
        self.taken = self.in_flight.take_renewed()
        if not self.taken:
            self._take_acquired(count, now)
        if self.taken:
            self.sessions.returned_some()
        return [held.record for held in self.taken]

    def release_taken(self) -> None:
        """Release the records of the last `take`, which poll() did not return."""
        for held in self.taken:
            held.kind = AcknowledgeType.RELEASE
        self.in_flight.deliver(self.taken)
        self.taken = []

    def _take_acquired(self, count: int, now: Now) -> None:
        taken, sessions = self.taken, self.sessions
        while sessions.buffered and len(taken) < count and self.error is None:
            acquired = sessions.buffered[0]
            if now.monotonic_ms < acquired.expires_ms:
                try:
                    taken += acquired.take(count - len(taken))
                except MalformedBatch as error:
                    self._failed(error)
                except BaseException:  # an interrupt: records that it has lost must not be acknowledged as gaps
                    sessions.buffered.popleft()
                    raise
                self._settle(acquired.leader, acquired.gaps, AcknowledgeType.GAP)
                self._settle(acquired.leader, acquired.rejected, AcknowledgeType.REJECT)
            else:
                log.warning(
                    "acquired records dropped: their locks have timed out", extra={"tp": str(acquired.leader.tp)}
                )
            if acquired.finished or now.monotonic_ms >= acquired.expires_ms:
                sessions.buffered.popleft()
        self.in_flight.deliver(taken)
        if not taken:
            self.raise_error()

    def not_deserialized(self, place: Place, error: KafkaError) -> None:
        """A record that was taken is released, unless the program says otherwise. poll() raises the error."""
        self.in_flight.release(place)
        self._failed(error)

    def _settle(self, leader: Leader, offsets: list[int], kind: AcknowledgeType) -> None:
        if offsets:
            self.in_flight.settle(leader, offsets, kind)
            offsets.clear()

    # --- acknowledgements

    def acknowledge(self, place: Place, kind: AcknowledgeType) -> None:
        """Raises KafkaError."""
        self.in_flight.acknowledge(place, kind)

    def commit(self, now: Now, timeout_ms: int) -> list[Acknowledgement]:
        """Send what was acknowledged, and in the implicit mode accept what was returned. Each of them gets `done`."""
        self.in_flight.accept_all()
        sent = self.in_flight.take(now.monotonic_ms + timeout_ms)
        self.sessions.add(sent)
        self.run(now)
        return sent

    # --- the end

    def end_sessions(self, now: Now, timeout_ms: int) -> None:
        """Send what was acknowledged, and release all else: see `sessions.closed`."""
        self.sessions.add(self.in_flight.take(now.monotonic_ms + timeout_ms))
        self.in_flight.forget()
        self.sessions.close()

    def unsubscribe(self, reason: str, now: Now, timeout_ms: int) -> CoordinatorRequest | None:
        """Leave the group. Returns the request to the coordinator, if there is one."""
        request = self.member.leave(reason, now, timeout_ms)
        self.member.topics = frozenset()
        return request

    def abandon(self, error: KafkaError) -> None:
        """Whatever waits fails."""
        self._requests.abandon(error)
        self.sessions.abandon(error)

    # --- internals

    def _failed(self, error: KafkaError) -> None:
        if self.error is None:
            self.error = error

    def _was_acknowledged(self, acknowledgement: Acknowledgement) -> None:
        if acknowledgement.error is not None:
            log.info(
                "acknowledgement failed",
                extra={"tp": str(acknowledgement.leader.tp), "error": acknowledgement.error.code.name},
            )
        if self.reports:
            self.acknowledged.append(acknowledgement)


def results(acknowledgements: Iterable[Acknowledgement]) -> dict[TopicPartition, KafkaError | None]:
    """By partition; the first error of each. Those that are not done yet count as timed out."""
    found: dict[TopicPartition, KafkaError | None] = {}
    for each in acknowledgements:
        error = each.error
        if not each.done:
            error = error or KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{each.leader.tp}: no response in time")
        found[each.leader.tp] = found.get(each.leader.tp) or error
    return found
