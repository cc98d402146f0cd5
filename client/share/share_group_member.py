"""A consumer's membership of a share group, whose coordinator assigns the partitions (KIP-932). Sans-IO.

    OUT --poll--> JOINING --epoch--> IN
     ^               |                |
     +--- fenced, removed, left ------+

Partitions come and go without a word of the member: several members have the same ones, and what was acquired of a
partition can be acknowledged after it was taken away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

from raylog.client.consumer.coordinator_requests import CoordinatorRequest, CoordinatorRequests
from raylog.client.coordinators import Coordinators
from raylog.client.heartbeats import FENCED, JOINING_EPOCH, LEAVING_EPOCH, PASSING, Heartbeats
from raylog.client.network_client import NetworkClient
from raylog.config.share_consumer import ShareConsumerSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from raylog.protocol.schema import Message

log = logging.getLogger("raylog.client")


class Step(Enum):
    """The state of the membership."""

    OUT = "out"
    JOINING = "joining"
    IN = "in"


class ShareGroupMember:
    """A service of the network. `polling` says that the user is in poll()."""

    def __init__(
        self,
        network: NetworkClient,
        coordinators: Coordinators,
        requests: CoordinatorRequests,
        settings: ShareConsumerSettings,
        on_error: Callable[[KafkaError], None],
        *,
        member_id: str,
    ) -> None:
        """`member_id` is kept for the life of the consumer, and must be unique."""
        self.step = Step.OUT
        self.polling = False
        self.polled_ms: int | None = None
        """When poll() was last entered or left."""
        self.member_id = member_id
        self.topics: frozenset[str] = frozenset()
        """The subscription; empty: there is none."""
        self.assigned: frozenset[tuple[UUID, int]] = frozenset()
        """The partitions to fetch from, by topic id and number."""
        self.failure: KafkaError | None = None
        """Why this member can never join."""
        self._requests = requests
        self._settings = settings
        self._on_error = on_error
        self._epoch = LEAVING_EPOCH
        self._said: frozenset[str] | None = None
        """The topics that the coordinator knows of; None if it may not know them."""
        self._may_be_known = False
        """Whether the coordinator may have this member, so that it has to be told when the member leaves."""
        self._heartbeats = Heartbeats(network, coordinators, settings.group_id)
        self._ran_ms = 0

    # --- the user

    def leave(self, reason: str, now: Now, timeout_ms: int) -> CoordinatorRequest | None:
        """Send the last heartbeat, and forget the membership. Returns the request; None if this is no member."""
        request = None
        if self._may_be_known:
            content = ShareGroupHeartbeatRequest(
                group_id=self._settings.group_id, member_id=self.member_id, member_epoch=LEAVING_EPOCH
            )
            deadline_ms = now.monotonic_ms + timeout_ms
            request = CoordinatorRequest(lambda _: content, lambda _: None, deadline_ms, retries=False)
            self._requests.add(request)
            log.info("leaving the share group", extra={"group": self._settings.group_id, "reason": reason})
        self._forget()
        return request

    # --- as a service

    def run(self, now: Now) -> None:
        self._ran_ms = now.monotonic_ms
        if not self.topics or self.failure is not None:
            return
        self._watch_poll(now)
        if self.step is Step.OUT and self.polling:
            self.step = Step.JOINING
            self._epoch = JOINING_EPOCH
        if self.step is not Step.OUT and self._heartbeats.is_due(now, news=self.topics != self._said):
            beaten = partial(self._beaten, self.topics)
            try:
                self._may_be_known |= self._heartbeats.send(self._request(), beaten, self._failed, now)
            except KafkaError as error:
                self._on_error(error)

    def next_deadline_ms(self) -> int | None:
        if self.step is Step.OUT:
            return None
        due = [self._heartbeats.next_ms()]
        if not self.polling and self.polled_ms is not None:
            due.append(self.polled_ms + self._settings.poll_ms_max)
        return min((ms for ms in due if ms is not None and ms > self._ran_ms), default=None)

    def _watch_poll(self, now: Now) -> None:
        if self.polling or self.step is Step.OUT or self.polled_ms is None:
            return
        if now.monotonic_ms >= self.polled_ms + self._settings.poll_ms_max:
            log.warning("left the share group: poll() was not called", extra={"group": self._settings.group_id})
            reason = "poll() was not called within max.poll.interval.ms"
            self.leave(reason, now, self._settings.network.request_timeout_ms)

    # --- heartbeats

    def _request(self) -> Message:
        joins = self._epoch == JOINING_EPOCH
        return ShareGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=self.member_id,
            member_epoch=self._epoch,
            rack_id=(self._settings.rack or None) if joins else None,
            subscribed_topic_names=tuple(sorted(self.topics)) if joins or self.topics != self._said else None,
        )

    def _beaten(self, said: frozenset[str], response: Any, now: Now) -> None:
        code = response.error_code
        if code is not ErrorCode.NONE:
            text = f"share group {self._settings.group_id!r}: {response.error_message or code.sentence}"
            self._failed(KafkaError(code, text), now)
            return
        self._heartbeats.accepted(response.heartbeat_interval_ms, now)
        self._said = said
        self._epoch = response.member_epoch
        self.step = Step.IN
        if response.assignment is not None:
            self.assigned = frozenset(
                (topic.topic_id, number)
                for topic in response.assignment.topic_partitions
                for number in topic.partitions
            )
        self.run(now)

    def _failed(self, error: KafkaError, now: Now) -> None:
        """A heartbeat was refused, or got no answer."""
        code = error.code
        self._said = None
        self._heartbeats.refused(code, now)
        if code in FENCED or (code is ErrorCode.GROUP_ID_NOT_FOUND and self.step is Step.IN):
            log.warning("membership lost", extra={"group": self._settings.group_id, "error": code.name})
            self._forget()
        elif code in PASSING:
            self._on_error(error)
        elif not code.retriable:
            self.failure = error
            self._forget()

    def _forget(self) -> None:
        """This is no member any more."""
        self.step = Step.OUT
        self._epoch = LEAVING_EPOCH
        self.assigned = frozenset()
        self._said = None
        self._may_be_known = False
        self._heartbeats.drop()
