"""With an authorizer every request requires the operations that Kafka requires, and is refused without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from raylog.broker.api_handlers import HANDLERS
from raylog.config.authorization import STANDARD_AUTHORIZER
from raylog.controller import acls
from raylog.controller.handlers.envelope import FORWARDED_HANDLERS
from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.protocol import registry
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.local_messages import VERSION as LOCAL_VERSION
from raylog.protocol.local_messages import Hello, OpenPartition, PartitionOpened, Refused
from raylog.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from raylog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raylog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.protocol.messages.describe_acls import DescribeAclsRequest
from raylog.protocol.messages.describe_cluster import DescribeClusterRequest
from raylog.protocol.messages.describe_groups import DescribeGroupsRequest
from raylog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from raylog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.list_groups import ListGroupsRequest
from raylog.protocol.messages.list_transactions import ListTransactionsRequest
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from raylog.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.security.acl import (
    CLUSTER,
    IMPLIED,
    OPERATIONS,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from raylog.security.decision_log import PERIOD_MS
from raylog.security.principal import Principal
from raylog.transport.accepted_connection import AcceptedConnection
from tests.broker.required_operations import (
    ACL,
    ALTER,
    ANY_ACL,
    ASKED,
    CREATE,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Required,
    commit,
    fetch,
    offsets_of,
    produce,
)
from tests.logstore.batches import batch
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster, DirectMember
from tests.support.exchanges import log_in
from tests.support.transactional_client import TransactionalClient

ALICE, ROOT = Principal("User", "alice"), Principal("User", "root")
CONFIG = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": str(ROOT),
    "listeners": "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093",
    "delegation.token.secret.key": "secret",
}
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


@pytest.fixture
def broker() -> DirectBroker:
    """With topic t of one record, and what group g has committed. Its own connection is that of a super user."""
    made = DirectBroker(CONFIG)
    made.connection = connected(made, ROOT, "10.0.0.1")
    made.create_topic()
    made.create_topic("another")
    made.produce([b"x"])
    while made.call(FindCoordinatorRequest(coordinator_keys=("g",))).coordinators[0].error_code != ErrorCode.NONE:
        made.pass_time(100)
    for topic in ("t", "another"):
        assert set(codes_in(made.call(commit(topic), version=9))) == {ErrorCode.NONE}
    return made


def connected(member: DirectMember, principal: Principal, host: str) -> AcceptedConnection:
    connection = member.connect(host=host, listener_name="SASL_PLAINTEXT")
    log_in(connection, principal)
    return connection


def alice_of(broker: DirectBroker) -> AcceptedConnection:
    return connected(broker, ALICE, "10.0.0.2")


def entry(
    operation: Operation,
    resource: Resource,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
) -> AclBinding:
    return AclBinding(resource.type, resource.name, pattern, str(ALICE), "*", operation, permission)


def add(cluster: DirectCluster, *entries: AclBinding) -> None:
    active = cluster.active
    outcome = acls.add(active.image, entries, new_id=cluster.new_id)
    assert not any(active.decide(outcome, cluster.now()))
    active.run(cluster.now())
    cluster.settle()


def remove_all(cluster: DirectCluster) -> None:
    active = cluster.active
    active.decide(acls.remove(active.image, [AclFilter()]), cluster.now())
    active.run(cluster.now())
    cluster.settle()


def codes_in(answer: Any) -> Iterator[ErrorCode]:
    """Every error code in it, at whatever depth."""
    if isinstance(answer, ErrorCode):
        yield answer
    elif isinstance(answer, (list, tuple)):
        for each in answer:
            yield from codes_in(each)
    elif is_dataclass(answer):
        for field in fields(answer):
            yield from codes_in(getattr(answer, field.name))


def refusals_in(answer: Any) -> set[ErrorCode]:
    return REFUSALS & set(codes_in(answer))


LEAVES_OUT = {registry.LIST_GROUPS, registry.LIST_TRANSACTIONS, registry.DESCRIBE_DELEGATION_TOKEN}
"""Never refused; results without the permission are omitted: see TestFilteredResponses."""
FOR_EVERYBODY = {
    registry.API_VERSIONS,
    registry.SASL_HANDSHAKE,
    registry.SASL_AUTHENTICATE,
    registry.DESCRIBE_CLUSTER,
}
"""Kafka asks for no right either: what a client needs before it is known, and where the brokers are."""
OWN_TOKENS = {registry.RENEW_DELEGATION_TOKEN, registry.EXPIRE_DELEGATION_TOKEN}
"""What is permitted depends on the token: see test_delegation_tokens.py."""
CASES = [(key, asks) for key, rights in ASKED.items() for asks in rights]
CASE_NAMES = [
    f"{registry.KAFKA_APIS[key]}-{asks.of('t').type.name.lower()}-{asks.operation.name}" for key, asks in CASES
]


def test_every_request_is_in_the_table_of_required_operations() -> None:
    assert HANDLERS.keys() == ASKED.keys() | LEAVES_OUT | FOR_EVERYBODY | OWN_TOKENS
    assert FORWARDED_HANDLERS.keys() <= ASKED.keys() | OWN_TOKENS


@pytest.mark.parametrize(("key", "asks"), CASES, ids=CASE_NAMES)
class TestRequiredOperations:
    def ask(self, broker: DirectBroker, alice: AcceptedConnection, asks: Required, name: str) -> Any:
        request = asks.request(name)
        return broker.call(request, version=asks.version, connection=alice)

    def test_without_the_operation_the_response_is_the_refusal_and_reveals_nothing(
        self, broker: DirectBroker, key: int, asks: Required
    ) -> None:
        alice = alice_of(broker)
        add(broker.cluster, *(entry(*right) for right in asks.beside))
        before = repr(broker.controller.image.topics)
        for name in ("t" if asks.of is TOPIC else "g", "missing"):
            codes = set(codes_in(self.ask(broker, alice, asks, name)))
            assert asks.code in codes
            assert codes <= {asks.code, ErrorCode.NONE}
        assert repr(broker.controller.image.topics) == before

    def test_every_other_operation_is_not_enough(self, broker: DirectBroker, key: int, asks: Required) -> None:
        """So the operation that is asked for is this one."""
        alice = alice_of(broker)
        resource = asks.of("t" if asks.of is TOPIC else "g")
        sufficient = {*IMPLIED.get(asks.operation, ()), *asks.operations_on(resource)}
        others = [each for each in OPERATIONS[resource.type] if each not in sufficient]
        add(broker.cluster, *(entry(each, resource) for each in others), *(entry(*right) for right in asks.beside))
        assert asks.code in refusals_in(self.ask(broker, alice, asks, resource.name))

    def test_with_the_operation_the_request_is_served_until_it_is_revoked(
        self, broker: DirectBroker, key: int, asks: Required
    ) -> None:
        resource = asks.of("t" if asks.of is TOPIC else "g")
        for operation, of in ((asks.operation, resource), *asks.other_ways):
            alice = alice_of(broker)
            add(broker.cluster, entry(operation, of), *(entry(*right) for right in asks.beside))
            sent = broker.send(asks.request(resource.name), version=asks.version, connection=alice)
            broker.pass_time(5000)
            answer = broker.answer(sent, connection=alice)
            assert answer is not None
            assert not refusals_in(answer)
            remove_all(broker.cluster)
            add(broker.cluster, *(entry(*right) for right in asks.beside))
            assert asks.code in refusals_in(self.ask(broker, alice, asks, resource.name))

    def test_the_refusal_is_logged(
        self, broker: DirectBroker, key: int, asks: Required, caplog: pytest.LogCaptureFixture
    ) -> None:
        resource = asks.of("t" if asks.of is TOPIC else "g")
        add(broker.cluster, *(entry(*right) for right in asks.beside))
        with caplog.at_level("INFO", "raylog.authorizer"):
            broker.pass_time(PERIOD_MS)
            self.ask(broker, alice_of(broker), asks, resource.name)
        logged = {(each.getMessage(), vars(each)["principal"], vars(each)["host"]) for each in caplog.records}
        assert logged == {("operation denied", str(ALICE), "10.0.0.2")}
        denied = {(vars(each)["operation"], vars(each)["resource"]) for each in caplog.records}
        assert denied == {(asks.operation.name, f"{resource.type.name}:{resource.name}")}

    def test_a_deny_entry_takes_precedence(self, broker: DirectBroker, key: int, asks: Required) -> None:
        resource = asks.of("t" if asks.of is TOPIC else "g")
        denials = [entry(each, resource, Permission.DENY) for each in asks.operations_on(resource)]
        add(broker.cluster, entry(Operation.ALL, resource), *denials, *(entry(*right) for right in asks.beside))
        assert asks.code in refusals_in(self.ask(broker, alice_of(broker), asks, resource.name))


class TestFilteredResponses:
    @pytest.fixture(autouse=True)
    def omissions_are_not_logged(self, broker: DirectBroker, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
        with caplog.at_level("INFO", "raylog.authorizer"):
            broker.pass_time(PERIOD_MS)
            yield
        assert [each.getMessage() for each in caplog.get_records("call") if each.name == "raylog.authorizer"] == []

    def test_all_topics_omits_topics_without_describe(self, broker: DirectBroker) -> None:
        broker.create_topic("hidden")
        add(broker.cluster, entry(READ, TOPIC("t")))
        for version in (0, 5, 13):
            answer = broker.call(
                MetadataRequest(topics=None if version else ()), version=version, connection=alice_of(broker)
            )
            assert [topic.name for topic in answer.topics] == ["t"]
        pages = broker.call(DescribeTopicPartitionsRequest(response_partition_limit=99), connection=alice_of(broker))
        assert [topic.name for topic in pages.topics] == ["t"]

    def test_all_groups_omits_groups_without_describe_unless_the_client_has_it_on_the_cluster(
        self, broker: DirectBroker
    ) -> None:
        broker.call(commit("t", "hidden"), version=9)

        def listed() -> list[str]:
            return [each.group_id for each in broker.call(ListGroupsRequest(), connection=alice_of(broker)).groups]

        assert listed() == []
        add(broker.cluster, entry(DESCRIBE, GROUP("g")))
        assert listed() == ["g"]
        add(broker.cluster, entry(DESCRIBE, CLUSTER))
        assert sorted(listed()) == ["g", "hidden"]

    def test_all_transactions_omits_ids_and_topics_without_describe(self, broker: DirectBroker) -> None:
        broker.create_topic("hidden")
        for name in ("x", "y"):
            client = TransactionalClient(broker.cluster, name, connect=lambda member: member.connection)
            assert client.init() is ErrorCode.NONE
            assert set(client.add(TopicPartition("t", 0), TopicPartition("hidden", 0))) == {ErrorCode.NONE}

        def listed() -> list[str]:
            answer = broker.call(ListTransactionsRequest(), connection=alice_of(broker))
            return [each.transactional_id for each in answer.transaction_states]

        assert listed() == []
        add(broker.cluster, entry(DESCRIBE, TRANSACTIONAL_ID("x")), entry(DESCRIBE, TOPIC("t")))
        assert listed() == ["x"]
        described = DescribeTransactionsRequest(transactional_ids=("x",))
        (found,) = broker.call(described, connection=alice_of(broker)).transaction_states
        assert [topic.topic for topic in found.topics] == ["t"]

    def test_all_offsets_of_a_group_omits_topics_without_describe(self, broker: DirectBroker) -> None:
        broker.create_topic("hidden")
        broker.call(commit("hidden"), version=9)
        add(broker.cluster, entry(DESCRIBE, GROUP("g")), entry(DESCRIBE, TOPIC("t")))
        everything = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),))
        for version in (8, 10):
            (group,) = broker.call(everything, version=version, connection=alice_of(broker)).groups
            assert [(len(topic.partitions), topic.name or "t") for topic in group.topics] == [(1, "t")]

    def test_the_configuration_of_a_created_topic_requires_describe_configs(self, broker: DirectBroker) -> None:
        add(broker.cluster, entry(CREATE, CLUSTER))
        wanted = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        (made,) = broker.call(CreateTopicsRequest(topics=(wanted,)), connection=alice_of(broker)).topics
        assert (made.error_code, made.num_partitions, made.configs) == (ErrorCode.NONE, -1, ())
        assert made.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


class TestTopicsById:
    @pytest.mark.parametrize("request_", [produce, fetch, commit, offsets_of])
    def test_a_known_id_without_the_operation_and_an_unknown_id(
        self, broker: DirectBroker, request_: Callable[[str], Any]
    ) -> None:
        add(broker.cluster, entry(Operation.ALL, GROUP("g")))
        refusals = []
        for topic_id in (broker.broker.image.topics["t"].topic_id, broker.cluster.new_id()):
            request = request_("")
            (named,) = request.groups[0].topics if request_ is offsets_of else request.topics
            object.__setattr__(named, "topic_id", topic_id)
            refusals.append(set(codes_in(broker.call(request, connection=alice_of(broker)))) - {ErrorCode.NONE})
        assert refusals == [{ErrorCode.TOPIC_AUTHORIZATION_FAILED}, {ErrorCode.UNKNOWN_TOPIC_ID}]

    def test_the_name_of_a_topic_given_by_id_requires_describe(self, broker: DirectBroker) -> None:
        topic_id = broker.broker.image.topics["t"].topic_id
        by_id = DeleteTopicsRequest(topics=(DeleteTopicState(name=None, topic_id=topic_id),))
        described = MetadataRequest(topics=(MetadataRequestTopic(name=None, topic_id=topic_id),))
        for right, name in ((), None), ((entry(DESCRIBE, TOPIC("t")),), "t"):
            add(broker.cluster, *right)
            (refused,) = broker.call(by_id, connection=alice_of(broker)).responses
            assert (refused.error_code, refused.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
            (topic,) = broker.call(described, connection=alice_of(broker)).topics
            assert (topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic.name) == (not right, name)
        add(broker.cluster, entry(DELETE, TOPIC("t")))
        (deleted,) = broker.call(by_id, connection=alice_of(broker)).responses
        assert (deleted.error_code, deleted.name) == (ErrorCode.NONE, "t")


def test_offset_fetch_v0_has_the_error_in_each_partition(broker: DirectBroker) -> None:
    """Without that the client would believe that nothing was ever committed."""
    wanted = OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1))
    answer = broker.call(OffsetFetchRequest(group_id="g", topics=(wanted,)), version=1, connection=alice_of(broker))
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2


def test_the_coordinator_of_a_transactional_id_requires_describe(broker: DirectBroker) -> None:
    wanted = FindCoordinatorRequest(coordinator_keys=("x",), key_type=1)

    def refusal() -> str:
        (found,) = broker.call(wanted, connection=alice_of(broker)).coordinators
        return found.error_message or ""

    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.sentence
    assert refusal() == refused
    add(broker.cluster, entry(DESCRIBE, TRANSACTIONAL_ID("x")))
    assert refusal() != refused


class TestAutomaticCreation:
    @pytest.mark.parametrize("right", [entry(CREATE, CLUSTER), entry(CREATE, TOPIC("new"))])
    def test_requires_create_in_addition_to_describe(self, broker: DirectBroker, right: AclBinding) -> None:
        wanted = MetadataRequest(topics=(MetadataRequestTopic(name="new"),), allow_auto_topic_creation=True)

        def answer() -> ErrorCode:
            code: ErrorCode = broker.call(wanted, connection=alice_of(broker)).topics[0].error_code
            return code

        add(broker.cluster, right)
        assert answer() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        remove_all(broker.cluster)
        add(broker.cluster, entry(DESCRIBE, TOPIC("new")))
        assert answer() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert "new" not in broker.broker.image.topics
        add(broker.cluster, right)
        assert answer() == ErrorCode.LEADER_NOT_AVAILABLE
        assert "new" in broker.broker.image.topics


class TestAuthorizedOperations:
    def test_are_returned_as_bits_on_request(self, broker: DirectBroker) -> None:
        add(broker.cluster, entry(WRITE, TOPIC("t")), entry(READ, GROUP("g")))
        alice = alice_of(broker)
        metadata = MetadataRequest(topics=None, include_topic_authorized_operations=True)
        (topic,) = broker.call(metadata, connection=alice).topics
        assert topic.topic_authorized_operations == 1 << WRITE | 1 << DESCRIBE
        groups = DescribeGroupsRequest(groups=("g", "other"), include_authorized_operations=True)
        mine, other = broker.call(groups, connection=alice).groups
        assert mine.authorized_operations == 1 << READ | 1 << DESCRIBE
        assert (other.error_code, other.group_state) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, "")
        pages = broker.call(DescribeTopicPartitionsRequest(response_partition_limit=9), connection=alice)
        assert pages.topics[0].topic_authorized_operations == 1 << WRITE | 1 << DESCRIBE

    def test_of_the_cluster_are_empty_without_describe(self, broker: DirectBroker) -> None:
        alice = alice_of(broker)

        def operations() -> set[int]:
            described = DescribeClusterRequest(include_cluster_authorized_operations=True)
            metadata = MetadataRequest(topics=(), include_cluster_authorized_operations=True)
            return {
                broker.call(described, connection=alice).cluster_authorized_operations,
                broker.call(metadata, version=10, connection=alice).cluster_authorized_operations,
            }

        add(broker.cluster, entry(CREATE, CLUSTER))
        assert operations() == {0}
        add(broker.cluster, entry(DESCRIBE, CLUSTER))
        assert operations() == {1 << CREATE | 1 << DESCRIBE}


class TestProduce:
    def test_a_refusal_with_acks_0_closes_the_connection(self, broker: DirectBroker) -> None:
        alice = alice_of(broker)
        assert broker.produce([b"x"], acks=0, connection=alice) is None
        assert "TOPIC_AUTHORIZATION_FAILED" in str(alice.close_reason)

    def test_each_topic_is_authorized_separately(self, broker: DirectBroker) -> None:
        broker.create_topic("mine")
        add(broker.cluster, entry(WRITE, TOPIC("mine")))
        both = ProduceRequest(acks=1, topics=[*produce("mine").topics, *produce("t").topics])
        answer = broker.call(both, version=12, connection=alice_of(broker))
        codes = [topic.partitions[0].error_code for topic in answer.responses]
        assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert broker.broker.partition(TopicPartition("t", 0)).log.log_end_offset == 1

    def test_a_transactional_batch_requires_write_on_the_transactional_id(self, broker: DirectBroker) -> None:
        add(broker.cluster, entry(WRITE, TOPIC("t")))
        sent = batch(b"x", producer=(5, 0, 0), transactional=True)
        refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

        def codes(transactional_id: str | None) -> set[ErrorCode]:
            part = ProducePartition(index=0, records=memoryview(sent))
            request = ProduceRequest(
                transactional_id=transactional_id, acks=-1, topics=[ProduceTopic(name="t", partitions=[part])]
            )
            return set(codes_in(broker.call(request, version=12, connection=alice_of(broker))))

        assert codes("x") == codes(None) == {refusal}
        add(broker.cluster, entry(WRITE, TRANSACTIONAL_ID("x")))
        assert refusal not in codes("x")
        assert codes(None) == codes("y") == {refusal}


class TestRevokedPermissions:
    def test_a_waiting_fetch_ends_when_its_permission_is_revoked(self, broker: DirectBroker) -> None:
        add(broker.cluster, entry(READ, TOPIC("t")))
        alice = alice_of(broker)
        wanted = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)
        waiting = FetchRequest(
            max_bytes=1000,
            min_bytes=1,
            max_wait_ms=60_000,
            session_epoch=0,
            topics=[FetchTopic(name="t", partitions=[wanted])],
        )
        sent = broker.send(waiting, version=12, connection=alice)
        assert broker.answer(sent, connection=alice) is None
        remove_all(broker.cluster)
        broker.produce([b"y"])
        answer = broker.answer(sent, connection=alice)
        assert refusals_in(answer) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert not answer.responses[0].partitions[0].records
        add(broker.cluster, entry(READ, TOPIC("t")))
        again = FetchRequest(max_bytes=1000, session_id=answer.session_id, session_epoch=1)
        (topic,) = broker.call(again, version=12, connection=alice).responses
        assert topic.partitions[0].records

    def test_at_the_local_endpoint_they_apply_to_the_next_open(self, broker: DirectBroker) -> None:
        readers = broker.broker.local_readers
        reader = readers.connected(user=1, broker_user=1)
        assert reader is not None
        readers.serve(reader, Hello(LOCAL_VERSION))
        local = AclBinding(
            ResourceType.TOPIC, "t", PatternType.LITERAL, "User:ANONYMOUS", "127.0.0.1", READ, Permission.ALLOW
        )

        def opened(topic: str) -> object:
            return readers.serve(reader, OpenPartition(topic, 0)).answer

        for topic in ("t", "missing"):
            refused = opened(topic)
            assert isinstance(refused, Refused)
            assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        add(broker.cluster, local)
        assert isinstance(opened("t"), PartitionOpened)
        remove_all(broker.cluster)
        assert isinstance(opened("t"), Refused)
        readers.disconnected(reader)


class TestAccessControlLists:
    def test_entries_are_described_and_deleted_and_survive_a_restart(self, broker: DirectBroker) -> None:
        created = broker.call(CreateAclsRequest(creations=(ACL, ACL, AclCreation(resource_type=4, resource_name="x"))))
        assert [each.error_code for each in created.results] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.INVALID_REQUEST,
        ]
        broker.restart(clean=False)
        broker.connection = connected(broker, ROOT, "10.0.0.1")
        for version in (1, 2, 3):
            described = broker.call(DescribeAclsRequest(**ANY_ACL), version=version)
            (resource,) = described.resources
            assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (2, "x", 3)
            (one,) = resource.acls
            assert (one.principal, one.host, one.operation, one.permission_type) == ("User:x", "*", 3, 3)
        (found,) = broker.call(DeleteAclsRequest(filters=(DeleteAclsFilter(**ANY_ACL),))).filter_results
        assert [(each.principal, each.resource_name) for each in found.matching_acls] == [("User:x", "x")]
        assert broker.call(DescribeAclsRequest(**ANY_ACL)).resources == ()

    def test_a_filter_with_unknown_values_is_refused(self, broker: DirectBroker) -> None:
        unknown = {**ANY_ACL, "operation": 99}
        assert broker.call(DescribeAclsRequest(**unknown)).error_code == ErrorCode.INVALID_REQUEST
        (result,) = broker.call(DeleteAclsRequest(filters=(DeleteAclsFilter(**unknown),))).filter_results
        assert result.error_code == ErrorCode.INVALID_REQUEST

    def test_without_an_authorizer_requests_are_refused(self) -> None:
        plain = DirectBroker()
        answers = (
            plain.call(CreateAclsRequest(creations=(ACL,))),
            plain.call(DeleteAclsRequest(filters=(DeleteAclsFilter(**ANY_ACL),))),
            plain.call(DescribeAclsRequest(**ANY_ACL)),
        )
        assert [set(codes_in(answer)) for answer in answers] == [{ErrorCode.SECURITY_DISABLED}] * 3

    def test_unauthenticated_clients_are_distinguished_by_host(self, broker: DirectBroker) -> None:
        near = AclBinding(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:*", "10.0.0.7", READ, Permission.ALLOW)
        grow = CreatePartitionsRequest(
            topics=(CreatePartitionsTopic(name="t", count=2, assignments=None),), validate_only=True
        )
        alter = AclBinding(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:*", "10.0.0.7", ALTER, Permission.ALLOW)
        add(broker.cluster, near, alter)
        for host, refused in (("10.0.0.7", False), ("10.0.0.8", True)):
            connection = broker.connect(host=host)
            assert bool(refusals_in(broker.call(fetch("t"), version=12, connection=connection))) == refused
            assert bool(refusals_in(broker.call(grow, connection=connection))) == refused


def test_brokers_of_a_cluster_with_an_authorizer_replicate_and_coordinate() -> None:
    cluster = DirectCluster(2, {**CONFIG, "offsets.topic.replication.factor": "2"})
    cluster.create_topic("t", on=[[0, 1]])
    first, second = cluster.brokers
    first.connection = connected(first, ROOT, "10.0.0.1")
    sent = first.send(ProduceRequest(acks=-1, timeout_ms=1000, topics=produce("t").topics), version=12)
    cluster.pass_time(1000)
    assert not refusals_in(first.answer(sent))
    copied = second.broker.partitions[TopicPartition("t", 0)]
    assert (copied.is_leader, copied.log.log_end_offset) == (False, 1)


def test_internal_topics_of_streams_groups_require_create(broker: DirectBroker) -> None:
    """The status names the topics that are not permitted, and none is created while there are any."""
    logs = tuple(TopicInfo(name=name) for name in ("log-a", "log-b"))
    subtopology = Subtopology(subtopology_id="0", source_topics=("t",), state_changelog_topics=logs)
    request = StreamsGroupHeartbeatRequest(
        group_id="g2", member_id="m", rebalance_timeout_ms=1000, topology=Topology(subtopologies=(subtopology,))
    )
    alice = alice_of(broker)
    add(
        broker.cluster,
        entry(READ, GROUP("g2")),
        *(entry(DESCRIBE, TOPIC(name)) for name in ("t", "log-a", "log-b")),
        entry(CREATE, TOPIC("log-a")),
    )
    response = broker.call(request, connection=alice)
    assert [each.status_detail for each in response.status if each.status_code == 3] == [
        "Internal topics are missing: log-a, log-b; Unauthorized to CREATE on topics log-b."
    ]
    broker.settle()
    assert "log-a" not in broker.broker.image.topics
    add(broker.cluster, entry(CREATE, TOPIC("log-b")))
    assert broker.call(request, connection=alice).error_code == ErrorCode.NONE
    broker.settle()
    assert {"log-a", "log-b"} <= broker.broker.image.topics.keys()
