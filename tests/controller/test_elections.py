"""A partition is led by the first live in-sync replica in assignment order, or has no leader."""

from __future__ import annotations

from itertools import combinations, permutations

from raylog.controller.elections import (
    ElectionType,
    balance_leaders,
    elect,
    elect_by_type,
    elect_leaders,
    on_fenced,
    on_unfenced,
    unclean_elections,
)
from raylog.controller.reassignments import reassign
from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, TopicPartition
from raylog.metadata.image import MetadataImage, PartitionImage, TopicImage
from raylog.metadata.records import (
    BrokerFenced,
    BrokerUnfenced,
    IsrChanged,
    LeaderChanged,
    PartitionCreated,
    TopicCreated,
)
from tests.controller.metadata import ID, OTHER_ID, carry_out, create, image_of, registered, replay

ZERO, ONE, TWO = BrokerId(0), BrokerId(1), BrokerId(2)
PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


def partition(replicas: tuple[BrokerId, ...], isr: tuple[BrokerId, ...]) -> PartitionImage:
    return PartitionImage(0, replicas, isr, NO_BROKER_ID, LeaderEpoch(0))


def fence(image: MetadataImage, broker_id: BrokerId, epoch: int) -> None:
    records = list(on_fenced(image, broker_id))
    replay(image, [BrokerFenced(broker_id, epoch), *records])


def unfence(image: MetadataImage, broker_id: BrokerId, epoch: int) -> None:
    records = list(on_unfenced(image, broker_id))
    replay(image, [BrokerUnfenced(broker_id, epoch), *records])


def test_the_first_live_in_sync_replica_is_elected() -> None:
    assert elect(partition((TWO, ONE, ZERO), (ZERO, ONE)), {ZERO, ONE, TWO}) == ONE
    assert elect(partition((TWO, ONE, ZERO), (TWO, ONE, ZERO)), {ZERO}) == ZERO
    assert elect(partition((TWO,), (TWO,)), {ZERO, ONE}) == NO_BROKER_ID


def test_only_partitions_with_a_new_leader_get_a_new_epoch() -> None:
    image = image_of(0, 1)
    create(image, num_partitions=3)
    create(image, "other", topic_id=OTHER_ID, assignments=[[1]])
    assert list(on_fenced(image, ZERO)) == [
        LeaderChanged(ID, 0, NO_BROKER_ID, LeaderEpoch(1)),
        LeaderChanged(ID, 2, NO_BROKER_ID, LeaderEpoch(1)),
    ]
    assert list(on_fenced(image, ONE)) == [
        LeaderChanged(ID, 1, NO_BROKER_ID, LeaderEpoch(1)),
        LeaderChanged(OTHER_ID, 0, NO_BROKER_ID, LeaderEpoch(1)),
    ]


def test_a_partition_without_a_leader_gets_one_when_its_replica_returns() -> None:
    image = image_of(0)
    create(image, num_partitions=1)
    fence(image, ZERO, 10)
    assert list(on_fenced(image, ZERO)) == []
    assert list(on_unfenced(image, ZERO)) == [LeaderChanged(ID, 0, ZERO, LeaderEpoch(2))]


def test_a_fenced_broker_leaves_the_isr_and_another_replica_leads() -> None:
    image = image_of(0, 1, 2)
    create(image, assignments=[[0, 1, 2], [1, 2, 0]])
    assert list(on_fenced(image, ZERO)) == [
        LeaderChanged(ID, 0, ONE, LeaderEpoch(1), (ONE, TWO)),
        IsrChanged(ID, 1, (ONE, TWO)),
    ]


def test_the_last_in_sync_replica_stays_in_the_isr_and_may_lead_again() -> None:
    image = image_of(0, 1, 2)
    create(image, assignments=[[0, 1, 2]])
    fence(image, ZERO, 10)
    fence(image, ONE, 20)
    assert list(on_fenced(image, TWO)) == [LeaderChanged(ID, 0, NO_BROKER_ID, LeaderEpoch(3))]
    fence(image, TWO, 30)
    assert image.topics["t"].partitions[0].isr == (TWO,)
    assert list(on_unfenced(image, ZERO)) == [], "it lacks what the last one has acknowledged"
    unfence(image, ZERO, 10)
    assert list(on_unfenced(image, TWO)) == [LeaderChanged(ID, 0, TWO, LeaderEpoch(4))]


