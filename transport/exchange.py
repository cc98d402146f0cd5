"""One request on its way: from the frame that carried it to the bytes of its answer.

A handler gets the exchange and the decoded request. It returns the response, or it returns None and calls `answer`
later, exactly once. Between the two it may

- `wait_for` an event (data to read, a leader to be elected): dropped when the connection closes, because nothing was
  done;
- depend on commits (`depends_on`): the answer is sent once everything it may reveal is committed. This wait survives
  the connection, ends with the commit, with the deadline, or with the leadership, and needs nothing from the handler;
- `hold_back` the requests behind it on the connection, while its own decision is still open.

Without `hold_back` the next request of the connection is decided while this one waits; answers keep the order of
arrival.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from copy import copy
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from raylog.core.errors import ErrorCode, InvariantViolation
from raylog.protocol.error_responses import error_response
from raylog.protocol.framing import frame
from raylog.protocol.header import encode_response_header
from raylog.protocol.wire import Buffer
from raylog.transport.commits import COMMITTED

if TYPE_CHECKING:
    from raylog.core.clock import Now
    from raylog.protocol.registry import ApiSpec
    from raylog.security.principal import Client
    from raylog.transport.accepted_connection import AcceptedConnection
    from raylog.transport.commits import CommitQueues, CommitSource
    from raylog.transport.delayed import DelayedOperation, DelayedOperations

COMMIT_MS_MAX: Final = 5000
"""How long an answer waits for the commits it depends on. Kafka's offsets.commit.timeout.ms."""


class NoAnswer(Enum):
    """The answer to a request that gets none: Produce with acks=0."""

    NO_ANSWER = "no answer"


NO_ANSWER: Final = NoAnswer.NO_ANSWER


class EncodedAnswer(NamedTuple):
    """An answer that another node has encoded, response header included."""

    data: Buffer


class Owner(Protocol):
    """What an exchange asks of the node that serves it."""

    commits: CommitQueues
    delayed: DelayedOperations
    now_ms: int
    """The time of the event that is being served (monotonic)."""
    commit_ms_max: int | None
    """How long an answer waits for the commits it depends on; None: as long as it takes."""

    def touch(self, connection: AcceptedConnection) -> None:
        """The connection has output, or may take its next request."""

    def exchange_completed(self, exchange: Exchange) -> None:
        """The answer is encoded: everything there is to know about the exchange is known."""


class Exchange:
    """States: undecided -> waiting for commits -> answered; or cancelled, when the connection closes first."""

    __slots__ = (
        "_ticket",
        "answered",
        "answered_ms",
        "api_version",
        "bytes_out",
        "client",
        "client_id",
        "close_reason",
        "completed_ms",
        "connection",
        "correlation_id",
        "frame",
        "node",
        "now",
        "output",
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
        self.client: Client = connection.client
        """For whom the request is authorized: the peer, or the client whose request a node of the cluster forwards."""
        self.frame = frame
        """The request as it was sent. Valid until the handler returns."""
        self.size_bytes = len(frame)
        self.request = request
        self.now = now
        """When its turn came."""
        self.answered = False
        """Whether `answer` was called."""
        self.answered_ms = self.completed_ms = -1
        """When the handler gave its answer, and when the commits it depends on were there (monotonic)."""
        self.throttle_ms = 0
        """How long the connection is muted once the answer is sent (KIP-219)."""
        self.output: Sequence[Buffer] | None = None
        """The encoded answer; None until it is complete."""
        self.bytes_out = 0
        self.close_reason: str | None = None
        """Why the connection is closed behind this answer."""
        self.sources: Sequence[CommitSource] = ()
        """The logs that the answer depends on."""
        self._ticket: int | None = None

    @property
    def internal(self) -> bool:
        """Whether the peer is a node of the cluster."""
        return self.connection.listener.internal

    @property
    def cancelled(self) -> bool:
        """Whether the connection has closed: no answer can be delivered any more."""
        return self.connection.closing

    # --- for handlers

    def answer(self, response: Any) -> None:
        """Give the answer: a response message, an `EncodedAnswer`, or `NO_ANSWER`. To be called once.

        It is sent as soon as everything it depends on is committed. If the leadership is lost first, or nothing is
        committed within COMMIT_MS_MAX, the client gets the retriable error of its request instead.
        """
        if self.answered:
            raise InvariantViolation(f"{self.spec.name} was answered twice")
        self.answered = True
        self.answered_ms = self.node.now_ms
        self.connection.release(self)
        points = [point for source in self.sources if (point := source.commit_point()) is not None]
        if points:
            wait_ms = self.node.commit_ms_max
            deadline_ms = None if wait_ms is None else self.answered_ms + wait_ms
            self.node.commits.wait(points, deadline_ms=deadline_ms, done=partial(self._committed, response))
        else:
            self._complete(response)

    def close_behind(self, reason: str) -> None:
        """Serve nothing that follows on this connection, and close it once this exchange is answered."""
        self.close_reason = reason
        self.connection.take_no_more()

    def close(self, reason: str) -> None:
        """Close the connection in place of an answer."""
        self.answered = True
        self.connection.close(reason)
        self.node.touch(self.connection)

    def depends_on(self, source: CommitSource) -> None:
        """The answer may reveal what `source` has not committed yet."""
        if source not in self.sources:
            self.sources = (*self.sources, source)

    def wait_for(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> None:
        """Let `operation` answer when one of `keys` changes, or at its deadline; drop it when the connection closes."""
        self._ticket = self.node.delayed.park(operation, keys)

    def hold_back(self) -> None:
        """Decide nothing that follows on this connection until `release`, or until this exchange is answered."""
        self.connection.hold_back(self)

    def release(self) -> None:
        """What this exchange asks for is decided."""
        self.connection.release(self)
        self.node.touch(self.connection)

    def of_forwarded(self, spec: ApiSpec, api_version: int, client_id: str | None, client: Client) -> Exchange:
        """The exchange of a client's request that lies inside this one (Envelope)."""
        inner = copy(self)
        inner.spec, inner.api_version, inner.client_id, inner.client = spec, api_version, client_id, client
        return inner

    # --- for the node

    def cancel(self) -> None:
        """The connection has closed: drop what only waits."""
        if self._ticket is not None:
            self.node.delayed.drop(self._ticket)
            self._ticket = None

    def _committed(self, response: Any, codes: Sequence[ErrorCode]) -> None:
        lost = [code for code in codes if code not in COMMITTED]
        if lost:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if ErrorCode.NOT_LEADER_OR_FOLLOWER in lost:
                code = ErrorCode.NOT_COORDINATOR
            response = error_response(self.request, code)
        self._complete(response)

    def _complete(self, response: Any) -> None:
        self.completed_ms = self.node.now_ms
        output: Sequence[Buffer]
        if response is NO_ANSWER:
            output = ()
        elif isinstance(response, EncodedAnswer):
            output = frame([response.data])
        else:
            header = encode_response_header(self.spec.key, self.api_version, self.correlation_id)
            output = frame([header, *self.spec.encode_response(self.api_version, response)])
        self.bytes_out = sum(map(len, output))
        self._ticket = None
        self.request = None
        self.connection.complete(self, output)
        self.node.exchange_completed(self)
        self.node.touch(self.connection)
