"""A broker's registration fences what came before it, and it leads again, under new epochs, once it has caught up."""

from __future__ import annotations

from uuid import UUID

import pytest

from raylog.controller import brokers
from raylog.controller.image import MetadataImage
from raylog.controller.records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    LeaderChanged,
    MetadataRecord,
    ProducerIdsAllocated,
)
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, ProducerId
from raylog.core.outcome import Outcome
from tests.controller.metadata import ID, carry_out, create, image_of

ZERO, ONE = BrokerId(0), BrokerId(1)
ENDPOINTS = (("PLAINTEXT", "h", 1), ("INTERNAL", "h", 2))


@pytest.fixture
def image() -> MetadataImage:
    """Brokers 0 and 1 (epochs 10 and 20) are alive and lead a partition of `t` each."""
    image = image_of(0, 1)
    create(image)
    return image


def register(
    image: MetadataImage, broker_id: BrokerId = ZERO, *, incarnation: int = 1, epoch: int = 99, alive: bool = False
) -> Outcome[int, MetadataRecord]:
    return brokers.register_broker(
        image,
        broker_id,
        incarnation_id=UUID(int=incarnation),
        endpoints=ENDPOINTS,
        rack="r",
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


def test_a_new_incarnation_takes_the_lead_from_the_one_before(image: MetadataImage) -> None:
    outcome = register(image)
    assert outcome.records[1:] == [LeaderChanged(ID, 0, NO_BROKER_ID, LeaderEpoch(1))]
    carry_out(image, outcome)
    assert image.alive == {ONE}


def test_the_same_incarnation_may_ask_twice(image: MetadataImage) -> None:
    carry_out(image, register(image))
    again = register(image, epoch=120, alive=True)
    assert (again.response, again.records) == (99, ())


def test_another_incarnation_is_refused_while_the_first_is_alive(image: MetadataImage) -> None:
    with pytest.raises(KafkaError) as refused:
        register(image, alive=True)
    assert refused.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_fencing_takes_the_lead_and_unfencing_gives_it_back_under_a_new_epoch(image: MetadataImage) -> None:
    fenced = brokers.fence_broker(image, ZERO)
    assert fenced.records == [BrokerFenced(ZERO, 10), LeaderChanged(ID, 0, NO_BROKER_ID, LeaderEpoch(1))]
    carry_out(image, fenced)
    assert brokers.fence_broker(image, ZERO).records == ()
    unfenced = brokers.unfence_broker(image, ZERO)
    assert unfenced.records == [BrokerUnfenced(ZERO, 10), LeaderChanged(ID, 0, ZERO, LeaderEpoch(2))]
    carry_out(image, unfenced)
    assert brokers.unfence_broker(image, ZERO).records == ()
    assert [partition.leader for partition in image.topics["t"].partitions] == [ZERO, ONE]


def test_producer_ids_are_never_given_twice_whoever_asks(image: MetadataImage) -> None:
    given_out: list[int] = []
    for broker_id, epoch in ((ZERO, 10), (ONE, 20), (ZERO, 10)):
        outcome = brokers.allocate_producer_ids(image, broker_id, broker_epoch=epoch)
        assert outcome.records == [ProducerIdsAllocated(ProducerId(outcome.response.stop))]
        block = carry_out(image, outcome)
        given_out += block
    assert len(set(given_out)) == len(given_out) == 3 * brokers.PRODUCER_ID_BLOCK


def test_who_is_not_registered_or_was_replaced_is_told_so(image: MetadataImage) -> None:
    for broker_id, epoch, code in (
        (BrokerId(7), 10, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (ZERO, 9, ErrorCode.STALE_BROKER_EPOCH),
        (ZERO, 20, ErrorCode.STALE_BROKER_EPOCH),
    ):
        with pytest.raises(KafkaError) as refused:
            brokers.allocate_producer_ids(image, broker_id, broker_epoch=epoch)
        assert refused.value.code == code


def test_a_broker_that_was_fenced_can_be_forgotten(image: MetadataImage) -> None:
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
