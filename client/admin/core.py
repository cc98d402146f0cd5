"""Carries out the operations of the blocking and of the asyncio admin client. Sans-IO, for one caller at a time.

Each item of a call goes to the broker of its route. Errors that pass are retried with growing pauses (KIP-580) after
the client has looked again where the item belongs; all others are kept for the item. An operation ends in time: what
has no answer by then has failed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from raylog.client.admin.calls import (
    CONTROLLER,
    Answer,
    AnyBroker,
    Broker,
    Call,
    Controller,
    Coordinator,
    Leader,
    Results,
    Route,
    Steps,
    about,
)
from raylog.client.backoff import backoff_ms
from raylog.client.cluster_metadata import LocatedPartition
from raylog.client.cluster_view import parse_servers
from raylog.client.controller_nodes import NOT_SERVED, of_controllers
from raylog.client.coordinators import Coordinators
from raylog.client.errors import AdminError, ClientClosedError
from raylog.client.given_values import SECONDS_MAX, checked_seconds
from raylog.client.network_client import NetworkClient, Random
from raylog.config.admin import AdminSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError, ProtocolViolation
from raylog.protocol import codec
from raylog.protocol.schema import Message
from raylog.transport.peer_link import VersionFor

T = TypeVar("T")
UNKNOWN_MS_MAX: Final = 2_000
"""How long a topic, a partition or a broker may be unknown before that is an error: a new one is, to some brokers."""
PROBE_MS: Final = 100
"""How often the client looks again meanwhile."""
LOST: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
"""Errors of a connection, after which the request is sent again."""
RETRIED: Final[dict[type[Route], frozenset[ErrorCode]]] = {
    AnyBroker: frozenset(),
    Broker: frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}),
    Controller: frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED}),
    Coordinator: frozenset(
        {
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.UNSTABLE_OFFSET_COMMIT,
        }
    ),
    Leader: frozenset(
        {
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.REPLICA_NOT_AVAILABLE,
            ErrorCode.OFFSET_NOT_AVAILABLE,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.KAFKA_STORAGE_ERROR,
        }
    ),
}
"""Errors of an item after which it is sent again, by its route."""
UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
MALFORMED: Final = (LookupError, ValueError, TypeError, ArithmeticError, AttributeError)
"""What reading a response raises that contradicts itself, and what making a request of unfit arguments does."""


@dataclass(slots=True)
class _Item:
    route: Route
    since_ms: int
    asked: bool = False
    attempts: int = 0
    due_ms: int = 0
    """When to send it again (monotonic); 0 while it waits for something else."""
    error: KafkaError | None = None
    """Of the last attempt."""
    outdated: int | None = None
    """How many metadata responses there were when it went to the wrong broker: a further one has to come first."""


@dataclass(slots=True)
class _Round:
    """A call whose items are asked."""

    call: Call
    open: dict[Any, _Item]
    values: dict[Any, Any] = field(default_factory=dict)
    errors: dict[Any, KafkaError] = field(default_factory=dict)

    def results(self) -> Results:
        """In the order of the items."""
        values = {item: self.values[item] for item in self.call.routes if item in self.values}
        return Results(values, {item: self.errors[item] for item in self.call.routes if item in self.errors})

    def fail(self, item: Any, error: KafkaError) -> None:
        if self.open.pop(item, None) is not None:
            self.errors[item] = error


class Operation(Generic[T]):
    """One operation of the user, until it is `done`: then it has a `result`, or an `error`."""

    def __init__(self, steps: Steps[T], now_ms: int, timeout_ms: int, on_done: Callable[[], None]) -> None:
        """Takes the first step, which raises what is wrong with the user's arguments."""
        self.deadline_ms = now_ms + timeout_ms
        self.done = False
        self.result: T | None = None
        self.error: KafkaError | None = None
        self.round: _Round | None = None
        self.failure_before: KafkaError | None = None
        """Of a metadata request before this operation."""
        self._steps = steps
        self._on_done = on_done
        try:
            self._ask(next(steps), now_ms)
        except StopIteration as end:
            self.finish(end.value, None)
        except MALFORMED as error:
            raise AdminError.of({None: unfit(error, getattr(steps, "__name__", ""))}, {}) from error

    def go_on(self, results: Results, now_ms: int) -> None:
        """The next step, with the results of the one before."""
        try:
            self._ask(self._steps.send(results), now_ms)
        except StopIteration as end:
            self.finish(end.value, None)
        except AdminError as error:
            self.finish(None, error)
        except KafkaError as error:
            self.finish(None, AdminError.of({None: error}, {}))
        except MALFORMED as error:
            self.finish(None, AdminError.of({None: malformed(error)}, {}))

    def finish(self, result: T | None, error: KafkaError | None) -> None:
        if not self.done:
            self.done = True
            self.result, self.error = result, error
            self.round = None
            self._steps.close()
            self._on_done()

    def outcome(self) -> T:
        """The result of an operation that is done. Raises its error."""
        if self.error is not None:
            raise self.error
        return cast("T", self.result)

    def _ask(self, call: Call, now_ms: int) -> None:
        self.round = _Round(call, {item: _Item(route, now_ms) for item, route in call.routes.items()})


