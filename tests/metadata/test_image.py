"""Only replay changes the image, and an impossible record is an invariant violation."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raylog.core.errors import InvariantViolation
from raylog.core.ids import BrokerId, LeaderEpoch, Offset, ProducerId, TopicPartition
from raylog.metadata.image import MetadataImage
from raylog.metadata.records import (
    BrokerFenced,
    BrokerUnfenced,
    ControlledShutdownBegun,
    LeaderChanged,
    MetadataRecord,
    PartitionCreated,
    ProducerIdsAllocated,
    ReplicasChanged,
    TopicCreated,
    TopicDeleted,
)
from tests.controller.metadata import ID, OTHER_ID, create, image_of, registered

ZERO = BrokerId(0)


@pytest.fixture
def image() -> MetadataImage:
    image = image_of(0, 1)
    create(image)
    return image


@pytest.mark.parametrize(
    "impossible",
    [
        TopicCreated("t", OTHER_ID),
        TopicDeleted(OTHER_ID),
        PartitionCreated(ID, 5, (ZERO,), ZERO, LeaderEpoch(0)),
        PartitionCreated(OTHER_ID, 0, (ZERO,), ZERO, LeaderEpoch(0)),
        LeaderChanged(ID, 0, ZERO, LeaderEpoch(0)),
        ProducerIdsAllocated(ProducerId(0)),
        registered(0, epoch=10),
        registered(0, epoch=9),
        BrokerFenced(ZERO, 11),
        BrokerUnfenced(BrokerId(9), 10),
        ControlledShutdownBegun(ZERO, 11, Offset(40)),
    ],
)
def test_an_impossible_record_is_an_invariant_violation(image: MetadataImage, impossible: MetadataRecord) -> None:
    with pytest.raises(InvariantViolation):
        image.replay(impossible)


def test_partitions_are_found_by_name_and_by_broker(image: MetadataImage) -> None:
    first = image.partition(TopicPartition("t", 0))
    assert first is not None
    assert first.replicas == (ZERO,)
    assert image.partition(TopicPartition("t", 2)) is None
    assert image.partition(TopicPartition("t", -1)) is None
    assert image.partition(TopicPartition("u", 0)) is None
    assert list(image.partitions_on(ZERO)) == [(TopicPartition("t", 0), ID, first)]


def test_a_registered_broker_is_fenced_until_it_is_unfenced(image: MetadataImage) -> None:
    image.replay(registered(0, epoch=30, incarnation=5))
    assert image.alive == {BrokerId(1)}
    image.replay(BrokerUnfenced(ZERO, 30))
    assert image.alive == {ZERO, BrokerId(1)}


class Counted(RuleBasedStateMachine):
    """What the image counts as records come in, against a count of the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.image = image_of(0, 1, 2)
        self.created = 0

    @rule(partitions=st.integers(1, 4), replicas=st.integers(1, 3), dotted=st.booleans())
    def create_topic(self, partitions: int, replicas: int, dotted: bool) -> None:
        self.created += 1
        name = f"t{'.' if dotted else '_'}{self.created}"
        topic_id = UUID(int=self.created)
        create(self.image, name, topic_id=topic_id, num_partitions=partitions, replication_factor=replicas)

    @rule(data=st.data())
    @precondition(lambda self: self.image.topics)
    def delete_topic(self, data: st.DataObject) -> None:
        topic = data.draw(st.sampled_from(sorted(self.image.topics)))
        self.image.replay(TopicDeleted(self.image.topics[topic].topic_id))

    @rule(data=st.data())
    @precondition(lambda self: self.image.topics)
    def reassign(self, data: st.DataObject) -> None:
        topic = self.image.topics[data.draw(st.sampled_from(sorted(self.image.topics)))]
        partition = data.draw(st.sampled_from(topic.partitions))
        brokers = data.draw(st.lists(st.sampled_from(sorted(self.image.brokers)), min_size=1, unique=True))
        replicas = tuple(brokers)
        epoch = LeaderEpoch(partition.leader_epoch + 1)
        number = partition.partition
        self.image.replay(ReplicasChanged(topic.topic_id, number, replicas, (), (), replicas, replicas[0], epoch))

    @rule()
    def copy(self) -> None:
        self.image = self.image.copy()

    @invariant()
    def counts_are_those_of_the_whole(self) -> None:
        partitions = [partition for topic in self.image.topics.values() for partition in topic.partitions]
        assert self.image.partition_count == len(partitions)
        held = Counter(replica for partition in partitions for replica in partition.replicas)
        assert {replica: count for replica, count in self.image.replica_counts.items() if count} == held
        assert self.image.names_by_metric == {name.replace(".", "_"): name for name in self.image.topics}


TestCounts = Counted.TestCase
