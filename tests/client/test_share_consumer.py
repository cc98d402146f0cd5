"""raylog's share consumer against production brokers: records go to one member each, and bad use has a clear error."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.serialization import IntegerDeserializer

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from raylog.client.admin.topics import NewTopic
from raylog.client.errors import AdminError, ClientClosedError, SerializationError, WakeupError
from raylog.client.network_loop import NetworkLoop
from raylog.client.producer.producer import Producer
from raylog.client.share.acquired import ShareRecord
from raylog.client.share.async_share_consumer import AsyncShareConsumer
from raylog.client.share.share_consumer import ShareConsumer
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.share import AcknowledgeType
from tests.client.admin_faces import AsyncFace as AdminAsyncFace
from tests.client.admin_faces import BlockingFace
from tests.client.consumer_faces import SHARE_FACES
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import HANG_SECONDS

ACCEPT, RELEASE, REJECT, RENEW = list(AcknowledgeType)[1:]
LOCK_MS = 1000
CONFIG = {
    "auto.create.topics.enable": "false",
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 100,
    "group.share.min.record.lock.duration.ms": LOCK_MS,
    "offsets.topic.num.partitions": 2,
    "share.coordinator.state.topic.num.partitions": 2,
}
Make = Callable[..., Any]

faces = pytest.mark.parametrize("face", SHARE_FACES, ids=lambda face: face.__name__)
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster_thread(CONFIG, tmp_path_factory.mktemp("share-consumer"), brokers=2) as running:
        yield running


class Group:
    """A share group that begins with the earliest records, and a topic for it."""

    def __init__(self, cluster: RunningCluster, partitions: int = 1, **configs: str) -> None:
        self.servers = cluster.bootstrap_servers
        self.name = f"group-{next(_NUMBERS)}"
        self.topic = f"of-{self.name}"
        given = {
            "share.auto.offset.reset": "earliest",
            **{key.replace("_", "."): text for key, text in configs.items()},
        }
        with AdminClient(bootstrap_servers=self.servers) as admin:
            admin.incremental_alter_configs({ConfigResource(ConfigResourceType.GROUP, self.name): given})
            admin.create_topics(NewTopic(self.topic, partitions, 1))

    def write(self, *values: bytes, partition: int = 0) -> None:
        with Producer(bootstrap_servers=self.servers) as producer:
            for value in values:
                producer.send(self.topic, value, partition=partition)


@pytest.fixture
def group(cluster: RunningCluster) -> Group:
    return Group(cluster)


@pytest.fixture
def make(group: Group, request: pytest.FixtureRequest) -> Make:
    """Makes a member that has subscribed to the topic, and closes it at the end of the test."""

    def made(face: Any = ShareConsumer, mode: str = "explicit", of: Group = group, **settings: Any) -> Any:
        given = {"bootstrap_servers": of.servers, "group_id": of.name, "share_acknowledgement_mode": mode}
        consumer = face(**given, metadata_max_age_ms=200, **settings)
        request.addfinalizer(lambda: consumer.close(5))
        consumer.subscribe(of.topic)
        return consumer

    return made


def read(consumer: Any, count: int, kind: AcknowledgeType | None = None) -> list[ShareRecord]:
    """At least so many records, each acknowledged so."""
    found: list[ShareRecord] = []
    deadline = time.monotonic() + HANG_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        records = consumer.poll(1.0)
        found += records
        for record in records if kind is not None else ():
            consumer.acknowledge(record, kind)
    return found


def values(records: list[ShareRecord]) -> list[bytes]:
    return sorted(record.value for record in records)


def tp(group: Group) -> TopicPartition:
    return TopicPartition(group.topic, 0)


# --- records


@faces
def test_accepted_records_are_not_delivered_again(group: Group, make: Make, face: Any) -> None:
    group.write(b"0", b"1", b"2")
    first = make(face, "implicit")
    found = read(first, 3)
    assert [(record.topic, record.offset, record.delivery_count) for record in found] == [
        (group.topic, offset, 1) for offset in range(3)
    ]
    assert first.commit_sync() == {tp(group): None}
    assert first.commit_sync() == {}
    first.close()
    group.write(b"3")
    assert values(read(make(face, "implicit"), 1)) == [b"3"]


@faces
def test_released_records_come_again_and_rejected_ones_do_not(group: Group, make: Make, face: Any) -> None:
    group.write(b"0", b"1", b"2")
    member = make(face)
    for record, kind in zip(read(member, 3), (ACCEPT, RELEASE, REJECT), strict=True):
        member.acknowledge(record, kind)
    (again,) = read(member, 1, ACCEPT)
    assert (again.value, again.delivery_count) == (b"1", 2)
    assert member.commit_sync() == {tp(group): None}
    group.write(b"3")
    assert values(read(member, 1, ACCEPT)) == [b"3"]


@faces
def test_the_lock_of_a_record_is_renewed_and_the_record_comes_again(group: Group, make: Make, face: Any) -> None:
    group.write(b"0", b"1")
    member = make(face)
    for record in read(member, 2):
        member.acknowledge(record, RENEW if record.value == b"0" else ACCEPT)
    (again,) = read(member, 1, RENEW)
    assert (again.value, again.delivery_count) == (b"0", 1)
    assert member.commit_sync() == {tp(group): None}
    (again,) = read(member, 1, ACCEPT)
    assert (again.value, again.delivery_count) == (b"0", 1)
    assert member.commit_sync() == {tp(group): None}


@faces
def test_after_the_lock_has_timed_out_another_member_gets_the_record(
    cluster: RunningCluster, make: Make, face: Any
) -> None:
    group = Group(cluster, share_record_lock_duration_ms=str(LOCK_MS))
    group.write(b"0")
    slow = make(face, of=group)
    (late,) = read(slow, 1)
    assert slow.acquisition_lock_timeout_ms() == LOCK_MS
    other = make(face, of=group)
    (again,) = read(other, 1, ACCEPT)
    assert again.delivery_count == 2
    slow.acknowledge(late)
    result = slow.commit_sync()[tp(group)]
    assert result.code is ErrorCode.INVALID_RECORD_STATE
    assert other.commit_sync() == {tp(group): None}


@faces
def test_a_member_that_closes_releases_what_it_has_not_acknowledged_and_it_is_not_counted(
    group: Group, make: Make, face: Any
) -> None:
    group.write(*(b"%d" % number for number in range(5)))
    first = make(face, max_poll_records=2)
    assert values(read(first, 2))[:2] == [b"0", b"1"]
    first.acknowledge((group.topic, 0, 0))
    first.close()
    found = read(make(face), 4, ACCEPT)
    assert values(found) == [b"1", b"2", b"3", b"4"]
    assert {record.delivery_count for record in found} == {1}


def test_members_share_the_records_of_one_partition(group: Group, make: Make) -> None:
    members = [make(mode="implicit", max_poll_records=3, share_acquire_mode="record_limit") for _ in range(3)]
    seen: list[list[bytes]] = [[] for _ in members]
    sent = 0
    deadline = time.monotonic() + HANG_SECONDS
    while not all(seen) or sum(map(len, seen)) < sent:
        assert time.monotonic() < deadline, [len(each) for each in seen]
        if not all(seen):
            group.write(*(b"%d" % number for number in range(sent, sent + 9)))
            sent += 9
        for index, member in enumerate(members):
            records = member.poll(0.05)
            assert len(records) <= 3
            seen[index] += values(records)
    assert sorted(itertools.chain(*seen)) == sorted(b"%d" % number for number in range(sent))


def test_large_batches_compression_and_many_records(cluster: RunningCluster, make: Make) -> None:
    group = Group(cluster, partitions=3)
    with Producer(bootstrap_servers=group.servers, compression_type="zstd", batch_size=100_000) as producer:
        for number in range(3000):
            producer.send(group.topic, b"%d" % number, partition=number % 3)
    member = make(mode="implicit", of=group)
    assert values(read(member, 3000)) == sorted(b"%d" % number for number in range(3000))


@faces
def test_a_record_that_cannot_be_deserialized_is_named_and_released(group: Group, make: Make, face: Any) -> None:
    group.write(b"\0\0\0\7", b"bad", b"\0\0\0\x08")
    member = make(face, value_deserializer=IntegerDeserializer())
    assert [record.value for record in read(member, 2, ACCEPT)] == [7, 8]
    with pytest.raises(SerializationError, match=r"offset 1, cannot be deserialized.*REJECT"):
        member.poll()
    with pytest.raises(SerializationError, match="offset 1"):
        read(member, 1)
    member.acknowledge((group.topic, 0, 1), REJECT)
    assert member.commit_sync() == {tp(group): None}
    group.write(b"\0\0\0\x09")
    assert [record.value for record in read(member, 1, ACCEPT)] == [9]


@faces
@pytest.mark.parametrize("mode", ["implicit", "explicit"])
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, asyncio.CancelledError])
def test_records_that_an_interrupt_kept_from_being_returned_come_again(
    group: Group, make: Make, face: Any, mode: str, interrupt: type[BaseException]
) -> None:
    """Also that which was deserialized before."""
    interrupts = [interrupt]

    def deserialize(data: bytes, context: object) -> bytes:
        if data == b"1" and interrupts:
            raise interrupts.pop()
        return data

    kind = ACCEPT if mode == "explicit" else None
    group.write(b"0", b"1", b"2")
    member = make(face, mode, value_deserializer=deserialize)
    with pytest.raises(interrupt):
        read(member, 3, kind)
    found = read(member, 3, kind)
    assert [(record.value, record.delivery_count) for record in found] == [(b"0", 2), (b"1", 2), (b"2", 2)]
    assert member.commit_sync() == {tp(group): None}


def test_a_partition_that_moves_is_read_on_from_its_new_leader(cluster: RunningCluster, make: Make) -> None:
    group = Group(cluster)
    member = make(of=group)
    group.write(b"0", b"1")
    held = read(member, 2)
    old = cluster.broker.image.topics[group.topic].partitions[0].leader
    with AdminClient(bootstrap_servers=group.servers) as admin:
        admin.alter_partition_reassignments({(group.topic, 0): [1 - old]})
        deadline = time.monotonic() + HANG_SECONDS
        while any(broker.image.topics[group.topic].partitions[0].leader == old for broker in cluster.brokers):
            assert time.monotonic() < deadline
    for record in held:
        member.acknowledge(record)
    result = member.commit_sync()[tp(group)]
    assert result.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    group.write(b"2")
    found = read(member, 3, ACCEPT)
    assert values(found) == [b"0", b"1", b"2"], "the new leader gives out again what the old one had not stored"
    assert member.commit_sync() == {tp(group): None}


@faces
def test_a_poll_that_waits_runs_the_connections_at_their_events_only(
    make: Make, face: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    poke, pokes = NetworkLoop.poke, [0]

    def counted(loop: NetworkLoop) -> None:
        pokes[0] += 1
        poke(loop)

    member = make(face)
    assert member.poll(0.3) == []
    monkeypatch.setattr(NetworkLoop, "poke", counted)
    assert member.poll(0.5) == []
    assert pokes[0] < 20


@faces
def test_results_are_reported_to_the_callback(group: Group, make: Make, face: Any) -> None:
    reported: list[tuple[TopicPartition, list[int], KafkaError | None]] = []
    group.write(b"0", b"1", b"2")
    member = make(face)
    member.set_acknowledgement_commit_callback(lambda *result: reported.append(result))
    first, *others = read(member, 3)
    member.acknowledge(first)
    member.commit_async()
    for record in others:
        member.acknowledge(record)
    deadline = time.monotonic() + HANG_SECONDS
    while len(reported) < 2:
        assert time.monotonic() < deadline
        member.poll(0.05)
    assert reported == [(tp(group), [0], None), (tp(group), [1, 2], None)]


@faces
@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_a_failing_callback_leaves_new_records_for_the_next_poll(
    group: Group, make: Make, face: Any, mode: str
) -> None:
    """The response that has the result has the records too."""

    def fail(*result: object) -> None:
        raise ValueError("of the callback")

    kind = ACCEPT if mode == "explicit" else None
    group.write(b"0")
    member = make(face, mode)
    read(member, 1, kind)
    member.set_acknowledgement_commit_callback(fail)
    group.write(b"1")
    with pytest.raises(ValueError, match="of the callback"):
        read(member, 1)
    member.set_acknowledgement_commit_callback(None)
    (found,) = read(member, 1, kind)
    assert (found.value, found.delivery_count) == (b"1", 1)
    assert member.commit_sync() == {tp(group): None}


def test_a_cancelled_callback_leaves_new_records_for_the_next_poll(group: Group) -> None:
    async def use() -> list[ShareRecord]:
        called = asyncio.Event()

        async def wait(*result: object) -> None:
            called.set()
            await asyncio.sleep(HANG_SECONDS)

        async with AsyncShareConsumer(bootstrap_servers=group.servers, group_id=group.name) as member:
            member.subscribe(group.topic)
            group.write(b"0")
            await member.poll(HANG_SECONDS)
            member.set_acknowledgement_commit_callback(wait)
            group.write(b"1")
            polling = asyncio.create_task(member.poll(HANG_SECONDS))
            await called.wait()
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
            member.set_acknowledgement_commit_callback(None)
            return await member.poll(HANG_SECONDS)

    assert values(asyncio.run(use())) == [b"1"]


def test_a_callback_may_close_the_consumer(group: Group, make: Make) -> None:
    group.write(b"0")
    member = make()
    read(member, 1, ACCEPT)
    member.set_acknowledgement_commit_callback(lambda *result: member.close())
    with pytest.raises(ClientClosedError):
        read(member, 1)


def test_close_closes_the_connections_also_if_the_callback_fails(group: Group, make: Make) -> None:
    def fail(*result: object) -> None:
        raise ValueError("of the callback")

    group.write(b"0")
    member = make()
    read(member, 1, ACCEPT)
    member.set_acknowledgement_commit_callback(fail)
    with pytest.raises(ValueError, match="of the callback"):
        member.close()
    assert member._loop._closed
    member.close()


def test_iteration_accepts_the_record_before(group: Group, make: Make) -> None:
    group.write(b"0", b"1", b"2")
    with make(mode="implicit") as member:
        seen = list(itertools.islice((record.value for record in member), 2))
    assert seen == [b"0", b"1"]

    async def iterate() -> list[bytes]:
        found = []
        async with AsyncShareConsumer(bootstrap_servers=group.servers, group_id=group.name) as consumer:
            consumer.subscribe([group.topic])
            async for record in consumer:
                found.append(record.value)
                if len(found) == 2:
                    await consumer.commit_sync()
                    return found
        return found

    assert asyncio.run(iterate()) == [b"1", b"2"], "the first one was accepted, and the second released by close()"


@faces
def test_it_can_unsubscribe_and_subscribe_again(group: Group, make: Make, face: Any) -> None:
    group.write(b"0", b"1")
    member = make(face)
    held = read(member, 2)
    member.acknowledge(held[0])
    member.unsubscribe()
    assert member.subscription() == set()
    with pytest.raises(KafkaError, match="needs a subscription"):
        member.poll()
    with pytest.raises(KafkaError, match="is not one of the last poll"):
        member.acknowledge(held[1])
    member.subscribe([group.topic])
    assert values(read(member, 1, ACCEPT)) == [b"1"]


# --- bad use


@faces
def test_bad_use_is_named_at_the_call(make: Make, face: Any) -> None:
    member = make(face)
    wrong: tuple[Any, ...] = (None, 7, [None], [["orders"]], [7])
    for given in wrong:
        with pytest.raises(KafkaError, match="topic"):
            member.subscribe(given)
    wrong = (None, 7, "ab", ("orders", 0), {})
    for given in wrong:
        with pytest.raises(KafkaError, match="a record must be one that poll"):
            member.acknowledge(given)
    member.subscribe("orders")
    wrong = ("1", [], float("nan"), float("inf"), 10**40)
    for seconds in wrong:
        for call in (member.poll, member.commit_sync):
            with pytest.raises(KafkaError, match="timeout="):
                call(seconds)
    for count in (-1, 1.5, "1"):
        with pytest.raises(KafkaError, match="max_records must be"):
            member.poll(max_records=count)
    with pytest.raises(ConfigError, match="callback='print': must be a function"):
        member.set_acknowledgement_commit_callback("print")


def test_a_timeout_of_a_wrong_type_closes_nothing(group: Group, make: Make) -> None:
    member = make()
    wrong: Any = "30"
    with pytest.raises(KafkaError, match="timeout='30'"):
        member.close(wrong)
    member.subscribe("orders")

    async def use() -> None:
        async with AsyncShareConsumer(bootstrap_servers=group.servers, group_id=group.name) as consumer:
            with pytest.raises(KafkaError, match="timeout='30'"):
                await consumer.close(wrong)
            consumer.subscribe("orders")

    asyncio.run(use())


def test_a_closed_consumer(group: Group, make: Make) -> None:
    member = make()
    member.close()
    member.close()
    for call in (member.poll, member.commit_sync, member.commit_async, member.unsubscribe):
        with pytest.raises(ClientClosedError):
            call()

    async def use_closed() -> None:
        consumer = AsyncShareConsumer(bootstrap_servers=group.servers, group_id=group.name)
        await consumer.close()
        await consumer.close()
        for call in (consumer.poll, consumer.commit_sync, consumer.unsubscribe):
            with pytest.raises(ClientClosedError):
                await call()

    asyncio.run(use_closed())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "group.id: must be set"),
        ({"group_id": "g", "share_acknowledgement_mode": "maybe"}, "share.acknowledgement.mode"),
        ({"group_id": "g", "share_acquire_mode": "all"}, "share.acquire.mode"),
        ({"group_id": "g", "auto_offset_reset": "earliest"}, "auto.offset.reset"),
        ({"group_id": "g", "enable_auto_commit": True}, "enable.auto.commit"),
        ({"group_id": "g", "group_instance_id": "i"}, "group.instance.id"),
        ({"group_id": "g", "isolation_level": "read_committed"}, "isolation.level"),
        ({"group_id": "g", "max_poll_records": 0}, "max.poll.records"),
    ],
    ids=str,
)
def test_settings_that_a_share_consumer_does_not_have(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ShareConsumer(bootstrap_servers="127.0.0.1:1", **settings)


@faces
def test_calls_with_what_cannot_be(group: Group, make: Make, face: Any) -> None:
    group.write(b"0")
    member = make(face)
    for topics in ([], "", [""]):
        with pytest.raises(KafkaError, match="needs topics by name"):
            member.subscribe(topics)
    (record,) = read(member, 1)
    with pytest.raises(KafkaError, match="is no AcknowledgeType"):
        member.acknowledge(record, 9)
    with pytest.raises(KafkaError, match="is not one of the last poll"):
        member.acknowledge((group.topic, 0, 1 << 62))
    with pytest.raises(KafkaError, match="must be acknowledged before"):
        member.poll()
    member.acknowledge(record)
    assert member.commit_sync(0).keys() == {tp(group)}
    with pytest.raises(KafkaError) as raised:
        member.acknowledge(record)
    assert raised.value.code is ErrorCode.INVALID_RECORD_STATE


def test_a_topic_that_does_not_exist_is_named_and_one_that_comes_is_read(group: Group, make: Make) -> None:
    member = make(default_api_timeout_ms=200)
    member.subscribe([group.topic, "missing"])
    with pytest.raises(KafkaError, match="'missing' does not exist"):
        read(member, 1)
    group.write(b"0")
    assert values(read(member, 1, ACCEPT)) == [b"0"]


def test_another_thread_can_wake_it_up_and_do_nothing_else(make: Make) -> None:
    member = make()
    raised: list[BaseException] = []

    def poll() -> None:
        try:
            member.poll(HANG_SECONDS)
        except KafkaError as error:
            raised.append(error)

    polling = threading.Thread(target=poll)
    polling.start()
    deadline = time.monotonic() + HANG_SECONDS
    while not member._core.member.polling:
        assert time.monotonic() < deadline
    with pytest.raises(KafkaError, match="another thread is using this share consumer"):
        member.poll()
    member.wakeup()
    polling.join(HANG_SECONDS)
    assert [type(error) for error in raised] == [WakeupError]


def test_a_broker_that_cannot_be_reached() -> None:
    with ShareConsumer(bootstrap_servers="127.0.0.1:1", group_id="g") as member:
        member.subscribe("t")
        assert member.poll(0.1) == []
        assert member.commit_sync(0.1) == {}


# --- administration


@pytest.mark.parametrize("face", [BlockingFace, AdminAsyncFace], ids=["blocking", "asyncio"])
def test_groups_are_listed_described_and_deleted(
    group: Group, make: Make, face: Any, request: pytest.FixtureRequest
) -> None:
    admin = face(bootstrap_servers=group.servers)
    request.addfinalizer(admin.stop)
    group.write(b"0", b"1", b"2")
    member = make(client_id="me", client_rack="b")
    first, *_ = read(member, 3)
    member.acknowledge(first)
    assert member.commit_sync() == {tp(group): None}
    listed = {each.group_id: each for each in admin.list_groups(types=["share"])}
    assert (listed[group.name].type, listed[group.name].state) == ("share", "Stable")
    assert group.name in {each.group_id for each in admin.list_groups()}
    assert group.name not in {each.group_id for each in admin.list_consumer_groups()}
    described = admin.describe_share_groups(group.name, include_authorized_operations=True)[group.name]
    assert (described.type, described.state, described.protocol) == ("share", "Stable", "simple")
    assert described.group_epoch == described.target_assignment_epoch
    (found,) = described.members
    assert (found.client_id, found.partitions, found.topics) == ("me", (tp(group),), (group.topic,))
    assert found.member_epoch == described.group_epoch
    (offset,) = admin.list_share_group_offsets(group.name).values()
    assert offset.start_offset == 1
    with pytest.raises(AdminError) as raised:
        admin.delete_share_groups(group.name)
    assert raised.value.code is ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(AdminError) as raised:
        admin.alter_share_group_offsets(group.name, {tp(group): 0})
    assert raised.value.code is ErrorCode.NON_EMPTY_GROUP
    member.close()
    with pytest.raises(AdminError) as raised:
        admin.delete_share_groups([group.name, "none"])
    assert (list(raised.value.results), list(raised.value.errors)) == ([group.name], ["none"])
    with pytest.raises(AdminError) as raised:
        admin.describe_share_groups(group.name)
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_start_offsets_are_set_and_deleted(group: Group, make: Make) -> None:
    group.write(*(b"%d" % number for number in range(5)))
    member = make()
    read(member, 5, ACCEPT)
    member.close()
    missing = TopicPartition(group.topic, 7)
    with AdminClient(bootstrap_servers=group.servers) as admin:
        assert admin.alter_share_group_offsets(group.name, {tp(group): 3}) == {tp(group): None}
        assert values(read(make(), 2, ACCEPT)) == [b"3", b"4"]
        found = admin.list_share_group_offsets(group.name, [tp(group)])[tp(group)]
        assert found is not None
        assert found.start_offset == 3, "what a member has said is sent with its next call"
        with pytest.raises(AdminError) as raised:
            admin.list_share_group_offsets(group.name, [tp(group), missing])
        assert (list(raised.value.results), list(raised.value.errors)) == ([tp(group)], [missing])


def test_deleted_start_offsets_let_the_group_begin_anew(group: Group, make: Make) -> None:
    group.write(b"0", b"1")
    member = make()
    read(member, 2, ACCEPT)
    member.close()
    with AdminClient(bootstrap_servers=group.servers) as admin:
        with pytest.raises(AdminError) as raised:
            admin.delete_share_group_offsets(group.name, ["none", group.topic])
        assert (list(raised.value.results), list(raised.value.errors)) == ([group.topic], ["none"])
        assert admin.list_share_group_offsets(group.name) == {}
        with pytest.raises(AdminError):
            admin.alter_share_group_offsets(group.name, {tp(group): -1})
        with pytest.raises(AdminError):
            admin.delete_share_group_offsets("none", [group.topic])
    assert values(read(make(), 2, ACCEPT)) == [b"0", b"1"]
