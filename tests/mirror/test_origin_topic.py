"""What the topic of origins says counts as soon as it is committed, and nothing of it is passed over."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Producer

from raylog.client.admin.async_admin_client import AsyncAdminClient
from raylog.core.errors import KafkaError
from raylog.mirror.origin_topic import OriginTopics, cluster_id
from raylog.mirror.origins import ORIGINS_TOPIC, Origin, encode_origin
from tests.client.served import Target
from tests.mirror.flows import create, flows_among


def write(cluster: Target, *records: tuple[bytes, bytes | None]) -> None:
    """In one batch."""
    producer = Producer({"bootstrap.servers": cluster.plain, "linger.ms": 5})
    for key, value in records:
        producer.produce(ORIGINS_TOPIC, value, key, partition=0)
    assert producer.flush(20) == 0


def test_origins_are_known_once_they_are_there_and_not_passed_over(east: Target, west: Target) -> None:
    policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    (flow,) = flows_among({"A": east, "B": west}, "A->B", topics="t", replication_policy_class=policy)
    create(east, ORIGINS_TOPIC)

    async def work() -> None:
        async with (
            AsyncAdminClient(flow.source.admin) as source,
            AsyncAdminClient(flow.target.admin) as target,
            OriginTopics(flow, source, target) as topics,
        ):
            await topics.prepare()
            of_target = Origin(await cluster_id(target, "B"), "b")
            await asyncio.to_thread(write, east, encode_origin(1, of_target), (b"gone", None))
            await topics.look_for({1, 2})
            assert [topics.origins.copies(each, None) for each in (1, 2)] == [False, True]
            await asyncio.to_thread(write, east, (b"foreign", b"x"), encode_origin(3, of_target))
            await topics.look_for({1, 2})  # which are known
            for _ in range(2):
                with pytest.raises(KafkaError, match="is no origin of a producer"):
                    await topics.look_for({3})
            await topics.register(7, of_target)  # in the target
            assert topics.error is None
        async with AsyncAdminClient(flow.target.admin) as target:
            described = await target.describe_topics([ORIGINS_TOPIC])
            assert len(described[ORIGINS_TOPIC].partitions) == 1

    asyncio.run(work())
    assert west.read(ORIGINS_TOPIC, 1)[0].key() == b'{"producer_id": 7}'
