"""Stock clients manage access control lists, and report denied operations as authorization errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import aiokafka.errors
import kafka.errors
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
)
from kafka.admin import ResourceType as KafkaPythonType

from raylog.config.authorization import STANDARD_AUTHORIZER
from tests.compat.kcat import Kcat
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import wait_until

pytestmark = pytest.mark.compat

SECONDS = 20.0
READ, WRITE, DESCRIBE, ALTER = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALTER
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
_numbers = count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Resources without entries are open to all clients, so that the tests can set up their topics."""
    config = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "allow.everyone.if.no.acl.found": "true",
        "default.replication.factor": "3",
    }
    with cluster_thread(config, tmp_path_factory.mktemp("acls"), brokers=3) as running:
        yield running


@pytest.fixture
def admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """A topic with an entry, so that clients have only the permissions that a test grants."""
    name = f"guarded-{next(_numbers)}"
    create_topic(bootstrap_servers, name, partitions=1)
    return name


@pytest.fixture
def guarded(admin: AdminClient, topic: str, cluster: RunningCluster) -> str:
    allow(admin, cluster, topic, READ, principal="User:nobody")
    return topic


@pytest.fixture
def described(admin: AdminClient, guarded: str, cluster: RunningCluster) -> str:
    allow(admin, cluster, guarded, DESCRIBE)
    return guarded


def allow(
    admin: AdminClient,
    cluster: RunningCluster,
    name: str,
    operation: AclOperation,
    *,
    principal: str = "User:ANONYMOUS",
    permission: AclPermissionType = ALLOW,
    kind: ResourceType = ResourceType.TOPIC,
) -> AclBinding:
    """Adds the entry, and waits until every broker knows of it."""
    entry = AclBinding(kind, name, ResourcePatternType.LITERAL, principal, "127.0.0.1", operation, permission)
    admin.create_acls([entry])[entry].result(SECONDS)
    everywhere(cluster)
    return entry


def acl_filter(kind: ResourceType, name: str | None, pattern: ResourcePatternType, *more: Any) -> AclBindingFilter:
    """Of what None leaves open, too, which the stubs of the client do not know."""
    anything: Any = name
    return AclBindingFilter(kind, anything, pattern, *more)


def take_away(admin: AdminClient, cluster: RunningCluster, name: str, operation: AclOperation) -> None:
    wanted = acl_filter(
        ResourceType.ANY, name, ResourcePatternType.ANY, "User:ANONYMOUS", None, operation, AclPermissionType.ANY
    )
    assert admin.delete_acls([wanted])[wanted].result(SECONDS)
    everywhere(cluster)


def everywhere(cluster: RunningCluster) -> None:
    def known() -> set[frozenset[Any]]:
        return {frozenset(broker.image.acls.entries) for broker in cluster.brokers}

    deadline = time.monotonic() + SECONDS
    while len(cluster.do(known)) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)


