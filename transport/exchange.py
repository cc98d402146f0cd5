"""One request, from the frame that carried it to the bytes of its response.

A handler gets the exchange and the decoded request. It returns the response, or it returns None and calls `answer`
later, exactly once. In between it may

- `wait_for` an event (new data, a leader election): dropped when the connection closes, because nothing was done;
- `answer_in_steps`, if its response may be long: other connections are served between two steps;
- depend on commits (`depends_on`): the response is sent once everything it may reveal is committed. This wait survives
  the connection; it ends with the commit, the deadline or the loss of the leadership, and needs no handler code;
- `hold_back` the later requests of the connection, while its own decision is pending.

Without `hold_back` the next request of the connection is processed while this one waits; responses keep the order of
the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from copy import copy
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from raylog.core.errors import ErrorCode, InvariantViolation
from raylog.protocol.codec import encode_frame
from raylog.protocol.error_responses import error_response
from raylog.protocol.framing import frame
from raylog.protocol.header import encode_response_header
from raylog.protocol.wire import Buffer
from raylog.transport.commits import COMMITTED
from raylog.transport.throttling import encoded_with_throttle_time, with_throttle_time

if TYPE_CHECKING:
    from raylog.core.clock import Now
    from raylog.protocol.registry import ApiSpec
    from raylog.security.principal import Client
    from raylog.transport.accepted_connection import AcceptedConnection
    from raylog.transport.advertised_features import AdvertisedFeatures
    from raylog.transport.commits import CommitPoint, CommitQueues, CommitSource
    from raylog.transport.delayed import DelayedOperation, DelayedOperations
    from raylog.transport.endpoints import Listener
    from raylog.transport.throttling import RequestQuotas

COMMIT_MS_MAX: Final = 5000
"""How long a response waits for the commits it depends on. Kafka's offsets.commit.timeout.ms."""


class NoAnswer(Enum):
    """The answer to a request without a response: Produce with acks=0."""

    NO_ANSWER = "no answer"


NO_ANSWER: Final = NoAnswer.NO_ANSWER


class EncodedAnswer(NamedTuple):
    """A response that another node has encoded, response header included."""

    data: Buffer


class Owner(Protocol):
    """What an exchange requires of the node that serves it."""

    commits: CommitQueues
    delayed: DelayedOperations
    now_ms: int
    """The time of the event being processed (monotonic)."""
    commit_ms_max: int | None
    """How long a response waits for the commits it depends on; None: without limit."""
    quotas: RequestQuotas | None
    """Charges clients for what they use; None if no client has a quota."""
    work_clock_ns: Callable[[], int]
    """Measures how long requests take."""

    def touch(self, connection: AcceptedConnection) -> None:
        """The connection has output, or may take its next request."""

    def add_steps(self, step: Callable[[Now], bool], connection: AcceptedConnection | None = None) -> None:
        """Call `step` between requests as long as it returns True. It answers a request of `connection`."""

    def check_credentials(
        self, connection: AcceptedConnection, run: Callable[[], Any], then: Callable[[Any], None]
    ) -> None:
        """Call `run` off the loop, then `then` with what it has returned, or with the exception that it has raised.

        Neither is called once the connection is closed.
        """

    def exchange_completed(self, exchange: Exchange) -> None:
        """The response is encoded: all timings of the exchange are known."""


