"""Registration fences earlier incarnations; a broker leads again, under new epochs, once it has caught up."""

from __future__ import annotations

from uuid import UUID

import pytest

from raylog.controller import brokers, isr, topics
from raylog.controller.elections import ElectionType, elect_leaders
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, Offset, ProducerId, TopicPartition
from raylog.core.outcome import Outcome
from raylog.metadata.image import MetadataImage
from raylog.metadata.records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    ControlledShutdownBegun,
    IsrChanged,
    LeaderChanged,
    MetadataRecord,
    PartitionCreated,
    ProducerIdsAllocated,
    TopicCreated,
)
from tests.controller.metadata import ID, OTHER_ID, carry_out, create, image_of

ZERO, ONE, TWO = BrokerId(0), BrokerId(1), BrokerId(2)
ENDPOINTS = (("PLAINTEXT", "h", 1), ("INTERNAL", "h", 2))


@pytest.fixture
def image() -> MetadataImage:
    """Brokers 0 and 1 (epochs 10 and 20) are alive and lead a partition of `t` each."""
    image = image_of(0, 1)
    create(image)
    return image


def register(
    image: MetadataImage,
    broker_id: BrokerId = ZERO,
    *,
    incarnation: int = 1,
    epoch: int = 99,
    alive: bool = False,
    directories: tuple[UUID, ...] = (),
) -> Outcome[int, MetadataRecord]:
    return brokers.register_broker(
        image,
        broker_id,
        incarnation_id=UUID(int=incarnation),
        endpoints=ENDPOINTS,
        rack="r",
        directory_ids=directories,
        broker_epoch=epoch,
        predecessor_alive=alive,
    )


def test_a_new_broker_is_fenced_and_leads_nothing() -> None:
    image = image_of()
    outcome = register(image, epoch=0)
    assert outcome.records == [BrokerRegistered(ZERO, UUID(int=1), 0, ENDPOINTS, "r")]
    assert carry_out(image, outcome) == 0
    assert image.brokers[ZERO].fenced
    assert image.alive == set()
    assert image.brokers[ZERO].endpoint("INTERNAL") == ("h", 2)
    assert image.brokers[ZERO].endpoint("SSL") is None


def test_a_new_incarnation_takes_the_leaderships_from_the_previous_one(image: MetadataImage) -> None:
    outcome = register(image)
    assert outcome.records[1:] == [LeaderChanged(ID, 0, NO_BROKER_ID, LeaderEpoch(1))]
    carry_out(image, outcome)
    assert image.alive == {ONE}


def test_the_same_incarnation_may_register_twice(image: MetadataImage) -> None:
    carry_out(image, register(image))
    again = register(image, epoch=120, alive=True)
    assert (again.response, again.records) == (99, ())


def test_another_incarnation_is_refused_while_the_first_is_alive(image: MetadataImage) -> None:
    with pytest.raises(KafkaError) as refused:
        register(image, alive=True)
    assert refused.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_fencing_removes_leaderships_and_unfencing_restores_them_under_a_new_epoch(image: MetadataImage) -> None:
    fenced = brokers.fence_broker(image, ZERO)
    assert fenced.records == [BrokerFenced(ZERO, 10), LeaderChanged(ID, 0, NO_BROKER_ID, LeaderEpoch(1))]
    carry_out(image, fenced)
    assert brokers.fence_broker(image, ZERO).records == ()
    unfenced = brokers.unfence_broker(image, ZERO)
    assert unfenced.records == [BrokerUnfenced(ZERO, 10), LeaderChanged(ID, 0, ZERO, LeaderEpoch(2))]
    carry_out(image, unfenced)
    assert brokers.unfence_broker(image, ZERO).records == ()
    assert [partition.leader for partition in image.topics["t"].partitions] == [ZERO, ONE]


def test_producer_ids_are_never_allocated_twice(image: MetadataImage) -> None:
    given_out: list[int] = []
    for broker_id, epoch in ((ZERO, 10), (ONE, 20), (ZERO, 10)):
        outcome = brokers.allocate_producer_ids(image, broker_id, broker_epoch=epoch)
        assert outcome.records == [ProducerIdsAllocated(ProducerId(outcome.response.stop))]
        block = carry_out(image, outcome)
        given_out += block
    assert len(set(given_out)) == len(given_out) == 3 * brokers.PRODUCER_ID_BLOCK