class TestAdministration:
    def test_confluent(self, admin: AdminClient, bootstrap_servers: str) -> None:
        entries = [
            AclBinding(ResourceType.TOPIC, "c-", ResourcePatternType.PREFIXED, "User:c", "*", WRITE, ALLOW),
            AclBinding(ResourceType.GROUP, "c-g", ResourcePatternType.LITERAL, "User:c", "10.0.0.1", READ, DENY),
        ]
        for future in admin.create_acls(entries).values():
            assert future.result(SECONDS) is None
        mine = acl_filter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            "User:c",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        assert sorted(admin.describe_acls(mine).result(SECONDS)) == sorted(entries)
        covering = acl_filter(
            ResourceType.TOPIC,
            "c-1",
            ResourcePatternType.MATCH,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        assert admin.describe_acls(covering).result(SECONDS) == entries[:1]
        assert sorted(admin.delete_acls([mine])[mine].result(SECONDS)) == sorted(entries)
        assert admin.describe_acls(mine).result(SECONDS) == []

    def test_confluent_refuses_a_principal_without_a_type(self, admin: AdminClient) -> None:
        wrong = AclBinding(ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "me", "*", READ, ALLOW)
        with pytest.raises(KafkaException, match="Type:name") as refused:
            admin.create_acls([wrong])[wrong].result(SECONDS)
        assert refused.value.args[0].code() == KafkaError.INVALID_REQUEST

    def test_kafka_python(self, bootstrap_servers: str) -> None:
        client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
        entry = ACL(
            principal="User:k",
            host="*",
            operation=ACLOperation.WRITE,
            permission_type=ACLPermissionType.ALLOW,
            resource_pattern=ResourcePattern(KafkaPythonType.TOPIC, "k-", ACLResourcePatternType.PREFIXED),
        )
        mine = ACLFilter(
            principal="User:k",
            host=None,
            operation=ACLOperation.ANY,
            permission_type=ACLPermissionType.ANY,
            resource_pattern=ResourcePatternFilter(KafkaPythonType.ANY, None, ACLResourcePatternType.ANY),
        )
        try:
            assert client.create_acls([entry])["succeeded"] == [entry]
            assert client.describe_acls(mine)[0] == [entry]
            ((_, removed, _),) = client.delete_acls([mine])
            assert removed == [entry]
            assert client.describe_acls(mine)[0] == []
        finally:
            client.close()

    def test_without_an_authorizer(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        """librdkafka takes a DescribeAcls that was refused for one that has found nothing."""
        entry = AclBinding(ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:x", "*", READ, ALLOW)
        wanted = ACLFilter(
            principal=None,
            host=None,
            operation=ACLOperation.ANY,
            permission_type=ACLPermissionType.ANY,
            resource_pattern=ResourcePatternFilter(KafkaPythonType.ANY, None, ACLResourcePatternType.ANY),
        )
        with cluster_thread({}, tmp_path_factory.mktemp("plain")) as plain:
            admin = AdminClient({"bootstrap.servers": plain.bootstrap_servers, "log_level": 3})
            with pytest.raises(KafkaException, match="No authorizer is configured") as refused:
                admin.create_acls([entry])[entry].result(SECONDS)
            assert refused.value.args[0].code() == KafkaError.SECURITY_DISABLED
            client = KafkaAdminClient(bootstrap_servers=plain.bootstrap_servers)
            with pytest.raises(kafka.errors.SecurityDisabledError):
                client.describe_acls(wanted)
            client.close()


class TestDeniedClients:
    """Each gives up by itself, with its own exception for the topic or the group.

    Who may not even describe a topic is told so by Metadata; with that right Produce and Fetch refuse. A consumer that
    assigns itself a topic which it may not describe looks for it again and again, as on Kafka.
    """

    def test_confluent_produces(self, bootstrap_servers: str, guarded: str) -> None:
        assert confluent_write(bootstrap_servers, guarded) == KafkaError.TOPIC_AUTHORIZATION_FAILED

    def test_confluent_consumes(self, bootstrap_servers: str, described: str) -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "free"})
        consumer.assign([TopicPartition(described, 0, 0)])
        assert confluent_poll(consumer) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        consumer.close()

    def test_confluent_subscribes(self, bootstrap_servers: str, guarded: str) -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "free"})
        consumer.subscribe([guarded])
        assert confluent_poll(consumer) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        consumer.close()

    def test_confluent_joins_a_group(
        self, bootstrap_servers: str, admin: AdminClient, cluster: RunningCluster, topic: str
    ) -> None:
        allow(admin, cluster, "closed", READ, principal="User:nobody", kind=ResourceType.GROUP)
        consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "closed"})
        consumer.subscribe([topic])
        assert confluent_poll(consumer) == KafkaError.GROUP_AUTHORIZATION_FAILED
        consumer.close()

    def test_kcat(self, bootstrap_servers: str, guarded: str) -> None:
        with pytest.raises(AssertionError, match="Topic authorization failed"):
            Kcat(bootstrap_servers).run(["-P", "-t", guarded], typed=b"x\n")

    def test_kafka_python(self, bootstrap_servers: str, described: str) -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            producer.send(described, b"x").get(SECONDS)
        producer.close(timeout=1)
        consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers)
        consumer.assign([KafkaPythonPartition(described, 0)])
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            consumer.poll(timeout_ms=int(SECONDS * 1000))
        consumer.close(autocommit=False)

    def test_kafka_python_adds_partitions(self, bootstrap_servers: str, guarded: str) -> None:
        client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            client.create_partitions({guarded: 2})
        client.close()

    def test_aiokafka(self, bootstrap_servers: str, described: str) -> None:
        async def run() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers)
            await producer.start()
            with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
                await producer.send_and_wait(described, b"x")
            await producer.stop()
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers)
            consumer.assign([AiokafkaPartition(described, 0)])
            await consumer.start()
            with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
                await consumer.getone()
            await consumer.stop()

        asyncio.run(asyncio.wait_for(run(), SECONDS))


