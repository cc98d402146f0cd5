"""Coordinators lead the partitions of their internal topic, on top of the assigned brokers, and hold no others."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.controller.brokers import fence_broker, register_broker, shut_down_broker, unfence_broker, unregister_broker
from raylog.controller.coordinators import (
    CRASHES_FORGOTTEN_MS,
    HOLD_MS,
    HOLD_MS_MAX,
    LeadershipReturns,
    place_coordinators,
)
from raylog.controller.elections import ElectionType, balance_leaders, elect_leaders
from raylog.controller.isr import alter_partition
from raylog.controller.reassignments import cancel, completion, reassign
from raylog.controller.replica_placement import place
from raylog.controller.topics import create_partitions
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId, Offset, TopicPartition
from raylog.metadata.image import MetadataImage, PartitionImage
from raylog.metadata.levels import LATEST_LEVEL, METADATA_FEATURE
from raylog.metadata.node_roles import NodeRole, coordinators_of, is_coordinator, only_brokers
from raylog.metadata.records import BrokerUnregistered, FeatureLevelChanged, LeaderChanged, ReplicasChanged
from tests.controller.metadata import ID, OTHER_ID, carry_out, create, image_of, registered, replay

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
TP = TopicPartition(OFFSETS, 0)
GROUP, OTHER_GROUP, TRANSACTION = (BrokerId(2000), BrokerId(2001), BrokerId(3000))


def first(image: MetadataImage, topic: str = OFFSETS, number: int = 0) -> PartitionImage:
    return image.topics[topic].partitions[number]


def in_sync(image: MetadataImage, *isr: int, number: int = 0) -> None:
    """The leader reports this ISR."""
    partition = first(image, number=number)
    pairs = [(BrokerId(each), image.brokers[BrokerId(each)].registration.broker_epoch) for each in isr]
    carry_out(
        image,
        alter_partition(
            image,
            partition.leader,
            ID,
            number,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=pairs,
        ),
    )


def add(image: MetadataImage, *ids: int) -> None:
    """Further nodes register and are unfenced."""
    for node in ids:
        epoch = 1000 + len(image.brokers)
        replay(image, [registered(node, epoch=epoch)])
        carry_out(image, unfence_broker(image, BrokerId(node)))


def test_ids_show_the_role() -> None:
    assert [role.first_id for role in NodeRole] == [0, 1000, 2000, 3000]
    nodes = [BrokerId(each) for each in (3001, 2999, 2000, 3000, 999, 4000)]
    assert coordinators_of(OFFSETS, nodes) == [2000, 2999]
    assert coordinators_of(TRANSACTIONS, nodes) == [3000, 3001]
    assert coordinators_of("t", nodes) == []
    assert [is_coordinator(each) for each in (0, 999, 1999, 2000, 3999)] == [False, False, False, True, True]
    assert only_brokers(nodes) == (999,)


def test_an_internal_topic_is_led_by_its_coordinators_on_top_of_its_replication_factor() -> None:
    image = image_of(0, 1, 2, 2000, 2001, 3000)
    create(image, OFFSETS, num_partitions=4, replication_factor=3)
    create(image, TRANSACTIONS, num_partitions=2, replication_factor=2, topic_id=OTHER_ID)
    assert [(each.leader, each.replicas[0], len(each.replicas)) for each in image.topics[OFFSETS].partitions] == [
        (node, node, 4) for node in (2000, 2001, 2000, 2001)
    ]
    assert [each.replicas for each in image.topics[TRANSACTIONS].partitions] == [(3000, 0, 1), (3000, 1, 2)]
    assert first(image).isr == first(image).replicas


def test_topics_of_users_are_never_placed_on_a_coordinator() -> None:
    image = image_of(0, 1, 2000, 3000)
    create(image, num_partitions=10, replication_factor=2)
    assert {node for each in image.topics["t"].partitions for node in each.replicas} == {0, 1}
    with pytest.raises(KafkaError, match=r"Replication factor 3: .* the cluster has 2 broker\(s\), of which 2"):
        place(image, 1, 3)


@pytest.mark.parametrize("assignment", [[2000], [0, 2000], [0, 3000]])
def test_an_assignment_that_names_a_coordinator_is_refused(assignment: list[int]) -> None:
    image = image_of(0, 1, 2000, 3000)
    create(image, replication_factor=1)
    create(image, OFFSETS, replication_factor=1, topic_id=OTHER_ID)
    for attempt in (
        lambda: create(image, "u", topic_id=UUID(int=9), assignments=[assignment]),
        lambda: create_partitions(image, "t", total_count=3, assignments=[assignment]),
        lambda: reassign(image, TopicPartition("t", 0), assignment),
        lambda: reassign(image, TP, assignment),
    ):
        with pytest.raises(KafkaError, match=r"must be different brokers out of \[0, 1\]") as refused:
            attempt()
        assert refused.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_partitions_that_are_added_get_a_coordinator_too() -> None:
    image = image_of(0, 1, 2000)
    create(image, OFFSETS, num_partitions=1, replication_factor=2)
    carry_out(image, create_partitions(image, OFFSETS, total_count=3))
    assert [each.replicas[0] for each in image.topics[OFFSETS].partitions] == [2000] * 3
    assert {len(each.replicas) for each in image.topics[OFFSETS].partitions} == {3}


def test_a_coordinator_that_is_fenced_does_not_lead_a_new_topic() -> None:
    image = image_of(0, 1, 2000)
    carry_out(image, fence_broker(image, GROUP))
    create(image, OFFSETS, replication_factor=2)
    assert (first(image).replicas, first(image).isr, first(image).leader) == ((2000, 0, 1), (0, 1), 0)


def test_when_a_coordinator_is_lost_the_first_broker_in_sync_leads() -> None:
    image = image_of(0, 1, 2, 2000)
    create(image, OFFSETS, num_partitions=3, replication_factor=3)
    carry_out(image, fence_broker(image, GROUP))
    assert [each.leader for each in image.topics[OFFSETS].partitions] == [0, 1, 2]
    assert all(GROUP not in each.isr and len(each.isr) == 3 for each in image.topics[OFFSETS].partitions)


def test_an_existing_topic_gets_a_coordinator_that_leads_it_after_its_time_in_the_isr() -> None:
    image = image_of(0, 1)
    create(image, OFFSETS, num_partitions=1, replication_factor=2)
    add(image, 2000)
    replay(image, place_coordinators(image))
    after = first(image)
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((2000, 0, 1), (0, 1), 0, 0)
    assert not after.is_reassigning
    assert list(place_coordinators(image)) == []
    returns = LeadershipReturns()
    assert returns.due(image, now_ms=0) == []
    in_sync(image, 2000, 0, 1)
    assert returns.due(image, now_ms=50_000) == []
    assert returns.due(image, now_ms=50_000 + HOLD_MS - 1) == []
    assert returns.due(image, now_ms=50_000 + HOLD_MS) == [TP]
    carry_out(image, elect_leaders(image, [TP], ElectionType.PREFERRED))
    assert first(image).leader == GROUP
    assert returns.due(image, now_ms=50_000 + HOLD_MS + 1) == []


def test_the_time_in_the_isr_begins_again_when_the_coordinator_leaves_it() -> None:
    image = image_of(0, 1)
    create(image, OFFSETS, num_partitions=1, replication_factor=2)
    add(image, 2000)
    replay(image, place_coordinators(image))
    returns = LeadershipReturns()
    in_sync(image, 2000, 0, 1)
    returns.due(image, now_ms=0)
    in_sync(image, 0, 1)
    assert returns.due(image, now_ms=HOLD_MS) == []
    in_sync(image, 2000, 0, 1)
    assert returns.due(image, now_ms=HOLD_MS + 1) == []
    assert returns.due(image, now_ms=2 * HOLD_MS + 1) == [TP]


def test_each_crash_doubles_the_time_and_a_clean_stop_does_not() -> None:
    image, returns = image_of(0, 2000), LeadershipReturns()
    waits = []
    for number in range(9):
        returns.fenced(image, GROUP, now_ms=number)
        waits.append(returns.hold_ms(GROUP, number))
    assert waits == [HOLD_MS << number for number in range(7)] + [HOLD_MS_MAX] * 2
    assert returns.hold_ms(GROUP, 8 + CRASHES_FORGOTTEN_MS) == HOLD_MS
    assert returns.hold_ms(TRANSACTION, 8) == HOLD_MS
    returns = LeadershipReturns()
    for now_ms in range(3):
        carry_out(image, shut_down_broker(image, GROUP, next_offset=Offset(5), replicated_upto=Offset(0)))
        returns.fenced(image, GROUP, now_ms=now_ms)
    assert returns.hold_ms(GROUP, 3) == HOLD_MS


def test_a_further_coordinator_takes_its_share_without_a_change_to_a_broker_in_between() -> None:
    image = image_of(0, 1, 2000)
    create(image, OFFSETS, num_partitions=4, replication_factor=2)
    add(image, 2001)
    records = list(place_coordinators(image))
    assert [(each.partition, each.replicas[:2], each.leader) for each in records] == [
        (number, (2001, 2000), 2000) for number in (1, 3)
    ]
    replay(image, records)
    assert list(place_coordinators(image)) == []
    in_sync(image, 2001, 2000, *first(image, number=1).replicas[2:], number=1)
    tp = TopicPartition(OFFSETS, 1)
    carry_out(image, elect_leaders(image, [tp], ElectionType.PREFERRED))
    [dropped] = place_coordinators(image)
    assert (dropped.partition, dropped.replicas[0], len(dropped.replicas), dropped.leader) == (1, 2001, 3, 2001)
    assert GROUP not in dropped.isr


def test_a_coordinator_that_is_unregistered_loses_its_replicas() -> None:
    image = image_of(0, 1, 2000, 2001, 3000)
    create(image, OFFSETS, num_partitions=4, replication_factor=2)
    with pytest.raises(KafkaError, match="stop it before unregistering it"):
        unregister_broker(image, OTHER_GROUP)
    carry_out(image, fence_broker(image, OTHER_GROUP))
    outcome = unregister_broker(image, OTHER_GROUP)
    assert [type(record) for record in outcome.records] == [ReplicasChanged, ReplicasChanged, BrokerUnregistered]
    carry_out(image, outcome)
    assert all(OTHER_GROUP not in each.replicas for each in image.topics[OFFSETS].partitions)
    assert all(each.leader in (0, 1, 2000) for each in image.topics[OFFSETS].partitions)
    replay(image, place_coordinators(image))
    assert [each.replicas[0] for each in image.topics[OFFSETS].partitions] == [2000] * 4


def test_a_coordinator_with_the_only_in_sync_replica_is_neither_unregistered_nor_replaced() -> None:
    image = image_of(0, 2000)
    create(image, OFFSETS, num_partitions=1, replication_factor=1)
    in_sync(image, 2000)
    carry_out(image, fence_broker(image, GROUP))
    assert (first(image).leader, first(image).isr) == (NO_BROKER_ID, (2000,))
    with pytest.raises(KafkaError, match=r"the only in-sync replica of __consumer_offsets-0") as refused:
        unregister_broker(image, GROUP)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    image.replay(BrokerUnregistered(GROUP, image.brokers[GROUP].registration.broker_epoch))
    add(image, 2001)
    assert list(place_coordinators(image)) == []


def test_a_reassignment_keeps_the_coordinator_and_does_not_wait_for_it() -> None:
    image = image_of(0, 1, 2, 2000)
    create(image, OFFSETS, num_partitions=1, assignments=[[0, 1]])
    assert first(image).leader == GROUP
    carry_out(image, reassign(image, TP, [2, 1], may_change_replication_factor=False))
    assert (first(image).replicas, first(image).adding, first(image).removing) == ((2000, 2, 1, 0), (2,), (0,))
    carry_out(image, fence_broker(image, GROUP))
    in_sync(image, 0, 1, 2)
    after = first(image)
    assert (after.replicas, set(after.isr), after.is_reassigning) == ((2000, 2, 1), {1, 2}, False)
    carry_out(image, reassign(image, TP, [0, 1]))
    carry_out(image, cancel(image, TP))
    assert first(image).replicas == (2000, 1, 2)
    assert completion(image, ID, first(image)) is None


def test_a_change_of_coordinators_leaves_a_reassignment_alone() -> None:
    image = image_of(0, 1, 2)
    create(image, OFFSETS, num_partitions=1, assignments=[[0, 1]])
    carry_out(image, reassign(image, TP, [2, 1]))
    add(image, 2000)
    replay(image, place_coordinators(image))
    assert (first(image).replicas, first(image).adding, first(image).removing) == ((2000, 2, 1, 0), (2,), (0,))
    in_sync(image, 0, 1, 2)
    assert (first(image).replicas, first(image).leader) == ((2000, 2, 1), 2)


def test_leader_balancing_leaves_partitions_of_coordinators_alone() -> None:
    image = image_of(0, 1, 2000)
    create(image, OFFSETS, num_partitions=4, replication_factor=2)
    carry_out(image, fence_broker(image, GROUP))
    carry_out(image, unfence_broker(image, GROUP))
    for number in range(4):
        in_sync(image, 2000, 0, 1, number=number)
    assert balance_leaders(image, imbalance_percent_max=0).records == []


def test_an_unclean_election_prefers_a_broker() -> None:
    image = image_of(0, 1, 2000)
    create(image, OFFSETS, num_partitions=1, replication_factor=2)
    for node in (2000, 0):
        carry_out(image, fence_broker(image, BrokerId(node)))
    in_sync(image, 1)
    carry_out(image, fence_broker(image, BrokerId(1)))
    for node in (2000, 0):
        carry_out(image, unfence_broker(image, BrokerId(node)))
    outcome = elect_leaders(image, [TP], ElectionType.UNCLEAN)
    [elected] = outcome.records
    assert isinstance(elected, LeaderChanged)
    assert elected.leader == 0


def test_a_coordinator_registers_at_level_6_only() -> None:
    image = image_of(0)

    def register(lowest: int) -> None:
        register_broker(
            image,
            GROUP,
            incarnation_id=OTHER_ID,
            endpoints=(),
            rack=None,
            directory_ids=(),
            features=((METADATA_FEATURE, lowest, LATEST_LEVEL),),
            broker_epoch=99,
            predecessor_alive=False,
        )

    with pytest.raises(KafkaError, match=r"at raylog\.metadata level 1") as refused:
        register(6)
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
    image.replay(FeatureLevelChanged(METADATA_FEATURE, 6))
    register(6)


NODES = (0, 1, 2, 2000, 2001)


@given(steps=st.lists(st.tuples(st.sampled_from(["stop", "start", "gone", "sync", "lead", "move"]), st.integers(0, 4))))
def test_whatever_happens_each_partition_keeps_its_brokers_and_one_of_them_in_sync_if_any_was(
    steps: list[tuple[str, int]],
) -> None:
    image = image_of(*NODES)
    create(image, OFFSETS, num_partitions=4, replication_factor=2)
    assigned = [only_brokers(each.replicas) for each in image.topics[OFFSETS].partitions]
    for step, number in steps:
        node = BrokerId(NODES[number])
        known = image.brokers.get(node)
        if step == "stop" and known is not None:
            carry_out(image, fence_broker(image, node))
        elif step == "start" and (known is None or known.fenced):
            epoch = 1 + max(each.registration.broker_epoch for each in image.brokers.values())
            replay(image, [replace(registered(node, epoch=epoch), incarnation_id=OTHER_ID)])
            carry_out(image, unfence_broker(image, node))
        elif step == "gone" and known is not None and known.fenced and is_coordinator(node):
            if not any(each.isr == (node,) for each in image.topics[OFFSETS].partitions):
                carry_out(image, unregister_broker(image, node))
        elif step == "sync":
            for each in list(image.topics[OFFSETS].partitions):
                if each.leader != NO_BROKER_ID:
                    alive = [one for one in each.replicas if image.is_active(one)]
                    in_sync(image, *alive, number=each.partition)
        elif step == "lead":
            due = [TopicPartition(OFFSETS, each) for each in range(4)]
            carry_out(image, elect_leaders(image, due, ElectionType.PREFERRED))
        elif step == "move":
            replay(image, place_coordinators(image))
        for each, brokers in zip(image.topics[OFFSETS].partitions, assigned, strict=True):
            assert only_brokers(each.replicas) == brokers
            assert each.isr
            assert len(each.replicas) <= len(brokers) + 2
            assert each.leader == NO_BROKER_ID or each.leader in each.isr
            assert each.leader != NO_BROKER_ID or not image.active.intersection(each.isr)
