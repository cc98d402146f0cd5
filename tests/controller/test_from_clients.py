"""Controllers serve tools with --bootstrap-controller as Kafka's do (KIP-919): over listeners of their own, with the
same logins and permissions as brokers, and nothing of what nodes ask each other."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raylog
from raylog.cli.main import main
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from raylog.client.admin.partitions import OffsetSpec
from raylog.client.admin.topics import NewTopic
from raylog.client.client_config import ClientConfig
from raylog.client.errors import AdminError
from raylog.config.authorization import STANDARD_AUTHORIZER
from raylog.controller.controller import Controller
from raylog.controller.handlers import describe_cluster, describe_quorum, update_raft_voter
from raylog.controller.handlers.from_clients import CLIENT_HANDLERS
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.metadata.config_resources import BROKER, BROKER_LOGGER, TOPIC
from raylog.metadata.features import KRAFT_FEATURE
from raylog.metadata.levels import METADATA_FEATURE
from raylog.protocol import registry
from raylog.protocol.fetch import FetchRequest
from raylog.protocol.framing import frame
from raylog.protocol.header import encode_request
from raylog.protocol.messages import alter_configs, incremental_alter_configs
from raylog.protocol.messages.add_raft_voter import AddRaftVoterRequest
from raylog.protocol.messages.alter_configs import AlterConfigsRequest
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from raylog.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from raylog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest
from raylog.protocol.messages.describe_acls import DescribeAclsRequest
from raylog.protocol.messages.describe_cluster import DescribeClusterRequest
from raylog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from raylog.protocol.messages.envelope import EnvelopeRequest
from raylog.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from raylog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from raylog.protocol.messages.update_raft_voter import KRaftVersionFeature, Listener, UpdateRaftVoterRequest
from raylog.security.acl import Operation, PatternType, Permission, ResourceType
from tests.support.cluster_thread import CONTROLLER_ID, RunningCluster, cluster_thread
from tests.support.connection import BlockingConnection, connect
from tests.support.direct_quorum import DirectQuorum
from tests.support.exchanges import Answers, exchange_on

PASSWORD = "in wonderland"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
CONFIG = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": f'{MODULE} user_admin="{PASSWORD}" user_alice="{PASSWORD}";',
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
}
METADATA = (RequestTopicData(topic_name="__cluster_metadata", partitions=(RequestPartitionData(partition_index=0),)),)
CONTROLLERS = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster_thread(CONFIG, tmp_path_factory.mktemp("controllers")) as running:
        yield running


def login(user: str, password: str = PASSWORD) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{MODULE} username="{user}" password="{password}";',
    }


def logged_in(cluster: RunningCluster, user: str = "admin", password: str = PASSWORD) -> BlockingConnection:
    config = ClientConfig(cluster.bootstrap_controllers, login(user, password))
    host, _, port = cluster.bootstrap_controllers.rpartition(":")
    return BlockingConnection(connect(config, host, int(port)), client_id="tests")


@pytest.fixture
def admin(cluster: RunningCluster) -> Iterator[BlockingConnection]:
    connection = logged_in(cluster)
    yield connection
    connection.close()


def code_of(response: Any) -> ErrorCode:
    code: ErrorCode = response.error_code
    return code


def config_of(admin: BlockingConnection, resource_type: int, name: str) -> Any:
    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    (result,) = admin.call(DescribeConfigsRequest(resources=(resource,))).results
    return result


def test_the_controllers_are_described_in_place_of_the_brokers(
    cluster: RunningCluster, admin: BlockingConnection
) -> None:
    found = admin.call(DescribeClusterRequest(endpoint_type=CONTROLLERS, include_cluster_authorized_operations=True))
    assert (code_of(found), found.endpoint_type, found.cluster_id) == (ErrorCode.NONE, CONTROLLERS, cluster.cluster_id)
    assert [f"{each.host}:{each.port}" for each in found.brokers] == [cluster.bootstrap_controllers]
    assert found.controller_id == found.brokers[0].broker_id == CONTROLLER_ID
    assert found.cluster_authorized_operations & 1 << Operation.ALTER


@pytest.mark.parametrize(
    ("wanted", "code"), [(1, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_another_type_of_endpoint_is_refused(admin: BlockingConnection, wanted: int, code: ErrorCode) -> None:
    refused = admin.call(DescribeClusterRequest(endpoint_type=wanted))
    assert (code_of(refused), refused.brokers) == (code, ())
    old = admin.call(DescribeClusterRequest(), version_max=0)  # which can only ask for brokers
    assert code_of(old) is ErrorCode.INVALID_REQUEST


def test_what_is_advertised_is_what_clients_may_ask(admin: BlockingConnection) -> None:
    answer = admin.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
    advertised = {each.api_key for each in answer.api_keys}
    assert advertised == set(CLIENT_HANDLERS)
    assert {registry.DESCRIBE_QUORUM, registry.ADD_RAFT_VOTER, registry.UPDATE_FEATURES} < advertised
    for key in (registry.FETCH, registry.METADATA, registry.ENVELOPE, registry.VOTE, registry.BROKER_REGISTRATION):
        assert key not in advertised


def test_a_wrong_password_is_refused(cluster: RunningCluster) -> None:
    with pytest.raises(KafkaError) as refused:
        logged_in(cluster, password="guess")
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_permissions_are_those_of_brokers(cluster: RunningCluster, admin: BlockingConnection) -> None:
    alice = logged_in(cluster, "alice")
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    requests: list[Any] = [
        DescribeClusterRequest(endpoint_type=CONTROLLERS),
        DescribeQuorumRequest(topics=METADATA),
        AddRaftVoterRequest(voter_id=1001),
        RemoveRaftVoterRequest(voter_id=1001),
        UpdateFeaturesRequest(),
        DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1),
    ]
    for request in requests:
        assert code_of(alice.call(request)) is denied, request
    assert code_of(config_of(alice, BROKER, str(CONTROLLER_ID))) is denied
    allow = AclCreation(
        resource_type=ResourceType.CLUSTER,
        resource_name="kafka-cluster",
        resource_pattern_type=PatternType.LITERAL,
        principal="User:alice",
        host="*",
        operation=Operation.DESCRIBE,
        permission_type=Permission.ALLOW,
    )
    (made,) = admin.call(CreateAclsRequest(creations=(allow,))).results
    assert code_of(made) is ErrorCode.NONE
    assert code_of(alice.call(DescribeQuorumRequest(topics=METADATA))) is ErrorCode.NONE
    alice.close()


def test_topics_are_created_and_deleted_but_not_internal_ones(admin: BlockingConnection) -> None:
    def create(name: str) -> ErrorCode:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        (result,) = admin.call(CreateTopicsRequest(topics=(topic,), timeout_ms=1000)).topics
        return code_of(result)

    assert create("t") is ErrorCode.NONE
    assert config_of(admin, TOPIC, "t").configs
    assert create("__consumer_offsets") is ErrorCode.INVALID_TOPIC_EXCEPTION
    deletion = DeleteTopicsRequest(topic_names=("t",), timeout_ms=1000)
    (deleted,) = admin.call(deletion, version_max=5).responses
    assert code_of(deleted) is ErrorCode.NONE


def test_configurations_are_described_and_altered(cluster: RunningCluster, admin: BlockingConnection) -> None:
    own = {each.name: each for each in config_of(admin, BROKER, str(CONTROLLER_ID)).configs}
    assert own["controller.listener.names"].value == "CONTROLLER"
    secret = own["listener.name.controller.plain.sasl.jaas.config"]
    assert (secret.is_sensitive, secret.value) == (True, None)
    assert code_of(config_of(admin, BROKER, "0")) is ErrorCode.INVALID_REQUEST  # that is asked of the broker
    of_all = incremental_alter_configs.AlterConfigsResource(
        resource_type=BROKER,
        resource_name="",
        configs=(incremental_alter_configs.AlterableConfig(name="log.retention.ms", config_operation=0, value="7"),),
    )
    (changed,) = admin.call(IncrementalAlterConfigsRequest(resources=(of_all,))).responses
    assert code_of(changed) is ErrorCode.NONE
    (entry,) = config_of(admin, BROKER, "").configs
    assert (entry.name, entry.value) == ("log.retention.ms", "7")


def test_keys_of_a_listener_are_changed_at_their_broker(admin: BlockingConnection) -> None:
    name = "listener.name.plaintext.ssl.keystore.location"
    incremental = incremental_alter_configs.AlterConfigsResource(
        resource_type=BROKER,
        resource_name="0",
        configs=(incremental_alter_configs.AlterableConfig(name=name, config_operation=0, value="/k"),),
    )
    whole = alter_configs.AlterConfigsResource(
        resource_type=BROKER, resource_name="0", configs=(alter_configs.AlterableConfig(name=name, value="/k"),)
    )
    requests = (IncrementalAlterConfigsRequest(resources=(incremental,)), AlterConfigsRequest(resources=(whole,)))
    for request in requests:
        (refused,) = admin.call(request).responses
        assert (code_of(refused), "by a request to that broker" in refused.error_message) == (
            ErrorCode.INVALID_REQUEST,
            True,
        )


def test_the_levels_of_its_loggers_are_set(admin: BlockingConnection) -> None:
    logger = logging.getLogger("raylog.controller")
    before = logger.level
    change = incremental_alter_configs.AlterableConfig(name=logger.name, config_operation=0, value="DEBUG")
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=BROKER_LOGGER, resource_name=str(CONTROLLER_ID), configs=(change,)
    )
    try:
        (changed,) = admin.call(IncrementalAlterConfigsRequest(resources=(resource,))).responses
        assert code_of(changed) is ErrorCode.NONE
        shown = {each.name: each.value for each in config_of(admin, BROKER_LOGGER, str(CONTROLLER_ID)).configs}
        assert shown[logger.name] == "DEBUG"
    finally:
        logger.setLevel(before)


def test_tokens_need_a_login(cluster: RunningCluster, admin: BlockingConnection) -> None:
    """There are none in this cluster; without a secret key that is said only to those who may have one."""
    refused = code_of(admin.call(CreateDelegationTokenRequest(max_lifetime_ms=-1)))
    assert refused is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_a_feature_is_upgraded(cluster: RunningCluster, admin: BlockingConnection) -> None:
    key = FeatureUpdateKey(feature=KRAFT_FEATURE, max_version_level=1, upgrade_type=1)
    assert code_of(admin.call(UpdateFeaturesRequest(feature_updates=(key,)))) is ErrorCode.NONE
    assert cluster.do(lambda: cluster.controller.image.feature_level(KRAFT_FEATURE)) == 1
    quorum = admin.call(DescribeQuorumRequest(topics=METADATA))
    assert {each.name for each in quorum.nodes[0].listeners} == {"CONTROLLER", "INTERNAL"}


# --- by raylog's own admin client


@pytest.fixture
def own(cluster: RunningCluster) -> Iterator[AdminClient]:
    with AdminClient({**login("admin"), "bootstrap.controllers": cluster.bootstrap_controllers}) as client:
        yield client


def test_an_admin_client_works_with_the_controllers(cluster: RunningCluster, own: AdminClient) -> None:
    (node,) = own.describe_cluster().nodes
    assert (node.node_id, f"{node.host}:{node.port}") == (CONTROLLER_ID, cluster.bootstrap_controllers)
    assert own.describe_metadata_quorum().leader_id == CONTROLLER_ID
    assert METADATA_FEATURE in {each.feature for each in own.describe_features()}
    assert own.create_topics([NewTopic("own", 1)])["own"].num_partitions == 1
    topic = ConfigResource(ConfigResourceType.TOPIC, "own")
    own.incremental_alter_configs({topic: {"retention.ms": "7"}})
    assert own.describe_configs([topic])[topic]["retention.ms"].value == "7"
    own.delete_topics(["own"])


def test_what_only_brokers_serve_is_refused_at_once(own: AdminClient) -> None:
    with pytest.raises(AdminError, match="group 'g': controllers do not serve this: connect to brokers") as refused:
        own.describe_consumer_groups(["g"])
    assert refused.value.code is ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    with pytest.raises(AdminError, match="t-0: controllers do not serve this"):
        own.list_offsets({TopicPartition("t", 0): OffsetSpec.LATEST})
    with pytest.raises(AdminError, match="UNSUPPORTED_VERSION: Metadata is not served there"):
        own.list_topics()


def test_brokers_are_not_taken_for_controllers(cluster: RunningCluster) -> None:
    with (
        AdminClient(bootstrap_controllers=cluster.bootstrap_servers) as client,
        pytest.raises(AdminError, match=r"MISMATCHED_ENDPOINT_TYPE: bootstrap\.controllers"),
    ):
        client.describe_cluster()
    with pytest.raises(ConfigError, match=r"cannot be set beside bootstrap\.servers"):
        AdminClient(bootstrap_controllers="h:1", bootstrap_servers="h:2")
    with pytest.raises(ConfigError, match=r"bootstrap\.controllers"):
        raylog.Producer(bootstrap_controllers="h:1")


@pytest.mark.parametrize(
    "command",
    [
        ("quorum", "describe"),
        ("features", "describe"),
        ("cluster-id",),
        ("acls", "list"),
        ("configs", "describe", "--broker-defaults"),
    ],
    ids=" ".join,
)
def test_the_command_line_works_with_the_controllers(
    cluster: RunningCluster, tmp_path: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "admin.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in login("admin").items()))
    where = ("--bootstrap-controller", cluster.bootstrap_controllers, "--command-config", str(file))
    assert main([*command, *where]) == 0
    assert capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*command, *where, "--bootstrap-server", "h:1"])


# --- several controllers


def asked(quorum: DirectQuorum, controller: Controller, key: int, handle: Any, request: Any) -> Any:
    connection = controller.connection_opened(quorum.client_listener, "127.0.0.1", quorum.now())
    assert connection is not None
    exchange = exchange_on(controller, connection, key, 1, quorum.now())
    return handle(controller, Answers(exchange, print), request)


@pytest.fixture
def quorum() -> DirectQuorum:
    quorum = DirectQuorum(
        {
            "listeners": "PLAINTEXT://:0,CONTROLLER://:0",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT",
        }
    )
    quorum.start_all()
    quorum.pass_time(2000)
    return quorum


def described(quorum: DirectQuorum, controller: Controller) -> Any:
    request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
    return asked(quorum, controller, registry.DESCRIBE_CLUSTER, describe_cluster.handle, request)


def test_each_controller_says_where_the_active_one_is(quorum: DirectQuorum) -> None:
    """Before the metadata log has the listeners of the voters."""
    active = quorum.active
    for controller in quorum.running:
        found = described(quorum, controller)
        assert found.controller_id == active.quorum.node_id
        ids = {each.broker_id for each in found.brokers}
        assert ids == (set(quorum.voters) if controller is active else {controller.quorum.node_id, found.controller_id})
        assert {each.host for each in found.brokers} == {f"host-{each - 1000}" for each in ids}


def test_after_an_election_they_report_to_the_new_one(quorum: DirectQuorum) -> None:
    quorum.kill(quorum.number_of(quorum.active))
    quorum.pass_time(5000)
    for controller in quorum.running:
        assert described(quorum, controller).controller_id == quorum.active.quorum.node_id
    assert len(described(quorum, quorum.active).brokers) >= 2


@pytest.mark.parametrize(
    "request_", [MetadataRequest(), FetchRequest(), EnvelopeRequest(request_data=b"", client_host_address=b"")]
)
def test_requests_of_nodes_end_the_connection(quorum: DirectQuorum, request_: Any) -> None:
    """As a client sends them that does not ask for versions."""
    controller = quorum.active
    connection = controller.connection_opened(quorum.client_listener, "127.0.0.1", quorum.now())
    assert connection is not None
    assert connection.authenticated
    spec = registry.api_for(request_.api.key)
    assert spec is not None
    data = b"".join(frame(encode_request(request_, api_version=spec.highest, correlation_id=1, client_id="x")))
    connection.receive_buffer()[: len(data)] = data
    controller.bytes_received(connection, len(data), quorum.now())
    assert connection.closing


def test_one_that_is_not_active_refuses_changes(quorum: DirectQuorum) -> None:
    other = next(each for each in quorum.running if not each.is_active)
    handle = CLIENT_HANDLERS[registry.REMOVE_RAFT_VOTER]
    refused = asked(quorum, other, registry.REMOVE_RAFT_VOTER, handle, RemoveRaftVoterRequest(voter_id=1))
    assert code_of(refused) is ErrorCode.NOT_CONTROLLER


def test_a_report_of_a_stranger_is_refused(quorum: DirectQuorum) -> None:
    def report(voter_id: int, host: str = "h") -> ErrorCode:
        request = UpdateRaftVoterRequest(
            current_leader_epoch=-1,
            voter_id=voter_id,
            voter_directory_id=quorum.new_id(),
            listeners=(Listener(name="CONTROLLER", host=host, port=1),),
            k_raft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        )
        return code_of(asked(quorum, quorum.active, registry.UPDATE_RAFT_VOTER, update_raft_voter.handle, request))

    assert report(1007) is ErrorCode.VOTER_NOT_FOUND
    assert report(1001, host="") is ErrorCode.INVALID_REQUEST
    request = DescribeQuorumRequest(topics=METADATA)
    found = asked(quorum, quorum.active, registry.DESCRIBE_QUORUM, describe_quorum.handle, request)
    assert {each.node_id for each in found.nodes} == set(quorum.voters)
