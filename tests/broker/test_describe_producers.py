"""DescribeProducers returns the producer state of the partition's log."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.logstore.batches import batch, marker
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster, DirectMember

THEN = 1_700_000_000_000
NO_COORDINATOR_EPOCH = -1


@pytest.fixture
def broker() -> DirectBroker:
    broker = DirectBroker()
    broker.create_topic("t", partitions=2)
    return broker


def ask(member: DirectMember, topic: str, *partitions: int) -> list[Any]:
    wanted = TopicRequest(name=topic, partition_indexes=partitions)
    (answer,) = member.call(DescribeProducersRequest(topics=(wanted,))).topics
    assert answer.name == topic
    assert [each.partition_index for each in answer.partitions] == list(partitions)
    return list(answer.partitions)


def producers(member: DirectMember, topic: str = "t", partition: int = 0) -> list[tuple[int, ...]]:
    """(id, epoch, last sequence, last timestamp, coordinator epoch, where its open transaction begins)."""
    (answer,) = ask(member, topic, partition)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    return [
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in answer.active_producers
    ]


def write(broker: DirectBroker, batch: bytearray) -> None:
    """As a coordinator writes, who may write markers too."""
    partition = broker.broker.partition(TopicPartition("t", 0))
    partition.append_as_leader(memoryview(batch), now_ms=broker.now().wall_ms, from_client=False)


def refusal(member: DirectMember, topic: str, partition: int = 0) -> ErrorCode:
    (answer,) = ask(member, topic, partition)
    assert answer.active_producers == ()
    assert answer.error_message
    code: ErrorCode = answer.error_code
    return code


class TestProducers:
    def test_each_has_its_epoch_and_last_batch(self, broker: DirectBroker) -> None:
        write(broker, batch(b"a", b"b", producer=(7, 0, 0), timestamp_ms=THEN))
        write(broker, batch(b"c", producer=(7, 0, 2), timestamp_ms=THEN + 5))
        write(broker, batch(b"d", producer=(9, 3, 0), timestamp_ms=THEN + 1))
        assert producers(broker) == [
            (7, 0, 2, THEN + 5, NO_COORDINATOR_EPOCH, -1),
            (9, 3, 0, THEN + 1, NO_COORDINATOR_EPOCH, -1),
        ]
        assert producers(broker, partition=1) == []

    def test_a_producer_without_an_id_has_no_state(self, broker: DirectBroker) -> None:
        broker.produce([b"a"])
        assert producers(broker) == []

    def test_an_open_transaction_has_its_start_offset(self, broker: DirectBroker) -> None:
        broker.produce([b"before"])
        write(broker, batch(b"a", b"b", producer=(7, 0, 0), transactional=True, timestamp_ms=THEN))
        write(broker, batch(b"c", producer=(7, 0, 2), transactional=True, timestamp_ms=THEN))
        assert producers(broker) == [(7, 0, 2, THEN, NO_COORDINATOR_EPOCH, 1)]
        write(broker, marker(7, committed=True, coordinator_epoch=4))
        assert producers(broker) == [(7, 0, 2, THEN, 4, -1)]

    def test_a_new_epoch_that_wrote_only_its_marker(self, broker: DirectBroker) -> None:
        write(broker, batch(b"a", producer=(7, 0, 0), transactional=True, timestamp_ms=THEN))
        write(broker, marker(7, committed=False, producer_epoch=1, coordinator_epoch=4))
        assert producers(broker) == [(7, 1, -1, -1, 4, -1)]

    @pytest.mark.parametrize("clean", [True, False])
    def test_the_state_survives_a_restart(self, broker: DirectBroker, clean: bool) -> None:
        write(broker, batch(b"a", producer=(7, 2, 0), transactional=True, timestamp_ms=THEN))
        before = producers(broker)
        broker.restart(clean=clean)
        assert producers(broker) == before == [(7, 2, 0, THEN, NO_COORDINATOR_EPOCH, 0)]

    def test_a_follower_returns_the_state_of_its_own_log(self) -> None:
        cluster = DirectCluster(2)
        cluster.create_topic("t", on=[1])
        second = cluster.brokers[1]
        second.produce([b"x"], producer_id=7, producer_epoch=0, base_sequence=0)
        second.links.held = [second.broker.lifecycle.link]  # it learns that it was fenced, and cannot register again
        cluster.pass_time(10_000)
        assert second.produce([b"x"]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [each[:3] for each in producers(second)] == [(7, 0, 0)]


class TestErrors:
    def test_unknown_partition(self, broker: DirectBroker) -> None:
        assert refusal(broker, "none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refusal(broker, "t", 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refusal(broker, "t", -1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refusal(broker, "no such name") == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_partition_of_another_broker(self) -> None:
        cluster = DirectCluster(2)
        cluster.create_topic("t", partitions=2, on=[0, 1])
        codes = [answer.error_code for answer in ask(cluster.brokers[0], "t", 0, 1)]
        assert codes == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]

    def test_partition_on_a_failed_disk(self, broker: DirectBroker) -> None:
        broker.broker.partition(TopicPartition("t", 0)).log.take_offline("for the test")
        del broker.broker.partitions[TopicPartition("t", 1)]
        assert refusal(broker, "t", 0) == ErrorCode.KAFKA_STORAGE_ERROR
        assert refusal(broker, "t", 1) == ErrorCode.KAFKA_STORAGE_ERROR
