"""A reassignment adds replicas before it removes others, and completes when all remaining ones are in sync."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raylog.controller import brokers
from raylog.controller.isr import alter_partition
from raylog.controller.reassignments import cancel, ongoing, reassign
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, Offset, TopicPartition
from raylog.core.outcome import Outcome
from raylog.metadata import records
from raylog.metadata.image import MetadataImage, PartitionImage
from raylog.metadata.records import BrokerUnregistered, IsrChanged, MetadataRecord, PartitionCreated, ReplicasChanged
from tests.controller.metadata import ID, OTHER_ID, carry_out, create, image_of, replay
from tests.support.forms import by_form

ZERO, ONE, TWO, THREE, FOUR = (BrokerId(number) for number in range(5))
TP = TopicPartition("t", 0)


@pytest.fixture
def image() -> MetadataImage:
    """Brokers 0 to 4, and t-0 on 0, 1 and 2."""
    image = image_of(0, 1, 2, 3, 4)
    create(image, assignments=[[0, 1, 2]])
    return image


def shown(image: MetadataImage) -> PartitionImage:
    partition = image.partition(TP)
    assert partition is not None
    return partition


def propose(image: MetadataImage, *isr: int) -> Outcome[PartitionImage, MetadataRecord]:
    """What its leader has the controller make of the ISR."""
    partition = shown(image)
    epochs = {broker_id: broker.registration.broker_epoch for broker_id, broker in image.brokers.items()}
    return alter_partition(
        image,
        partition.leader,
        ID,
        0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=[(BrokerId(one), epochs[BrokerId(one)]) for one in isr],
    )


def refusal(image: MetadataImage, wanted: list[int] | None, *, tp: TopicPartition = TP) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        cancel(image, tp) if wanted is None else reassign(image, tp, wanted)
    return caught.value.code


def test_new_replicas_are_added_first(image: MetadataImage) -> None:
    outcome = reassign(image, TP, [3, 1, 2])
    assert outcome.records == [
        ReplicasChanged(ID, 0, (THREE, ONE, TWO, ZERO), (THREE,), (ZERO,), (ZERO, ONE, TWO), ZERO, LeaderEpoch(0))
    ]
    carry_out(image, outcome)
    assert shown(image).partition_epoch == 1
    assert [one.topic_partition for one in ongoing(image, None)] == [TP]
    assert list(ongoing(image, [TopicPartition("t", 1), TopicPartition("u", 0)])) == []


def test_it_completes_when_all_target_replicas_are_in_sync(image: MetadataImage) -> None:
    carry_out(image, reassign(image, TP, [3, 1, 4]))
    half = propose(image, 0, 1, 2, 3)
    assert half.records == [IsrChanged(ID, 0, (THREE, ONE, ZERO, TWO))]
    carry_out(image, half)
    whole = propose(image, 0, 1, 2, 3, 4)
    assert whole.records == [
        ReplicasChanged(ID, 0, (THREE, ONE, FOUR), (), (), (THREE, ONE, FOUR), THREE, LeaderEpoch(1))
    ]
    assert carry_out(image, whole) == shown(image)
    assert (shown(image).former, list(ongoing(image, None))) == ((ZERO, TWO), [])


def test_the_leader_stays_if_it_is_a_target_replica(image: MetadataImage) -> None:
    carry_out(image, reassign(image, TP, [3, 0]))
    carry_out(image, propose(image, 0, 3))
    after = shown(image)
    assert (after.leader, after.leader_epoch, after.replicas) == (ZERO, 1, (THREE, ZERO))


def test_a_new_order_takes_effect_at_once_without_a_new_epoch(image: MetadataImage) -> None:
    carry_out(image, reassign(image, TP, [2, 0, 1]))
    after = shown(image)
    assert (after.replicas, after.leader, after.leader_epoch) == ((TWO, ZERO, ONE), ZERO, 0)
    assert not after.is_reassigning
    assert reassign(image, TP, [2, 0, 1]).records == []


def test_a_replica_is_removed_at_once_only_if_the_others_are_in_sync(image: MetadataImage) -> None:
    carry_out(image, propose(image, 0, 1))
    carry_out(image, reassign(image, TP, [2, 1]))
    assert shown(image).replicas == (TWO, ONE, ZERO), "2 lacks something"
    carry_out(image, reassign(image, TP, [1, 0]))
    after = shown(image)
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((ONE, ZERO), (ONE, ZERO), ZERO, 1)


def test_cancelling_restores_the_previous_replicas(image: MetadataImage) -> None:
    assert refusal(image, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    carry_out(image, reassign(image, TP, [3, 4, 0]))
    carry_out(image, propose(image, 0, 1, 2, 3))
    cancelled = cancel(image, TP)
    carry_out(image, cancelled)
    after = shown(image)
    assert (set(after.replicas), set(after.isr)) == ({ZERO, ONE, TWO}, {ZERO, ONE, TWO})
    assert (after.leader, after.leader_epoch, after.former) == (ZERO, 1, (THREE, FOUR))


def test_cancelling_after_two_replacements_restores_the_first_replicas(image: MetadataImage) -> None:
    carry_out(image, reassign(image, TP, [3, 1, 2]))
    carry_out(image, reassign(image, TP, [4, 1, 2]))
    replaced = shown(image)
    assert (replaced.replicas, replaced.adding, replaced.removing) == (
        (FOUR, ONE, TWO, ZERO, THREE),
        (THREE, FOUR),
        (ZERO, THREE),
    )
    carry_out(image, cancel(image, TP))
    assert set(shown(image).replicas) == {ZERO, ONE, TWO}


def test_the_last_in_sync_replica_is_not_removed_by_cancelling(image: MetadataImage) -> None:
    """None of the original replicas is in sync: only an unclean election could restore them."""
    create(image, "u", topic_id=OTHER_ID, assignments=[[0]])
    tp = TopicPartition("u", 0)
    carry_out(image, reassign(image, tp, [1, 2]))
    replay(image, [IsrChanged(OTHER_ID, 0, (ONE, ZERO))])
    carry_out(image, brokers.fence_broker(image, ZERO))
    assert refusal(image, None, tp=tp) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    carry_out(image, cancel(image, tp, lambda topic: topic.name == "u"))
    found = image.partition(tp)
    assert found is not None
    assert (found.replicas, found.isr, found.leader) == ((ZERO,), (ZERO,), NO_BROKER_ID)


def test_cancelling_with_unclean_elections_allowed_elects_a_live_replica(image: MetadataImage) -> None:
    create(image, "u", topic_id=OTHER_ID, assignments=[[0, 4]])
    tp = TopicPartition("u", 0)
    carry_out(image, reassign(image, tp, [1, 2]))
    replay(image, [IsrChanged(OTHER_ID, 0, (ONE,))])
    carry_out(image, brokers.fence_broker(image, ZERO))
    carry_out(image, cancel(image, tp, lambda _: True))
    found = image.partition(tp)
    assert found is not None
    assert (found.replicas, found.isr, found.leader) == ((ZERO, FOUR), (FOUR,), FOUR)


@pytest.mark.parametrize("wanted", [[], [0, 0], [0, 5], [-1]])
def test_invalid_replicas_are_refused(image: MetadataImage, wanted: list[int]) -> None:
    assert refusal(image, wanted) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_unknown_partitions_are_refused(image: MetadataImage) -> None:
    for tp in (TopicPartition("t", 1), TopicPartition("t", -1), TopicPartition("u", 0)):
        assert refusal(image, [0], tp=tp) is refusal(image, None, tp=tp) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_it_waits_for_a_broker_that_is_absent(image: MetadataImage) -> None:
    carry_out(image, brokers.fence_broker(image, THREE))
    carry_out(image, reassign(image, TP, [0, 1, 3]))
    assert shown(image).is_reassigning


def test_the_request_may_forbid_a_change_of_the_replication_factor(image: MetadataImage) -> None:
    def insist(wanted: list[int]) -> Outcome[None, MetadataRecord]:
        return reassign(image, TP, wanted, may_change_replication_factor=False)

    carry_out(image, insist([2, 3, 4]))
    carry_out(image, insist([1, 3, 4]))
    with pytest.raises(KafkaError) as caught:
        insist([3, 4])
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_an_impossible_record_is_an_invariant_violation(image: MetadataImage) -> None:
    for record in (
        ReplicasChanged(ID, 0, (ZERO, ONE), (), (), (ZERO, TWO), ZERO, LeaderEpoch(1)),
        ReplicasChanged(ID, 0, (ZERO, ONE), (), (), (ZERO, ONE), ZERO, LeaderEpoch(0)),
        ReplicasChanged(ID, 0, (ZERO, ONE, TWO), (), (), (ZERO,), ONE, LeaderEpoch(0)),
        ReplicasChanged(ID, 0, (ZERO, ONE, TWO), (), (), (), ZERO, LeaderEpoch(1)),
        BrokerUnregistered(ZERO, 11),
    ):
        with pytest.raises(InvariantViolation):
            image.replay(record)


class Moves(RuleBasedStateMachine):
    """One partition under everything that may happen to it, beside a model that knows what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.image = image_of(0, 1, 2, 3)
        self.log: list[MetadataRecord] = []
        create(self.image, assignments=[[0, 1]])
        self.origin = self.target = {0, 1}
        self.ever = {0, 1}
        self.before = shown(self.image)
        self.complete = {0, 1}
        """Who has every record that was ever acknowledged."""

    def _commit(self, outcome: Outcome[object, MetadataRecord]) -> None:
        self.before = shown(self.image)
        for record in outcome.records:
            [(_, decoded)] = records.decode_batches(records.batch_of([record], now_ms=0), from_offset=Offset(0))
            self.image.replay(decoded)
        self.ever |= set(shown(self.image).replicas)
        if not shown(self.image).is_reassigning:
            self.origin = self.target = set(shown(self.image).replicas)

    @rule(wanted=st.lists(st.integers(0, 3), min_size=1, unique=True))
    def reassign(self, wanted: list[int]) -> None:
        self.target = set(wanted)
        self._commit(reassign(self.image, TP, wanted))
        assert set(shown(self.image).replicas) >= set(wanted)
        assert shown(self.image).replicas[: len(wanted)] == tuple(wanted)

    @precondition(lambda self: shown(self.image).is_reassigning)
    @rule()
    def cancel(self) -> None:
        origin = self.origin
        if not set(shown(self.image).isr) & origin:
            assert refusal(self.image, None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
            return
        self._commit(cancel(self.image, TP))
        assert set(shown(self.image).replicas) == origin
        assert not shown(self.image).is_reassigning

    @precondition(lambda self: shown(self.image).leader != NO_BROKER_ID)
    @rule(chosen=st.sets(st.integers(0, 3)))
    def propose(self, chosen: set[int]) -> None:
        partition = shown(self.image)
        able = {one for one in partition.replicas if self.image.is_alive(one)} | set(partition.isr)
        isr = sorted(chosen & able | {partition.leader})
        self.complete |= set(isr)
        outcome = propose(self.image, *isr)
        self._commit(outcome)
        assert shown(self.image) == outcome.response
        self.complete = set(shown(self.image).isr)  # from now on others may lack something

    @rule(broker=st.integers(0, 3))
    def fence(self, broker: int) -> None:
        self._commit(brokers.fence_broker(self.image, BrokerId(broker)))

    @rule(broker=st.integers(0, 3))
    def unfence(self, broker: int) -> None:
        self._commit(brokers.unfence_broker(self.image, BrokerId(broker)))

    @invariant()
    def holds(self) -> None:
        before, after = self.before, shown(self.image)
        assert set(after.isr) <= set(after.replicas)
        assert set(after.isr) <= self.complete, "who lacks something may be elected"
        assert after.isr
        assert after.leader in (*after.isr, NO_BROKER_ID)
        assert set(after.former) == self.ever - set(after.replicas)
        assert set(after.replicas) - set(after.removing) == (self.target if after.is_reassigning else self.origin)
        if after.is_reassigning:
            assert set(after.replicas) - set(after.adding) == self.origin
            assert not self.target <= set(after.isr), "nothing is left to wait for"
        gone = set(before.replicas) - set(after.replicas)
        assert after.leader_epoch >= before.leader_epoch + bool(gone or before.leader != after.leader)

    @invariant()
    def a_log_may_begin_with_it(self) -> None:
        after = shown(self.image)
        fresh = image_of(0, 1, 2, 3)
        create(fresh, "t", num_partitions=1)
        fresh.topics["t"].partitions.clear()
        fresh.replay(
            PartitionCreated(
                ID,
                0,
                after.replicas,
                after.leader,
                after.leader_epoch,
                after.isr,
                adding=after.adding,
                removing=after.removing,
                former=after.former,
            )
        )
        again = shown(fresh)
        assert (again.replicas, again.adding, again.removing, again.former) == (
            after.replicas,
            after.adding,
            after.removing,
            after.former,
        )


TestMoves = Moves.TestCase
TestMoves.settings = settings(max_examples=by_form(80, quick=20, long=3000), stateful_step_count=30, deadline=None)
