"""Stock consumers share the partitions of their topics in groups, also when members leave or are killed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from raylog.core.errors import ErrorCode
from tests.compat.confluent import Confluent
from tests.compat.group_member import LIBRARIES, GroupMember, Place, group_members
from tests.compat.kcat import Kcat
from tests.compat.row import Row
from tests.compat.topics import create_topic
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import wait_until

pytestmark = pytest.mark.compat
MAY_BE_LOGGED = ("Connection reset",)
"""Of a process that is killed the broker may hear nothing but a reset."""

ANSWER_SECONDS = 20.0
PARTITIONS = 6
CONFIG = {
    "group.initial.rebalance.delay.ms": 300,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 6,
}
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster_thread(CONFIG, tmp_path_factory.mktemp("groups"), brokers=3) as running:
        yield running


@pytest.fixture
def topic(cluster: RunningCluster) -> str:
    name = f"shared-{next(_NUMBERS)}"
    create_topic(cluster.bootstrap_servers, name, partitions=PARTITIONS)
    return name


@pytest.fixture
def group() -> str:
    return f"group-{next(_NUMBERS)}"


@pytest.fixture
def start() -> Iterator[Callable[..., GroupMember]]:
    with group_members() as start:
        yield start


def places(topic: str, count: int = PARTITIONS) -> set[Place]:
    return {Place(topic, number) for number in range(count)}


def produce(bootstrap_servers: str, topic: str, values: Sequence[int], *, partitions: int = PARTITIONS) -> None:
    client = Confluent(bootstrap_servers)
    for partition in range(partitions):
        rows = [Row(partition, 0, None, b"%d" % value) for value in values if value % partitions == partition]
        if rows:
            client.produce(topic, partition, rows, "none")


def values_read(*members: GroupMember) -> list[int]:
    return sorted(int(value) for member in members for _, _, value in member.read)


def wait_for_share(members: Sequence[GroupMember], all_places: set[Place]) -> None:
    """Every partition has one owner, and every member has some."""

    def is_shared() -> bool:
        held = [place for member in members for place in member.holds]
        return sorted(held) == sorted(all_places) and all(member.holds for member in members)

    wait_until(is_shared, lambda: [sorted(member.holds) for member in members])


def wait_for_values(members: Sequence[GroupMember], values: Sequence[int]) -> None:
    wait_until(lambda: set(values_read(*members)) >= set(values), lambda: values_read(*members))


@pytest.mark.parametrize("library", LIBRARIES)
class TestEveryLibrary:
    def test_members_join_and_leave(
        self, bootstrap_servers: str, library: str, topic: str, group: str, start: Callable[..., GroupMember]
    ) -> None:
        """Every record is read, by one member, and by another one only what was not committed when one has gone."""
        first, second = (start(library, bootstrap_servers, group, [topic]) for _ in range(2))
        wait_for_share([first, second], places(topic))
        produce(bootstrap_servers, topic, range(60))
        wait_for_values([first, second], range(60))
        assert values_read(first, second) == list(range(60))

        third = start(library, bootstrap_servers, group, [topic])
        wait_for_share([first, second, third], places(topic))
        second.close()
        wait_for_share([first, third], places(topic))
        produce(bootstrap_servers, topic, range(60, 120))
        wait_for_values([first, second, third], range(120))
        assert values_read(first, second, third) == list(range(120))

    def test_a_killed_member_is_replaced(
        self, bootstrap_servers: str, library: str, topic: str, group: str, start: Callable[..., GroupMember]
    ) -> None:
        first, second = (start(library, bootstrap_servers, group, [topic]) for _ in range(2))
        wait_for_share([first, second], places(topic))
        produce(bootstrap_servers, topic, range(60))
        wait_for_values([first, second], range(60))
        second.kill()
        produce(bootstrap_servers, topic, range(60, 120))
        wait_for_share([first], places(topic))
        wait_for_values([first, second], range(120))

    def test_a_static_member_restarts_without_a_rebalance(
        self, bootstrap_servers: str, library: str, topic: str, group: str, start: Callable[..., GroupMember]
    ) -> None:
        def start_static(instance: str) -> GroupMember:
            return start(library, bootstrap_servers, group, [topic], instance=instance, session_ms=20_000)

        first, second = start_static("one"), start_static("two")
        wait_for_share([first, second], places(topic))
        wait_until(lambda: not (first.is_rebalancing or second.is_rebalancing), lambda: vars(first))
        before = len(first.assignments), len(first.revocations)
        held = second.holds
        second.kill()
        again = start_static("two")
        wait_for_share([first, again], places(topic))
        assert again.holds == held
        assert (len(first.assignments), len(first.revocations)) == before

    def test_topics_by_a_regular_expression(
        self, bootstrap_servers: str, library: str, group: str, start: Callable[..., GroupMember]
    ) -> None:
        """With kafka-python the topics are all there from the beginning: when they change under the leader of a group,
        version 3.0.12 now and then asks its coordinator nothing more, though every request of it was answered."""
        family = f"family-{library}"
        create_topic(bootstrap_servers, f"{family}-a", partitions=2)
        create_topic(bootstrap_servers, f"other-{library}", partitions=2)
        if library == "kafka-python":
            create_topic(bootstrap_servers, f"{family}-b", partitions=2)
        members = [start(library, bootstrap_servers, group, f"{family}-.*") for _ in range(2)]
        if library != "kafka-python":
            wait_for_share(members, places(f"{family}-a", 2))
            create_topic(bootstrap_servers, f"{family}-b", partitions=2)
        wait_for_share(members, places(f"{family}-a", 2) | places(f"{family}-b", 2))


@pytest.mark.parametrize("library", ["confluent-kafka", "kafka-python"])
def test_cooperative_members_keep_their_partitions(
    bootstrap_servers: str, library: str, topic: str, group: str, start: Callable[..., GroupMember]
) -> None:
    first = start(library, bootstrap_servers, group, [topic], assignor="cooperative-sticky")
    wait_for_share([first], places(topic))
    second = start(library, bootstrap_servers, group, [topic], assignor="cooperative-sticky")
    wait_until(lambda: len(second.holds) == PARTITIONS // 2, lambda: second.holds)
    given_up = [revoked for revoked in first.revocations if revoked]
    assert given_up == [second.holds]


def test_different_libraries_in_one_group(
    bootstrap_servers: str, topic: str, group: str, start: Callable[..., GroupMember]
) -> None:
    members = [start(library, bootstrap_servers, group, [topic]) for library in LIBRARIES]
    wait_for_share(members, places(topic))
    assert {len(member.holds) for member in members} == {2}
    produce(bootstrap_servers, topic, range(60))
    wait_for_values(members, range(60))
    assert values_read(*members) == list(range(60))
    members[0].close()
    wait_for_share(members[1:], places(topic))


def test_kcat_as_a_member(bootstrap_servers: str, topic: str, group: str) -> None:
    produce(bootstrap_servers, topic, range(12))
    settings = ["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=3000", "-q"]
    first = Kcat(bootstrap_servers).run([*settings, "-c", "12", "-G", group, topic])
    assert sorted(map(int, first.stdout.split())) == list(range(12))
    produce(bootstrap_servers, topic, range(12, 18))
    second = Kcat(bootstrap_servers).run([*settings, "-c", "6", "-G", group, topic])
    assert sorted(map(int, second.stdout.split())) == list(range(12, 18))


class TestCommits:
    """A member commits, and the next member continues there."""

    def test_confluent(self, bootstrap_servers: str, topic: str, group: str) -> None:
        produce(bootstrap_servers, topic, range(10), partitions=1)
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        messages = [consumer.poll(ANSWER_SECONDS) for _ in range(4)]
        assert messages[3] is not None
        committed = consumer.commit(message=messages[3], asynchronous=False)
        assert committed is not None
        assert [(each.offset, each.error) for each in committed] == [(4, None)]
        consumer.seek(TopicPartition(topic, 0, 8))
        message = consumer.poll(ANSWER_SECONDS)
        assert message is not None
        assert message.value() == b"8"
        consumer.close()
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        message = consumer.poll(ANSWER_SECONDS)
        assert message is not None
        assert message.value() == b"4"
        assert consumer.commit(message=message, asynchronous=True) is None
        consumer.close()
        (found,) = Consumer(settings).committed([TopicPartition(topic, 0)], ANSWER_SECONDS)
        assert found.offset == 5

    def test_kafka_python(self, bootstrap_servers: str, topic: str, group: str) -> None:
        produce(bootstrap_servers, topic, range(10), partitions=1)
        settings = {
            "bootstrap_servers": bootstrap_servers,
            "group_id": group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
        }
        consumer = KafkaConsumer(topic, **settings)
        assert [next(consumer).value for _ in range(4)] == [b"0", b"1", b"2", b"3"]
        consumer.commit()
        consumer.seek(KafkaPythonPartition(topic, 0), 8)
        assert next(consumer).value == b"8"
        consumer.close()
        consumer = KafkaConsumer(topic, **settings)
        assert next(consumer).value == b"4"
        done = consumer.commit_async()
        while not done.is_done:
            consumer.poll(timeout_ms=50, max_records=1)
        assert done.succeeded()
        consumer.close()
        consumer = KafkaConsumer(**settings)
        assert consumer.committed(KafkaPythonPartition(topic, 0)) == 5
        consumer.close()

    def test_aiokafka(self, bootstrap_servers: str, topic: str, group: str) -> None:
        produce(bootstrap_servers, topic, range(10), partitions=1)
        settings = {
            "bootstrap_servers": bootstrap_servers,
            "group_id": group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
        }

        async def story() -> None:
            async with AIOKafkaConsumer(topic, **settings) as consumer:
                assert [(await consumer.getone()).value for _ in range(4)] == [b"0", b"1", b"2", b"3"]
                await consumer.commit()
                consumer.seek(AiokafkaPartition(topic, 0), 8)
                assert (await consumer.getone()).value == b"8"
            async with AIOKafkaConsumer(topic, **settings) as consumer:
                assert (await consumer.getone()).value == b"4"
                assert await consumer.committed(AiokafkaPartition(topic, 0)) == 4

        asyncio.run(asyncio.wait_for(story(), ANSWER_SECONDS))


class TestAdmins:
    @pytest.fixture
    def member(self, bootstrap_servers: str, topic: str, group: str) -> Iterator[GroupMember]:
        """One that has read and committed everything."""
        produce(bootstrap_servers, topic, range(12))
        with group_members() as start:
            member = start("confluent-kafka", bootstrap_servers, group, [topic])
            wait_for_values([member], range(12))
            yield member

    def test_confluent(self, bootstrap_servers: str, topic: str, group: str, member: GroupMember) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(ANSWER_SECONDS)
        assert not listed.errors
        assert group in {each.group_id for each in listed.valid}
        described = admin.describe_consumer_groups([group])[group].result(ANSWER_SECONDS)
        assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
        (only,) = described.members
        assert {(each.topic, each.partition) for each in only.assignment.topic_partitions} == places(topic)
        with pytest.raises(KafkaException) as refused:
            admin.delete_consumer_groups([group])[group].result(ANSWER_SECONDS)
        assert refused.value.args[0].code() == ErrorCode.NON_EMPTY_GROUP
        member.close()
        moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
        assert admin.alter_consumer_group_offsets([moved])[group].result(ANSWER_SECONDS)
        asked = ConsumerGroupTopicPartitions(group)
        found = admin.list_consumer_group_offsets([asked])[group].result(ANSWER_SECONDS)
        assert {each.partition: each.offset for each in found.topic_partitions} == {0: 1, 1: 2, 2: 2, 3: 2, 4: 2, 5: 2}
        admin.delete_consumer_groups([group])[group].result(ANSWER_SECONDS)
        listed = admin.list_consumer_groups().result(ANSWER_SECONDS)
        assert group not in {each.group_id for each in listed.valid}

    def test_kafka_python(self, bootstrap_servers: str, topic: str, group: str, member: GroupMember) -> None:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
        assert group in {each["group_id"] for each in admin.list_groups(states_filter=["Stable"])}
        described = admin.describe_groups([group])[group]
        assert described["group_state"] == "Stable"
        place = KafkaPythonPartition(topic, 0)
        refused = admin.delete_group_offsets(group, [place])
        assert "GroupSubscribedToTopic" in str(refused)
        member.close()
        assert "GroupSubscribedToTopic" not in str(admin.delete_group_offsets(group, [place]))
        found = admin.list_group_offsets({group: None})[group]
        assert {each.partition for each in found} == set(range(1, PARTITIONS))
        admin.delete_groups([group])
        assert group not in {each["group_id"] for each in admin.list_groups()}
        admin.close()

    def test_aiokafka(self, bootstrap_servers: str, topic: str, group: str, member: GroupMember) -> None:
        async def story() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
            await admin.start()
            try:
                assert group in {name for name, _ in await admin.list_consumer_groups()}
                (described,) = await admin.describe_consumer_groups([group])
                assert group in str(described)
                found = await admin.list_consumer_group_offsets(group)
                assert {each.partition: value.offset for each, value in found.items()} == dict.fromkeys(range(6), 2)
            finally:
                await admin.close()

        wait_until(lambda: len(member.read) == 12, lambda: member.read)
        member.close()
        asyncio.run(asyncio.wait_for(story(), ANSWER_SECONDS))