class AdminCore:
    """The admin client without sockets, threads and clock. Not thread-safe. A service of its network."""

    def __init__(
        self,
        servers: str,
        settings: AdminSettings,
        random: Random,
        *,
        waits_for_brokers: bool = True,
        topics: Collection[str] = (),
    ) -> None:
        """Without `waits_for_brokers` operations fail once no broker of bootstrap.servers could be reached.

        The metadata of `topics` is kept from one operation to the next. Raises ConfigError.
        """
        addresses = parse_servers(servers)
        self.settings = settings
        self.network = NetworkClient(addresses, settings.network, random, of_controllers=settings.of_controllers)
        self.closed = False
        self._attempts_max = None if waits_for_brokers else len(addresses)
        self._coordinators = Coordinators(self.network)
        self._topics = frozenset(topics)
        self._open: list[Operation[Any]] = []
        self._home: int | None = None
        """The broker that has served the last change, or the last request that any broker serves."""
        self.network.services.append(self)

    def timeout_ms(self, timeout: float | None) -> int:
        """Of a call with this `timeout` in seconds. Raises KafkaError."""
        if timeout is None:
            return self.settings.api_timeout_ms
        if checked_seconds(timeout) < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"timeout={timeout}: must be 0 to {SECONDS_MAX} seconds")
        return int(1000 * timeout)

    def start(self, operation: Operation[Any]) -> None:
        """Carry out an operation that has begun. Raises ClientClosedError."""
        if self.closed:
            raise ClientClosedError("the admin client is closed")
        metadata = self.network.metadata
        operation.failure_before = metadata.failure
        refused = {name for name in self._topics if name in metadata.topics and metadata.topics[name].error_code}
        if refused:  # permissions may have changed since
            metadata.forget(refused)
        self._open.append(operation)
        self._want_topics()

    def keep_topics(self, topics: Iterable[str]) -> None:
        """Keep the metadata of these topics as well from one operation to the next."""
        self._topics |= set(topics)

    def close(self) -> bool:
        """All operations fail. Returns whether the client was open."""
        was_open, self.closed = not self.closed, True
        for operation in self._open:
            operation.finish(None, ClientClosedError("the admin client was closed"))
        return was_open

    # --- as a service of the network

    def run(self, now: Now) -> None:
        for operation in list(self._open):
            try:
                self._advance(operation, now)
            except MALFORMED as error:  # it must not end those of other threads
                operation.finish(None, AdminError.of({None: unfit(error)}, {}))
        self._open = [operation for operation in self._open if not operation.done]
        self._want_topics()
        self._coordinators.run(now)

    def next_deadline_ms(self) -> int | None:
        due = [self._coordinators.next_deadline_ms()] if self._open else []
        for operation in self._open:
            due.append(operation.deadline_ms)
            if operation.round is not None:
                due += [item.due_ms for item in operation.round.open.values() if item.due_ms and not item.asked]
        return min((ms for ms in due if ms is not None), default=None)

    # --- internals

    def _want_topics(self) -> None:
        wanted = {
            item.route.tp.topic
            for operation in self._open
            if operation.round is not None
            for item in operation.round.open.values()
            if isinstance(item.route, Leader)
        }
        self.network.metadata.want_only(sorted(wanted | self._topics))

    def _advance(self, operation: Operation[Any], now: Now) -> None:
        """Send what can be sent, and take the next steps that are possible."""
        while (current := operation.round) is not None:
            if now.monotonic_ms >= operation.deadline_ms:
                for item, state in list(current.open.items()):
                    current.fail(item, state.error or self._late(current.call.name(item)))
            else:
                self._send(operation, current, now)
            if current.open:
                return
            operation.go_on(current.results(), now.monotonic_ms)

    def _late(self, name: str) -> KafkaError:
        failure = self.network.metadata.failure
        reason = "" if failure is None else f" ({failure.message})"
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, about(name, f"no response in time{reason}"))

    def _send(self, operation: Operation[Any], current: _Round, now: Now) -> None:
        if not self.network.metadata.nodes:
            failure = self._unreachable(operation)
            if failure is not None:
                for item in list(current.open):
                    current.fail(item, failure)
            return
        wanted: defaultdict[int, list[Any]] = defaultdict(list)
        failed: dict[Route, KafkaError] = {}
        for item, state in list(current.open.items()):
            if state.asked or now.monotonic_ms < state.due_ms:
                continue
            state.due_ms = 0
            if state.outdated == self.network.metadata.updates and self.network.metadata.failure is None:
                continue
            try:
                if state.route in failed:
                    raise failed[state.route]
                node_id = self._node_for(state, now)
            except KafkaError as error:
                failed[state.route] = error
                current.fail(item, KafkaError(error.code, about(current.call.name(item), error.message)))
            else:
                if current.call.request is None:
                    self._locate(current, item, state.route)
                elif node_id is not None:
                    wanted[node_id].append(item)
        for node_id, items in wanted.items():
            for together in [items] if current.call.batched else [[item] for item in items]:
                self._ask(operation, current, node_id, together, now)

    def _locate(self, current: _Round, item: Any, route: Route) -> None:
        assert isinstance(route, Leader)
        leader = self.network.metadata.leader(route.tp)
        if leader is not None:
            del current.open[item]
            current.values[item] = LocatedPartition(leader, self.network.metadata.topics[route.tp.topic])

    def _ask(self, operation: Operation[Any], current: _Round, node_id: int, items: list[Any], now: Now) -> None:
        call, make = current.call, current.call.request
        assert make is not None  # else there is nothing to ask
        for item in items:
            state = current.open[item]
            state.asked = True
            state.attempts += 1
            if isinstance(state.route, (Controller, AnyBroker)):
                self._home = node_id
        left_ms = min(operation.deadline_ms - now.monotonic_ms, self.settings.network.request_timeout_ms)

        def request(version_for: VersionFor) -> Message:
            try:
                message = make(items, left_ms)
            except MALFORMED as error:
                raise unfit(error) from error
            if self.settings.of_controllers:
                message = of_controllers(message)
            version = version_for(message.api.key)
            check_encoding(message, version if call.version_max is None else min(version, call.version_max))
            return message

        answered, failed = partial(self._answered, current, items), partial(self._failed, current, node_id, items)
        timeout_ms = self.settings.network.request_timeout_ms + call.wait_ms
        self.network.ask(node_id, request, answered, failed, now, timeout_ms=timeout_ms, version_max=call.version_max)

    def _node_for(self, state: _Item, now: Now) -> int | None:
        """The broker to ask; None while it is not known. Raises KafkaError."""
        metadata, route = self.network.metadata, state.route
        if self.settings.of_controllers:
            if isinstance(route, (Coordinator, Leader)):
                raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, NOT_SERVED)
            if isinstance(route, AnyBroker):  # the active controller serves all that controllers do
                state.route = route = CONTROLLER
        if isinstance(route, Coordinator):
            return self._coordinators.node_id(route.key_type, route.key)
        if isinstance(route, AnyBroker):
            return self._any_broker(now)
        if isinstance(route, Leader):
            return self._leader(route, state, now)
        node_id = metadata.controller_id if isinstance(route, Controller) else route.broker_id
        if node_id in metadata.nodes:
            return node_id
        if isinstance(route, Broker):
            self._unknown(state, KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker is not alive"), now)
        metadata.expire()
        return None

    def _unreachable(self, operation: Operation[Any]) -> KafkaError | None:
        """Why there is no broker, if it makes no sense to wait for one."""
        metadata = self.network.metadata
        failure = metadata.failure
        if failure is None or failure is operation.failure_before:
            return None
        lasts = failure.code not in LOST or (self._attempts_max is not None and metadata.attempts >= self._attempts_max)
        return failure if lasts else None

    def _any_broker(self, now: Now) -> int:
        """The same one as long as it can be reached: it has seen the changes of this client."""
        network = self.network

        def rank(node_id: int) -> tuple[bool, bool, bool, int]:
            link = network.link(node_id)
            return link.fails or link.in_backoff(now), node_id != self._home, not link.ready, link.load

        return min(network.metadata.nodes, key=rank)

    def _leader(self, route: Leader, state: _Item, now: Now) -> int | None:
        metadata, tp = self.network.metadata, route.tp
        node = metadata.leader(tp) if tp.partition >= 0 else None
        if node is not None:
            return node.broker_id
        topic = metadata.topic(tp.topic)
        if topic is None:
            return None
        if topic.error_code and not topic.error_code.retriable:
            raise KafkaError(topic.error_code)
        if topic.error_code in UNKNOWN or (topic.usable and not 0 <= tp.partition < len(topic.partitions)):
            count = len(topic.partitions)
            text = f"the topic has partitions 0 to {count - 1}" if topic.usable else "the topic does not exist"
            self._unknown(state, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text), now)
        else:
            state.error = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp}: the partition has no leader")
        metadata.expire()
        return None

    @staticmethod
    def _unknown(state: _Item, error: KafkaError, now: Now) -> None:
        """Raises the error once it has lasted."""
        until_ms = state.since_ms + UNKNOWN_MS_MAX
        if now.monotonic_ms >= until_ms:
            raise error
        state.due_ms = min(until_ms, now.monotonic_ms + PROBE_MS)

    # --- responses

    def _answered(self, current: _Round, items: list[Any], response: Any, now: Now) -> None:
        call = current.call
        try:
            answers = list(call.read(response, items))
        except MALFORMED as error:
            answers = [Answer(item, None, ErrorCode.UNKNOWN_SERVER_ERROR, malformed(error).message) for item in items]
        left = {item: item for item in items}
        for shown, value, code, message in answers:
            if shown not in left:
                continue
            item = left.pop(shown)
            if code:
                refusal = KafkaError(code, about(call.name(item), message or code.sentence))
                self._refused(current, item, refusal, now, getattr(response, "throttle_time_ms", 0))
            elif current.open.pop(item, None) is not None:
                current.values[item] = value
        for item in left:
            text = about(call.name(item), "the response does not contain it")
            current.fail(item, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text))

    def _failed(self, current: _Round, node_id: int, items: list[Any], error: KafkaError, now: Now) -> None:
        if node_id == self._home:
            self._home = None
        for item in items:
            if error.code in LOST:
                self._retry(current, item, error, now)
            else:
                current.fail(item, error)

    def _refused(self, current: _Round, item: Any, error: KafkaError, now: Now, throttle_ms: int) -> None:
        state = current.open.get(item)
        if state is None:
            return
        unknown = isinstance(state.route, Leader) and error.code in UNKNOWN
        if error.code in RETRIED[type(state.route)] or (unknown and now.monotonic_ms < state.since_ms + UNKNOWN_MS_MAX):
            self._retry(current, item, error, now)
            if error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                state.due_ms = max(state.due_ms, now.monotonic_ms + throttle_ms)
        else:
            current.fail(item, error)

    def _retry(self, current: _Round, item: Any, error: KafkaError, now: Now) -> None:
        """After a pause, and where the item belongs by then."""
        state = current.open.get(item)
        if state is None:
            return
        settings = self.settings.network
        state.asked = False
        state.error = error
        state.due_ms = now.monotonic_ms + backoff_ms(
            state.attempts, settings.retry_backoff_ms, settings.retry_backoff_ms_max, self.network.jitter
        )
        if isinstance(state.route, Coordinator):
            self._coordinators.refused(state.route.key_type, state.route.key, error.code)
        elif error.code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            self.network.metadata.expire()
            state.outdated = self.network.metadata.updates if isinstance(state.route, (Controller, Leader)) else None


def check_encoding(message: Message, version: int) -> None:
    """Raises KafkaError for what no broker accepts: it would close the connection, and other requests be lost by it."""
    try:
        codec.decode(type(message), version, b"".join(codec.encode_buffers(message, version)))
    except (ValueError, ProtocolViolation) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def unfit(error: Exception, call: str = "") -> KafkaError:
    """What is wrong with arguments of which no request can be made."""
    text = f"{call}(): " if call else ""
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{text}an argument has a wrong type or value: {error!r}")


def malformed(error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the response is malformed: {error!r}")
