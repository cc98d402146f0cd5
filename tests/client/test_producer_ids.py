"""A producer that holds its producer ids sends nothing under one that was not admitted, transactional or not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.partitions import OffsetSpec
from raylog.client.producer.async_producer import AsyncProducer
from raylog.core.ids import TopicPartition
from tests.client.served import Served


@pytest.mark.parametrize("transactional", [False, True])
def test_nothing_is_sent_before_the_producer_id_is_admitted(served: Served, transactional: bool) -> None:
    topic = served.new_topic()
    end = TopicPartition(topic, 0)
    given: dict[str, Any] = {"transactional_id": f"held-{topic}"} if transactional else {}

    async def work(admin: AdminClient) -> None:
        announced: list[int] = []
        async with AsyncProducer(**served.settings(), linger_ms=0, **given) as producer:
            producer.hold_producer_ids(announced.append)
            if transactional:
                await producer.init_transactions()
                producer.begin_transaction()
            delivery = await producer.send(topic, b"1")
            while not announced:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            producer.admit_producer_id(announced[0] + 1)
            assert not delivery.done()
            assert (await asyncio.to_thread(admin.list_offsets, {end: OffsetSpec.LATEST}))[end].offset == 0
            producer.admit_producer_id(announced[0])
            assert (await delivery).offset == 0
            if transactional:
                await producer.commit_transaction()
        assert announced == announced[:1]

    with AdminClient(**served.settings()) as admin:
        asyncio.run(work(admin))