class TestChangingPermissions:
    def test_granted_and_revoked_while_a_producer_and_a_consumer_run(
        self, bootstrap_servers: str, admin: AdminClient, cluster: RunningCluster, guarded: str
    ) -> None:
        common: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "topic.metadata.refresh.interval.ms": 100}
        producer, consumer = Producer(common), Consumer({**common, "group.id": "free"})
        assert deliver(producer, guarded) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        allow(admin, cluster, guarded, WRITE)
        allow(admin, cluster, guarded, READ)
        # What a client has been refused it tries again when it next asks for metadata.
        wait_until(lambda: deliver(producer, guarded) is None)
        consumer.assign([TopicPartition(guarded, 0, 0)])
        assert confluent_poll(consumer) is None
        take_away(admin, cluster, guarded, READ)
        assert deliver(producer, guarded) is None
        assert confluent_poll(consumer) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        allow(admin, cluster, guarded, READ)
        wait_until(lambda: confluent_poll(consumer) is None)
        take_away(admin, cluster, guarded, WRITE)
        assert deliver(producer, guarded) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        consumer.close()

    def test_a_topic_without_describe_is_unknown(
        self, bootstrap_servers: str, admin: AdminClient, cluster: RunningCluster, guarded: str
    ) -> None:
        assert guarded not in admin.list_topics(timeout=SECONDS).topics
        named = admin.list_topics(guarded, timeout=SECONDS).topics[guarded]
        assert named.error is not None
        assert named.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        allow(admin, cluster, guarded, DESCRIBE)
        assert len(admin.list_topics(timeout=SECONDS).topics[guarded].partitions) == 1

    def test_changing_the_lists_requires_a_permission(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        """In a cluster of its own: here the last one shuts the door."""
        config = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
        with cluster_thread(config, tmp_path_factory.mktemp("shut")) as running:
            admin = AdminClient({"bootstrap.servers": running.bootstrap_servers, "log_level": 3})
            cluster = AclBinding(
                ResourceType.BROKER,
                "kafka-cluster",
                ResourcePatternType.LITERAL,
                "User:nobody",
                "*",
                ALTER,
                ALLOW,
            )
            admin.create_acls([cluster])[cluster].result(SECONDS)
            with pytest.raises(KafkaException) as refused:
                admin.create_acls([cluster])[cluster].result(SECONDS)
            assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def confluent_write(bootstrap_servers: str, topic: str) -> int | None:
    return deliver(Producer({"bootstrap.servers": bootstrap_servers}), topic)


def deliver(producer: Producer, topic: str) -> int | None:
    """The code with which one record was refused; None: it was written."""
    codes: list[int | None] = []
    try:
        producer.produce(
            topic, b"x", on_delivery=lambda error, _: codes.append(None if error is None else error.code())
        )
    except KafkaException as refused:  # it knows that already
        code: int = refused.args[0].code()
        return code
    producer.flush(SECONDS)
    return codes.pop()


def confluent_poll(consumer: Consumer) -> int | None:
    """The code of what comes next; None: a record."""
    message = consumer.poll(SECONDS)
    assert message is not None
    error = message.error()
    return None if error is None else error.code()