def test_unregistered_brokers_and_old_incarnations_get_an_error(image: MetadataImage) -> None:
    for broker_id, epoch, code in (
        (BrokerId(7), 10, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (ZERO, 9, ErrorCode.STALE_BROKER_EPOCH),
        (ZERO, 20, ErrorCode.STALE_BROKER_EPOCH),
    ):
        with pytest.raises(KafkaError) as refused:
            brokers.allocate_producer_ids(image, broker_id, broker_epoch=epoch)
        assert refused.value.code == code


def test_a_fenced_broker_can_be_unregistered(image: MetadataImage) -> None:
    with pytest.raises(KafkaError) as refused:
        brokers.unregister_broker(image, ZERO)
    assert refused.value.code == ErrorCode.INVALID_REQUEST, "it is alive"
    carry_out(image, brokers.fence_broker(image, ZERO))
    outcome = brokers.unregister_broker(image, ZERO)
    assert outcome.records == [BrokerUnregistered(ZERO, 10)]
    carry_out(image, outcome)
    assert set(image.brokers) == {ONE}
    with pytest.raises(KafkaError) as refused:
        brokers.unregister_broker(image, ZERO)
    assert refused.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED
    carry_out(image, register(image))
    assert set(image.brokers) == {ZERO, ONE}


class TestControlledShutdown:
    """Brokers 0, 1 and 2 (epochs 10, 20, 30); what broker 0 leads another could lead, but for one partition."""

    @pytest.fixture
    def image(self) -> MetadataImage:
        image = image_of(0, 1, 2)
        image.replay(TopicCreated("t", ID))
        for number, replicas in enumerate([(ZERO, ONE, TWO), (ONE, ZERO), (ZERO, TWO)]):
            image.replay(PartitionCreated(ID, number, replicas, replicas[0], LeaderEpoch(0)))
        image.replay(IsrChanged(ID, 2, (ZERO,)))
        return image

    def shut_down(
        self, image: MetadataImage, broker_id: BrokerId = ZERO, *, next_offset: int = 50, replicated_upto: int = 50
    ) -> Outcome[bool, MetadataRecord]:
        return brokers.shut_down_broker(
            image, broker_id, next_offset=Offset(next_offset), replicated_upto=Offset(replicated_upto)
        )

    def test_others_lead_first_and_the_broker_leaves_every_isr_with_another_member(self, image: MetadataImage) -> None:
        begun = self.shut_down(image)
        assert not begun.response
        assert begun.records == [
            ControlledShutdownBegun(ZERO, 10, Offset(53)),
            LeaderChanged(ID, 0, ONE, LeaderEpoch(1), (ONE, TWO)),
            IsrChanged(ID, 1, (ONE,)),
        ]

    def test_it_may_stop_once_all_brokers_have_the_change_and_leads_the_rest_until_then(
        self, image: MetadataImage
    ) -> None:
        carry_out(image, self.shut_down(image))
        assert (image.alive, image.active) == ({ZERO, ONE, TWO}, {ONE, TWO})
        waiting = self.shut_down(image, next_offset=53, replicated_upto=52)
        assert (waiting.response, waiting.records) == (False, ())
        going = self.shut_down(image, next_offset=53, replicated_upto=53)
        assert (going.response, going.records) == (True, ())
        gone = brokers.fence_broker(image, ZERO)
        assert gone.records == [BrokerFenced(ZERO, 10), LeaderChanged(ID, 2, NO_BROKER_ID, LeaderEpoch(1))]
        carry_out(image, gone)
        again = self.shut_down(image, next_offset=55, replicated_upto=0)
        assert (again.response, again.records) == (True, ()), "it had lost its connection"

    def test_partitions_without_another_replica_are_led_again_after_the_restart(self, image: MetadataImage) -> None:
        carry_out(image, self.shut_down(image))
        carry_out(image, register(image, epoch=60))
        assert image.active == {ONE, TWO}
        carry_out(image, brokers.unfence_broker(image, ZERO))
        assert image.active == {ZERO, ONE, TWO}
        assert [partition.leader for partition in image.topics["t"].partitions] == [ONE, ONE, ZERO]

    def test_a_broker_in_shutdown_gets_no_new_leaderships(self, image: MetadataImage) -> None:
        carry_out(image, self.shut_down(image))
        placed = topics.create_topic(image, "u", topic_id=OTHER_ID, num_partitions=6, replication_factor=2)
        assert {replica for one in placed.records[1:] for replica in getattr(one, "replicas", ())} == {ONE, TWO}
        carry_out(
            image,
            topics.create_topic(
                image, "v", topic_id=OTHER_ID, num_partitions=1, replication_factor=1, assignments=[[0, 1]]
            ),
        )
        by_hand = image.topics["v"].partitions[0]
        assert (by_hand.leader, by_hand.isr) == (ONE, (ONE,))
        with pytest.raises(KafkaError) as refused:
            isr.alter_partition(image, ONE, ID, 1, leader_epoch=0, partition_epoch=1, isr=[(ONE, 20), (ZERO, 10)])
        assert refused.value.code == ErrorCode.INELIGIBLE_REPLICA
        alone = TopicPartition("t", 2)
        carry_out(image, brokers.fence_broker(image, ZERO))
        image.replay(BrokerUnfenced(ZERO, 10))  # its heartbeat arrived
        for election_type in ElectionType:
            elections = elect_leaders(image, [alone], election_type)
            assert (elections.records, elections.response[alone]) != ([], ErrorCode.NONE)
            assert all(record.leader != ZERO for record in elections.records if isinstance(record, LeaderChanged))
        carry_out(image, brokers.fence_broker(image, ONE))
        assert [partition.leader for partition in image.topics["t"].partitions] == [TWO, NO_BROKER_ID, NO_BROKER_ID]

    def test_brokers_that_stop_at_once_do_not_wait_for_each_other(self, image: MetadataImage) -> None:
        for broker_id in (ZERO, ONE, TWO):
            carry_out(image, self.shut_down(image, broker_id))
        assert image.active == set()
        assert [partition.isr for partition in image.topics["t"].partitions] == [(TWO,), (ONE,), (ZERO,)]
        for broker_id in (ZERO, ONE, TWO):
            assert carry_out(image, self.shut_down(image, broker_id, replicated_upto=60))
