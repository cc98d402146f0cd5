"""What the admin clients do, under one face (kcat has none); a refusal raises AdminRefused with Kafka's number."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import aiokafka.errors
import kafka.errors
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin import NewPartitions as AiokafkaNewPartitions
from aiokafka.admin import NewTopic as AiokafkaNewTopic
from aiokafka.admin.config_resource import ConfigResource as AiokafkaConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AiokafkaConfigResourceType
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic  # type: ignore[attr-defined]
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import ConfigResource as KafkaPythonConfigResource
from kafka.admin import ConfigResourceType as KafkaPythonConfigResourceType

ANSWER_SECONDS = 20.0
T = TypeVar("T")


class AdminRefused(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"error code {code}")
        self.code = code


class ClusterSeen(NamedTuple):
    """Brokers as host:port by id."""

    cluster_id: str
    controller_id: int
    brokers: dict[int, str]


class Admin(Protocol):
    name: str

    def __init__(self, bootstrap_servers: str) -> None: ...

    def create(self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> None: ...

    def delete(self, topic: str) -> None: ...

    def grow(self, topic: str, total_count: int) -> None: ...

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Where the partition begins now; -1 means all that there is."""
        ...

    def partitions(self, topic: str) -> int: ...

    def topic_configs(self, topic: str) -> dict[str, str]: ...

    def broker_configs(self, broker_id: int) -> dict[str, str]: ...

    def cluster(self) -> ClusterSeen: ...


class ConfluentAdmin:
    name = "confluent-kafka"

    def __init__(self, bootstrap_servers: str) -> None:
        self._client = AdminClient({"bootstrap.servers": bootstrap_servers})

    def create(self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> None:
        self._wait(self._client.create_topics([NewTopic(topic, partitions, replicas, config=dict(configs))])[topic])

    def delete(self, topic: str) -> None:
        self._wait(self._client.delete_topics([topic])[topic])

    def grow(self, topic: str, total_count: int) -> None:
        self._wait(self._client.create_partitions([NewPartitions(topic, total_count)])[topic])

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        tp = TopicPartition(topic, partition, before)
        (answer,) = self._client.delete_records([tp]).values()
        return int(self._wait(answer).low_watermark)

    def partitions(self, topic: str) -> int:
        return len(self._client.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic].partitions)

    def topic_configs(self, topic: str) -> dict[str, str]:
        return self._configs(ConfigResource(ConfigResource.Type.TOPIC, topic))

    def broker_configs(self, broker_id: int) -> dict[str, str]:
        return self._configs(ConfigResource(ConfigResource.Type.BROKER, str(broker_id)))

    def cluster(self) -> ClusterSeen:
        seen = self._client.describe_cluster().result(ANSWER_SECONDS)
        return ClusterSeen(
            seen.cluster_id, seen.controller.id, {node.id: f"{node.host}:{node.port}" for node in seen.nodes}
        )

    def _configs(self, resource: Any) -> dict[str, str]:
        entries = self._wait(self._client.describe_configs([resource])[resource])
        return {name: entry.value for name, entry in entries.items()}

    def _wait(self, future: Any) -> Any:
        try:
            return future.result(ANSWER_SECONDS)
        except KafkaException as error:
            raise AdminRefused(error.args[0].code()) from error


