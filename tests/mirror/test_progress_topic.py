"""The progress of a shard is what was committed with the records, and nothing of an aborted transaction."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Producer

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.async_admin_client import AsyncAdminClient
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from raylog.core.errors import ConfigError
from raylog.core.ids import TopicPartition
from raylog.mirror.progress import FlowId, Progress, encode_progress
from raylog.mirror.progress_topic import fix_shards, read_progress
from tests.client.served import Target

FLOW, TP, SHARD = FlowId("P", "Q"), TopicPartition("orders", 0), 2


async def shards(target: Target, tasks: int) -> int:
    async with AsyncAdminClient(bootstrap_servers=target.plain) as admin:
        return await fix_shards(admin, FLOW, tasks=tasks, replication_factor=1)


async def progress(target: Target) -> dict[TopicPartition, Progress]:
    async with AsyncAdminClient(bootstrap_servers=target.plain) as admin:
        return await read_progress(admin, {"bootstrap.servers": target.plain}, FLOW, SHARD)


def test_progress_is_that_of_committed_transactions_and_shards_stay(west: Target) -> None:
    assert asyncio.run(shards(west, 7)) == 7
    assert asyncio.run(shards(west, 9)) == 7
    assert asyncio.run(progress(west)) == {}
    producer = Producer({"bootstrap.servers": west.plain, "transactional.id": "progress"})
    producer.init_transactions(60)
    for offset, end in ((5, producer.commit_transaction), (9, producer.abort_transaction)):
        producer.begin_transaction()
        key, value = encode_progress(FLOW, TP, Progress(offset))
        producer.produce(FLOW.progress_topic, value, key, partition=SHARD)
        producer.flush(60)
        end(60)
    assert asyncio.run(progress(west)) == {TP: Progress(5)}
    with AdminClient(bootstrap_servers=west.plain) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, FLOW.progress_topic)
        admin.incremental_alter_configs({resource: {"cleanup.policy": "delete"}})
    with pytest.raises(ConfigError, match="must be compact"):
        asyncio.run(shards(west, 7))
