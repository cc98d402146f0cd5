"""Admin requests go to the broker that serves each item, are retried there and elsewhere, and end in time."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from raylog.client.admin import (
    acls,
    all_groups,
    cluster,
    configs,
    groups,
    partitions,
    quotas,
    share_groups,
    streams_groups,
    tokens,
    topics,
    transactions,
    users,
)
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.async_admin_client import AsyncAdminClient
from raylog.client.admin.calls import CONTROLLER, Answer, Call, Leader, Steps, ask, group, named
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from raylog.client.admin.core import UNKNOWN_MS_MAX, AdminCore, Operation
from raylog.client.errors import AdminError, AuthorizationError, ClientClosedError, UnknownTopicError
from raylog.client.partition_calls import fetch, locate
from raylog.config.admin import AdminSettings
from raylog.config.client_network import NetworkSettings
from raylog.core.clock import Now
from raylog.core.endpoint_type import EndpointType
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.error_responses import error_response
from raylog.protocol.fetch import FetchPartitionResponse, FetchResponse, FetchTopicResponse
from raylog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from raylog.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from raylog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from raylog.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from raylog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from raylog.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from raylog.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from raylog.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from raylog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from raylog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from raylog.protocol.messages.streams_group_describe import DescribedGroup as StreamsGroup
from raylog.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from raylog.protocol.records.isolation import READ_COMMITTED
from raylog.protocol.registry import api_for
from raylog.security import acl
from raylog.security.acl import AclBinding, AclFilter, PatternType, ResourceType
from raylog.security.sasl.scram import ScramMechanism
from tests.client.test_network_client import NoChance

LOST = KafkaError(ErrorCode.NETWORK_EXCEPTION, "gone")
TIMEOUT_MS = 60_000
SILENCE = object()
"""The answer of a broker that never answers."""


class Bench:
    """A cluster that answers from tables and scripts, and a clock that moves when nothing else does."""

    def __init__(
        self,
        *,
        waits_for_brokers: bool = True,
        servers: str = "h:1,i:2",
        topics: Sequence[str] = (),
        of_controllers: bool = False,
    ) -> None:
        network = NetworkSettings(request_timeout_ms=10_000, retry_backoff_ms=100, retry_backoff_ms_max=1000)
        settings = AdminSettings(network, TIMEOUT_MS, of_controllers)
        self.core = AdminCore(servers, settings, NoChance(), waits_for_brokers=waits_for_brokers, topics=topics)
        self.clock_ms = 1000
        self.reachable = True
        self.version_max: int | None = None
        """Of all requests; None: what this client knows."""
        self.nodes = [1, 2, 3]
        self.controller = 1
        self.topics: dict[str, list[int] | ErrorCode] = {}
        """The leaders of the partitions, or why there are none."""
        self.coordinators: dict[str, int] = {}
        self.served: list[tuple[int, Any, int]] = []
        """The broker, the request, and when it was sent; without metadata and look-ups of coordinators."""
        self.lookups = 0
        self.request_timeout_ms = 0
        """Of the last request to a broker."""
        self.answer: Callable[[int, Any], Any] = lambda node_id, request: SILENCE
        self._pending: list[tuple[int | None, Any, Any, Any]] = []
        self.core.network.ask = self._ask  # type: ignore[method-assign]
        self.core.network.ask_any = self._ask_any  # type: ignore[method-assign]

    @property
    def now(self) -> Now:
        return Now(self.clock_ms, 0)

    def start(self, steps: Steps[Any], timeout_ms: int = TIMEOUT_MS) -> Operation[Any]:
        operation = Operation(steps, self.clock_ms, timeout_ms, lambda: None)
        self.core.start(operation)
        return operation

    def run(self, steps: Steps[Any], timeout_ms: int = TIMEOUT_MS) -> Any:
        """The result of an operation; time passes until there is one."""
        operation = self.start(steps, timeout_ms)
        while True:
            self.turn()
            if operation.done:
                break
            if not self._pending:
                due_ms = self.core.network.next_tick_ms()
                assert due_ms > self.clock_ms, "the client would spin"
                self.clock_ms = due_ms
        if operation.error is not None:
            raise operation.error
        return operation.result

    def turn(self) -> None:
        self.core.network.run(self.now)
        pending, self._pending = self._pending, []
        for node_id, request_for, on_answer, on_failure in pending:
            try:
                request = request_for(self._version) if callable(request_for) else request_for
            except KafkaError as error:
                on_failure(error, self.now)
                continue
            answer = self._answer(node_id, request)
            if isinstance(answer, KafkaError):
                on_failure(answer, self.now)
            elif answer is not SILENCE:
                on_answer(answer, self.now)
        if pending:
            self.core.network.run(self.now)

    def _version(self, api_key: int) -> int:
        spec = api_for(api_key)
        assert spec is not None
        return spec.highest if self.version_max is None else self.version_max

    def _ask(self, node_id: int, request: Any, on_answer: Any, on_failure: Any, now: Now, **how: Any) -> None:
        assert node_id in self.core.network.metadata.nodes
        self.request_timeout_ms = how["timeout_ms"]
        self._pending.append((node_id, request, on_answer, on_failure))

    def _ask_any(self, request: Any, on_answer: Any, on_failure: Any, now: Now) -> None:
        self._pending.append((None, request, on_answer, on_failure))

    def _answer(self, node_id: int | None, request: Any) -> Any:
        if not self.reachable:
            return LOST
        if node_id is None and isinstance(request, MetadataRequest):
            return self.metadata(request)
        if node_id is None and isinstance(request, DescribeClusterRequest):
            return self.controllers(request)
        if isinstance(request, FindCoordinatorRequest):
            self.lookups += 1
            found = [Coordinator(key=key, node_id=self.coordinators[key]) for key in request.coordinator_keys]
            return FindCoordinatorResponse(coordinators=tuple(found))
        assert node_id is not None
        self.served.append((node_id, request, self.clock_ms))
        return self.answer(node_id, request)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=tuple(MetadataResponseBroker(node_id=node, host=f"h{node}", port=9) for node in self.nodes),
            cluster_id="c",
            controller_id=self.controller,
            topics=tuple(self._topic(name) for name in names),
        )

    def controllers(self, request: DescribeClusterRequest) -> DescribeClusterResponse:
        assert request.endpoint_type == EndpointType.CONTROLLER
        nodes = tuple(DescribeClusterBroker(broker_id=node, host=f"h{node}", port=9) for node in self.nodes)
        return DescribeClusterResponse(cluster_id="c", controller_id=self.controller, brokers=nodes)

    def _topic(self, name: str) -> MetadataResponseTopic:
        leaders = self.topics.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if isinstance(leaders, ErrorCode):
            return MetadataResponseTopic(name=name, topic_id=UUID(int=1), error_code=leaders)
        partitions = tuple(
            MetadataResponsePartition(partition_index=number, leader_id=leader, replica_nodes=(leader,))
            for number, leader in enumerate(leaders)
        )
        return MetadataResponseTopic(name=name, topic_id=UUID(int=1), partitions=partitions)

    def asked(self) -> list[int]:
        """The brokers, in order."""
        return [node_id for node_id, _, _ in self.served]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def created(*names: str, **refused: ErrorCode) -> CreateTopicsResponse:
    results = [CreatableTopicResult(name=name) for name in names]
    results += [CreatableTopicResult(name=name, error_code=code) for name, code in refused.items()]
    return CreateTopicsResponse(topics=tuple(results))


def delete_records(*partitions: TopicPartition) -> Steps[Any]:
    """An operation whose items have leaders."""

    def request(items: Any, left_ms: int) -> DeleteRecordsRequest:
        asked = tuple(
            DeleteRecordsTopic(name=tp.topic, partitions=(DeleteRecordsPartition(partition_index=tp.partition),))
            for tp in items
        )
        return DeleteRecordsRequest(topics=asked, timeout_ms=left_ms)

    def read(response: Any, items: Any) -> Any:
        for topic in response.topics:
            for each in topic.partitions:
                yield Answer(TopicPartition(topic.name, each.partition_index), each.low_watermark, each.error_code)

    found = yield Call({tp: Leader(tp) for tp in partitions}, named("partition"), request, read)
    return found.checked()


def deleted(request: DeleteRecordsRequest, codes: dict[int, ErrorCode] | None = None) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(
                    DeleteRecordsPartitionResult(
                        partition_index=each.partition_index,
                        low_watermark=7,
                        error_code=(codes or {}).get(each.partition_index, ErrorCode.NONE),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def groups_of(coordinator: str) -> Steps[Any]:
    return ask(group(coordinator), f"group {coordinator!r}", lambda _: ListGroupsRequest(), lambda each: each.groups)


def failed(call: Callable[[], object]) -> AdminError:
    with pytest.raises(AdminError) as raised:
        call()
    return raised.value


T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


# --- routes


def test_a_change_goes_to_the_controller_and_what_any_broker_serves_to_the_same_broker(bench: Bench) -> None:
    bench.controller = 3
    bench.answer = lambda node, request: (
        created("a") if isinstance(request, CreateTopicsRequest) else DescribeQuorumResponse()
    )
    bench.run(topics.create_topics("a"))
    failed(lambda: bench.run(cluster.describe_metadata_quorum()))
    assert bench.asked() == [3, 3]


def test_items_are_split_by_leader_and_their_answers_are_joined(bench: Bench) -> None:
    bench.topics = {"t": [1, 2, 1]}
    bench.answer = lambda node, request: deleted(request)
    assert bench.run(delete_records(T0, T1, T2)) == {T0: 7, T1: 7, T2: 7}
    assert sorted(bench.asked()) == [1, 2]
    assert bench.clock_ms == 1000


def test_a_named_broker_is_asked_itself(bench: Bench) -> None:
    wanted = [ConfigResource(ConfigResourceType.BROKER, "2"), ConfigResource(ConfigResourceType.TOPIC, "t")]
    bench.answer = lambda node, request: DescribeConfigsResponse(
        results=tuple(
            DescribeConfigsResult(resource_type=each.resource_type, resource_name=each.resource_name)
            for each in request.resources
        )
    )
    assert bench.run(configs.describe_configs(wanted)) == {each: {} for each in wanted}
    by_broker = {node: request.resources[0].resource_name for node, request, _ in bench.served}
    assert by_broker[2] == "2" or len(by_broker) == 1
    assert all(isinstance(request, DescribeConfigsRequest) for _, request, _ in bench.served)


def test_a_broker_that_is_gone_is_an_error_after_a_while(bench: Bench) -> None:
    bench.answer = lambda node, request: DescribeConfigsResponse()
    error = failed(lambda: bench.run(configs.describe_configs([(ConfigResourceType.BROKER, "9")])))
    assert error.code is ErrorCode.BROKER_NOT_AVAILABLE
    assert bench.clock_ms == 1000 + UNKNOWN_MS_MAX
    assert bench.served == []


def test_a_coordinator_is_looked_up_once_and_again_when_it_has_moved(bench: Bench) -> None:
    bench.coordinators = {"g": 2}
    answers = iter([ListGroupsResponse(), ListGroupsResponse(error_code=ErrorCode.NOT_COORDINATOR)])

    def answer(node: int, request: Any) -> Any:
        bench.coordinators["g"] = 3
        return next(answers, ListGroupsResponse())

    bench.answer = answer
    bench.run(groups_of("g"))
    bench.run(groups_of("g"))
    assert bench.asked() == [2, 2, 3]
    assert bench.lookups == 2
    assert bench.clock_ms == 1100


def test_a_coordinator_that_is_loading_is_asked_again(bench: Bench) -> None:
    bench.coordinators = {"g": 2}
    answers = iter([ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 2)
    bench.answer = lambda node, request: next(answers, ListGroupsResponse())
    assert bench.run(groups_of("g")) == ()
    assert (bench.asked(), bench.lookups) == ([2, 2, 2], 1)


# --- retries


def test_the_controller_is_looked_for_again(bench: Bench) -> None:
    def answer(node: int, request: Any) -> Any:
        if node == 1:
            bench.controller = 2
            return created(a=ErrorCode.NOT_CONTROLLER)
        return created("a")

    bench.answer = answer
    assert set(bench.run(topics.create_topics("a"))) == {"a"}
    assert [(node, at) for node, _, at in bench.served] == [(1, 1000), (2, 1100)]


def test_only_what_was_refused_is_sent_again(bench: Bench) -> None:
    bench.topics = {"t": [1, 1, 1]}

    def answer(node: int, request: Any) -> Any:
        if node == 1:
            bench.topics = {"t": [1, 2, 1]}
            return deleted(request, {1: ErrorCode.NOT_LEADER_OR_FOLLOWER, 2: ErrorCode.OFFSET_OUT_OF_RANGE})
        return deleted(request)

    bench.answer = answer
    error = failed(lambda: bench.run(delete_records(T0, T1, T2)))
    assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert error.results == {T0: 7, T1: 7}
    assert list(error.errors) == [T2]
    assert bench.asked() == [1, 2]


def test_pauses_between_retries_grow_up_to_a_limit(bench: Bench) -> None:
    bench.answer = lambda node, request: created(a=ErrorCode.NOT_CONTROLLER)
    error = failed(lambda: bench.run(topics.create_topics("a"), 5000))
    assert error.code is ErrorCode.NOT_CONTROLLER
    pauses = [after - before for before, after in pairwise(at for _, _, at in bench.served)]
    assert pauses == [100, 200, 400, 800, 1000, 1000, 1000]
    assert bench.clock_ms == 6000


def test_a_quota_is_waited_for(bench: Bench) -> None:
    throttled = CreateTopicsResponse(
        throttle_time_ms=3000,
        topics=(CreatableTopicResult(name="a", error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED),),
    )
    answers = iter([throttled])
    bench.answer = lambda node, request: next(answers, created("a"))
    bench.run(topics.create_topics("a"))
    assert [at for _, _, at in bench.served] == [1000, 4000]


def test_a_lost_connection_leads_to_another_broker_or_back(bench: Bench) -> None:
    answers = iter([LOST, KafkaError(ErrorCode.REQUEST_TIMED_OUT)])
    bench.answer = lambda node, request: next(answers, created("a"))
    bench.run(topics.create_topics("a"))
    assert len(bench.served) == 3


def test_errors_that_stay_are_not_retried(bench: Bench) -> None:
    bench.answer = lambda node, request: created(a=ErrorCode.TOPIC_ALREADY_EXISTS)
    error = failed(lambda: bench.run(topics.create_topics("a")))
    assert (error.code, len(bench.served)) == (ErrorCode.TOPIC_ALREADY_EXISTS, 1)
    bench.answer = lambda node, request: KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "wrong password")
    error = failed(lambda: bench.run(topics.create_topics("a")))
    assert (error.code, len(bench.served)) == (ErrorCode.SASL_AUTHENTICATION_FAILED, 2)


# --- topics that are not known


@pytest.mark.parametrize("tp", [TopicPartition("none", 0), TopicPartition("t", 1), TopicPartition("t", -1)], ids=str)
def test_an_unknown_partition_is_an_error_after_a_while(bench: Bench, tp: TopicPartition) -> None:
    bench.topics = {"t": [1]}
    error = failed(lambda: bench.run(delete_records(tp)))
    assert type(error) is UnknownTopicError
    assert list(error.errors) == [tp]
    assert bench.clock_ms == 1000 + UNKNOWN_MS_MAX
    assert bench.served == []


def test_a_topic_that_is_new_to_the_broker_is_waited_for(bench: Bench) -> None:
    bench.topics = {"t": [1]}
    answers = iter([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3)
    bench.answer = lambda node, request: deleted(request, {0: next(answers, ErrorCode.NONE)})
    assert bench.run(delete_records(T0)) == {T0: 7}


def test_a_partition_without_a_leader_is_waited_for_until_the_deadline(bench: Bench) -> None:
    bench.topics = {"t": [-1]}
    error = failed(lambda: bench.run(delete_records(T0), 3000))
    assert error.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert bench.clock_ms == 4000
    bench.topics = {"t": [2]}
    bench.answer = lambda node, request: deleted(request)
    assert bench.run(delete_records(T0)) == {T0: 7}


def test_a_reader_asks_once_where_its_partition_is() -> None:
    bench = Bench(topics=["t"])
    bench.topics = {"t": [2, 3]}
    bench.answer = lambda node, request: FetchResponse(
        responses=[FetchTopicResponse(partitions=[FetchPartitionResponse(partition_index=1, records=[b"ab", b"c"])])]
    )
    leader, topic = bench.run(locate(T1))
    assert (leader.broker_id, topic.topic_id) == (3, UUID(int=1))
    for _ in range(3):
        fetched = bench.run(fetch(T1, topic.topic_id, 5, max_bytes=9, max_wait_ms=25_000, committed=True))
        assert (bytes(fetched.batches), fetched.aborted) == (b"abc", ())
    assert bench.asked() == [3, 3, 3]
    assert (bench.core.network.metadata.updates, bench.clock_ms) == (1, 1000)
    assert bench.request_timeout_ms == 10_000 + 25_000
    request = bench.served[0][1]
    assert (request.isolation_level, request.topics[0].partitions[0].fetch_offset) == (READ_COMMITTED, 5)


def test_a_reader_that_was_refused_asks_again() -> None:
    bench = Bench(topics=["t"])
    bench.topics = {"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert failed(lambda: bench.run(locate(T0))).code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    bench.topics = {"t": [2]}
    assert bench.run(locate(T0)).leader.broker_id == 2
    assert bench.core.network.metadata.updates == 2


def test_a_fetch_goes_to_the_new_leader(bench: Bench) -> None:
    bench.topics = {"t": [2]}

    def answer(node: int, request: Any) -> FetchResponse:
        bench.topics = {"t": [3]}
        code = ErrorCode.NONE if node == 3 else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return FetchResponse(responses=[FetchTopicResponse(partitions=[FetchPartitionResponse(error_code=code)])])

    bench.answer = answer
    fetched = bench.run(fetch(T0, UUID(int=1), 5, max_bytes=9, max_wait_ms=0, committed=False))
    assert (bytes(fetched.batches), bench.asked()) == (b"", [2, 3])
    bench.answer = lambda node, request: FetchResponse(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    error = failed(lambda: bench.run(fetch(T0, UUID(int=1), 5, max_bytes=9, max_wait_ms=0, committed=False)))
    assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_where_a_partition_is_that_has_no_leader_yet(bench: Bench) -> None:
    bench.topics = {"t": [-1]}
    operation = bench.start(locate(T0))
    bench.turn()
    assert not operation.done
    bench.topics = {"t": [2]}
    while not operation.done:
        bench.clock_ms = max(bench.clock_ms, bench.core.network.next_tick_ms())
        bench.turn()
    assert operation.outcome().leader.broker_id == 2
    assert failed(lambda: bench.run(locate(T1))).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_not_permitted_is_an_error_at_once(bench: Bench) -> None:
    bench.topics = {"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    error = failed(lambda: bench.run(delete_records(T0)))
    assert type(error) is AuthorizationError
    assert bench.clock_ms == 1000


# --- time


def test_without_a_response_it_ends_in_time_and_later_answers_are_ignored(bench: Bench) -> None:
    bench.topics = {"t": [1, 2]}
    bench.answer = lambda node, request: deleted(request) if node == 1 else SILENCE
    error = failed(lambda: bench.run(delete_records(T0, T1), 2500))
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert error.results == {T0: 7}
    assert bench.clock_ms == 3500


def test_a_broker_gets_the_time_that_is_left(bench: Bench) -> None:
    bench.answer = lambda node, request: created("a")
    bench.run(topics.create_topics("a"), 2500)
    bench.run(topics.create_topics("a"))
    assert [request.timeout_ms for _, request, _ in bench.served] == [2500, 10_000]


def test_without_time_nothing_is_sent(bench: Bench) -> None:
    assert failed(lambda: bench.run(topics.create_topics("a"), 0)).code is ErrorCode.REQUEST_TIMED_OUT
    assert bench.served == []


def test_a_cluster_that_is_not_reachable(bench: Bench) -> None:
    bench.reachable = False
    error = failed(lambda: bench.run(topics.list_topics(), 5000))
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert error.message == "the topics: no response in time (gone)"
    assert bench.clock_ms == 6000


def test_without_waiting_each_address_is_tried_once() -> None:
    bench = Bench(waits_for_brokers=False)
    bench.reachable = False
    error = failed(lambda: bench.run(topics.list_topics()))
    assert (error.code, error.message) == (ErrorCode.NETWORK_EXCEPTION, "gone")
    assert bench.clock_ms == 1100
    bench.reachable = True
    bench.answer = lambda node, request: bench.metadata(request)
    assert bench.run(topics.list_topics()) == []


def test_several_operations_at_the_same_time(bench: Bench) -> None:
    bench.topics = {f"t{number}": [1 + number % 3] for number in range(100)}
    bench.answer = lambda node, request: deleted(request)
    wanted = [TopicPartition(topic, 0) for topic in bench.topics]
    operations = [bench.start(delete_records(tp)) for tp in wanted]
    while not all(operation.done for operation in operations):
        bench.turn()
    assert [operation.result for operation in operations] == [{tp: 7} for tp in wanted]
    assert bench.clock_ms == 1000


def test_closing_ends_what_waits(bench: Bench) -> None:
    operation = bench.start(topics.create_topics("a"))
    bench.turn()
    assert bench.core.close()
    assert isinstance(operation.error, ClientClosedError)
    assert not bench.core.close()
    with pytest.raises(ClientClosedError):
        bench.start(topics.create_topics("a"))


# --- responses and values that are not as they should be


def test_a_response_that_lacks_items_or_has_others(bench: Bench) -> None:
    bench.answer = lambda node, request: created("a", "a", "other")
    error = failed(lambda: bench.run(topics.create_topics(["a", "b"])))
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert error.message == "topic 'b': the response does not contain it"
    assert (list(error.errors), list(error.results)) == (["b"], ["a"])


def test_a_response_that_cannot_be_read(bench: Bench) -> None:
    bench.answer = lambda node, request: DescribeQuorumResponse()
    error = failed(lambda: bench.run(cluster.describe_metadata_quorum()))
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert error.message.startswith("the response is malformed: IndexError")

    def read(response: Any) -> Any:
        raise ValueError("bad")

    error = failed(lambda: bench.run(ask(CONTROLLER, "it", lambda _: DescribeQuorumRequest(), read)))
    assert error.message == "it: the response is malformed: ValueError('bad')"


def wrong(call: Callable[..., Any], *arguments: Any, **named: Any) -> Callable[[], Any]:
    """A call with arguments of types that it does not take."""
    return partial(call, *arguments, **named)


@pytest.mark.parametrize(
    "steps",
    [
        lambda: topics.create_topics("x" * 40_000),
        lambda: topics.create_topics("\ud800"),
        lambda: topics.create_topics(topics.NewTopic("a", 1 << 40)),
        lambda: topics.create_topics(topics.NewTopic("a", 1, 1 << 20)),
        lambda: topics.create_topics(topics.NewTopic("a", configs={"k": "v" * 100_000})),
        lambda: topics.create_partitions({"a": -(1 << 31) - 1}),
        wrong(topics.create_topics, 5),
        lambda: topics.create_topics(["a", "a"]),
        lambda: topics.create_topics(topics.NewTopic("a", 3, replica_assignments={0: [1]})),
        lambda: topics.describe_topics(["a", "a"]),
        lambda: configs.describe_configs([(ConfigResourceType.BROKER, "one")]),
        lambda: configs.describe_configs([(ConfigResourceType.BROKER, "1" * 5000)]),
        wrong(configs.describe_configs, [(1000, "one")]),
        wrong(configs.incremental_alter_configs, {ConfigResource(ConfigResourceType.TOPIC, "a"): {"k": 5}}),
        lambda: cluster.unregister_broker(1 << 31),
        lambda: cluster.update_features({"f": 1 << 20}),
        lambda: cluster.add_raft_voter(1 << 31, UUID(int=5), [("C", "h", 1)]),
        lambda: cluster.add_raft_voter(1001, UUID(int=5), [("C", "h", 1 << 16)]),
        lambda: cluster.describe_log_dirs([1, 1]),
        wrong(cluster.describe_log_dirs, [[1]]),
        wrong(topics.create_topics, ["a", 5]),
        wrong(topics.delete_topics, [None]),
        wrong(topics.describe_topics, [["a"]]),
        wrong(topics.create_partitions, [("a", 5)]),
        wrong(partitions.list_offsets, {("a", "0"): -1}),
        wrong(partitions.list_offsets, {("a", 0): "latest"}),
        wrong(partitions.delete_records, [("a", 0)]),
        wrong(partitions.describe_producers, "a"),
        wrong(transactions.abort_transaction, "a", producer_id=5, producer_epoch=0),
        wrong(configs.describe_configs, "a"),
        wrong(configs.describe_configs, [("topic", "a")]),
        wrong(configs.describe_configs, [(ConfigResourceType.BROKER, 1)]),
        wrong(groups.describe_consumer_groups, None),
        wrong(groups.delete_consumer_groups, [5]),
        wrong(groups.list_consumer_group_offsets, ["g"]),
        wrong(acls.create_acls, ["a"]),
    ],
)
def test_values_that_no_broker_accepts_are_refused_before_they_are_sent(bench: Bench, steps: Any) -> None:
    with pytest.raises(KafkaError) as raised:
        bench.run(steps())
    assert raised.value.code in (ErrorCode.INVALID_REQUEST, ErrorCode.BROKER_NOT_AVAILABLE)
    assert bench.served == []


def test_what_no_request_can_be_made_of_ends_no_other_operation(bench: Bench) -> None:
    malformed: Any = TopicPartition._make(("t", "0"))

    def steps() -> Steps[Any]:
        return (yield Call({"it": Leader(malformed)}, str, None, lambda *_: ()))

    bench.answer = lambda node_id, request: SILENCE
    wrong, other = bench.start(steps()), bench.start(ask(CONTROLLER, "it", lambda _: DescribeQuorumRequest(), repr))
    for _ in range(3):
        bench.turn()
    assert wrong.error is not None
    assert wrong.error.message.startswith("an argument has a wrong type or value: TypeError(")
    assert [node_id for node_id, _, _ in bench.served] == [1]
    assert not other.done


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), 1e300, "1", [], 10**400])
def test_timeouts_that_are_none(bench: Bench, timeout: Any) -> None:
    with pytest.raises(KafkaError, match=r"timeout=.*: must be "):
        bench.core.timeout_ms(timeout)


def test_errors_can_be_copied_and_pickled() -> None:
    error = AdminError.of({"t": KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")}, {"u": 1})
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is AuthorizationError
        assert (again.code, again.message, again.results) == (error.code, "no", {"u": 1})
        assert str(again.errors["t"]) == str(error.errors["t"])


# --- every operation

BROKER_1, TOPIC = ConfigResource(ConfigResourceType.BROKER, "1"), ConfigResource(ConfigResourceType.TOPIC, "t")
BINDING = AclBinding(
    ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", acl.Operation.READ, acl.Permission.ALLOW
)
OPERATIONS: dict[str, Callable[[], Steps[Any]]] = {
    "create_topics": lambda: topics.create_topics("t"),
    "delete_topics": lambda: topics.delete_topics(["t", UUID(int=1)]),
    "list_topics": topics.list_topics,
    "describe_topics": lambda: topics.describe_topics("t"),
    "describe_topic_partitions": lambda: topics.describe_topic_partitions("t"),
    "create_partitions": lambda: topics.create_partitions({"t": 3}),
    "describe_configs": lambda: configs.describe_configs([TOPIC, BROKER_1]),
    "incremental_alter_configs": lambda: configs.incremental_alter_configs({TOPIC: {"a": None}}),
    "alter_configs": lambda: configs.alter_configs({TOPIC: {"a": "b"}}),
    "list_config_resources": configs.list_config_resources,
    "describe_cluster": cluster.describe_cluster,
    "describe_coordinators": cluster.describe_coordinators,
    "unregister_broker": lambda: cluster.unregister_broker(7),
    "describe_api_versions": lambda: cluster.describe_api_versions([1, 2]),
    "describe_features": cluster.describe_features,
    "update_features": lambda: cluster.update_features({"f": 1}),
    "describe_metadata_quorum": cluster.describe_metadata_quorum,
    "add_raft_voter": lambda: cluster.add_raft_voter(1001, UUID(int=5), [("CONTROLLER", "h", 9093)]),
    "remove_raft_voter": lambda: cluster.remove_raft_voter(1001, UUID(int=5)),
    "describe_log_dirs": lambda: cluster.describe_log_dirs([1, 2]),
    "alter_replica_log_dirs": lambda: cluster.alter_replica_log_dirs({("t", 0, 1): "/d"}),
    "list_offsets": lambda: partitions.list_offsets({T0: -1, T1: 5}),
    "delete_records": lambda: partitions.delete_records({T0: 5}),
    "describe_producers": lambda: partitions.describe_producers([T0]),
    "elect_leaders": lambda: partitions.elect_leaders(partitions.ElectionType.PREFERRED, [T0]),
    "alter_partition_reassignments": lambda: partitions.alter_partition_reassignments({T0: [1], T1: None}),
    "list_partition_reassignments": partitions.list_partition_reassignments,
    "list_groups": groups.list_groups,
    "describe_groups": lambda: all_groups.describe_groups(["g", "h"]),
    "list_group_offsets": lambda: all_groups.list_group_offsets("g", "share"),
    "list_consumer_groups": groups.list_consumer_groups,
    "describe_consumer_groups": lambda: groups.describe_consumer_groups("g"),
    "delete_consumer_groups": lambda: groups.delete_consumer_groups(["g", "h"]),
    "list_consumer_group_offsets": lambda: groups.list_consumer_group_offsets("g", [T0]),
    "alter_consumer_group_offsets": lambda: groups.alter_consumer_group_offsets("g", {T0: 1}),
    "delete_consumer_group_offsets": lambda: groups.delete_consumer_group_offsets("g", [T0]),
    "remove_members_from_consumer_group": lambda: groups.remove_members_from_consumer_group(
        "g", [groups.MemberToRemove("m")]
    ),
    "describe_streams_groups": lambda: streams_groups.describe_streams_groups(["g", "h"]),
    "describe_share_groups": lambda: share_groups.describe_share_groups(["g", "h"]),
    "delete_share_groups": lambda: share_groups.delete_share_groups("g"),
    "list_share_group_offsets": lambda: share_groups.list_share_group_offsets("g", [T0]),
    "alter_share_group_offsets": lambda: share_groups.alter_share_group_offsets("g", {T0: 1, T1: 2}),
    "delete_share_group_offsets": lambda: share_groups.delete_share_group_offsets("g", "t"),
    "list_transactions": transactions.list_transactions,
    "describe_transactions": lambda: transactions.describe_transactions("x"),
    "fence_producers": lambda: transactions.fence_producers(["x", "y"]),
    "abort_transaction": lambda: transactions.abort_transaction(T0, producer_id=1, producer_epoch=0),
    "describe_acls": acls.describe_acls,
    "create_acls": lambda: acls.create_acls(BINDING),
    "delete_acls": lambda: acls.delete_acls(AclFilter()),
    "describe_user_scram_credentials": lambda: users.describe_user_scram_credentials("u"),
    "alter_user_scram_credentials": lambda: users.alter_user_scram_credentials(
        [users.UserScramCredentialDeletion("u", ScramMechanism.SHA_256)]
    ),
    "describe_client_quotas": quotas.describe_client_quotas,
    "alter_client_quotas": lambda: quotas.alter_client_quotas({(("user", "u"),): {"k": 1.0}}),
    "create_delegation_token": tokens.create_delegation_token,
    "describe_delegation_tokens": tokens.describe_delegation_tokens,
    "renew_delegation_token": lambda: tokens.renew_delegation_token("YQ=="),
    "expire_delegation_token": lambda: tokens.expire_delegation_token("YQ=="),
}


def test_lags_of_share_groups_are_shown_where_the_broker_says_them(ready: Bench) -> None:
    partitions_ = (
        DescribeShareGroupOffsetsResponsePartition(partition_index=0, start_offset=5, leader_epoch=2, lag=7),
        DescribeShareGroupOffsetsResponsePartition(partition_index=1, start_offset=6, lag=-1),
        DescribeShareGroupOffsetsResponsePartition(partition_index=2, start_offset=-1),
    )
    topic = DescribeShareGroupOffsetsResponseTopic(topic_name="t", partitions=partitions_)
    groups_ = (DescribeShareGroupOffsetsResponseGroup(group_id="g", topics=(topic,)),)
    ready.answer = answered_by(ready, lambda _: DescribeShareGroupOffsetsResponse(groups=groups_))
    offsets = ready.run(share_groups.list_share_group_offsets("g"))
    assert offsets == {T0: (5, 2, 7), T1: (6, 0, None)}
    assert ready.run(share_groups.list_share_group_offsets("g", [("t", 2)])) == {("t", 2): None}


WITHOUT_ERRORS = ("list_topics", "describe_topics")
"""Their response has no error for the whole request."""


@pytest.fixture
def ready(bench: Bench) -> Bench:
    bench.topics = {"t": [1, 2]}
    bench.coordinators = dict.fromkeys("ghxy", 2)
    return bench


def answered_by(bench: Bench, make: Callable[[Any], Any]) -> Callable[[int, Any], Any]:
    """Answers Metadata, in which brokers are found, as the cluster is."""
    return lambda node, request: (
        bench.metadata(request) if isinstance(request, MetadataRequest) and not request.topics else make(request)
    )


def test_both_faces_have_every_operation() -> None:
    for face in (AdminClient, AsyncAdminClient):
        assert set(OPERATIONS) <= set(vars(face))
        found = {name for name, each in vars(face).items() if hasattr(each, "__wrapped__") and name[0] != "_"}
        assert found == set(OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_empty_response(ready: Bench, name: str) -> None:
    """Whatever is asked for by name and lacks in the response has failed."""
    ready.answer = answered_by(ready, lambda request: response_class(request)())
    code, result = outcome(lambda: ready.run(OPERATIONS[name]()))
    assert code in LACKING
    assert (
        not isinstance(result, dict)
        or not result
        or name in ("fence_producers", "describe_log_dirs", "describe_api_versions")
    )
    assert ready.clock_ms == 1000


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in WITHOUT_ERRORS])
def test_a_refusal_of_the_whole_request(ready: Bench, name: str) -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    ready.answer = answered_by(ready, lambda request: error_response(request, code))
    error = failed(lambda: ready.run(OPERATIONS[name]()))
    assert (type(error), error.code) == (AuthorizationError, code)
    assert ready.clock_ms == 1000


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_lost_connection_is_outlived(ready: Bench, name: str) -> None:
    """The first request of each kind is lost; what is sent again has the same outcome as otherwise."""
    seen: set[type] = set()

    def make(request: Any) -> Any:
        if type(request) in seen:
            return response_class(request)()
        seen.add(type(request))
        return LOST

    ready.answer = answered_by(ready, make)
    assert outcome(lambda: ready.run(OPERATIONS[name]()))[0] in LACKING
    assert (ready.clock_ms == 1000) == (name == "list_topics")


LACKING = (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def outcome(call: Callable[[], Any]) -> tuple[ErrorCode, Any]:
    try:
        return ErrorCode.NONE, call()
    except AdminError as error:
        return error.code, None


def response_class(request: Any) -> Any:
    spec = api_for(request.api.key)
    assert spec is not None
    return spec.response


def test_the_active_controller_is_asked_and_the_next_one_once_it_is_known() -> None:
    bench = Bench(of_controllers=True)
    bench.controller = 2

    def answer(node_id: int, request: Any) -> Any:
        if isinstance(request, DescribeClusterRequest):
            return bench.controllers(request)
        if node_id == 2:
            bench.controller = 3
            return created(t=ErrorCode.NOT_CONTROLLER)
        return created("t")

    bench.answer = answer
    assert bench.run(cluster.describe_cluster()).controller == 2
    assert bench.run(topics.create_topics([topics.NewTopic("t", 1)])).keys() == {"t"}
    assert bench.run(cluster.describe_cluster()).controller == 3
    assert bench.asked() == [2, 2, 3, 3]


def test_a_controller_that_is_too_old_is_named() -> None:
    bench = Bench(of_controllers=True)
    bench.version_max = 0
    assert "older than Kafka 3.7" in failed(lambda: bench.run(cluster.describe_cluster())).message


def test_groups_are_described_by_whatever_type_they_are(bench: Bench) -> None:
    """The first answer counts for a group that does not exist, and for one that may not be seen."""
    bench.coordinators = dict.fromkeys(("c", "s", "none", "hidden"), 1)
    missing = ErrorCode.GROUP_ID_NOT_FOUND

    def answer(_: int, request: Any) -> Any:
        if isinstance(request, ConsumerGroupDescribeRequest):
            codes = {"c": ErrorCode.NONE, "hidden": ErrorCode.GROUP_AUTHORIZATION_FAILED}
            found = [DescribedGroup(group_id=each, error_code=codes.get(each, missing)) for each in request.group_ids]
            return ConsumerGroupDescribeResponse(groups=tuple(found))
        if isinstance(request, StreamsGroupDescribeRequest):
            streams = [
                StreamsGroup(group_id=each, error_code=ErrorCode.NONE if each == "s" else missing)
                for each in request.group_ids
            ]
            return StreamsGroupDescribeResponse(groups=tuple(streams))
        return error_response(request, missing)

    bench.answer = answer
    with pytest.raises(AdminError) as raised:
        bench.run(all_groups.describe_groups(["s", "none", "c", "hidden"]))
    assert [(name, each.type) for name, each in raised.value.results.items()] == [("s", "streams"), ("c", "consumer")]
    codes = {name: error.code for name, error in raised.value.errors.items()}
    assert codes == {"none": missing, "hidden": ErrorCode.GROUP_AUTHORIZATION_FAILED}