class KafkaPythonAdmin:
    name = "kafka-python"

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def create(self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": replicas, "configs": dict(configs)}
        with self._client() as client:
            client.create_topics({topic: wanted})

    def delete(self, topic: str) -> None:
        with self._client() as client:
            client.delete_topics([topic])

    def grow(self, topic: str, total_count: int) -> None:
        with self._client() as client:
            client.create_partitions({topic: total_count})

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        with self._client() as client:
            (answer,) = client.delete_records({KafkaPythonPartition(topic, partition): before}).values()
            return int(answer["low_watermark"])

    def partitions(self, topic: str) -> int:
        with self._client() as client:
            return len(client.describe_topics([topic])[0]["partitions"])

    def topic_configs(self, topic: str) -> dict[str, str]:
        return self._configs("topic", KafkaPythonConfigResource(KafkaPythonConfigResourceType.TOPIC, topic))

    def broker_configs(self, broker_id: int) -> dict[str, str]:
        return self._configs("broker", KafkaPythonConfigResource(KafkaPythonConfigResourceType.BROKER, str(broker_id)))

    def cluster(self) -> ClusterSeen:
        with self._client() as client:
            seen = client.describe_cluster()
        brokers = {each["broker_id"]: f"{each['host']}:{each['port']}" for each in seen["brokers"]}
        return ClusterSeen(seen["cluster_id"], seen["controller_id"], brokers)

    def _configs(self, kind: str, resource: Any) -> dict[str, str]:
        with self._client() as client:
            (entries,) = client.describe_configs([resource], config_filter="all")[kind].values()
        return {name: entry["value"] for name, entry in entries.items()}

    @contextmanager
    def _client(self) -> Iterator[Any]:
        client = KafkaAdminClient(bootstrap_servers=self._bootstrap_servers)
        try:
            yield client
        except kafka.errors.BrokerResponseError as error:
            raise AdminRefused(error.errno) from error
        finally:
            client.close()


class AiokafkaAdmin:
    """aiokafka answers most refusals inside the response, and raises some."""

    name = "aiokafka"

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def create(self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> None:
        new_topic = AiokafkaNewTopic(topic, partitions, replicas, topic_configs=dict(configs))
        self._check(self._ask(lambda client: client.create_topics([new_topic])).topic_errors)

    def delete(self, topic: str) -> None:
        self._check(self._ask(lambda client: client.delete_topics([topic])).topic_error_codes)

    def grow(self, topic: str, total_count: int) -> None:
        wanted = {topic: AiokafkaNewPartitions(total_count)}
        self._check(self._ask(lambda client: client.create_partitions(wanted)).topic_errors)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        wanted = {AiokafkaPartition(topic, partition): RecordsToDelete(before)}
        (low_watermark,) = self._ask(lambda client: client.delete_records(wanted)).values()
        return int(low_watermark)

    def partitions(self, topic: str) -> int:
        (found,) = self._ask(lambda client: client.describe_topics([topic]))
        return len(found["partitions"])

    def topic_configs(self, topic: str) -> dict[str, str]:
        return self._configs(AiokafkaConfigResource(AiokafkaConfigResourceType.TOPIC, topic))

    def broker_configs(self, broker_id: int) -> dict[str, str]:
        return self._configs(AiokafkaConfigResource(AiokafkaConfigResourceType.BROKER, str(broker_id)))

    def cluster(self) -> ClusterSeen:
        seen = self._ask(lambda client: client.describe_cluster())
        brokers = {each["node_id"]: f"{each['host']}:{each['port']}" for each in seen["brokers"]}
        return ClusterSeen(seen["cluster_id"], seen["controller_id"], brokers)

    def _configs(self, resource: Any) -> dict[str, str]:
        (answer,) = self._ask(lambda client: client.describe_configs([resource]))
        ((code, _, _, _, entries),) = answer.resources
        self._check([(resource.name, code)])
        return {name: value for name, value, *_ in entries}

    def _ask(self, question: Callable[[Any], Awaitable[T]]) -> T:
        async def ask() -> T:
            client = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap_servers)
            await client.start()
            try:
                return await question(client)
            finally:
                await client.close()

        try:
            return asyncio.run(ask())
        except aiokafka.errors.BrokerResponseError as error:
            raise AdminRefused(error.errno) from error

    @staticmethod
    def _check(answers: Any) -> None:
        for _, code, *_ in answers:
            if code:
                raise AdminRefused(code)


ADMINS: Final[tuple[type[Admin], ...]] = (ConfluentAdmin, KafkaPythonAdmin, AiokafkaAdmin)