class Exchange:
    """One request, from its arrival to its response.

    States: undecided -> waiting for commits -> answered; or cancelled, when the connection closes first.
    """

    __slots__ = (
        "_forwarded_for",
        "_ticket",
        "_work_began_ns",
        "_work_ns",
        "answered",
        "api_version",
        "began_ns",
        "client_id",
        "close_reason",
        "connection",
        "correlation_id",
        "frame",
        "local_ns",
        "node",
        "now",
        "output",
        "output_bytes",
        "queue_ms",
        "request",
        "size_bytes",
        "sources",
        "spec",
        "throttle_ms",
    )

    def __init__(
        self,
        node: Owner,
        connection: AcceptedConnection,
        spec: ApiSpec,
        api_version: int,
        *,
        correlation_id: int,
        client_id: str | None,
        frame: memoryview,
        now: Now,
        request: Any = None,
    ) -> None:
        self.node = node
        self.connection = connection
        self.spec = spec
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.frame = frame
        """The request as it was sent. Valid until the handler returns."""
        self.size_bytes = len(frame)
        self.request = request
        self.now = now
        """When processing of the request started."""
        self.answered = False
        """Whether `answer` was called."""
        self.began_ns = node.work_clock_ns()
        """When its processing began."""
        self.local_ns = -1
        """How long the handler worked before it waited for something; -1 if it has not waited."""
        self.queue_ms = connection.queue_ms
        """How long the request waited for the turn of its connection."""
        self.throttle_ms = 0
        """How long the connection is muted after the response is sent (KIP-219)."""
        self.output: Sequence[Buffer] | None = None
        """The encoded response; None until it is complete."""
        self.output_bytes = 0
        self.close_reason: str | None = None
        """Why the connection is closed after this response."""
        self.sources: Sequence[CommitSource] = ()
        """The logs that the response depends on."""
        self._forwarded_for: Client | None = None
        self._ticket: int | None = None
        self._work_ns = 0
        """Time of the loop that this request has used and that is not charged yet."""
        self._work_began_ns = 0
        """When work began that has not ended; 0 if there is none, or if it is not measured."""

    @property
    def client(self) -> Client:
        """The client whose rights are checked: the peer, or the client of a request forwarded by another node."""
        return self._forwarded_for or self.connection.client

    @property
    def internal(self) -> bool:
        """Whether the peer is a node of the cluster."""
        return self.connection.listener.internal

    @property
    def cancelled(self) -> bool:
        """Whether the connection has closed, so that no response can be sent."""
        return self.connection.closing

    # --- for handlers

    def answer(self, response: Any) -> None:
        """Set the answer: a response message, an `EncodedAnswer`, or `NO_ANSWER`. Must be called once.

        It is sent as soon as everything it depends on is committed. If the leadership is lost first, or the commit
        takes longer than COMMIT_MS_MAX, the client gets the retriable error of its request instead.
        """
        if self.answered:
            raise InvariantViolation(f"{self.spec.name} has already been answered")
        self.answered = True
        points: list[CommitPoint] = []
        if self.sources:  # most requests have none
            points = [point for source in self.sources if (point := source.commit_point()) is not None]
        if points:
            self.connection.release(self)
            wait_ms = self.node.commit_ms_max
            deadline_ms = None if wait_ms is None else self.node.now_ms + wait_ms
            self.node.commits.wait(points, deadline_ms=deadline_ms, done=partial(self._committed, response))
        else:
            self._complete(response)

    def answer_in_steps(self, steps: Generator[None, None, Any]) -> None:
        """Answer with what `steps` returns. It yields where other connections may be served.

        Later requests of this connection are held back meanwhile. A closed connection ends the steps.
        """

        def step(now: Now) -> bool:
            if self.cancelled:
                return False
            try:
                next(steps)
            except StopIteration as end:
                self.answer(end.value)
                return False
            return True

        def measured_step(now: Now) -> bool:
            quotas = self.node.quotas
            if quotas is None:
                return step(now)
            self.begin_work(quotas.begin_ns())
            more = step(now)
            self.end_work()
            return more

        self.hold_back()
        if step(self.now):
            self.node.add_steps(measured_step, self.connection)

    def close_after_answer(self, reason: str) -> None:
        """Process no later request of this connection, and close it once this exchange is answered."""
        self.close_reason = reason
        self.connection.stop_reading()

    def close(self, reason: str) -> None:
        """Close the connection without a response."""
        self.answered = True
        self.connection.close(reason)
        self.node.touch(self.connection)

    def depends_on(self, source: CommitSource) -> None:
        """The response may reveal records of `source` that are not committed yet."""
        if source not in self.sources:
            self.sources = (*self.sources, source)

    def wait_for(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> None:
        """`operation` answers when one of `keys` changes or at its deadline; a closed connection drops it."""
        self._ticket = self.node.delayed.park(operation, keys)

    def hold_back(self) -> None:
        """Process no later request of this connection until `release`, or until this exchange is answered."""
        self.connection.hold_back(self)

    def release(self) -> None:
        """The outcome of this request is decided."""
        self.connection.release(self)
        self.node.touch(self.connection)

    def of_forwarded(self, spec: ApiSpec, api_version: int, client_id: str | None, client: Client) -> Exchange:
        """The exchange of a client's request that this one carries (Envelope)."""
        inner = copy(self)
        inner.spec, inner.api_version, inner.client_id = spec, api_version, client_id
        inner._forwarded_for = client
        return inner

    # --- for the node

    def begin_work(self, began_ns: int) -> None:
        """The loop works for this request from now on; 0 if that is not measured."""
        self._work_began_ns = began_ns

    def end_work(self) -> None:
        quotas = self.node.quotas
        if self._work_began_ns and quotas is not None:
            self._work_ns += quotas.clock_ns() - self._work_began_ns
            self._work_began_ns = 0
            if self.output is not None:
                quotas.charge_rest(self, self.node.now_ms)

    def take_work_ns(self) -> int:
        """The time that this request has used since the last call."""
        quotas = self.node.quotas
        if self._work_began_ns and quotas is not None:
            now_ns = quotas.clock_ns()
            self._work_ns += now_ns - self._work_began_ns
            self._work_began_ns = now_ns
        used_ns, self._work_ns = self._work_ns, 0
        return used_ns

    def cancel(self) -> None:
        """The connection has closed: drop delayed operations."""
        if self._ticket is not None:
            self.node.delayed.drop(self._ticket)
            self._ticket = None
        self.request = None

    def _committed(self, response: Any, codes: Sequence[ErrorCode]) -> None:
        lost = [code for code in codes if code not in COMMITTED]
        if lost and not self.cancelled:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if ErrorCode.NOT_LEADER_OR_FOLLOWER in lost:
                code = ErrorCode.NOT_COORDINATOR
            response = error_response(self.request, code)
        self._complete(response)

    def _complete(self, response: Any) -> None:
        quotas = self.node.quotas
        if quotas is not None:
            quotas.charge(self, self.node.now_ms)
        throttle_ms = self.throttle_ms
        output: Sequence[Buffer]
        if response is NO_ANSWER or self.cancelled:
            output = ()
        elif isinstance(response, EncodedAnswer):
            data = response.data
            if throttle_ms:
                data = encoded_with_throttle_time(data, self.spec, self.api_version, throttle_ms)
            output = frame([data])
        else:
            if throttle_ms:
                response = with_throttle_time(response, self.spec, self.api_version, throttle_ms)
            header = encode_response_header(self.spec.key, self.api_version, self.correlation_id)
            output = encode_frame(header, response, self.api_version)
        self._ticket = None
        self.request = None
        self.connection.complete(self, output)
        self.node.exchange_completed(self)
        self.node.touch(self.connection)


Handler = Callable[[Any, Exchange, Any], Any]
"""Maps (node, exchange, request) to a response, or to None if the handler has responded or will respond later."""


class Server(Owner, Protocol):
    """Serves the requests of its connections."""

    failed_authentication_delay_ms: int
    """How long a failed authentication waits for its response."""

    def handlers_on(self, listener: Listener) -> Mapping[int, Handler]:
        """What is served on this listener, by API key; other APIs are not supported there."""

    def commit_sources(self, api_key: int) -> Sequence[CommitSource]:
        """The logs that every response of this API depends on."""

    def features(self) -> AdvertisedFeatures:
        """The features that ApiVersions reports for this node and its cluster."""
