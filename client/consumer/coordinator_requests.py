"""Requests to the coordinator of a group, each repeated until it succeeds, fails for good, or is too late. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from raylog.client.backoff import backoff_ms
from raylog.client.coordinators import Coordinators, KeyType
from raylog.client.network_client import NetworkClient
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.transport.peer_link import RequestFor


class CoordinatorRequest:
    """One request. Its creator looks at `done`."""

    def __init__(
        self, request: RequestFor, read: Callable[[Any], KafkaError | None], deadline_ms: int, *, retries: bool
    ) -> None:
        """`read` takes the response, and returns its error. `deadline_ms` is monotonic."""
        self.topics: frozenset[str] = frozenset()
        """The topics whose ids it needs."""
        self.done = False
        self.error: KafkaError | None = None
        self.version_max: int | None = None
        """The highest version to send it in; None: the highest that both ends support."""
        self.request = request
        self.read = read
        self.deadline_ms = deadline_ms
        self.retries = retries
        self.asked = False
        self.attempts = 0
        self.due_ms = 0

    @property
    def waits_to_retry(self) -> bool:
        """Whether the last attempt has failed, and another one follows."""
        return self.attempts > 0 and not self.asked and not self.done

    def prepare(self) -> None:
        """Called before each attempt, which does not take place if this finishes the request."""

    def followed_by(self, later: CoordinatorRequest) -> None:
        """Called for each request that is added while this one is open."""

    def may_retry(self, error: KafkaError) -> bool:
        return self.retries and error.code.retriable

    def finish(self, error: KafkaError | None) -> None:
        if not self.done:
            self.done = True
            self.error = error


class CoordinatorRequests:
    """A service of the network."""

    def __init__(self, network: NetworkClient, coordinators: Coordinators, group_id: str) -> None:
        self._network = network
        self._coordinators = coordinators
        self._group_id = group_id
        self._open: list[CoordinatorRequest] = []
        self._ran_ms = 0

    @property
    def topics(self) -> frozenset[str]:
        """The topics whose ids are needed."""
        return frozenset().union(*(request.topics for request in self._open))

    def add(self, request: CoordinatorRequest) -> None:
        for earlier in self._open:
            earlier.followed_by(request)
        self._open.append(request)

    def abandon(self, error: KafkaError) -> None:
        for request in self._open:
            request.finish(error)

    def run(self, now: Now) -> None:
        self._ran_ms = now.monotonic_ms
        for request in self._open:
            if now.monotonic_ms >= request.deadline_ms:
                text = f"the coordinator of group {self._group_id!r} did not answer in time"
                request.finish(request.error or KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))
        self._open = [request for request in self._open if not request.done]
        for request in self._open:
            if not request.asked and now.monotonic_ms >= request.due_ms:
                self._send(request, now)

    def next_deadline_ms(self) -> int | None:
        """What is due and was not sent in the last `run` waits for the coordinator to be found."""
        due = [request.deadline_ms for request in self._open]
        due += [request.due_ms for request in self._open if not request.asked]
        return min((ms for ms in due if ms > self._ran_ms), default=None)

    def _send(self, request: CoordinatorRequest, now: Now) -> None:
        try:
            node_id = self._coordinators.node_id(KeyType.GROUP, self._group_id)
        except KafkaError as error:
            request.finish(error)
            return
        if node_id is None:
            return
        request.prepare()
        if request.done:
            return
        request.asked = True
        request.attempts += 1
        self._network.ask(
            node_id,
            request.request,
            partial(self._answered, request),
            partial(self._failed, request),
            now,
            version_max=request.version_max,
            coordinator=True,
        )

    def _answered(self, request: CoordinatorRequest, response: Any, now: Now) -> None:
        request.asked = False
        error = request.read(response)
        if error is None:
            request.finish(None)
        else:
            self._refused(request, error, now)

    def _failed(self, request: CoordinatorRequest, error: KafkaError, now: Now) -> None:
        request.asked = False
        self._refused(request, error, now)

    def _refused(self, request: CoordinatorRequest, error: KafkaError, now: Now) -> None:
        self._coordinators.refused(KeyType.GROUP, self._group_id, error.code)
        if not request.may_retry(error):
            request.finish(error)
            return
        request.error = error  # raised if the time is over
        settings = self._network.settings
        pause_ms = backoff_ms(
            request.attempts, settings.retry_backoff_ms, settings.retry_backoff_ms_max, self._network.jitter
        )
        request.due_ms = now.monotonic_ms + pause_ms
