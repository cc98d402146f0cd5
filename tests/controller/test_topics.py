"""Invalid commands on topics get Kafka's codes and write no record; partitions are spread over live brokers."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest

from raylog.controller import topics
from raylog.controller.reassignments import reassign
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, LeaderEpoch, TopicPartition
from raylog.metadata.image import MetadataImage
from raylog.metadata.records import BrokerFenced, PartitionCreated, TopicCreated
from tests.controller.metadata import ID, OTHER_ID, create, image_of, replay


@pytest.fixture
def image() -> MetadataImage:
    return image_of(0)


def holders(image: MetadataImage, topic: str) -> list[int]:
    """The broker that holds each partition; there is one replica of each."""
    return [partition.replicas[0] for partition in image.topics[topic].partitions]


def test_create_returns_the_records_of_topic_and_partitions(image: MetadataImage) -> None:
    assert create(image, configs={"b": "2", "a": "1"}) == [
        TopicCreated("t", ID, (("a", "1"), ("b", "2"))),
        PartitionCreated(ID, 0, (BrokerId(0),), BrokerId(0), LeaderEpoch(0)),
        PartitionCreated(ID, 1, (BrokerId(0),), BrokerId(0), LeaderEpoch(0)),
    ]
    assert len(image.topics["t"].partitions) == 2


@pytest.mark.parametrize(
    ("topic", "more", "code"),
    [
        ("", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a/b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("ä", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__cluster_metadata", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a.b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a_b", {}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("t", {"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ("t", {"num_partitions": 1 << 30}, ErrorCode.POLICY_VIOLATION),
        ("t", {"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("t", {"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("t", {"assignments": [[5]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", {"assignments": [[0, 0]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", {"assignments": [[]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_errors_leave_no_trace(image: MetadataImage, topic: str, more: dict[str, object], code: ErrorCode) -> None:
    create(image, "a_b", topic_id=OTHER_ID)
    with pytest.raises(KafkaError) as refused:
        create(image, topic, **more)
    assert refused.value.code == code
    assert set(image.topics) == {"a_b"}


def test_the_number_of_replicas_is_as_requested() -> None:
    image = image_of(0, 1)
    create(image, num_partitions=2, replication_factor=2)
    assert [partition.replicas for partition in image.topics["t"].partitions] == [(0, 1), (1, 0)]
    assert [partition.leader for partition in image.topics["t"].partitions] == [0, 1]
    create(image, "other", topic_id=OTHER_ID, assignments=[[1, 0]])
    [partition] = image.topics["other"].partitions
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 0), (1, 0), 1)


def test_a_fenced_replica_is_not_in_the_isr() -> None:
    image = image_of(0, 1)
    image.replay(BrokerFenced(BrokerId(1), 20))
    create(image, assignments=[[1, 0]])
    [partition] = image.topics["t"].partitions
    assert (partition.isr, partition.leader) == ((0,), 0)


def test_partitions_start_at_the_broker_with_the_fewest_replicas() -> None:
    image = image_of(0, 1, 2)
    create(image, "first", num_partitions=4)
    assert holders(image, "first") == [0, 1, 2, 0]
    create(image, "second", topic_id=OTHER_ID, num_partitions=3)
    assert holders(image, "second") == [1, 2, 0]
    replay(image, topics.create_partitions(image, "second", total_count=5).records)
    held = Counter(holders(image, "first") + holders(image, "second"))
    assert held == {0: 3, 1: 3, 2: 3}


def test_a_fenced_broker_gets_replicas_only_if_assigned_or_needed() -> None:
    image = image_of(0, 1)
    image.replay(BrokerFenced(BrokerId(0), 10))
    create(image, "spread", num_partitions=2)
    assert holders(image, "spread") == [1, 1]
    create(image, "named", topic_id=OTHER_ID, assignments=[[0, 1], [1, 0]])
    assert [partition.leader for partition in image.topics["named"].partitions] == [1, 1]
    create(image, "needed", topic_id=UUID(int=9), replication_factor=2)
    assert [(each.replicas, each.isr) for each in image.topics["needed"].partitions] == [((1, 0), (1,))] * 2


@pytest.mark.parametrize(
    "assignments",
    [
        pytest.param([[0, 1], [1]], id="not as many everywhere"),
        pytest.param([[1, 2], [0]], id="nor here"),
        pytest.param([[1], [2]], id="one without a living broker"),
    ],
)
def test_invalid_assignments_are_refused(assignments: list[list[int]]) -> None:
    image = image_of(0, 1, 2)
    image.replay(BrokerFenced(BrokerId(2), 30))
    with pytest.raises(KafkaError) as refused:
        create(image, assignments=assignments)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    create(image, assignments=[[0]])
    with pytest.raises(KafkaError) as refused:
        topics.create_partitions(image, "t", total_count=1 + len(assignments), assignments=assignments)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_partitions_added_during_a_reassignment_have_the_replication_factor_of_the_topic() -> None:
    image = image_of(0, 1, 2)
    create(image, assignments=[[0, 1]])
    replay(image, reassign(image, TopicPartition("t", 0), [2, 1]).records)
    assert image.topics["t"].partitions[0].replicas == (2, 1, 0)
    replay(image, topics.create_partitions(image, "t", total_count=2).records)
    assert len(image.topics["t"].partitions[1].replicas) == 2
    replay(image, topics.create_partitions(image, "t", total_count=3, assignments=[[0, 2]]).records)


def test_without_a_live_broker_no_topic_is_created() -> None:
    with pytest.raises(KafkaError, match=r"the cluster has 0 broker\(s\)"):
        create(image_of())


def test_create_partitions(image: MetadataImage) -> None:
    create(image)
    outcome = topics.create_partitions(image, "t", total_count=3)
    assert outcome.records == [PartitionCreated(ID, 2, (BrokerId(0),), BrokerId(0), LeaderEpoch(0))]
    for total_count in (2, 1, 0):
        with pytest.raises(KafkaError) as refused:
            topics.create_partitions(image, "t", total_count=total_count)
        assert refused.value.code == ErrorCode.INVALID_PARTITIONS
    with pytest.raises(KafkaError) as refused:
        topics.create_partitions(image, "t", total_count=4, assignments=[[0]])
    assert refused.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_deleted_topics_id_and_name_are_kept(image: MetadataImage) -> None:
    create(image)
    replay(image, topics.delete_topic(image, "t").records)
    assert image.topics == image.topics_by_id == {}
    assert image.deleted_topics == {ID: "t"}
    with pytest.raises(KafkaError):
        topics.delete_topic(image, "t")
    with pytest.raises(ValueError, match="already exists"):
        create(image)
