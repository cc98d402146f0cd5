"""A failed or missing log directory of a broker takes only its replicas out of the ISRs (KIP-858)."""

from __future__ import annotations

from uuid import UUID

import pytest

from raylog.controller import brokers, isr, reassignments, topics
from raylog.controller.elections import ElectionType, elect_leaders
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, ZERO_TOPIC_ID, BrokerId, TopicPartition
from raylog.metadata.image import MetadataImage
from raylog.metadata.levels import LATEST_LEVEL, METADATA_FEATURE
from raylog.metadata.records import FeatureLevelChanged, MetadataRecord, ReplicasAssignedToDirectory
from raylog.metadata.snapshot import records_of
from tests.controller.metadata import ID, OTHER_ID, carry_out, create

ZERO, ONE = BrokerId(0), BrokerId(1)
A, B, C, OTHERS = (UUID(int=number) for number in range(50, 54))
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def start(image: MetadataImage, broker_id: BrokerId, *directory_ids: UUID) -> list[MetadataRecord]:
    """Register a new incarnation with these directories, and unfence it. Returns the records of the registration."""
    epoch = sum(broker.registration.broker_epoch for broker in image.brokers.values()) + 1
    outcome = brokers.register_broker(
        image,
        broker_id,
        incarnation_id=UUID(int=1000 + epoch),
        endpoints=(("PLAINTEXT", "h", 1),),
        rack=None,
        directory_ids=directory_ids,
        features=((METADATA_FEATURE, 1, LATEST_LEVEL),),
        broker_epoch=epoch,
        predecessor_alive=False,
    )
    carry_out(image, outcome)
    carry_out(image, brokers.unfence_broker(image, broker_id))
    return list(outcome.records)


def assign(image: MetadataImage, broker_id: BrokerId, directory_id: UUID, *partitions: int) -> list[MetadataRecord]:
    wanted = [(directory_id, ID, number) for number in partitions]
    outcome = brokers.assign_replicas(image, broker_id, wanted)
    assert set(carry_out(image, outcome).values()) <= {ErrorCode.NONE}
    return list(outcome.records)


def fail(image: MetadataImage, broker_id: BrokerId, *directory_ids: UUID) -> None:
    carry_out(image, brokers.fail_directories(image, broker_id, directory_ids))


def state(image: MetadataImage, tp: TopicPartition) -> tuple[BrokerId, set[BrokerId]]:
    """Leader and ISR."""
    shown = image.partition(tp)
    assert shown is not None
    return shown.leader, set(shown.isr)


@pytest.fixture
def image() -> MetadataImage:
    """Both brokers have replicas of t-0 and t-1. Broker 0 leads them, and has t-0 in A and t-1 in B."""
    image = MetadataImage()
    image.replay(FeatureLevelChanged(METADATA_FEATURE, LATEST_LEVEL))
    start(image, ZERO, A, B)
    start(image, ONE, OTHERS)
    create(image, num_partitions=2, assignments=[[0, 1], [0, 1]], replication_factor=2)
    assign(image, ZERO, A, 0)
    assign(image, ZERO, B, 1)
    return image


def alone(image: MetadataImage) -> None:
    """Only broker 0 is in sync."""
    for number in (0, 1):
        shown = image.topics["t"].partitions[number]
        epochs = {"leader_epoch": shown.leader_epoch, "partition_epoch": shown.partition_epoch}
        carry_out(image, isr.alter_partition(image, ZERO, ID, number, isr=[(ZERO, 1)], **epochs))


def test_only_the_replicas_of_a_failed_directory_leave_the_isr(image: MetadataImage) -> None:
    fail(image, ZERO, A)
    assert state(image, T0) == (ONE, {ONE})
    assert state(image, T1) == (ZERO, {ZERO, ONE})
    assert image.brokers[ZERO].registration.log_dirs == (B,)
    assert image.brokers[ZERO].active
    assert brokers.fail_directories(image, ZERO, [A]).records == (), "known"


def test_a_replica_in_a_failed_directory_cannot_join_the_isr(image: MetadataImage) -> None:
    fail(image, ZERO, A)
    shown = image.topics["t"].partitions[0]
    with pytest.raises(KafkaError) as refused:
        isr.alter_partition(
            image,
            ONE,
            ID,
            0,
            leader_epoch=shown.leader_epoch,
            partition_epoch=shown.partition_epoch,
            isr=[(ZERO, image.brokers[ZERO].registration.broker_epoch), (ONE, -1)],
        )
    assert refused.value.code == ErrorCode.INELIGIBLE_REPLICA


def test_a_replica_in_a_failed_directory_is_not_elected(image: MetadataImage) -> None:
    fail(image, ZERO, A)
    for election_type in ElectionType:
        results = carry_out(image, elect_leaders(image, [T0, T1], election_type))
        assert results[T0] in (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELECTION_NOT_NEEDED)
    carry_out(image, brokers.fence_broker(image, ONE))
    assert state(image, T0) == (NO_BROKER_ID, {ONE})
    assert state(image, T1) == (ZERO, {ZERO})
    results = carry_out(image, elect_leaders(image, [T0], ElectionType.UNCLEAN))
    assert results[T0] == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_the_last_in_sync_replica_leads_again_when_its_directory_is_back(image: MetadataImage) -> None:
    alone(image)
    fail(image, ZERO, A)
    assert state(image, T0) == (NO_BROKER_ID, {ZERO})
    start(image, ZERO, B)
    assert state(image, T0) == (NO_BROKER_ID, {ZERO})
    assert state(image, T1) == (ZERO, {ZERO})
    start(image, ZERO, A, B)
    assert state(image, T0) == (ZERO, {ZERO})