def test_a_broker_that_returns_changes_nothing_where_others_lead() -> None:
    image = image_of(0, 1)
    create(image, assignments=[[0, 1]])
    fence(image, ZERO, 10)
    assert list(on_unfenced(image, ZERO)) == []


def asked(
    election_type: ElectionType, *, isr: tuple[BrokerId, ...], leader: BrokerId, alive: set[BrokerId]
) -> tuple[BrokerId, ErrorCode]:
    """The election among the replicas 0, 1 and 2, of which 0 is the preferred one."""
    asked_of = PartitionImage(0, (ZERO, ONE, TWO), isr, leader, LeaderEpoch(4))
    return elect_by_type(asked_of, alive, election_type)


class TestPreferred:
    def test_the_first_replica_replaces_another_leader(self) -> None:
        alive = {ZERO, ONE, TWO}
        assert asked(PREFERRED, isr=(ONE, TWO, ZERO), leader=ONE, alive=alive) == (ZERO, ErrorCode.NONE)

    def test_a_preferred_leader_needs_no_election(self) -> None:
        not_needed = ErrorCode.ELECTION_NOT_NEEDED
        assert asked(PREFERRED, isr=(ONE, ZERO), leader=ZERO, alive={ZERO, ONE}) == (ZERO, not_needed)

    def test_the_first_replica_must_be_alive_and_in_sync(self) -> None:
        refused = ONE, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert asked(PREFERRED, isr=(ZERO, ONE), leader=ONE, alive={ONE, TWO}) == refused
        assert asked(PREFERRED, isr=(ONE, TWO), leader=ONE, alive={ZERO, ONE, TWO}) == refused

    def test_a_partition_without_a_leader_elects_any_in_sync_replica(self) -> None:
        assert asked(PREFERRED, isr=(TWO, ONE), leader=NO_BROKER_ID, alive={ZERO, ONE, TWO}) == (ONE, ErrorCode.NONE)
        refused = NO_BROKER_ID, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert asked(PREFERRED, isr=(ONE,), leader=NO_BROKER_ID, alive={ZERO, TWO}) == refused


class TestUnclean:
    def test_only_partitions_without_a_leader_hold_one(self) -> None:
        not_needed = ErrorCode.ELECTION_NOT_NEEDED
        assert asked(UNCLEAN, isr=(ZERO, ONE), leader=ONE, alive={ZERO, ONE}) == (ONE, not_needed)

    def test_in_sync_replicas_are_preferred(self) -> None:
        assert asked(UNCLEAN, isr=(TWO,), leader=NO_BROKER_ID, alive={ONE, TWO}) == (TWO, ErrorCode.NONE)

    def test_a_live_replica_that_is_not_in_sync_is_elected_if_there_is_no_other(self) -> None:
        assert asked(UNCLEAN, isr=(ZERO,), leader=NO_BROKER_ID, alive={TWO, ONE}) == (ONE, ErrorCode.NONE)

    def test_some_replica_must_be_alive(self) -> None:
        refused = NO_BROKER_ID, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        assert asked(UNCLEAN, isr=(ZERO,), leader=NO_BROKER_ID, alive={BrokerId(7)}) == refused


def test_a_new_leader_is_always_alive_and_an_error_changes_nothing() -> None:
    everybody = (ZERO, ONE, TWO)
    subsets = [subset for size in range(4) for subset in combinations(everybody, size)]
    for election_type in ElectionType:
        for alive in subsets:
            for isr in [order for subset in subsets[1:] for order in permutations(subset)]:
                for leader in [NO_BROKER_ID, *(each for each in isr if each in alive)]:
                    elected, code = asked(election_type, isr=isr, leader=leader, alive=set(alive))
                    if code == ErrorCode.NONE:
                        assert elected in alive
                        assert elected != leader
                        assert elected in isr or (election_type is UNCLEAN and not set(isr) & set(alive))
                    else:
                        assert elected == leader


