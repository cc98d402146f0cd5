"""(shell) A small blocking client: finds leaders and coordinators, sends requests, and retries retriable errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Self, TypeVar
from uuid import UUID

from raylog.client.admin.calls import Answer, AnyBroker, Call, Controller, Coordinator, Results, Route, Steps, about
from raylog.client.client_config import ClientConfig
from raylog.client.cluster_view import ClusterView, Node
from raylog.client.connectors import Connector, TcpConnector
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, TopicPartition
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.isolation import READ_COMMITTED, READ_UNCOMMITTED, Aborted
from raylog.protocol.registry import FETCH, PRODUCE
from raylog.protocol.schema import Message
from raylog.transport.blocking import BlockingConnection, Stream

Found = TypeVar("Found")
T = TypeVar("T")
RETRY_BACKOFF_SECONDS = 0.1
TIMEOUT_SECONDS = 30.0
EARLIEST_OFFSET = -2
LATEST_OFFSET = -1
ACKS_ALL = -1
RETRIABLE_CODES = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class Fetched(NamedTuple):
    """Batches, the last of which may be cut, and the aborted transactions among them."""

    batches: memoryview
    aborted: tuple[Aborted, ...]


class ClusterClient:
    """Connections to the brokers of a cluster, opened on demand. Not thread-safe; a context manager."""

    def __init__(
        self, brokers: str | ClientConfig | Connector, *, client_id: str, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        """`brokers` is `bootstrap.servers` or a `ClientConfig`, for TCP, or a `Connector`. Raises ConfigError."""
        if isinstance(brokers, str):
            brokers = ClientConfig(brokers)
        self._connector: Connector = TcpConnector(brokers) if isinstance(brokers, ClientConfig) else brokers
        self._client_id = client_id
        self._timeout_seconds = timeout_seconds
        self._bootstrap: BlockingConnection | None = None
        self._connections: dict[Node, BlockingConnection] = {}
        self._view: ClusterView | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._forget_bootstrap()

    def call_any(self, request: Message) -> Any:
        """The response of the first broker that can be reached. Raises the KafkaError of the last one."""
        if self._bootstrap is not None:
            try:
                return self._bootstrap.call(request)
            except KafkaError as error:
                self._forget_bootstrap()
                if error.code not in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT):
                    raise
        failure = KafkaError(ErrorCode.NETWORK_EXCEPTION, "no brokers are known")
        for open_stream in self._connector.bootstrap(self._timeout_seconds):
            try:
                self._bootstrap = self._connect(open_stream())
                return self._bootstrap.call(request)
            except KafkaError as error:
                self._forget_bootstrap()
                failure = error
        raise failure

    def run(self, steps: Steps[T]) -> T:
        """Carry out an operation of `client/admin` whose items any broker, the controller or a coordinator serves.

        It is for connections that only a Connector can make; others have AdminClient. Raises KafkaError.
        """
        try:
            call = next(steps)
            while True:
                call = steps.send(self._results(call))
        except StopIteration as end:
            result: T = end.value
            return result

    def _results(self, call: Call) -> Results:
        """Every broker forwards to the controller. Errors of a coordinator that pass are retried until the timeout."""
        deadline = time.monotonic() + self._timeout_seconds
        results, left = Results({}, {}), dict(call.routes)
        assert call.request is not None
        while left:
            route = next(iter(left.values()))
            items = [item for item in left if left[item] == route]
            try:
                response = self._asked(route, call.request(items, int(self._timeout_seconds * 1000)), call)
                answers = list(call.read(response, items))
            except KafkaError as error:
                if not (isinstance(route, Coordinator) and error.code.retriable):
                    raise
                answers = [Answer(item, None, error.code, error.message) for item in items]
            is_late = time.monotonic() > deadline
            if not is_late and any(answer.code in RETRIABLE_CODES for answer in answers):
                time.sleep(RETRY_BACKOFF_SECONDS)
            for item, value, code, message in answers:
                if item not in left or (code in RETRIABLE_CODES and not is_late):
                    continue
                del left[item]
                if code:
                    results.errors[item] = KafkaError(code, about(call.name(item), message or code.sentence))
                else:
                    results.values[item] = value
        return results

    def _asked(self, route: Route, request: Message, call: Call) -> Any:
        if isinstance(route, (AnyBroker, Controller)):
            return self.call_any(request)
        node = self._coordinator(route.key) if isinstance(route, Coordinator) else None
        if node is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{route} is for an AdminClient")
        return self._call(node, request, version_max=call.version_max)

    def _coordinator(self, group: str) -> Node:
        view = self.view([])
        found = self.call_any(FindCoordinatorRequest(key=group, coordinator_keys=(group,)))
        (found,) = found.coordinators or (found,)  # versions up to 3 have no list
        if found.error_code != ErrorCode.NONE:
            raise KafkaError(found.error_code, f"group {group!r}: {found.error_message or found.error_code.sentence}")
        return view.broker(found.node_id)

    def view(self, topics: list[str] | None, *, allow_auto_topic_creation: bool = False) -> ClusterView:
        """The cluster with these topics, or with all of them, by a new Metadata request."""
        wanted = None if topics is None else tuple(MetadataRequestTopic(name=topic) for topic in topics)
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=allow_auto_topic_creation)
        return ClusterView(self.call_any(request))

    def leader(self, tp: TopicPartition) -> Node:
        """The leader of the partition. Raises KafkaError if there is none within the timeout."""
        return self._ask_leader(tp, lambda leader: leader)

    def offset_for(self, tp: TopicPartition, timestamp: int, *, committed: bool = False) -> int:
        """The offset of the first record at or after `timestamp` (ms), or of a special timestamp; -1 for none.

        With `committed`, of those below the last stable offset.
        """
        wanted = ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamp)
        topic = ListOffsetsTopic(name=tp.topic, partitions=(wanted,))
        isolation_level = READ_COMMITTED if committed else READ_UNCOMMITTED
        request = ListOffsetsRequest(replica_id=NO_BROKER_ID, isolation_level=isolation_level, topics=(topic,))

        def ask(leader: Node) -> int:
            result = self._call(leader, request).topics[0].partitions[0]
            _check(result.error_code, tp)
            return int(result.offset)

        return self._ask_leader(tp, ask)

    def fetch(
        self, tp: TopicPartition, offset: int, *, max_bytes: int, max_wait_ms: int, committed: bool = False
    ) -> Fetched:
        """Batches from the one that contains `offset`; the view is valid until the next call. Raises KafkaError.

        With `committed` there are none from the last stable offset on, and those of aborted transactions are named.
        """

        def ask(leader: Node) -> Fetched:
            topic_id = self.topic_id(tp.topic)
            by_id = self._connection(leader).version_for(FETCH) >= 13
            wanted = FetchPartition(partition=tp.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
            topic = FetchTopic(name="", topic_id=topic_id, partitions=[wanted])
            if not by_id:
                topic = FetchTopic(name=tp.topic, partitions=[wanted])
            request = FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=max_bytes,
                isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
                topics=[topic],
            )
            response = self._call(leader, request)
            _check(response.error_code, tp)
            result = response.responses[0].partitions[0]
            _check(result.error_code, tp)
            aborted = tuple(Aborted(each.producer_id, each.first_offset) for each in result.aborted_transactions or ())
            return Fetched(memoryview(result.records[0] if result.records else b""), aborted)

        return self._ask_leader(tp, ask)

    def produce(self, tp: TopicPartition, batch: bytearray) -> int:
        """Append one batch with acks=all and return the offset of its first record. A lost response is not retried:
        this client is not idempotent, so the batch could be appended twice. Raises KafkaError."""

        def ask(leader: Node) -> int:
            topic_id = self.topic_id(tp.topic)
            by_id = self._connection(leader).version_for(PRODUCE) >= 13
            partition = ProducePartition(index=tp.partition, records=memoryview(batch))
            topic = ProduceTopic(name="", topic_id=topic_id, partitions=[partition])
            if not by_id:
                topic = ProduceTopic(name=tp.topic, partitions=[partition])
            request = ProduceRequest(acks=ACKS_ALL, timeout_ms=int(self._timeout_seconds * 1000), topics=[topic])
            result = self._call(leader, request).responses[0].partitions[0]
            _check(result.error_code, tp, result.error_message)
            return int(result.base_offset)

        return self._ask_leader(tp, ask, not_retried=(ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT))

    def topic_id(self, topic: str) -> UUID:
        """The id of the topic to which the last request about it went."""
        assert self._view is not None
        return self._view.topic(topic).topic_id

    def _ask_leader(
        self,
        tp: TopicPartition,
        ask: Callable[[Node], Found],
        *,
        not_retried: tuple[ErrorCode, ...] = (),
    ) -> Found:
        """`ask` the leader. On a retriable error find the leader again and retry, until the timeout."""
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            try:
                if self._view is None or all(topic.name != tp.topic for topic in self._view.metadata.topics):
                    self._view = self.view([tp.topic])
                return ask(self._view.leader(tp))
            except KafkaError as error:
                self._view = None
                if not error.code.retriable or error.code in not_retried or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_BACKOFF_SECONDS)

    def _call(self, node: Node, request: Message, *, version_max: int | None = None) -> Any:
        connection = self._connection(node)
        try:
            return connection.call(request, version_max=version_max)
        except KafkaError as error:
            if error.code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT):
                connection.close()
                self._connections.pop(node, None)
            raise

    def _connection(self, node: Node) -> BlockingConnection:
        connection = self._connections.get(node)
        if connection is None:
            connection = self._connections[node] = self._connect(self._connector.open(node, self._timeout_seconds))
        return connection

    def _connect(self, stream: Stream) -> BlockingConnection:
        return BlockingConnection(stream, client_id=self._client_id, timeout_seconds=self._timeout_seconds)

    def _forget_bootstrap(self) -> None:
        if self._bootstrap is not None:
            self._bootstrap.close()
            self._bootstrap = None


def _check(error_code: ErrorCode, tp: TopicPartition, message: str | None = None) -> None:
    if error_code != ErrorCode.NONE:
        raise KafkaError(error_code, f"{tp}: {message or error_code.sentence}")
