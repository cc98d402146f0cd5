"""A stock consumer's group goes on in the target where it stopped: it loses nothing and reads few records again."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Consumer, Producer

from raylog.client.admin.admin_client import AdminClient
from raylog.core.ids import TopicPartition
from tests.client.served import Target
from tests.mirror.flows import RunningFlow, ends, flow_between, running
from tests.support.hang import HANG_SECONDS

MODES = pytest.mark.parametrize("mode", ["disabled", "enabled"], ids=["at-least-once", "exactly-once"])
LAG_MAX = 20
BATCH = 7
PARTITIONS = 2
RECORDS = 150
"""Of each partition."""


def consumed(target: Target, topic: str, group: str, count: int | None = None) -> list[bytes]:
    """What a member of the group reads until it has so many records, or has reached the ends. It commits each batch."""
    consumer = Consumer(
        {
            "bootstrap.servers": target.plain,
            "group.id": group,
            "auto.offset.reset": "earliest" if count is not None else "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found, at_end = list[bytes](), set[int]()
    try:
        consumer.subscribe([topic])
        while len(found) != count and (count is not None or len(at_end) < PARTITIONS):
            for message in consumer.consume(17 if count is None else min(17, count - len(found)), 0.2):
                error = message.error()
                if error is None:
                    found.append(message.value() or b"")
                    consumer.commit(message=message, asynchronous=False)
                else:
                    assert error.name() == "_PARTITION_EOF", error
                    at_end.add(message.partition() or 0)
    finally:
        consumer.close()
    return found


def wait_for_offsets(admin: AdminClient, flow: RunningFlow, group: str, remote: str) -> None:
    """Until the group is at the end of the copied records."""
    wanted = [TopicPartition(remote, number) for number in range(PARTITIONS)]

    def at_end() -> bool:
        found = admin.list_consumer_group_offsets(group, wanted).values()
        return all(each is not None and each.offset >= RECORDS for each in found)

    flow.wait(lambda _: at_end())


@MODES
def test_groups_go_on_in_the_target(east: Target, west: Target, mode: str) -> None:
    topic, behind, at_end = east.new_topic(PARTITIONS), east.new_group(), east.new_group()
    flow = flow_between(
        east,
        west,
        topics=topic,
        groups=f"{behind},{at_end}",
        exactly_once_source_support=mode,
        sync_group_offsets_enabled="true",
        offset_lag_max=str(LAG_MAX),
    )
    producer = Producer({"bootstrap.servers": east.plain, "batch.num.messages": BATCH, "linger.ms": 1})
    sent = [b"%d" % number for number in range(PARTITIONS * RECORDS)]
    for number, value in enumerate(sent):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(HANG_SECONDS) == 0
    del producer
    left = 40
    with running(flow) as run, AdminClient(bootstrap_servers=west.plain) as admin:
        before = consumed(east, topic, behind, len(sent) - left)
        assert sorted(consumed(east, topic, at_end, len(sent))) == sorted(sent)
        run.wait_for_end(topic, ends(east, topic, PARTITIONS))
        wait_for_offsets(admin, run, at_end, f"A.{topic}")
        assert not run.status().errors
        assert not any(task.error for task in run.status().control)
    assert consumed(west, f"A.{topic}", at_end) == []
    after = consumed(west, f"A.{topic}", behind)
    read = Counter(before + after)
    assert set(read) == set(sent)
    again = sum(read.values()) - len(sent)
    assert again <= left + PARTITIONS * (LAG_MAX + BATCH)
    assert max(Counter(after).values()) == 1
