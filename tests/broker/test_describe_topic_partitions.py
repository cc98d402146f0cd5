"""DescribeTopicPartitions returns topics in order, in pages; its cursor neither skips nor repeats a partition."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.core.errors import ErrorCode
from raylog.core.ids import ZERO_TOPIC_ID, TopicPartition
from raylog.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from tests.broker.test_large_topics import HeldJobs
from tests.support.direct_broker import DirectBroker
from tests.support.direct_cluster import DirectCluster, DirectMember

ALL_TOPIC_OPERATIONS = 0b1101_1111_1000
"""Bits of Kafka's AclOperation: read, write, create, delete, alter, describe, describe and alter configs."""


@pytest.fixture
def broker() -> DirectBroker:
    """Topics a, b and c of three, one and two partitions, not made in this order."""
    broker = DirectBroker()
    for topic, partitions in (("c", 2), ("a", 3), ("b", 1)):
        broker.create_topic(topic, partitions=partitions)
    return broker


ALL = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]


def ask(member: DirectMember, *topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    return member.call(
        DescribeTopicPartitionsRequest(
            topics=tuple(TopicRequest(name=topic) for topic in topics),
            response_partition_limit=limit,
            cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
    )


def partitions_in(answer: Any) -> list[tuple[str, int]]:
    return [(topic.name, each.partition_index) for topic in answer.topics for each in topic.partitions]


def cursor_of(answer: Any) -> tuple[str, int] | None:
    return None if answer.next_cursor is None else (answer.next_cursor.topic_name, answer.next_cursor.partition_index)


def page(*arguments: Any, **more: Any) -> tuple[list[tuple[str, int]], tuple[str, int] | None]:
    answer = ask(*arguments, **more)
    return partitions_in(answer), cursor_of(answer)


class TestTopics:
    def test_all_topics_are_returned_in_name_order(self, broker: DirectBroker) -> None:
        assert page(broker) == (ALL, None)
        assert page(broker, "c", "a", "c") == (ALL[:3] + ALL[4:], None)

    def test_a_topic_with_all_its_partitions(self) -> None:
        cluster = DirectCluster(2)
        topic_id = cluster.create_topic("t", partitions=2, on=[0, 1])
        for member in cluster.brokers:
            (topic,) = ask(member, "t").topics
            assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.NONE, "t", topic_id)
            assert (topic.is_internal, topic.topic_authorized_operations) == (False, ALL_TOPIC_OPERATIONS)
            assert [
                (each.error_code, each.leader_id, each.leader_epoch, each.replica_nodes, each.isr_nodes)
                for each in topic.partitions
            ] == [(ErrorCode.NONE, 0, 0, (0,), (0,)), (ErrorCode.NONE, 1, 0, (1,), (1,))]
            for each in topic.partitions:
                assert (each.eligible_leader_replicas, each.last_known_elr, each.offline_replicas) == ((), (), ())

    def test_unknown_topics_are_returned_with_an_error_and_not_created(self, broker: DirectBroker) -> None:
        answer = ask(broker, "b", "aa", "no such name", "__consumer_offsets")
        assert [(topic.name, topic.error_code, topic.is_internal) for topic in answer.topics] == [
            ("__consumer_offsets", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
            ("aa", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
            ("b", ErrorCode.NONE, False),
            ("no such name", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
        ]
        assert [topic.topic_id == ZERO_TOPIC_ID for topic in answer.topics] == [True, True, False, True]
        assert partitions_in(answer) == [("b", 0)]
        assert ask(broker, "aa").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_internal_topics_are_marked(self) -> None:
        broker = DirectBroker()
        broker.create_topic("__consumer_offsets")
        assert ask(broker).topics[0].is_internal

    def test_a_partition_of_a_fenced_broker_has_no_leader_and_no_error(self) -> None:
        cluster = DirectCluster(2)
        cluster.create_topic("t", partitions=2, on=[0, 1])
        cluster.brokers[1].stop()
        assert [
            (each.error_code, each.leader_id, each.replica_nodes, each.isr_nodes, each.offline_replicas)
            for each in ask(cluster.brokers[0], "t").topics[0].partitions
        ] == [(ErrorCode.NONE, 0, (0,), (0,), ()), (ErrorCode.NONE, -1, (1,), (1,), (1,))]

    def test_a_partition_that_is_being_opened_has_its_leader(
        self, broker: DirectBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in Kafka: a topic that was just created is described with leaders by every broker."""
        held = HeldJobs(broker, monkeypatch)
        broker.create_topic("new")
        assert TopicPartition("new", 0) not in broker.broker.partitions
        assert ask(broker, "new").topics[0].partitions[0].leader_id == 0
        held.release()

    def test_a_partition_that_could_not_be_opened_has_no_leader(self, broker: DirectBroker) -> None:
        del broker.broker.partitions[TopicPartition("a", 1)]
        seen = [(each.leader_id, each.offline_replicas) for each in ask(broker, "a").topics[0].partitions]
        assert seen == [(0, ()), (-1, (0,)), (0, ())]


class TestPages:
    @pytest.mark.parametrize("limit", range(1, 8))
    @pytest.mark.parametrize("topics", [(), ("a", "b", "c"), ("c", "b", "a")])
    def test_all_pages_together_contain_every_partition_once(
        self, broker: DirectBroker, topics: tuple[str, ...], limit: int
    ) -> None:
        seen, cursor = page(broker, *topics, limit=limit)
        assert len(seen) == min(limit, len(ALL))
        while cursor is not None and len(seen) < len(ALL):
            more, cursor = page(broker, *topics, limit=limit, cursor=cursor)
            assert len(more) == limit or cursor is None
            seen += more
        assert (seen, cursor) == (ALL, None)

    def test_a_page_ends_within_a_topic_or_between_topics(self, broker: DirectBroker) -> None:
        assert page(broker, limit=2) == (ALL[:2], ("a", 2))
        assert page(broker, limit=3) == (ALL[:3], ("b", 0))
        assert page(broker, limit=4) == (ALL[:4], ("c", 0))
        assert page(broker, limit=6) == (ALL, None)

    def test_the_cursor_may_name_an_unknown_topic(self, broker: DirectBroker) -> None:
        assert page(broker, "a", "aa", limit=3) == (ALL[:3], ("aa", 0))
        answer = ask(broker, "a", "aa", "b", limit=1, cursor=("aa", 0))
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
        assert cursor_of(answer) is None

    def test_a_topic_deleted_between_pages_is_skipped(self, broker: DirectBroker) -> None:
        broker.cluster.delete_topic("b")
        assert page(broker, cursor=("b", 0)) == (ALL[4:], None)

    def test_a_cursor_past_the_last_partition_continues_with_the_next_topic(self, broker: DirectBroker) -> None:
        for index in (3, 100, (1 << 31) - 1):
            assert page(broker, limit=1, cursor=("a", index)) == ([("b", 0)], ("c", 0))

    def test_a_page_has_at_least_one_partition_and_at_most_the_limit(self) -> None:
        broker = DirectBroker({"max.request.partition.size.limit": "4"})
        broker.create_topic("t", partitions=6)
        assert [len(page(broker, limit=limit)[0]) for limit in (-1, 0, 1, 4, 5, 2000)] == [1, 1, 1, 4, 4, 4]


class TestErrors:
    @pytest.mark.parametrize("cursor", [("b", 0), ("a", -1)])
    def test_an_invalid_cursor_is_an_error_for_each_topic(self, broker: DirectBroker, cursor: tuple[str, int]) -> None:
        answer = ask(broker, "c", "a", cursor=cursor)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [
            ("c", ErrorCode.INVALID_REQUEST),
            ("a", ErrorCode.INVALID_REQUEST),
        ]
        assert page(broker, "c", "a", cursor=cursor) == ([], None)

    def test_a_negative_partition_is_refused_without_topics_too(self, broker: DirectBroker) -> None:
        assert ask(broker, cursor=("a", -1)).topics == ()
