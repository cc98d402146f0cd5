"""Client quotas of a broker: set and described by requests, persisted, and enforced by throttle time and muting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raylog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.schema import Message
from raylog.quotas.client_quotas import Identity
from raylog.quotas.usage import Throttled
from raylog.security.principal import Principal
from raylog.transport.accepted_connection import AcceptedConnection
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster, DirectMember
from tests.support.exchanges import log_in

USER = {"user": "ANONYMOUS"}
CONFIG: dict[str, Any] = {"group.initial.rebalance.delay.ms": 0}
SPAN_MS = 11_000
BATCH_BYTES = 5070
"""Of a record of 5000 bytes."""


@pytest.fixture
def broker() -> DirectBroker:
    broker = DirectBroker(CONFIG)
    broker.create_topic("t")
    return broker


def entry(entity: Mapping[str, str | None], **values: float | None) -> RequestEntryData:
    return RequestEntryData(
        entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()),
        ops=tuple(
            OpData(key=key, remove=True) if value is None else OpData(key=key, value=value)
            for key, value in values.items()
        ),
    )


def alter(broker: DirectBroker, *entries: RequestEntryData, validate_only: bool = False) -> list[ErrorCode]:
    connection = broker.connect()
    log_in(connection, Principal("User", "admin"))
    request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    sent = broker.send(request, connection=connection)
    broker.settle()
    answer = broker.answer(sent, connection=connection)
    return [each.error_code for each in answer.entries]


def limit(broker: DirectBroker, entity: Mapping[str, str | None] = USER, **values: float | None) -> None:
    assert alter(broker, entry(entity, **values)) == [ErrorCode.NONE]


def described(
    broker: DirectBroker, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    wanted = tuple(ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components)
    connection = broker.connect()
    answer = broker.call(DescribeClientQuotasRequest(components=wanted, strict=strict), connection=connection)
    assert answer.error_code == ErrorCode.NONE
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in answer.entries
    }


def produce_request(size_bytes: int, *, acks: int = 1) -> ProduceRequest:
    records = bytes(build_batch([NewRecord(None, b"x" * size_bytes, 5)]))
    part = ProducePartition(index=0, records=memoryview(records))
    return ProduceRequest(acks=acks, timeout_ms=1000, topics=[ProduceTopic(name="t", partitions=[part])])


def produce(broker: DirectBroker, size_bytes: int, connection: AcceptedConnection) -> int:
    """The throttle time."""
    answer = broker.call(produce_request(size_bytes), version=9, connection=connection)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    throttle_ms: int = answer.throttle_time_ms
    return throttle_ms


def fetch_request(*, offset: int = 0, session: tuple[int, int] = (0, -1), max_wait_ms: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(name="t", partitions=[wanted])]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=64 << 20,
        topics=topics,
        session_id=session[0],
        session_epoch=session[1],
    )


def fetched_bytes(answer: Any) -> int:
    return sum(len(piece) for topic in answer.responses for part in topic.partitions for piece in part.records or ())


def is_served(broker: DirectBroker, connection: AcceptedConnection) -> bool:
    """Sends a request, which is answered at once unless the connection is muted."""
    sent = broker.send(FindCoordinatorRequest(key="g", key_type=0), version=1, connection=connection)
    return broker.answer(sent, connection=connection) is not None


class TestRequests:
    def test_quotas_are_set_described_and_removed(self, broker: DirectBroker) -> None:
        both = {"client-id": "c", "user": "alice"}
        limit(broker, both, producer_byte_rate=1000, request_percentage=12.5)
        limit(broker, {"user": None}, consumer_byte_rate=5)
        limit(broker, {"ip": "127.0.0.9"}, connection_creation_rate=3)
        of_both = (("client-id", "c"), ("user", "alice"))
        assert described(broker) == {
            of_both: {"producer_byte_rate": 1000, "request_percentage": 12.5},
            (("user", None),): {"consumer_byte_rate": 5},
            (("ip", "127.0.0.9"),): {"connection_creation_rate": 3},
        }
        assert described(broker, ("user", 0, "alice"), strict=True) == {}
        assert list(described(broker, ("user", 0, "alice"))) == [of_both]
        assert list(described(broker, ("user", 1, None))) == [(("user", None),)]
        limit(broker, both, producer_byte_rate=None, controller_mutation_rate=None)
        assert described(broker, ("client-id", 2, None)) == {of_both: {"request_percentage": 12.5}}
        limit(broker, both, request_percentage=None)
        assert described(broker, ("client-id", 2, None)) == {}

    @pytest.mark.parametrize("clean", [True, False])
    def test_they_survive_a_restart(self, broker: DirectBroker, clean: bool) -> None:
        limit(broker, producer_byte_rate=1000)
        limit(broker, {"user": "x"}, producer_byte_rate=1000)
        limit(broker, {"user": "x"}, producer_byte_rate=None)
        broker.restart(clean=clean)
        assert described(broker) == {(("user", "ANONYMOUS"),): {"producer_byte_rate": 1000}}
        assert produce(broker, 20_000, broker.connect()) > 0, "and they are enforced"

    def test_a_request_is_only_validated_if_asked(self, broker: DirectBroker) -> None:
        good, bad = entry(USER, producer_byte_rate=1), entry({"user": "x"}, producer_byte_rate=-1)
        codes = [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
        assert alter(broker, good, bad, validate_only=True) == codes
        assert described(broker) == {}
        assert alter(broker, good, bad) == codes
        assert described(broker) == {(("user", "ANONYMOUS"),): {"producer_byte_rate": 1}}

    @pytest.mark.parametrize(
        "refused",
        [
            entry({"user": "u"}, producer_byte_rate=math.nan),
            entry({"user": "u"}, connection_creation_rate=1),
            entry({"user": "u"}, no_such_rate=None),
            entry({"ip": "1.2.3.4", "user": "u"}, connection_creation_rate=1),
            entry({"group": "g"}, producer_byte_rate=1),
            entry({}, producer_byte_rate=1),
        ],
    )
    def test_invalid_changes_are_refused_as_a_whole(self, broker: DirectBroker, refused: RequestEntryData) -> None:
        valid = OpData(key="request_percentage", value=5.0)
        changed = RequestEntryData(entity=refused.entity, ops=(valid, *refused.ops))
        assert alter(broker, changed) == [ErrorCode.INVALID_REQUEST]
        assert described(broker) == {}

    def test_an_entity_or_a_key_that_is_given_twice_is_refused(self, broker: DirectBroker) -> None:
        one, other = entry({"ip": "::1"}, connection_creation_rate=1), entry({"ip": "::01"}, connection_creation_rate=2)
        assert alter(broker, one, other) == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
        twice = entry(USER, producer_byte_rate=1)
        twice = RequestEntryData(entity=twice.entity, ops=twice.ops * 2)
        assert alter(broker, twice) == [ErrorCode.INVALID_REQUEST]
        removed = entry({"ip": "::1"}, connection_creation_rate=None)
        assert alter(broker, removed, removed) == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
        assert described(broker) == {}

    def test_too_many_changes_at_once_are_refused(self, broker: DirectBroker) -> None:
        many = [entry({"user": f"u{number}"}, producer_byte_rate=1) for number in range(10_001)]
        assert set(alter(broker, *many)) == {ErrorCode.POLICY_VIOLATION}
        assert described(broker) == {}

    def test_an_unknown_entity_type_cannot_be_described(self, broker: DirectBroker) -> None:
        request = DescribeClientQuotasRequest(components=(ComponentData(entity_type="group", match_type=2),))
        answer = broker.call(request)
        assert (answer.error_code, answer.entries) == (ErrorCode.UNSUPPORTED_VERSION, None)


class TestProduce:
    def test_a_producer_over_its_quota_is_told_and_then_muted(self, broker: DirectBroker) -> None:
        limit(broker, producer_byte_rate=1000)
        connection = broker.connect()
        assert produce(broker, 5000, connection) == 0
        throttle_ms = produce(broker, 10_000, connection)
        assert 5000 < throttle_ms < 6000, "15 KB and headers, at 1 KB/s beyond 10 s"
        sent = broker.send(FindCoordinatorRequest(key="g", key_type=0), version=1, connection=connection)
        broker.pass_time(throttle_ms - 1)
        assert broker.answer(sent, connection=connection) is None
        broker.pass_time(1)
        assert broker.answer(sent, connection=connection) is not None
        [throttled] = broker.broker.request_quotas.usage.throttled.all()
        assert throttled == Throttled("producer_byte_rate", Identity("ANONYMOUS", None), 1, throttle_ms)

    def test_without_acknowledgement_it_is_muted_as_well(self, broker: DirectBroker) -> None:
        limit(broker, producer_byte_rate=1000)
        connection = broker.connect()
        broker.send(produce_request(15_000, acks=0), version=9, connection=connection)
        assert not is_served(broker, connection)
        assert is_served(broker, broker.connect())

    def test_another_user_is_not_slowed(self, broker: DirectBroker) -> None:
        limit(broker, producer_byte_rate=1000)
        other = broker.connect()
        log_in(other, Principal("User", "other"))
        assert produce(broker, 50_000, broker.connect()) > 0
        assert produce(broker, 50_000, other) == 0
        assert is_served(broker, other)

    def test_other_connections_and_client_ids_of_the_user_share_its_quota(self, broker: DirectBroker) -> None:
        limit(broker, producer_byte_rate=1000)
        throttled = []
        for number in range(20):
            broker.client_id = f"client {number}"
            throttled.append(produce(broker, 1000, broker.connect()))
        assert throttled[:9] == [0] * 9
        assert throttled[10:] == sorted(throttled[10:])
        assert throttled[-1] > 10_000

    def test_client_ids_without_a_user_are_limited_apart(self, broker: DirectBroker) -> None:
        limit(broker, {"client-id": None}, producer_byte_rate=1000)
        broker.client_id = "a"
        assert produce(broker, 15_000, broker.connect()) > 0
        broker.client_id = "b"
        assert produce(broker, 5_000, broker.connect()) == 0

    def test_a_change_applies_to_open_connections(self, broker: DirectBroker) -> None:
        connection = broker.connect()
        assert produce(broker, 50_000, connection) == 0
        assert broker.broker.quotas is None
        limit(broker, producer_byte_rate=1000)
        throttle_ms = produce(broker, 50_000, connection)
        assert throttle_ms > 0
        broker.pass_time(throttle_ms)
        limit(broker, producer_byte_rate=1_000_000)
        assert produce(broker, 50_000, connection) == 0
        limit(broker, producer_byte_rate=None)
        assert broker.broker.quotas is None

    def test_a_closed_connection_is_forgotten(self, broker: DirectBroker) -> None:
        limit(broker, producer_byte_rate=1)
        connection = broker.connect()
        produce(broker, 50_000, connection)
        assert len(broker.broker._throttled) == 1
        broker.broker.connection_closed(connection, broker.now())
        assert not broker.broker._throttled

    def test_a_connection_that_closes_before_the_response_is_not_remembered(self) -> None:
        cluster = DirectCluster(2, CONFIG)
        cluster.create_topic("t", on=[[0, 1]])
        leader, follower = cluster.brokers
        leader.send(AlterClientQuotasRequest(entries=(entry(USER, producer_byte_rate=1),)))
        cluster.settle()
        follower.silent = True
        connection = leader.connect()
        leader.send(produce_request(5000, acks=-1), version=9, connection=connection)
        assert [each.output for each in connection.in_work] == [None], "it waits for the follower"
        leader.broker.connection_closed(connection, cluster.now())
        follower.silent = False
        cluster.pass_time(1000)
        assert leader.broker.throttled(), "it was charged"
        assert not leader.broker._throttled

    def test_its_long_run_rate_is_its_quota(self, broker: DirectBroker) -> None:
        limit(broker, producer_byte_rate=10_000)
        connection, sent_bytes, began_ms = broker.connect(), 0, broker.now().monotonic_ms
        size_bytes = 5000
        while broker.now().monotonic_ms - began_ms < 100_000:
            throttle_ms = produce(broker, size_bytes, connection)
            sent_bytes += size_bytes
            broker.pass_time(throttle_ms or 1)
        assert 0.9 < sent_bytes / 100 / 10_000 < 1.2, "the burst of ten seconds included"


class TestFetch:
    @pytest.fixture(autouse=True)
    def _records(self, broker: DirectBroker) -> None:
        for _ in range(6):
            broker.produce([b"x" * 5000])

    def test_over_its_quota_a_consumer_gets_an_empty_response_at_once(self, broker: DirectBroker) -> None:
        limit(broker, consumer_byte_rate=1000)
        connection = broker.connect()
        first = broker.call(fetch_request(max_wait_ms=30_000), version=11, connection=connection)
        assert (fetched_bytes(first), first.throttle_time_ms) == (BATCH_BYTES, 0)
        second = broker.call(fetch_request(offset=1, max_wait_ms=30_000), version=11, connection=connection)
        assert (fetched_bytes(second), second.throttle_time_ms) == (0, 140)
        assert second.error_code == ErrorCode.NONE
        assert not is_served(broker, connection)
        broker.pass_time(140)
        assert broker.answer((10, 1), connection=connection) is not None

    def test_it_gets_everything_in_the_end(self, broker: DirectBroker) -> None:
        limit(broker, consumer_byte_rate=1000)
        connection, offset, began_ms = broker.connect(), 0, broker.now().monotonic_ms
        while offset < 6:
            answer = broker.call(fetch_request(offset=offset), version=11, connection=connection)
            offset += fetched_bytes(answer) // BATCH_BYTES
            broker.pass_time(answer.throttle_time_ms)
        took_ms = broker.now().monotonic_ms - began_ms
        assert 15_000 < took_ms < 33_000, "30 KB at 1 KB/s, of which ten seconds may come at once"

    def test_a_batch_beyond_the_whole_quota_is_delivered(self, broker: DirectBroker) -> None:
        limit(broker, consumer_byte_rate=10)
        answer = broker.call(fetch_request(), version=11, connection=broker.connect())
        assert fetched_bytes(answer) == BATCH_BYTES
        assert answer.throttle_time_ms > 400_000

    def test_an_incremental_session_goes_on_after_an_empty_response(self, broker: DirectBroker) -> None:
        limit(broker, consumer_byte_rate=1000)
        connection = broker.connect()
        opened = broker.call(fetch_request(session=(0, 0)), version=11, connection=connection)
        assert fetched_bytes(opened) == BATCH_BYTES
        session = opened.session_id
        empty = broker.call(fetch_request(offset=1, session=(session, 1)), version=11, connection=connection)
        assert (empty.session_id, len(empty.responses), empty.error_code) == (session, 0, ErrorCode.NONE)
        assert empty.throttle_time_ms > 0
        broker.pass_time(empty.throttle_time_ms)
        more = broker.call(fetch_request(offset=1, session=(session, 2)), version=11, connection=connection)
        assert fetched_bytes(more) == BATCH_BYTES

    def test_an_empty_response_opens_no_session(self, broker: DirectBroker) -> None:
        limit(broker, consumer_byte_rate=1000)
        connection = broker.connect()
        before = len(broker.broker.fetch_sessions)
        broker.call(fetch_request(), version=11, connection=connection)
        empty = broker.call(fetch_request(session=(0, 0)), version=11, connection=connection)
        assert (empty.session_id, empty.throttle_time_ms > 0) == (0, True)
        assert len(broker.broker.fetch_sessions) == before


def spend(broker: DirectMember, ms: int) -> None:
    """Let the clock that measures work advance by so much at each reading."""
    clock_ns = 1

    def advance() -> int:
        nonlocal clock_ns
        clock_ns += ms * 1_000_000
        return clock_ns

    broker.broker.request_quotas.clock_ns = advance


def test_other_brokers_are_exempt() -> None:
    cluster = DirectCluster(2, {"default.replication.factor": 2, **CONFIG})
    cluster.create_topic("t", on=[[0, 1]])
    leader, follower = cluster.brokers
    defaults: tuple[Mapping[str, str | None], ...] = (
        {"user": None},
        {"client-id": None},
        {"user": None, "client-id": None},
    )
    everyone = tuple(entry(each, consumer_byte_rate=1, request_percentage=0.001) for each in defaults)
    leader.send(AlterClientQuotasRequest(entries=everyone))
    cluster.settle()
    spend(leader, 100)
    for _ in range(20):
        leader.produce([b"x" * 5000], connection=leader.connect(), acks=-1)
    cluster.pass_time(1000)
    assert follower.broker.partition_count("t") == 1
    assert follower.broker.replica(TopicPartition("t", 0)).log.log_end_offset == 20
    throttled = {each.identity.user for each in leader.broker.throttled()}
    assert throttled == {"ANONYMOUS"}, "and not the other broker"


class TestRequestTime:
    def test_a_client_that_uses_too_much_time_is_throttled(self, broker: DirectBroker) -> None:
        limit(broker, request_percentage=10)
        spend(broker, 600)
        connection = broker.connect()
        first = broker.call(MetadataRequest(topics=None), connection=connection)
        assert first.throttle_time_ms == 0, "0.6 s of 10 s"
        broker.pass_time(100)
        second = broker.call(MetadataRequest(topics=None), connection=connection)
        assert 0 < second.throttle_time_ms <= 1000
        assert not is_served(broker, connection)

    def test_every_response_with_a_field_for_it_says_how_long(self, broker: DirectBroker) -> None:
        limit(broker, request_percentage=1)
        spend(broker, 5000)
        requests: list[tuple[Message, int]] = [
            (ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3),
            (FindCoordinatorRequest(key="g", key_type=0), 1),
            (MetadataRequest(topics=None), 3),
            (DescribeClientQuotasRequest(), 1),
            (fetch_request(), 11),
        ]
        for request, version in requests:
            connection = broker.connect()
            answer = broker.call(request, version=version, connection=connection)
            assert answer.throttle_time_ms > 0, request
            assert not is_served(broker, connection)
        connection = broker.connect()
        old = broker.call(MetadataRequest(topics=None), version=2, connection=connection)
        assert old.throttle_time_ms == 0, "v2 has no such field, but it is muted"
        assert not is_served(broker, connection)
        connection = broker.connect()
        create = CreateTopicsRequest(topics=(CreatableTopic(name="x", num_partitions=1, replication_factor=1),))
        sent = broker.send(create, connection=connection)
        broker.settle()
        assert broker.answer(sent, connection=connection).throttle_time_ms > 0, "encoded by the controller"
        assert not is_served(broker, connection)

    def test_work_after_the_answer_counts_for_the_next_request(self, broker: DirectBroker) -> None:
        limit(broker, request_percentage=10)
        spend(broker, 350)  # before each answer, and again after it
        first = broker.call(FindCoordinatorRequest(key="g", key_type=0), version=1, connection=broker.connect())
        second = broker.call(FindCoordinatorRequest(key="g", key_type=0), version=1, connection=broker.connect())
        assert (first.throttle_time_ms, second.throttle_time_ms) == (0, 500)

    def test_a_waiting_request_uses_no_time(self, broker: DirectBroker) -> None:
        limit(broker, request_percentage=1)
        connection = broker.connect()
        sent = broker.send(fetch_request(max_wait_ms=30_000), version=11, connection=connection)
        broker.pass_time(30_000)
        answer = broker.answer(sent, connection=connection)
        assert answer.throttle_time_ms == 0

    def test_nothing_is_measured_without_such_a_quota(self, broker: DirectBroker) -> None:
        limit(broker, producer_byte_rate=1)
        broker.broker.request_quotas.clock_ns = pytest.fail
        assert broker.call(MetadataRequest(topics=None), connection=broker.connect()).throttle_time_ms == 0


def create(broker: DirectBroker, name: str, count: int, connection: AcceptedConnection, *, version: int = 7) -> Any:
    topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
    sent = broker.send(CreateTopicsRequest(topics=(topic,)), version=version, connection=connection)
    broker.settle()
    return broker.answer(sent, connection=connection)


class TestMutations:
    def test_changes_beyond_the_quota_are_refused(self, broker: DirectBroker) -> None:
        limit(broker, controller_mutation_rate=1)
        answer = create(broker, "a", 15, broker.connect())
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (ErrorCode.NONE, 0), "a burst is permitted"
        connection = broker.connect()
        answer = create(broker, "b", 1, connection)
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 4000)
        assert "b" not in broker.broker.image.topics
        assert not is_served(broker, connection)
        broker.pass_time(4000)
        answer = create(broker, "b", 1, broker.connect())
        assert answer.topics[0].error_code == ErrorCode.NONE
        [throttled] = broker.broker.request_quotas.usage.throttled.all()
        assert throttled == Throttled("controller_mutation_rate", Identity("ANONYMOUS", None), 1, 4000)

    def test_older_versions_are_throttled_afterwards(self, broker: DirectBroker) -> None:
        limit(broker, controller_mutation_rate=1)
        answer = create(broker, "a", 15, broker.connect(), version=5)
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (ErrorCode.NONE, 4000)
        answer = create(broker, "b", 1, broker.connect(), version=5)
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (ErrorCode.NONE, 5000)

    @pytest.mark.parametrize(
        ("request_of", "first_strict"),
        [
            (lambda: CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="t", count=3, assignments=None),)), 3),
            (lambda: DeleteTopicsRequest(topic_names=("t",), topics=(DeleteTopicState(name="t"),)), 5),
        ],
    )
    def test_deletions_and_new_partitions_count(self, broker: DirectBroker, request_of: Any, first_strict: int) -> None:
        for version, expected in (
            (first_strict, ErrorCode.THROTTLING_QUOTA_EXCEEDED),
            (first_strict - 1, ErrorCode.NONE),
        ):
            limit(broker, controller_mutation_rate=1)
            create(broker, f"used-{version}", 15, broker.connect())
            connection = broker.connect()
            sent = broker.send(request_of(), version=version, connection=connection)
            broker.settle()
            answer = broker.answer(sent, connection=connection)
            results = getattr(answer, "results", None) or answer.responses
            assert results[0].error_code == expected
            assert answer.throttle_time_ms >= 4000
            limit(broker, controller_mutation_rate=None)
            broker.pass_time(60_000)

    def test_topics_that_are_created_automatically_are_charged_to_the_client_that_names_them(
        self, broker: DirectBroker
    ) -> None:
        limit(broker, {"user": "alice", "client-id": "a"}, controller_mutation_rate=1)
        broker.client_id = "a"
        alice, bob = broker.connect(), broker.connect()
        log_in(alice, Principal("User", "alice"))
        log_in(bob, Principal("User", "bob"))

        def created(connection: AcceptedConnection, *topics: str) -> set[str]:
            """Those that exist after a request that names them."""
            wanted = tuple(MetadataRequestTopic(name=topic) for topic in topics)
            broker.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), connection=connection)
            return set(broker.broker.image.topics) & set(topics)

        create(broker, "a", 11, alice)
        assert created(alice, "b", "c", "d") == {"b"}
        assert created(bob, "c", "e") == {"c", "e"}
        broker.pass_time(4000)
        assert created(alice, "d") == {"d"}

    def test_users_and_client_ids_are_those_of_the_client(self, broker: DirectBroker) -> None:
        limit(broker, {"user": "alice", "client-id": "a"}, controller_mutation_rate=1)
        broker.client_id = "a"
        alice, bob = broker.connect(), broker.connect()
        log_in(alice, Principal("User", "alice"))
        log_in(bob, Principal("User", "bob"))
        create(broker, "a", 15, alice)
        assert create(broker, "b", 1, bob).topics[0].error_code == ErrorCode.NONE
        assert create(broker, "c", 1, alice).topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        broker.client_id = "other"
        alice = broker.connect()
        log_in(alice, Principal("User", "alice"))
        assert create(broker, "d", 1, alice).topics[0].error_code == ErrorCode.NONE


class TestConnections:
    def test_an_address_over_its_quota_is_closed_later(self, broker: DirectBroker) -> None:
        limit(broker, {"ip": "10.0.0.1"}, connection_creation_rate=1)
        served = [broker.connect(host="10.0.0.1") for _ in range(11)]
        late = broker.connect(host="10.0.0.1")
        other = broker.connect(host="10.0.0.2")
        assert all(is_served(broker, each) for each in (*served, other))
        assert not is_served(broker, late)
        assert not late.wants_bytes
        broker.pass_time(999)
        assert not late.closing
        broker.pass_time(1)
        assert late.closing
        assert "connection_creation_rate" in (late.close_reason or "")
        assert is_served(broker, broker.connect(host="10.0.0.1"))

    def test_the_broker_serves_further_connections_later(self) -> None:
        broker = DirectBroker({"max.connection.creation.rate": 1, "quota.window.num": 2})
        broker.connect()
        late = broker.connect()
        assert not is_served(broker, late)
        broker.pass_time(1000)
        assert broker.answer((10, 1), connection=late) is not None

    def test_connections_that_would_wait_for_too_long_are_refused(self) -> None:
        broker = DirectBroker({"listener.name.plaintext.max.connection.creation.rate": 1, "quota.window.num": 1})
        for _ in range(10):
            broker.connect()
        listener = broker.listeners[0]
        assert broker.broker.connection_opened(listener, "10.0.0.1", broker.now()) is None
        assert broker.broker.connection_opened(broker.listeners[-1], "10.0.0.1", broker.now()) is not None

    def test_single_addresses_have_limits_of_their_own(self) -> None:
        broker = DirectBroker(
            {
                "max.connections.per.ip": 2,
                "max.connections.per.ip.overrides": "10.0.0.1:1,[::1]:3,::2:0,::ffff:10.0.0.3:1",
            }
        )

        def opened(host: str) -> int:
            made = [broker.broker.connection_opened(broker.listeners[0], host, broker.now()) for _ in range(5)]
            return sum(each is not None for each in made)

        assert (opened("10.0.0.1"), opened("10.0.0.2"), opened("::1"), opened("::2")) == (1, 2, 3, 0)
        assert opened("10.0.0.3") == 1


class TestStrangers:
    def test_a_thousand_client_ids_use_bounded_memory(self, broker: DirectBroker) -> None:
        limit(broker, {"client-id": None}, producer_byte_rate=1000)
        usage = broker.broker.request_quotas.usage
        meters = usage._meters["producer_byte_rate"]
        meters._meters_max = 100
        for number in range(1000):
            broker.client_id = f"stranger {number}"
            produce(broker, 10, broker.connect())
        assert len(meters) == 101
