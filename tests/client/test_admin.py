"""raylog's admin client against production brokers: by every door, with both faces, and with every bad use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.async_admin_client import AsyncAdminClient
from raylog.client.admin.cluster import TopicPartitionReplica
from raylog.client.admin.configs import Append, ConfigResource, ConfigResourceType, Subtract
from raylog.client.admin.topics import NewPartitions, NewTopic
from raylog.client.errors import AdminError, ClientClosedError, UnknownTopicError
from raylog.core.config import ConfigSource
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.security.acl import Operation
from raylog.transport import unix
from tests.client.admin_faces import FACES, BlockingFace
from tests.client.served import DOORS, Served, Target
from tests.support.hang import HANG_SECONDS, wait_until
from tests.support.ports import free_port

faces = pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
Make = Callable[..., Any]


@pytest.fixture
def make(target: Target, request: pytest.FixtureRequest) -> Make:
    """Makes an admin client, and closes it at the end of the test."""

    def made(face: Any = BlockingFace, **settings: Any) -> Any:
        admin = face(**{**target.settings("unix"), **settings})
        request.addfinalizer(admin.stop)
        return admin

    return made


def failed(call: Callable[[], object]) -> AdminError:
    with pytest.raises(AdminError) as raised:
        call()
    return raised.value


# --- topics


@faces
@pytest.mark.parametrize("door", DOORS)
def test_every_door(served: Served, make: Make, face: Any, door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if door == "tcp":
        monkeypatch.setattr(unix, "runtime_dirs", tuple)
    admin = make(face, **served.settings(door))
    name = f"{door}-{face.__name__}"
    admin.create_topics(NewTopic(name, 3))
    assert len(admin.describe_topics(name)[name].partitions) == 3
    assert name in [each.name for each in admin.list_topics()]
    admin.delete_topics(name)


@faces
def test_topics_from_creation_to_deletion(target: Target, make: Make, face: Any) -> None:
    admin = make(face)
    one, two, three = (f"{face.__name__}-{number}" for number in range(3))
    wanted = [
        one,
        NewTopic(two, 2, 1, configs={"retention.ms": "5000"}),
        NewTopic(three, replica_assignments={0: [broker_id(admin)]}),
    ]
    made = admin.create_topics(wanted)
    assert list(made) == [one, two, three]
    assert (made[two].num_partitions, made[two].replication_factor) == (2, 1)
    assert made[two].configs["retention.ms"] == "5000"
    described = admin.describe_topics([two, three])
    assert list(described) == [two, three]
    assert described[two].topic_id == made[two].topic_id != UUID(int=0)
    assert described[two].authorized_operations is None
    assert [(each.partition, each.leader, each.isr) for each in described[two].partitions] == [
        (number, broker_id(admin), (broker_id(admin),)) for number in range(2)
    ]
    operations = admin.describe_topics(one, include_authorized_operations=True)[one].authorized_operations
    assert {Operation.READ, Operation.ALTER_CONFIGS} <= operations
    admin.create_partitions({two: 3, three: NewPartitions(2, [[broker_id(admin)]])})
    wait_until(lambda: [len(each.partitions) for each in admin.describe_topics([two, three]).values()] == [3, 2])
    assert admin.delete_topics([one, made[two].topic_id]) == {one: None, made[two].topic_id: None}
    wait_until(lambda: {one, two, three} & {each.name for each in admin.list_topics()} == {three})
    admin.delete_topics(three)


@faces
def test_pages_of_partitions(target: Target, make: Make, face: Any) -> None:
    admin = make(face)
    names = sorted(target.new_topic(count) for count in (1, 3, 5))
    wait_until(lambda: set(names) <= {each.name for each in admin.list_topics()})
    described = admin.describe_topic_partitions(names, page_size=2)
    assert {name: [each.partition for each in topic.partitions] for name, topic in described.items()} == {
        name: [each.partition for each in topic.partitions] for name, topic in admin.describe_topics(names).items()
    }
    assert described[names[0]].partitions[0].eligible_leader_replicas is not None
    assert admin.describe_topic_partitions([]) == {} == admin.describe_topics([])
    assert set(names) <= set(admin.describe_topic_partitions())
    assert type(failed(lambda: admin.describe_topic_partitions(["none", names[0]]))) is UnknownTopicError


@faces
def test_what_only_is_checked_is_not_made(target: Target, make: Make, face: Any) -> None:
    admin, topic = make(face), target.new_topic()
    resource = ConfigResource(TOPIC, topic)
    assert admin.create_topics(NewTopic("checked", 2, 1), validate_only=True)["checked"].num_partitions == 2
    admin.create_partitions({topic: 4}, validate_only=True)
    admin.incremental_alter_configs({resource: {"retention.ms": "1"}}, validate_only=True)
    assert "checked" not in {each.name for each in admin.list_topics()}
    assert len(admin.describe_topics(topic)[topic].partitions) == 1
    assert not admin.describe_configs(resource)[resource]["retention.ms"].is_own


@faces
def test_each_item_has_its_own_error(target: Target, make: Make, face: Any) -> None:
    admin, topic = make(face), target.new_topic()
    new = f"new-{face.__name__}"
    error = failed(lambda: admin.create_topics([topic, new, "bad name"]))
    assert {name: each.code for name, each in error.errors.items()} == {
        topic: ErrorCode.TOPIC_ALREADY_EXISTS,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert list(error.results) == [new]
    assert type(error) is AdminError
    error = failed(lambda: admin.describe_topics([topic, "none"]))
    assert (type(error), list(error.errors), list(error.results)) == (UnknownTopicError, ["none"], [topic])
    error = failed(lambda: admin.delete_topics([new, "none", UUID(int=5)]))
    assert (type(error), list(error.errors)) == (UnknownTopicError, ["none", UUID(int=5)])
    error = failed(lambda: admin.create_partitions({topic: 1, "none": 2}))
    assert {name: each.code for name, each in error.errors.items()} == {
        topic: ErrorCode.INVALID_PARTITIONS,
        "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


# --- configurations


@faces
def test_configurations(target: Target, make: Make, face: Any) -> None:
    admin, topic = make(face), target.new_topic(cleanup_policy="delete")
    resource, default = ConfigResource(TOPIC, topic), ConfigResource(BROKER, "")
    broker = ConfigResource(BROKER, str(broker_id(admin)))
    admin.incremental_alter_configs(
        {
            resource: {"retention.ms": "5000", "cleanup.policy": Append("compact")},
            default: {"log.retention.ms": "70000"},
        }
    )
    wait_until(lambda: admin.describe_configs(broker)[broker]["log.retention.ms"].value == "70000")
    wait_until(lambda: admin.describe_configs(resource)[resource]["retention.ms"].value == "5000")
    found = admin.describe_configs([resource, broker, default])
    assert list(found) == [resource, broker, default]
    entry = found[resource]["retention.ms"]
    assert (entry.value, entry.source, entry.is_own) == ("5000", ConfigSource.DYNAMIC_TOPIC_CONFIG, True)
    assert found[resource]["cleanup.policy"].value == "delete,compact"
    assert found[default]["log.retention.ms"].value == "70000"
    assert found[broker]["log.retention.ms"].source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    admin.incremental_alter_configs(
        {resource: {"retention.ms": None, "cleanup.policy": Subtract("delete")}, default: {"log.retention.ms": None}}
    )
    wait_until(lambda: admin.describe_configs(broker)[broker]["log.retention.ms"].value != "70000")
    wait_until(lambda: not admin.describe_configs(resource)[resource]["retention.ms"].is_own)
    entries = admin.describe_configs(resource, keys=["retention.ms", "cleanup.policy"], include_synonyms=True)[resource]
    assert {name: each.is_own for name, each in entries.items()} == {"retention.ms": False, "cleanup.policy": True}
    assert entries["cleanup.policy"].value == "compact"
    assert [each.name for each in entries["cleanup.policy"].synonyms] == ["cleanup.policy", "log.cleanup.policy"]
    documented = admin.describe_configs([(TOPIC, topic)], keys=["retention.ms"], include_documentation=True)
    assert documented[resource]["retention.ms"].documentation
    assert resource in admin.list_config_resources([TOPIC])


@faces
def test_errors_of_configurations(target: Target, make: Make, face: Any) -> None:
    admin, topic = make(face), target.new_topic()
    good, missing = ConfigResource(TOPIC, topic), ConfigResource(TOPIC, "none")
    error = failed(
        lambda: admin.incremental_alter_configs({good: {"no.such.key": "1"}, missing: {"retention.ms": "1"}})
    )
    assert {each: error.errors[each].code for each in (good, missing)} == {
        good: ErrorCode.INVALID_CONFIG,
        missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert error.errors[missing].message.startswith("topic 'none': ")
    error = failed(lambda: admin.describe_configs([good, missing]))
    assert (type(error), list(error.results)) == (UnknownTopicError, [good])


def test_the_whole_configuration_is_replaced(target: Target, make: Make) -> None:
    admin, topic = make(), target.new_topic(retention_ms="5000")
    resource = ConfigResource(TOPIC, topic)
    admin.alter_configs({resource: {"segment.ms": "60000"}})

    def own() -> list[str]:
        return [name for name, entry in admin.describe_configs(resource)[resource].items() if entry.is_own]

    wait_until(lambda: own() == ["segment.ms"])


# --- the cluster


@faces
def test_the_cluster(target: Target, make: Make, face: Any) -> None:
    admin = make(face)
    cluster = admin.describe_cluster(include_authorized_operations=True)
    assert cluster.cluster_id
    assert [node.node_id for node in cluster.nodes] == [cluster.controller]
    assert f"{cluster.nodes[0].host}:{cluster.nodes[0].port}" == target.plain
    assert Operation.CREATE in cluster.authorized_operations
    assert admin.describe_cluster(include_fenced_brokers=True).authorized_operations is None
    quorum = admin.describe_metadata_quorum()
    assert quorum.leader_id in {each.replica_id for each in quorum.voters}
    assert 0 < quorum.high_watermark <= max(each.log_end_offset for each in quorum.voters)
    features = {each.feature: each for each in admin.describe_features()}
    name = "raylog.metadata" if "raylog.metadata" in features else "metadata.version"
    found = features[name]
    assert found.supported_min <= found.finalized <= found.supported_max
    admin.update_features({name: found.finalized}, validate_only=True)
    assert (
        failed(lambda: admin.update_features({name: found.supported_max + 1})).code is ErrorCode.INVALID_UPDATE_VERSION
    )
    assert failed(lambda: admin.unregister_broker(77)).code is ErrorCode.BROKER_ID_NOT_REGISTERED


@faces
def test_log_directories(target: Target, make: Make, face: Any) -> None:
    admin, topic = make(face), target.new_topic(2)
    node = broker_id(admin)
    (path,) = admin.describe_log_dirs(node)[node]
    wait_until(lambda: len(admin.describe_log_dirs(node, [(topic, 0), (topic, 1)])[node][path].replicas) == 2)
    found = admin.describe_log_dirs([node], [(topic, 1)])[node][path]
    assert found.error is None
    assert found.total_bytes > found.usable_bytes > 0
    assert {(tp.partition, future) for tp, future in found.replicas} == {(1, False)}
    replica = TopicPartitionReplica(topic, 0, node)
    assert admin.alter_replica_log_dirs({replica: path}) == {replica: None}
    error = failed(lambda: admin.alter_replica_log_dirs({replica: "/none", (topic, 1, node): path}))
    assert {each: one.code for each, one in error.errors.items()} == {replica: ErrorCode.LOG_DIR_NOT_FOUND}


# --- use and misuse


@faces
def test_configurations_that_are_refused(face: Any) -> None:
    for settings in ({}, {"bootstrap_servers": "nowhere"}, {"bootstrap_servers": "h:1", "colour": "red"}):
        with pytest.raises(ConfigError):
            face(**settings)


@faces
def test_after_closing(target: Target, face: Any) -> None:
    admin = face(**target.settings())
    assert admin.list_topics() is not None
    admin.close()
    admin.close()
    with pytest.raises(ClientClosedError, match="the admin client is closed"):
        admin.list_topics()
    admin.stop()


@faces
def test_a_cluster_that_is_not_there(face: Any) -> None:
    admin = face(bootstrap_servers=f"127.0.0.1:{free_port()}", reconnect_backoff_max_ms=50)
    assert failed(lambda: admin.list_topics(timeout=0.3)).code is ErrorCode.REQUEST_TIMED_OUT
    with pytest.raises(KafkaError, match="must be 0 to"):
        admin.list_topics(timeout=-1)
    admin.stop()
    admin = face(bootstrap_servers=f"127.0.0.1:{free_port()}", waits_for_brokers=False)
    assert failed(admin.list_topics).code is ErrorCode.NETWORK_EXCEPTION
    admin.stop()


def test_many_threads_use_one_client(target: Target, make: Make) -> None:
    admin, topic = make(), target.new_topic()
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: admin.describe_topics(topic)[topic].name, range(200)))
    assert found == [topic] * 200


def test_closing_ends_the_calls_of_other_threads(request: pytest.FixtureRequest) -> None:
    admin = AdminClient(bootstrap_servers=f"127.0.0.1:{free_port()}")
    request.addfinalizer(admin.close)
    errors: list[KafkaError] = []

    def call() -> None:
        try:
            admin.list_topics()
        except KafkaError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    wait_until(lambda: bool(admin._core._open))
    admin.close()
    thread.join(HANG_SECONDS)
    assert [type(error) for error in errors] == [ClientClosedError]


def test_tasks_share_one_client_and_can_be_cancelled(target: Target) -> None:
    async def use() -> None:
        async with AsyncAdminClient(**target.settings()) as admin:
            found = await asyncio.gather(*(admin.list_topics() for _ in range(100)))
            assert all(each == found[0] for each in found)
        async with AsyncAdminClient(bootstrap_servers=f"127.0.0.1:{free_port()}") as admin:
            task = asyncio.create_task(admin.list_topics())
            await asyncio.sleep(0)  # it has begun
            assert admin._core._open
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(use())


def broker_id(admin: Any) -> int:
    (node,) = admin.describe_cluster().nodes
    return int(node.node_id)