def replicated(*leaders: int, isr: tuple[BrokerId, ...] = (ZERO, ONE)) -> MetadataImage:
    """Topic t, partition i led by leaders[i], each on the brokers 0 and 1, both alive; leader epochs are 4."""
    image = image_of(0, 1)
    image.replay(TopicCreated("t", ID))
    for number, leader in enumerate(leaders):
        image.replay(PartitionCreated(ID, number, (ZERO, ONE), BrokerId(leader), LeaderEpoch(4), isr))
    return image


def partitions(*numbers: int, topic: str = "t") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


class TestCommand:
    def test_only_held_elections_are_recorded(self) -> None:
        image = replicated(1, 0, 1)
        wanted = [*partitions(0, 1, 3, -1), *partitions(0, topic="none")]
        outcome = elect_leaders(image, wanted, PREFERRED)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert list(outcome.response.items()) == list(
            zip(wanted, [ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED, unknown, unknown, unknown], strict=True)
        )
        assert outcome.records == [LeaderChanged(ID, 0, ZERO, LeaderEpoch(5))]
        carry_out(image, outcome)
        assert [each.leader for each in image.topics["t"].partitions] == [ZERO, ZERO, ONE]
        again = elect_leaders(image, partitions(0), PREFERRED)
        assert (set(again.response.values()), again.records) == ({ErrorCode.ELECTION_NOT_NEEDED}, [])

    def test_a_duplicate_partition_has_one_election(self) -> None:
        image = replicated(1)
        outcome = elect_leaders(image, partitions(0, 0), PREFERRED)
        assert outcome.response == {TopicPartition("t", 0): ErrorCode.NONE}
        assert outcome.records == [LeaderChanged(ID, 0, ZERO, LeaderEpoch(5))]

    def test_a_fenced_broker_is_not_elected(self) -> None:
        image = replicated(1)
        image.replay(BrokerFenced(ZERO, 10))
        outcome = elect_leaders(image, partitions(0), PREFERRED)
        assert outcome.response == {TopicPartition("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        assert outcome.records == []

    def test_an_unclean_election_needs_a_live_replica(self) -> None:
        image = replicated(1)
        replay(
            image, [LeaderChanged(ID, 0, NO_BROKER_ID, LeaderEpoch(5)), BrokerFenced(ZERO, 10), BrokerFenced(ONE, 20)]
        )
        outcome = elect_leaders(image, partitions(0), UNCLEAN)
        assert outcome.response == {TopicPartition("t", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
        assert outcome.records == []

    def test_any_live_replica_is_elected_where_there_is_no_leader(self) -> None:
        image = replicated(1)
        image.replay(LeaderChanged(ID, 0, NO_BROKER_ID, LeaderEpoch(5)))
        image.replay(BrokerFenced(ZERO, 10))
        assert elect_leaders(image, partitions(0), UNCLEAN).records == [LeaderChanged(ID, 0, ONE, LeaderEpoch(6))]

    def test_after_an_unclean_election_the_isr_is_the_new_leader(self) -> None:
        image = replicated(NO_BROKER_ID, isr=(ZERO,))
        image.replay(BrokerFenced(ZERO, 10))
        outcome = elect_leaders(image, partitions(0), UNCLEAN)
        assert outcome.response == {TopicPartition("t", 0): ErrorCode.NONE}
        assert outcome.records == [LeaderChanged(ID, 0, ONE, LeaderEpoch(5), (ONE,))]
        carry_out(image, outcome)
        assert (image.topics["t"].partitions[0].leader, image.topics["t"].partitions[0].isr) == (ONE, (ONE,))
        refused = elect_leaders(image, partitions(0), PREFERRED)
        assert (list(refused.response.values()), refused.records) == ([ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE], [])


class TestUncleanByConfiguration:
    """If the topic allows it, any live replica is elected when no in-sync replica is alive, and becomes the ISR."""

    @staticmethod
    def allowed(topic: TopicImage) -> bool:
        return topic.name == "t"

    def image(self) -> MetadataImage:
        """t-0 and other-0 have replicas 0, 1 and 2, and only broker 0 is in sync."""
        image = image_of(0, 1, 2)
        for topic, topic_id in (("t", ID), ("other", OTHER_ID)):
            create(image, topic, topic_id=topic_id, assignments=[[0, 1, 2]])
            image.replay(IsrChanged(topic_id, 0, (ZERO,)))
        return image

    def test_when_the_last_in_sync_replica_is_fenced(self) -> None:
        image = self.image()
        assert list(on_fenced(image, ZERO, self.allowed)) == [
            LeaderChanged(ID, 0, ONE, LeaderEpoch(1), (ONE,)),
            LeaderChanged(OTHER_ID, 0, NO_BROKER_ID, LeaderEpoch(1)),
        ]

    def test_in_sync_replicas_are_preferred(self) -> None:
        image = self.image()
        image.replay(IsrChanged(ID, 0, (ZERO, TWO)))
        assert next(iter(on_fenced(image, ZERO, self.allowed))) == LeaderChanged(ID, 0, TWO, LeaderEpoch(1), (TWO,))

    def test_without_a_live_replica_the_last_in_sync_replica_stays_in_the_isr(self) -> None:
        image = self.image()
        replay(image, [BrokerFenced(ONE, 20), BrokerFenced(TWO, 30)])
        assert next(iter(on_fenced(image, ZERO, self.allowed))) == LeaderChanged(ID, 0, NO_BROKER_ID, LeaderEpoch(1))

    def test_when_a_broker_is_unfenced(self) -> None:
        image = self.image()
        for broker_id, epoch in ((ONE, 20), (TWO, 30), (ZERO, 10)):
            fence(image, broker_id, epoch)
        assert list(on_unfenced(image, TWO)) == []
        assert list(on_unfenced(image, TWO, self.allowed)) == [LeaderChanged(ID, 0, TWO, LeaderEpoch(2), (TWO,))]

    def test_for_partitions_that_already_have_no_leader(self) -> None:
        image = self.image()
        fence(image, ZERO, 10)
        assert list(unclean_elections(image, image.topics["t"])) == [LeaderChanged(ID, 0, ONE, LeaderEpoch(2), (ONE,))]
        replay(image, [BrokerFenced(ONE, 20), BrokerFenced(TWO, 30)])
        assert list(unclean_elections(image, image.topics["t"])) == []
        assert list(unclean_elections(self.image(), self.image().topics["t"])) == [], "somebody leads"


class TestBalance:
    """A broker that lacks more of its leaderships than it may gets them back."""

    def image(self, *, lacking: int) -> MetadataImage:
        """Broker 0 is the preferred leader of ten partitions, and leads all but so many; broker 1 of one, which it
        leads."""
        image = image_of(0, 1)
        create(image, assignments=[[0, 1]] * 10 + [[1, 0]])
        replay(image, [LeaderChanged(ID, number, ONE, LeaderEpoch(1)) for number in range(lacking)])
        return image

    def elected(self, image: MetadataImage, percent: int = 10) -> list[int]:
        found = balance_leaders(image, imbalance_percent_max=percent).records
        assert all(isinstance(one, LeaderChanged) and one.leader == ZERO for one in found)
        return [one.partition for one in found if isinstance(one, LeaderChanged)]

    def test_only_brokers_above_the_percentage_are_balanced(self) -> None:
        assert self.elected(self.image(lacking=1)) == []
        assert self.elected(self.image(lacking=2)) == [0, 1]
        assert self.elected(self.image(lacking=1), percent=0) == [0]
        assert self.elected(self.image(lacking=0), percent=0) == []
        assert self.elected(self.image(lacking=10), percent=100) == []

    def test_fenced_and_out_of_sync_replicas_do_not_count(self) -> None:
        image = self.image(lacking=3)
        image.replay(IsrChanged(ID, 1, (ONE,)))
        assert self.elected(image) == [0, 2]
        image.replay(BrokerFenced(ZERO, 10))
        assert self.elected(image) == []

    def test_partitions_under_reassignment_do_not_count(self) -> None:
        image = self.image(lacking=3)
        image.replay(registered(2, epoch=90))
        carry_out(image, reassign(image, TopicPartition("t", 1), [0, 2]))
        assert self.elected(image) == [0, 2]