def test_a_missing_directory_takes_its_replicas_out_of_the_isr_with_the_registration(image: MetadataImage) -> None:
    records = start(image, ZERO, B)
    assert state(image, T0) == (ONE, {ONE})
    assert {record.partition for record in records[1:]} == {0, 1}  # type: ignore[union-attr]


@pytest.mark.parametrize("unclean", [False, True])
def test_a_lost_replica_that_was_alone_in_sync_needs_an_unclean_election(
    image: MetadataImage, *, unclean: bool
) -> None:
    """It was created anew, in C, and is empty."""
    alone(image)
    start(image, ZERO, B, C)
    assert state(image, T0) == (NO_BROKER_ID, {ZERO})
    wanted = [(C, ID, 0)]
    carry_out(image, brokers.assign_replicas(image, ZERO, wanted, allows_unclean=lambda _: unclean))
    assert state(image, T0) == ((ONE, {ONE}) if unclean else (NO_BROKER_ID, set()))
    start(image, ZERO, B, C)
    assert state(image, T0)[0] == (ONE if unclean else NO_BROKER_ID)
    if not unclean:
        assert carry_out(image, elect_leaders(image, [T0], ElectionType.PREFERRED))[T0] != ErrorCode.NONE
        assert carry_out(image, elect_leaders(image, [T0], ElectionType.UNCLEAN))[T0] == ErrorCode.NONE
        assert state(image, T0) == (ONE, {ONE}), "which is not empty"


def test_a_broker_that_has_lost_its_only_directory_was_in_sync_alone(image: MetadataImage) -> None:
    """Broker 1 never reported the directory of its replicas, since it had one only."""
    fail(image, ZERO, A, B)
    assert state(image, T0) == state(image, T1) == (ONE, {ONE})
    start(image, ONE, C)
    assert state(image, T0) == state(image, T1) == (NO_BROKER_ID, set())


def test_moving_a_replica_changes_nothing_else(image: MetadataImage) -> None:
    assert assign(image, ZERO, B, 0) == [ReplicasAssignedToDirectory(ZERO, B, ((ID, 0),))]
    assert assign(image, ZERO, B, 0) == []
    fail(image, ZERO, A)
    assert state(image, T0) == (ZERO, {ZERO, ONE})


def test_a_replica_that_is_assigned_to_a_directory_after_its_failure_leaves_the_isr(image: MetadataImage) -> None:
    create(image, "late", topic_id=OTHER_ID, num_partitions=1, assignments=[[0, 1]], replication_factor=2)
    fail(image, ZERO, B)
    carry_out(image, brokers.assign_replicas(image, ZERO, [(B, OTHER_ID, 0)]))
    assert state(image, TopicPartition("late", 0)) == (ONE, {ONE})


def test_assignments_are_checked(image: MetadataImage) -> None:
    create(image, "else", topic_id=OTHER_ID, num_partitions=1, assignments=[[1]], replication_factor=1)
    wanted = {
        (A, ZERO_TOPIC_ID, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        (A, ID, 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (A, OTHER_ID, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        (A, ID, 0): ErrorCode.NONE,
    }
    outcome = brokers.assign_replicas(image, ZERO, list(wanted))
    assert (outcome.response, outcome.records) == (wanted, [])


def test_a_partition_without_isr_can_be_reassigned(image: MetadataImage) -> None:
    alone(image)
    start(image, ZERO, B, C)
    assign(image, ZERO, C, 0)
    carry_out(image, reassignments.reassign(image, T0, [1]))
    assert state(image, T0) == (NO_BROKER_ID, set())
    carry_out(image, reassignments.cancel(image, T0))
    assert state(image, T0) == (NO_BROKER_ID, set())


def test_directories_of_deleted_and_moved_replicas_are_forgotten(image: MetadataImage) -> None:
    carry_out(image, reassignments.reassign(image, T0, [1]))
    assert image.directory_of(ZERO, ID, 0) is None
    assert image.directory_of(ZERO, ID, 1) == B
    carry_out(image, topics.delete_topic(image, "t"))
    assert image.replica_directories == {}


def test_a_snapshot_holds_the_directories(image: MetadataImage) -> None:
    fail(image, ZERO, A)
    again = MetadataImage()
    for record in records_of(image):
        again.replay(record)
    assert vars(again) == vars(image)
    assert vars(image.copy()) == vars(image)


def test_several_directories_need_their_metadata_level() -> None:
    image = MetadataImage()
    start(image, ZERO, A)
    with pytest.raises(KafkaError, match="needs metadata level") as refused:
        start(image, ZERO, A, B)
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
