"""raylog's admin client and what applications leave on brokers: groups, offsets, records, producers, transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from raylog.client.admin.groups import MemberToRemove
from raylog.client.admin.partitions import ElectionType, OffsetSpec
from raylog.client.admin.topics import NewTopic
from raylog.client.consumer.consumer import Consumer
from raylog.client.errors import UnknownTopicError
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.client.producer.producer import Producer
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from tests.client.admin_faces import FACES, BlockingFace
from tests.client.served import Target
from tests.client.test_admin import Make, faces, failed, make
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import wait_until

__all__ = ["make"]


def write(target: Target, topic: str, count: int, partition: int = 0, **options: Any) -> None:
    with Producer(**target.settings()) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=1000 * (number + 1), **options)


@pytest.fixture
def member(target: Target) -> Iterator[Any]:
    """Makes a consumer that is a member of a group, with its assignment."""
    made: list[Consumer] = []

    def join(group: str, topic: str, **settings: Any) -> Consumer:
        consumer = Consumer(**target.settings(), group_id=group, heartbeat_interval_ms=100, **settings)
        made.append(consumer)
        consumer.subscribe(topic)
        wait_until(lambda: consumer.poll(0.05) is not None and bool(consumer.assignment()))
        return consumer

    yield join
    for consumer in made:
        consumer.close(5)


# --- groups


@faces
def test_groups_are_listed_and_described(target: Target, make: Make, face: Any, member: Any) -> None:
    admin, topic, group = make(face), target.new_topic(2), target.new_group()
    member(group, topic, group_instance_id="one", client_id="me")
    listed = {each.group_id: each for each in admin.list_consumer_groups()}
    assert (listed[group].protocol_type, listed[group].state) == ("consumer", "Stable")
    assert group in {each.group_id for each in admin.list_consumer_groups(states=["Stable"])}
    assert group not in {each.group_id for each in admin.list_consumer_groups(states="Empty")}
    described = admin.describe_consumer_groups(group)[group]
    assert (described.state, described.protocol) == ("Stable", "range")
    (found,) = described.members
    assert (found.group_instance_id, found.client_id) == ("one", "me")
    assert found.partitions == ((topic, 0), (topic, 1))
    error = failed(lambda: admin.describe_consumer_groups([group, "none"]))
    assert (error.code, list(error.errors), list(error.results)) == (ErrorCode.GROUP_ID_NOT_FOUND, ["none"], [group])


@faces
def test_members_are_removed_and_groups_deleted(target: Target, make: Make, face: Any, member: Any) -> None:
    admin, topic, group = make(face), target.new_topic(), target.new_group()
    member(group, topic, group_instance_id="one").close()
    member(group, topic, group_instance_id="one").close()
    error = failed(lambda: admin.delete_consumer_groups(group))
    assert error.code is ErrorCode.NON_EMPTY_GROUP
    one, two = MemberToRemove("one"), MemberToRemove("two")
    error = failed(lambda: admin.remove_members_from_consumer_group(group, [one, two]))
    assert (list(error.results), error.errors[two].code) == ([one], ErrorCode.UNKNOWN_MEMBER_ID)
    member(group, topic, group_instance_id="one").close()
    assert admin.remove_members_from_consumer_group(group, reason="the end") == {one: None}
    assert admin.remove_members_from_consumer_group(group) == {}
    error = failed(lambda: admin.delete_consumer_groups([group, "none"]))
    assert (list(error.results), error.errors["none"].code) == ([group], ErrorCode.GROUP_ID_NOT_FOUND)
    assert group not in {each.group_id for each in admin.list_consumer_groups()}
    with pytest.raises(KafkaError, match="needs a group_instance_id or a member_id"):
        admin.remove_members_from_consumer_group(group, [MemberToRemove()])


@faces
def test_offsets_of_groups(target: Target, make: Make, face: Any, member: Any) -> None:
    admin, topic, group = make(face), target.new_topic(3), target.new_group()
    tps = [TopicPartition(topic, number) for number in range(3)]
    offsets = {tps[0]: 5, tps[1]: OffsetAndMetadata(7, "mine")}
    assert admin.alter_consumer_group_offsets(group, offsets) == dict.fromkeys(tps[:2])
    found = admin.list_consumer_group_offsets(group)
    assert found == {tps[0]: OffsetAndMetadata(5), tps[1]: OffsetAndMetadata(7, "mine")}
    assert admin.list_consumer_group_offsets(group, [tps[2], tps[0]], require_stable=True) == {
        tps[2]: None,
        tps[0]: OffsetAndMetadata(5),
    }
    assert admin.list_consumer_group_offsets("none") == {}
    assert admin.delete_consumer_group_offsets(group, [tps[0]]) == {tps[0]: None}
    assert list(admin.list_consumer_group_offsets(group)) == [tps[1]]
    error = failed(lambda: admin.alter_consumer_group_offsets(group, {tps[0]: 1, ("none", 0): 1}))
    assert (type(error), list(error.results)) == (UnknownTopicError, [tps[0]])
    member(group, topic)
    error = failed(lambda: admin.alter_consumer_group_offsets(group, {tps[0]: 1}))
    assert error.code is ErrorCode.UNKNOWN_MEMBER_ID
    error = failed(lambda: admin.delete_consumer_group_offsets(group, tps[:1]))
    assert error.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    error = failed(lambda: admin.delete_consumer_group_offsets("none", tps))
    assert error.code is ErrorCode.GROUP_ID_NOT_FOUND


# --- partitions


@faces
def test_offsets_and_deletion_of_records(target: Target, make: Make, face: Any) -> None:
    admin, topic = make(face), target.new_topic(2)
    tp, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    write(target, topic, 5)
    latest = admin.list_offsets({tp: OffsetSpec.LATEST, empty: OffsetSpec.LATEST})
    assert {each: found.offset for each, found in latest.items()} == {tp: 5, empty: 0}
    assert admin.list_offsets({tp: 2500})[tp][:2] == (2, 3000)
    assert admin.list_offsets({tp: OffsetSpec.MAX_TIMESTAMP}, read_committed=True)[tp][:2] == (4, 5000)
    assert admin.list_offsets({tp: 9000})[tp].offset == -1
    assert admin.delete_records({tp: 3}) == {tp: 3}
    assert admin.list_offsets({tp: OffsetSpec.EARLIEST})[tp].offset == 3
    error = failed(lambda: admin.delete_records({tp: 9, empty: -1}))
    assert (error.code, error.results) == (ErrorCode.OFFSET_OUT_OF_RANGE, {empty: 0})
    error = failed(lambda: admin.list_offsets({tp: -1, (topic, 7): -1}))
    assert (type(error), list(error.errors), list(error.results)) == (UnknownTopicError, [(topic, 7)], [tp])
    with pytest.raises(KafkaError, match="is not a timestamp"):
        admin.list_offsets({tp: -100})


@faces
def test_elections_and_reassignments(target: Target, make: Make, face: Any) -> None:
    admin, topic = make(face), target.new_topic()
    tp, missing = TopicPartition(topic, 0), TopicPartition("none", 0)
    (node,) = admin.describe_cluster().nodes
    elected = admin.elect_leaders(ElectionType.PREFERRED, [tp, missing])
    assert {each: error and error.code for each, error in elected.items()} == {
        tp: ErrorCode.ELECTION_NOT_NEEDED,
        missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert tp not in admin.elect_leaders(ElectionType.PREFERRED)
    assert admin.alter_partition_reassignments({tp: [node.node_id]}) == {tp: None}
    error = failed(lambda: admin.alter_partition_reassignments({tp: [77], missing: [node.node_id]}))
    assert {each: one.code for each, one in error.errors.items()} == {
        tp: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    error = failed(lambda: admin.alter_partition_reassignments({tp: None}))
    assert error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert admin.list_partition_reassignments() == {} == admin.list_partition_reassignments([tp])


# --- transactions


@faces
def test_transactions(target: Target, make: Make, face: Any) -> None:
    admin, topic = make(face), target.new_topic()
    tp, name = TopicPartition(topic, 0), f"tx-{topic}"
    with Producer(**target.settings(), transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=0).result()
        described = admin.describe_transactions(name)[name]
        assert (described.state, described.partitions, described.timeout_ms) == ("Ongoing", (tp,), 60_000)
        assert described.start_time_ms is not None
        assert (name, described.producer_id, "Ongoing") in admin.list_transactions()
        assert [each.transactional_id for each in admin.list_transactions(producer_ids=[described.producer_id])] == [
            name
        ]
        assert name not in {each.transactional_id for each in admin.list_transactions(states=["CompleteCommit"])}
        with pytest.raises(KafkaError, match="there is no state 'ongoing' of transactions"):
            admin.list_transactions(states=["ongoing"])
        (state,) = admin.describe_producers([tp])[tp]
        assert (state.producer_id, state.current_txn_start_offset) == (described.producer_id, 0)
        fenced = admin.fence_producers([name])[name]
        assert fenced.producer_id == described.producer_id
        assert fenced.producer_epoch > described.producer_epoch
        wait_until(lambda: admin.describe_producers([tp])[tp][0].current_txn_start_offset is None)
        with pytest.raises(KafkaError):
            producer.commit_transaction()
    error = failed(lambda: admin.describe_transactions(["none", name]))
    assert (error.code, list(error.results)) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, [name])


@faces
def test_a_hanging_transaction_is_aborted(target: Target, make: Make, face: Any) -> None:
    admin, topic = make(face), target.new_topic()
    tp = TopicPartition(topic, 0)
    with Producer(**target.settings(), transactional_id=f"tx-{topic}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=0).result()
        (state,) = admin.describe_producers([tp])[tp]
        assert admin.list_offsets({tp: -1}, read_committed=True)[tp].offset == 0
        coordinator_epoch = -1 if state.coordinator_epoch is None else state.coordinator_epoch
        admin.abort_transaction(
            tp,
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )
        wait_until(lambda: admin.list_offsets({tp: -1}, read_committed=True)[tp].offset == 2)


# --- several brokers


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 8}
    with cluster_thread(config, tmp_path_factory.mktemp("three"), brokers=3) as running:
        yield running


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_each_item_goes_to_its_broker(three: RunningCluster, request: pytest.FixtureRequest, face: Any) -> None:
    admin = face(bootstrap_servers=three.bootstrap_servers)
    request.addfinalizer(admin.stop)
    topic = f"spread-{face.__name__}"
    brokers = [node.node_id for node in admin.describe_cluster().nodes]
    admin.create_topics(NewTopic(topic, replica_assignments={n: [brokers[n % 3]] for n in range(6)}))
    tps = [TopicPartition(topic, number) for number in range(6)]
    with Producer(bootstrap_servers=three.bootstrap_servers) as producer:
        for tp in tps:
            producer.send(topic, b"x", partition=tp.partition)
    assert {found.offset for found in admin.list_offsets(dict.fromkeys(tps, -1)).values()} == {1}
    assert admin.delete_records(dict.fromkeys(tps, -1)) == dict.fromkeys(tps, 1)
    groups = [f"{topic}-{number}" for number in range(12)]
    for group in groups:
        admin.alter_consumer_group_offsets(group, {tps[0]: 1})
    assert {each.group_id for each in admin.list_consumer_groups()} >= set(groups)
    assert admin.list_consumer_group_offsets(groups[0])[tps[0]].offset == 1
    assert admin.delete_consumer_groups(groups) == dict.fromkeys(groups)
    held = {node: next(iter(dirs.values())).replicas for node, dirs in admin.describe_log_dirs(brokers).items()}
    assert {node: {tp for tp, _ in each} & set(tps) for node, each in held.items()} == {
        node: {tp for tp in tps if brokers[tp.partition % 3] == node} for node in brokers
    }
    admin.alter_partition_reassignments({tps[0]: [brokers[1]]})
    wait_until(lambda: not admin.list_partition_reassignments())
    assert admin.describe_topics(topic)[topic].partitions[0].replicas == (brokers[1],)
    assert admin.list_offsets({tps[0]: -1})[tps[0]].offset == 1


def test_a_change_is_seen_by_the_client_that_has_made_it(three: RunningCluster, request: pytest.FixtureRequest) -> None:
    admin = BlockingFace(bootstrap_servers=three.bootstrap_servers)
    request.addfinalizer(admin.stop)
    for number in range(30):
        admin.create_topics(f"seen-{number}")
        assert f"seen-{number}" in admin.describe_topics()
