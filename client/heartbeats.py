"""The heartbeats of a member whose coordinator assigns the partitions: one at a time, and when. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from raylog.client.backoff import backoff_ms
from raylog.client.coordinators import Coordinators, KeyType
from raylog.client.network_client import NetworkClient
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.schema import Message
from raylog.transport.peer_link import RequestFor

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
FENCED: Final = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
"""Errors after which the member has to join again."""
PASSING: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED,)
"""Errors that poll() raises, while heartbeats go on: the user may change the subscription, or get the permission."""
FIRST_INTERVAL_MS: Final = 1000
"""Time between heartbeats before the coordinator has said its own."""


class Heartbeats:
    """After each heartbeat that was sent, one of its functions is called; then `accepted` or `refused` is."""

    def __init__(self, network: NetworkClient, coordinators: Coordinators, group_id: str) -> None:
        self._network = network
        self._coordinators = coordinators
        self._group_id = group_id
        self._asked: object | None = None
        """The heartbeat in flight."""
        self._interval_ms = FIRST_INTERVAL_MS
        self._beat_due_ms = 0
        self._due_ms = 0
        """The pause after an error."""
        self._attempts = 0

    def next_ms(self) -> int | None:
        """When the next one is due, if there is nothing new to say (monotonic); None while one is in flight."""
        return max(self._beat_due_ms, self._due_ms) if self._asked is None else None

    def is_due(self, now: Now, *, news: bool) -> bool:
        """Whether to send one now. One that has `news` does not wait for the interval."""
        if self._asked is not None or now.monotonic_ms < self._due_ms:
            return False
        return news or now.monotonic_ms >= self._beat_due_ms

    def send(
        self,
        request: Message | RequestFor,
        on_answer: Callable[[Any, Now], None],
        on_failure: Callable[[KafkaError, Now], None],
        now: Now,
    ) -> bool:
        """Whether it was sent, as the coordinator is known. Raises KafkaError if it cannot be looked for."""
        node_id = self._coordinators.node_id(KeyType.GROUP, self._group_id)
        if node_id is None:
            return False
        asked = self._asked = object()
        self._beat_due_ms = now.monotonic_ms + self._interval_ms

        def heeded(then: Callable[[Any, Now], None], response: Any, now: Now) -> None:
            if self._asked is asked:
                self._asked = None
                then(response, now)

        answered, failed = partial(heeded, on_answer), partial(heeded, on_failure)
        self._network.ask(node_id, request, answered, failed, now, coordinator=True)
        return True

    def accepted(self, interval_ms: int, now: Now) -> None:
        """By the coordinator, which names the interval; 0: as before."""
        self._attempts = 0
        self._interval_ms = interval_ms or self._interval_ms
        self._beat_due_ms = now.monotonic_ms + self._interval_ms

    def refused(self, code: ErrorCode, now: Now) -> None:
        """The next one is sent after a pause, and to another coordinator if there may be one."""
        self._coordinators.refused(KeyType.GROUP, self._group_id, code)
        self._attempts += 1
        settings = self._network.settings
        pause_ms = backoff_ms(
            self._attempts, settings.retry_backoff_ms, settings.retry_backoff_ms_max, self._network.jitter
        )
        self._due_ms = now.monotonic_ms + pause_ms

    def drop(self) -> None:
        """The response to the one in flight, if any, means nothing any more."""
        self._asked = None
