"""(shell) Creates the topics in which flows keep what they must not forget, and reads a flow's progress."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from raylog.client.admin.async_admin_client import AsyncAdminClient
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from raylog.client.admin.partitions import OffsetSpec
from raylog.client.admin.topics import NewTopic
from raylog.client.consumer.async_consumer import AsyncConsumer
from raylog.client.errors import AdminError, UnknownTopicError
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.mirror.progress import SHARDS_MIN, FlowId, Progress, decode_progress

READ_SECONDS: Final = 60.0
_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}


async def fix_shards(admin: AsyncAdminClient, flow: FlowId, *, tasks: int, replication_factor: int) -> int:
    """The number of shards of a flow: the partition count of the progress topic, which is created if it is missing.

    Raises ConfigError for a topic that is not compacted; KafkaError.
    """
    return await create_compacted(admin, flow.progress_topic, max(tasks, SHARDS_MIN), replication_factor)


async def create_compacted(admin: AsyncAdminClient, topic: str, partitions: int, replication_factor: int) -> int:
    """The partition count of a topic of the mirror, which is created if it is missing.

    Raises ConfigError for a topic that is not compacted; KafkaError.
    """
    count = await partition_count(admin, topic)
    if count is None:
        try:
            await admin.create_topics([NewTopic(topic, partitions, replication_factor, configs=_CONFIGS)])
        except AdminError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        try:
            async with asyncio.timeout(READ_SECONDS):
                while (count := await partition_count(admin, topic)) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        except TimeoutError:
            text = f"{topic} was created and is not there after {READ_SECONDS} s"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text) from None
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    policy = (await admin.describe_configs([resource]))[resource]["cleanup.policy"].value
    if policy != "compact":
        text = "must be compact, or what the flow has written there gets lost"
        raise ConfigError(f"{topic}: cleanup.policy={policy}: {text}")
    return count


async def read_progress(
    admin: AsyncAdminClient, consumer_config: Mapping[str, Any], flow: FlowId, shard: int
) -> dict[TopicPartition, Progress]:
    """The progress of the shard's partitions, by all records before the end of the topic's partition.

    With exactly-once the shard's producer must be initialized: no transaction of another one is open then. Raises
    KafkaError, REQUEST_TIMED_OUT if the end is not reached in time.
    """
    tp = TopicPartition(flow.progress_topic, shard)
    end = (await admin.list_offsets({tp: OffsetSpec.LATEST}))[tp].offset
    progress: dict[TopicPartition, Progress] = {}
    own = {
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "group.id": "",
    }
    async with AsyncConsumer({**consumer_config, **own}) as consumer:
        consumer.assign([tp])
        try:
            async with asyncio.timeout(READ_SECONDS):
                while await consumer.position(tp) < end:
                    for record in await consumer.poll(0.2):
                        source, found = decode_progress(flow, record.key, record.value)
                        if found is None:
                            progress.pop(source, None)
                        else:
                            progress[source] = found
        except TimeoutError:
            text = f"{tp} was not read to its end, offset {end}, within {READ_SECONDS} s"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from None
    return progress


async def partition_count(admin: AsyncAdminClient, topic: str) -> int | None:
    """None if there is no such topic."""
    try:
        return len((await admin.describe_topics([topic]))[topic].partitions)
    except UnknownTopicError:
        return None
