"""Group and transaction coordinators after the compaction of their topics: the same offsets and transactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.groupcoord.shards import OFFSETS_TOPIC
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from raylog.txncoord.shards import TRANSACTION_TOPIC
from tests.support.direct_broker import DirectBroker
from tests.support.transactional_client import TransactionalClient, group_coordinator

BACKOFF_MS = 5000
CONFIG: dict[str, Any] = {
    "log.cleaner.backoff.ms": BACKOFF_MS,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "log.cleaner.delete.retention.ms": 0,
}
OFFSETS, TRANSACTIONS = TopicPartition(OFFSETS_TOPIC, 0), TopicPartition(TRANSACTION_TOPIC, 0)
T = TopicPartition("t", 0)


@pytest.fixture
def broker() -> DirectBroker:
    broker = DirectBroker(CONFIG)
    broker.create_topic("t")
    group_coordinator(broker.cluster)
    return broker


def commit(broker: DirectBroker, group: str, offset: int) -> None:
    position = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=(OffsetCommitRequestTopic(name="t", partitions=(position,)),),
    )
    answer = broker.call(request, version=8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def committed(broker: DirectBroker, group: str) -> int:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=(0,))
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=(topic,)),))
    answer = broker.call(request, version=9)
    found = answer.groups[0].topics[0].partitions[0]
    assert (answer.groups[0].error_code, found.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    return int(found.committed_offset)


def clean(broker: DirectBroker, tp: TopicPartition) -> int:
    """Let the broker compact the partition; returns its size."""
    log = broker.broker.partitions[tp].log
    log.settings = replace(log.settings, segment_bytes=3000)
    log.roll(broker.now().wall_ms)
    broker.pass_time(BACKOFF_MS)
    broker.settle()
    assert log.cleaned_upto > 0
    return log.size_bytes


def test_offsets_survive_compactions_and_restarts(broker: DirectBroker) -> None:
    client = TransactionalClient(broker.cluster)
    client.init()
    for number in range(120):
        commit(broker, f"g{number % 3}", number)
        if number % 4 == 0:
            client.send_offset(T, 1000 + number, group="transactional")
            client.end(committed=number % 8 == 0)
            broker.pass_time(100)
        if number % 40 == 39:
            clean(broker, OFFSETS)
            broker.restart(clean=number != 79)
            broker.settle()
            broker.pass_time(1000)
            for group in range(3):
                last = max(each for each in range(number + 1) if each % 3 == group)
                assert committed(broker, f"g{group}") == last
            assert committed(broker, "transactional") == 1000 + number // 8 * 8


def test_the_offsets_topic_stays_small(broker: DirectBroker) -> None:
    """Its size depends on the number of groups, not on that of commits."""
    sizes = []
    for number in range(600):
        commit(broker, f"g{number % 5}", number)
        if number % 100 == 99:
            sizes.append(clean(broker, OFFSETS))
    assert max(sizes) < 3 * sizes[0]
    assert [committed(broker, f"g{group}") for group in range(5)] == [595, 596, 597, 598, 599]


def test_a_transactional_id_survives_the_compaction_of_its_topic(broker: DirectBroker) -> None:
    client = TransactionalClient(broker.cluster)
    client.init()
    for number in range(30):
        client.write(T, b"%d" % number)
        client.end(committed=number % 3 > 0)
        broker.pass_time(100)
    before = client.producer
    size = clean(broker, TRANSACTIONS)
    assert size < 2000
    broker.restart()
    broker.settle()
    assert client.write(T, b"later") == ErrorCode.NONE
    assert client.end(committed=True) == ErrorCode.NONE
    broker.pass_time(100)
    assert client.init() == ErrorCode.NONE
    assert client.producer.producer_id == before.producer_id
    assert client.producer.producer_epoch == before.producer_epoch + 1
