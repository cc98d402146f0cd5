"""Commands on topics refuse with Kafka's codes before the first record; replay alone changes the image."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.controller import brokers, records, topics
from raylog.controller.image import MetadataImage
from raylog.controller.records import (
    BrokerRegistered,
    LeaderChanged,
    MetadataRecord,
    PartitionCreated,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import BrokerId, LeaderEpoch, ProducerId

ID = UUID(int=7)
OTHER_ID = UUID(int=8)


@pytest.fixture
def image() -> MetadataImage:
    fresh = MetadataImage()
    fresh.replay(BrokerRegistered(BrokerId(0), UUID(int=1), "h", 9092))
    return fresh


def create(image: MetadataImage, topic: str = "t", **more: object) -> list[MetadataRecord]:
    options = {"topic_id": ID, "num_partitions": 2, "replication_factor": 1, **more}
    outcome = topics.create_topic(image, topic, **options)  # type: ignore[arg-type]
    for record in outcome.records:
        image.replay(record)
    return list(outcome.records)


def test_create_gives_the_records_of_topic_and_partitions(image: MetadataImage) -> None:
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
def test_refusals_leave_no_trace(image: MetadataImage, topic: str, more: dict[str, object], code: ErrorCode) -> None:
    create(image, "a_b", topic_id=OTHER_ID)
    with pytest.raises(KafkaError) as refused:
        create(image, topic, **more)
    assert refused.value.code == code
    assert set(image.topics) == {"a_b"}


def test_growing(image: MetadataImage) -> None:
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


def test_deleting_remembers_the_id(image: MetadataImage) -> None:
    create(image)
    for record in topics.delete_topic(image, "t").records:
        image.replay(record)
    assert image.topics == {}
    assert image.deleted_topic_ids == {ID}
    with pytest.raises(KafkaError):
        topics.delete_topic(image, "t")


def test_each_registration_moves_the_epochs_of_what_the_broker_leads(image: MetadataImage) -> None:
    create(image)
    outcome = brokers.register_broker(image, BrokerId(0), incarnation_id=UUID(int=2), host="h", port=1)
    assert outcome.records[1:] == [LeaderChanged(ID, number, BrokerId(0), LeaderEpoch(1)) for number in range(2)]


def test_producer_ids_are_never_given_twice(image: MetadataImage) -> None:
    given_out: list[int] = []
    for _ in range(3):
        outcome = brokers.allocate_producer_ids(image)
        given_out += outcome.response
        for record in outcome.records:
            image.replay(record)
    assert len(set(given_out)) == len(given_out) == 3 * brokers.PRODUCER_ID_BLOCK


@pytest.mark.parametrize(
    "impossible",
    [
        TopicCreated("t", OTHER_ID),
        TopicDeleted(OTHER_ID),
        PartitionCreated(ID, 5, (BrokerId(0),), BrokerId(0), LeaderEpoch(0)),
        LeaderChanged(ID, 0, BrokerId(0), LeaderEpoch(0)),
        ProducerIdsAllocated(ProducerId(0)),
    ],
)
def test_a_record_that_does_not_follow_is_a_violation(image: MetadataImage, impossible: MetadataRecord) -> None:
    create(image)
    with pytest.raises(InvariantViolation):
        image.replay(impossible)


_ids = st.uuids()
_records = st.one_of(
    st.builds(TopicCreated, st.text(), _ids, st.lists(st.tuples(st.text(), st.text())).map(tuple)),
    st.builds(TopicDeleted, _ids),
    st.builds(
        PartitionCreated,
        _ids,
        st.integers(0, 9),
        st.lists(st.integers(0, 9)).map(tuple),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    st.builds(LeaderChanged, _ids, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    st.builds(BrokerRegistered, st.integers(0, 9), _ids, st.text(), st.integers(0, 65535), st.none() | st.text()),
    st.builds(ProducerIdsAllocated, st.integers(0, 1 << 60)),
)


@given(_records)
def test_records_survive_the_log(record: MetadataRecord) -> None:
    assert records.decode(records.encode(record)) == record


@given(st.binary(max_size=60))
def test_garbage_in_the_metadata_log_is_not_guessed_at(value: bytes) -> None:
    try:
        record = records.decode(value)
    except InvariantViolation:
        return
    assert records.encode(record)
