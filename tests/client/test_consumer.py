"""raylog's consumer against production brokers: by every door, with both faces, in groups, and with every bad use."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from confluent_kafka.serialization import IntegerDeserializer, IntegerSerializer, StringDeserializer, StringSerializer

from raylog.client.consumer import async_consumer
from raylog.client.consumer.async_consumer import AsyncConsumer
from raylog.client.consumer.consumer import Consumer
from raylog.client.consumer.fetched import ConsumerRecord
from raylog.client.consumer.interceptors import ConsumerInterceptor
from raylog.client.errors import ClientClosedError, SerializationError, WakeupError
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.client.network_loop import NetworkLoop
from raylog.client.producer.producer import Producer
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.transport import unix
from tests.client.consumer_faces import FACES
from tests.client.served import DOORS, Served, Target
from tests.support import administration as admin
from tests.support.hang import HANG_SECONDS
from tests.support.raw_client import RawClient

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STRATEGIES = ("range", "roundrobin", "cooperative-sticky")
NO_TEXT = "\ud800"
"""What UTF-8 cannot encode, and so no request can carry."""
Make = Callable[..., Any]

protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])
faces = pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)


@pytest.fixture
def make(target: Target, request: pytest.FixtureRequest) -> Make:
    """Makes a consumer, and closes it at the end of the test."""

    def made(face: Any = Consumer, **settings: Any) -> Any:
        settings = {
            "auto_offset_reset": "earliest",
            "metadata_max_age_ms": 200,
            "heartbeat_interval_ms": 100,
            **target.settings("unix"),
            **settings,
        }
        if settings.get("group_protocol") == "consumer":  # the coordinator sets it
            del settings["heartbeat_interval_ms"]
        consumer = face(**settings)
        request.addfinalizer(lambda: consumer.close(5))
        return consumer

    return made


def write(target: Target, topic: str, *values: bytes | None, partition: int = 0, **options: Any) -> None:
    with Producer(**target.settings("unix")) as producer:
        for value in values:
            producer.send(topic, value, partition=partition, **options)


def read(consumer: Any, count: int) -> list[Any]:
    """At least so many records."""
    found: list[Any] = []
    deadline = time.monotonic() + HANG_SECONDS
    while len(found) < count:
        found += consumer.poll(1.0)
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
    return found


def until(is_so: Callable[[], bool], *polled: Any) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while not is_so():
        for consumer in polled:
            consumer.poll(0.05)
        assert time.monotonic() < deadline


def values(records: list[Any]) -> list[Any]:
    return [record.value for record in records]


def code_of(call: Callable[[], object]) -> tuple[str, str]:
    """The name of the error's class with its code, and its message."""
    with pytest.raises(KafkaError) as raised:
        call()
    return f"{type(raised.value).__name__} {raised.value.code.name}", raised.value.message


# --- records


@faces
@pytest.mark.parametrize("door", DOORS)
def test_every_door(served: Served, make: Make, face: Any, door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if door == "tcp":
        monkeypatch.setattr(unix, "runtime_dirs", tuple)
    topic = served.new_topic()
    write(served, topic, *(b"%d" % number for number in range(1000)))
    consumer = make(face, **served.settings(door), max_partition_fetch_bytes=2000, mapped=False)
    consumer.assign([(topic, 0)])
    assert values(read(consumer, 1000)) == [b"%d" % number for number in range(1000)]


@faces
def test_files(served: Served, make: Make, face: Any) -> None:
    """They are read once the leader has answered a fetch, without further requests."""
    topic = served.new_topic(2)
    write(served, topic, b"0")
    consumer = make(face, **served.settings(), max_partition_fetch_bytes=500)
    consumer.assign([(topic, 0), (topic, 1)])
    assert values(read(consumer, 1)) == [b"0"]
    until(lambda: len(consumer.files()) == 2, consumer)
    for number in range(1, 1000):
        write(served, topic, b"%d" % number, partition=number % 2) if number % 100 == 0 else None
    assert sorted(values(read(consumer, 9))) == sorted(b"%d" % number for number in range(100, 1000, 100))
    write(served, topic, *(b"%d" % number for number in range(1000)))
    assert values(read(consumer, 1000)) == [b"%d" % number for number in range(1000)]
    assert (consumer.lag((topic, 0)), consumer.known_position((topic, 0))) == (0, consumer.position((topic, 0)))
    consumer.seek((topic, 0), 0)
    assert consumer.known_position((topic, 0)) == 0
    consumer.seek_to_end((topic, 0))
    assert consumer.known_position((topic, 0)) is None
    consumer.seek((topic, 0), 0)
    assert values(read(consumer, 1))[0] == b"0"
    assert len(consumer.files()) == 2


@faces
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_and_all_fields(target: Target, make: Make, face: Any, codec: str) -> None:
    topic = target.new_topic()
    producer = confluent_kafka.Producer({"bootstrap.servers": target.plain, "compression.type": codec})
    for value in (b"a", b"", None, b"x" * 3000):
        producer.produce(topic, value, b"k", headers=[("h", b"1"), ("none", None)], timestamp=12345)
    producer.flush()
    consumer = make(face)
    consumer.assign([(topic, 0)])
    found = read(consumer, 4)
    assert values(found) == [b"a", b"", None, b"x" * 3000]
    assert {(each.topic, each.partition, each.key, each.timestamp_ms, each.timestamp_type) for each in found} == {
        (topic, 0, b"k", 12345, 0)
    }
    assert found[0].headers == (("h", b"1"), ("none", None))
    assert [each.offset for each in found] == [0, 1, 2, 3]


@faces
@pytest.mark.parametrize("mapped", [False, True])
def test_columns_of_arrow(target: Target, make: Make, face: Any, mapped: bool) -> None:
    topic = target.new_topic()
    write(target, topic, *(b"%d" % number for number in range(100)), timestamp_ms=5)
    consumer = make(face, mapped=mapped, max_partition_fetch_bytes=500)
    consumer.assign([(topic, 0)])
    assert values(consumer.poll(HANG_SECONDS, max_records=3)) == [b"0", b"1", b"2"]
    rows: list[Any] = []
    while len(rows) < 97:
        for batch in consumer.poll_arrow(HANG_SECONDS, columns=["value", "offset"]):
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    assert rows == [(b"%d" % number, number) for number in range(3, 100)]
    assert consumer.position((topic, 0)) == 100
    assert consumer.poll_arrow(0.0) == []
    with pytest.raises(ConfigError, match="'colour' must be one of"):
        consumer.poll_arrow(columns=["colour"])


@faces
@pytest.mark.parametrize("mapped", [True, False], ids=["files", "requests"])
def test_a_poll_that_waits_runs_the_connections_at_their_events_only(
    target: Target, make: Make, face: Any, mapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    poke, pokes = NetworkLoop.poke, [0]

    def counted(loop: NetworkLoop) -> None:
        pokes[0] += 1
        poke(loop)

    topic = target.new_topic()
    consumer = make(face, mapped=mapped, **target.settings())
    consumer.assign([(topic, 0)])
    assert consumer.poll(0.3) == []  # it knows the topic then
    monkeypatch.setattr(NetworkLoop, "poke", counted)
    assert consumer.poll(0.5) == []
    assert pokes[0] < 20


@faces
def test_poll_returns_at_most_what_was_asked_for(target: Target, make: Make, face: Any) -> None:
    topic = target.new_topic(2)
    write(target, topic, *(b"%d" % number for number in range(10)))
    consumer = make(face, max_poll_records=3)
    consumer.assign([(topic, 0), (topic, 1)])
    assert [len(read(consumer, 1)) for _ in range(4)] == [3, 3, 3, 1]
    assert consumer.poll(0.0) == []
    assert consumer.position((topic, 0)) == 10
    assert consumer.lag((topic, 0)) == 0
    consumer.seek((topic, 0), 4)
    assert values(consumer.poll(HANG_SECONDS, max_records=1)) == [b"4"]


@faces
def test_seeking(target: Target, make: Make, face: Any) -> None:
    topic = target.new_topic()
    for number in range(5):
        write(target, topic, b"%d" % number, timestamp_ms=1000 * (number + 1))
    consumer, tp = make(face), TopicPartition(topic, 0)
    consumer.assign([tp])
    read(consumer, 5)
    consumer.seek(tp, 3)
    assert values(read(consumer, 2)) == [b"3", b"4"]
    consumer.seek_to_beginning()
    assert values(read(consumer, 5))[0] == b"0"
    consumer.seek_to_timestamp(2500, tp)
    assert values(read(consumer, 3)) == [b"2", b"3", b"4"]
    consumer.seek_to_timestamp(9000)
    assert consumer.position(tp) == 5
    consumer.seek_to_beginning(tp)
    consumer.seek_to_end(tp)
    assert consumer.position(tp) == 5
    assert consumer.beginning_offsets([tp]) == {tp: 0}
    assert consumer.end_offsets([tp]) == {tp: 5}
    found = consumer.offsets_for_times({tp: 3500})[tp]
    assert (found.offset, found.timestamp_ms) == (3, 4000)
    assert consumer.offsets_for_times({tp: 9000}) == {tp: None}
    assert list(consumer.partitions_for_topic(topic)) == [0]


@faces
def test_a_paused_partition_is_not_returned(target: Target, make: Make, face: Any) -> None:
    topic = target.new_topic(2)
    write(target, topic, b"a")
    write(target, topic, b"b", partition=1)
    consumer = make(face)
    consumer.assign([(topic, 0), (topic, 1)])
    consumer.pause((topic, 0))
    assert consumer.paused() == {TopicPartition(topic, 0)}
    assert values(read(consumer, 1)) == [b"b"]
    assert consumer.poll(0.2) == []
    consumer.resume([(topic, 0)])
    assert values(read(consumer, 1)) == [b"a"]


@faces
def test_news_of_a_paused_partition_end_no_wait(served: Served, make: Make, face: Any) -> None:
    topic = served.new_topic()
    write(served, topic, b"a")
    consumer = make(face, **served.settings())
    consumer.assign([(topic, 0)])
    assert values(read(consumer, 1)) == [b"a"]
    until(lambda: consumer.files(), consumer)
    consumer.pause((topic, 0))
    write(served, topic, b"b")
    before = time.thread_time()
    assert consumer.poll(1.0) == []
    assert time.thread_time() - before < 0.5, "it has looked at the partition all the time"
    consumer.resume((topic, 0))
    assert values(read(consumer, 1)) == [b"b"]


def test_other_tasks_run_while_there_are_always_records(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_consumer, "LOOP_SECONDS_MAX", -1.0)
    topic = served.new_topic()
    write(served, topic, *(b"%d" % number for number in range(1000)))

    async def turns_during_polls() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with AsyncConsumer(**served.settings(), auto_offset_reset="earliest", max_poll_records=10) as consumer:
            consumer.assign([(topic, 0)])
            while not await consumer.poll(1.0):
                pass
            task = asyncio.create_task(other())
            for _ in range(50):
                assert len(await consumer.poll(1.0)) == 10
            task.cancel()
        return turns

    assert asyncio.run(turns_during_polls()) >= 50


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_isolation_levels(target: Target, make: Make, level: str) -> None:
    topic = target.new_topic()
    producer = confluent_kafka.Producer({"bootstrap.servers": target.plain, "transactional.id": topic})
    producer.init_transactions()
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        end()
    consumer = make(isolation_level=level)
    consumer.assign([(topic, 0)])
    wanted = [b"committed"] if level == "read_committed" else [b"aborted", b"committed"]
    assert values(read(consumer, len(wanted))) == wanted
    assert consumer.poll(0.2) == []
    assert consumer.position((topic, 0)) == 4


# --- where it begins


@pytest.mark.parametrize(
    ("policy", "first"),
    [("earliest", b"old"), ("latest", b"new"), ("by_duration:PT1H", b"young"), ("by_duration:P1000000D", b"old")],
)
def test_auto_offset_reset(target: Target, make: Make, policy: str, first: bytes) -> None:
    topic = target.new_topic()
    write(target, topic, b"old", timestamp_ms=1000)
    write(target, topic, b"young")
    consumer = make(auto_offset_reset=policy)
    consumer.assign([(topic, 0)])
    consumer.position((topic, 0))
    write(target, topic, b"new")
    assert values(read(consumer, 1))[0] == first


@faces
def test_without_a_policy_a_missing_offset_is_an_error(target: Target, make: Make, face: Any) -> None:
    topic = target.new_topic()
    write(target, topic, b"a", b"b")
    consumer = make(face, auto_offset_reset="none", group_id="none")
    consumer.assign([(topic, 0)])
    name, message = code_of(lambda: consumer.poll(HANG_SECONDS))
    assert (name, "there is no committed offset" in message) == ("KafkaError OFFSET_OUT_OF_RANGE", True)
    consumer.seek((topic, 0), 1)
    assert values(read(consumer, 1)) == [b"b"]
    consumer.seek((topic, 0), 7)
    name, message = code_of(lambda: consumer.poll(HANG_SECONDS))
    assert (name, "offset 7 is not in the log" in message) == ("KafkaError OFFSET_OUT_OF_RANGE", True)


def test_records_that_were_deleted_are_passed_over(target: Target, make: Make) -> None:
    topic = target.new_topic()
    write(target, topic, b"a", b"b", b"c")
    consumer = make()
    consumer.assign([(topic, 0)])
    consumer.poll(HANG_SECONDS, max_records=1)
    client = AdminClient({"bootstrap.servers": target.plain})
    deleted = client.delete_records([Position(topic, 0, 2)])
    [future.result() for future in deleted.values()]
    consumer.seek((topic, 0), 1)
    assert values(read(consumer, 1)) == [b"c"]


# --- groups


@faces
@protocols
def test_offsets_are_committed_and_used(target: Target, make: Make, face: Any, protocol: str) -> None:
    topic, group = target.new_topic(), target.new_group()
    tp = TopicPartition(topic, 0)
    write(target, topic, *(b"%d" % number for number in range(6)))
    consumer = make(face, group_id=group, enable_auto_commit=False, group_protocol=protocol)
    consumer.subscribe(topic)
    consumer.poll(HANG_SECONDS, max_records=2)
    assert consumer.committed([tp]) == {tp: None}
    consumer.commit()
    assert consumer.committed([tp])[tp].offset == 2
    consumer.commit({tp: OffsetAndMetadata(3, "a note")})
    assert consumer.committed([tp])[tp][:2] == (3, "a note")
    consumer.close()
    other = make(face, group_id=group, enable_auto_commit=False, group_protocol=protocol)
    other.subscribe([topic])
    assert values(read(other, 3)) == [b"3", b"4", b"5"]


@faces
@protocols
def test_offsets_are_committed_without_being_asked(target: Target, make: Make, face: Any, protocol: str) -> None:
    topic, group = target.new_topic(), target.new_group()
    write(target, topic, *(b"%d" % number for number in range(5)))
    consumer = make(face, group_id=group, auto_commit_interval_ms=0, group_protocol=protocol)
    consumer.subscribe(topic)
    consumer.poll(HANG_SECONDS, max_records=2)
    tp = TopicPartition(topic, 0)
    until(lambda: consumer.committed([tp])[tp] is not None, consumer)  # what was returned before the last poll
    consumer.seek(tp, 4)
    read(consumer, 1)
    consumer.close()
    other = make(group_id=group)
    assert other.committed([tp])[tp].offset == 5


@protocols
def test_a_commit_that_is_not_waited_for_is_told(target: Target, make: Make, protocol: str) -> None:
    topic, group = target.new_topic(), target.new_group()
    write(target, topic, b"a")
    consumer = make(group_id=group, enable_auto_commit=False, group_protocol=protocol)
    consumer.subscribe(topic)
    read(consumer, 1)
    told: list[Any] = []
    consumer.commit_async(on_commit=lambda error, offsets: told.append((error, offsets)))
    until(lambda: bool(told), consumer)
    ((error, offsets),) = told
    assert error is None
    assert offsets[TopicPartition(topic, 0)].offset == 1


def test_each_commit_is_told_though_an_earlier_callback_fails(target: Target, make: Make) -> None:
    topic = target.new_topic()
    consumer = make(group_id=target.new_group(), enable_auto_commit=False)
    consumer.assign([(topic, 0)])
    told: list[str] = []

    def on_commit(name: str, error: KafkaError | None, _: object) -> None:
        told.append(name)
        if name != "third":
            raise ValueError(name)

    for number, name in enumerate(("first", "second", "third")):
        consumer.commit_async({(topic, 0): number}, on_commit=partial(on_commit, name))
    consumer.committed([(topic, 0)])  # which the coordinator answers after the commits
    with pytest.raises(ValueError, match=r"first|second"):
        consumer.poll(0)
    assert told == ["first", "second", "third"]


@pytest.mark.parametrize("strategy", [*STRATEGIES, "sticky", "range,cooperative-sticky"])
def test_partitions_are_shared(target: Target, make: Make, strategy: str) -> None:
    topic, group = target.new_topic(4), target.new_group()
    told: list[tuple[str, str, int]] = []

    def member(name: str) -> Any:
        consumer = make(group_id=group, partition_assignment_strategy=strategy)
        consumer.subscribe(
            topic,
            on_assign=lambda _, partitions: told.append((name, "assigned", len(partitions))),
            on_revoke=lambda _, partitions: told.append((name, "revoked", len(partitions))),
        )
        return consumer

    first, second = member("first"), None
    until(lambda: len(first.assignment()) == 4, first)
    second = member("second")
    until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
    assert not first.assignment() & second.assignment()
    cooperative = strategy == "cooperative-sticky"
    assert ("first", "revoked", 2 if cooperative else 4) in told
    second.close()
    until(lambda: len(first.assignment()) == 4, first)
    assert ("second", "revoked", 2) in told
    assert ("first", "revoked", 2) not in told or cooperative or told.count(("first", "revoked", 2)) == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_group_with_librdkafka(target: Target, make: Make, strategy: str) -> None:
    topic, group = target.new_topic(4), target.new_group()
    write(target, topic, b"before")
    own = make(group_id=group, partition_assignment_strategy=strategy)
    own.subscribe(topic)
    until(lambda: len(own.assignment()) == 4, own)
    other = confluent_kafka.Consumer(
        {
            "bootstrap.servers": target.plain,
            "group.id": group,
            "heartbeat.interval.ms": 100,
            "partition.assignment.strategy": strategy,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        other.subscribe([topic])

        def shared() -> bool:
            other.poll(0.05)
            return len(own.assignment()) == len(other.assignment()) == 2

        until(shared, own)
        assert {tp.partition for tp in own.assignment()} & {tp.partition for tp in other.assignment()} == set()
        own.close()  # the other one leads the group now, and assigns for both
        again = make(group_id=group, partition_assignment_strategy=strategy)
        again.subscribe(topic)

        def shared_again() -> bool:
            other.poll(0.05)
            return len(again.assignment()) == len(other.assignment()) == 2

        until(shared_again, again)
    finally:
        other.close()


@protocols
def test_topics_by_a_pattern(target: Target, make: Make, protocol: str) -> None:
    prefix = target.new_topic()
    consumer = make(group_id=target.new_group(), group_protocol=protocol)
    consumer.subscribe(re.compile(re.escape(prefix)))
    until(lambda: consumer.subscription() == {prefix}, consumer)
    with RawClient(target.plain, client_id="tests") as client:
        admin.create_topic(client, f"{prefix}-new", num_partitions=2, replication_factor=1, configs={})
    until(lambda: len(consumer.assignment()) == 3, consumer)
    librdkafka = AdminClient({"bootstrap.servers": target.plain})
    grown = librdkafka.create_partitions([NewPartitions(f"{prefix}-new", 3)])
    [future.result() for future in grown.values()]
    until(lambda: len(consumer.assignment()) == 4, consumer)


def test_a_member_with_a_name_returns_without_a_rebalance(target: Target, make: Make) -> None:
    topic, group = target.new_topic(2), target.new_group()
    told: list[str] = []
    first = make(group_id=group, group_instance_id="first")
    first.subscribe(topic, on_revoke=lambda *_: told.append("revoked"))
    second = make(group_id=group, group_instance_id="second")
    second.subscribe(topic)
    until(lambda: len(first.assignment()) == len(second.assignment()) == 1, first, second)
    told.clear()
    second.close()
    second = make(group_id=group, group_instance_id="second")
    second.subscribe(topic)
    until(lambda: len(second.assignment()) == 1, first, second)
    assert told == []
    thief = make(group_id=group, group_instance_id="second")
    thief.subscribe(topic)
    until(lambda: len(thief.assignment()) == 1, first, thief)
    with pytest.raises(KafkaError, match=r"another consumer has the group\.instance\.id 'second'"):
        until(lambda: False, second)


def test_a_callback_takes_as_long_as_it_needs(target: Target) -> None:
    topic, group = target.new_topic(), target.new_group()
    assigned: list[Any] = []

    async def ask(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        assigned.append(await consumer.committed(partitions))

    async def read() -> None:
        async with AsyncConsumer(bootstrap_servers=target.plain, group_id=group) as consumer:
            consumer.subscribe(topic, on_assign=ask)
            while not consumer.assignment():
                await consumer.poll(0)

    asyncio.run(read())
    assert assigned == [{(topic, 0): None}]


@faces
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_callback_may_unsubscribe(target: Target, make: Make, face: Any, protocol: str) -> None:
    topic = target.new_topic()
    called: list[Any] = []

    def unsubscribe(consumer: Any, partitions: Any) -> Any:
        called.append(partitions)
        return consumer.unsubscribe()

    consumer = make(face, group_id=target.new_group(), group_protocol=protocol)
    consumer.subscribe(topic, on_assign=unsubscribe)
    until(lambda: bool(called), consumer)
    assert consumer.assignment() == set()
    consumer.subscribe(topic)
    until(lambda: len(consumer.assignment()) == 1, consumer)


@faces
@protocols
@pytest.mark.parametrize("call", ["close", "unsubscribe"])
@pytest.mark.parametrize("is_member", [True, False])
def test_on_revoke_may_close_and_is_called_once(
    target: Target, make: Make, face: Any, protocol: str, call: str, is_member: bool
) -> None:
    """By close(), and by the poll() of a consumer that has subscribed to something else."""
    topics = [target.new_topic() for _ in range(2)]
    called: list[Any] = []
    closed: list[str] = []

    class Closed(ConsumerInterceptor):
        def close(self) -> None:
            closed.append("closed")

    def end(consumer: Any, partitions: Any) -> Any:
        called.append(partitions)
        return getattr(consumer, call)()

    consumer = make(face, group_id=target.new_group(), group_protocol=protocol, interceptors=[Closed()])
    consumer.subscribe(topics[0], on_revoke=end)
    until(lambda: bool(consumer.assignment()), consumer)
    if is_member:
        consumer.close()
    else:
        consumer.subscribe(topics[1], on_revoke=end)
        with suppress(ClientClosedError):
            until(lambda: bool(called) and not consumer.subscription(), consumer)
        consumer.close()
    assert called == [[(topics[0], 0)]]
    assert closed == ["closed"]


@faces
@protocols
def test_a_callback_may_ask_for_the_position(target: Target, make: Make, face: Any, protocol: str) -> None:
    """By the committed offset, and after a seek; nothing is returned before the callback has ended."""
    topic, group = target.new_topic(2), target.new_group()
    write(target, topic, b"a", b"b", b"c")
    tp = TopicPartition(topic, 0)
    other = make(group_id=group, enable_auto_commit=False)
    other.assign([tp])
    other.commit({tp: 1})
    told: list[int] = []

    def ask(consumer: Consumer, partitions: Any) -> None:
        told.append(consumer.position(tp, timeout=HANG_SECONDS))
        consumer.seek_to_end(tp)
        told.append(consumer.position(tp, timeout=HANG_SECONDS))
        consumer.seek(tp, 2)

    async def ask_async(consumer: AsyncConsumer, partitions: Any) -> None:
        told.append(await consumer.position(tp, timeout=HANG_SECONDS))
        consumer.seek_to_end(tp)
        told.append(await consumer.position(tp, timeout=HANG_SECONDS))
        consumer.seek(tp, 2)

    consumer = make(face, group_id=group, group_protocol=protocol)
    consumer.subscribe(topic, on_assign=ask if face is Consumer else ask_async)
    assert values(read(consumer, 1)) == [b"c"]
    assert told == [1, 3]


@faces
def test_close_closes_the_connections_also_if_on_revoke_fails(target: Target, make: Make, face: Any) -> None:
    def fail(*given: object) -> None:
        raise ValueError("of on_revoke")

    topic = target.new_topic()
    consumer = make(face, group_id=target.new_group())
    consumer.subscribe(topic, on_revoke=fail)
    until(lambda: len(consumer.assignment()) == 1, consumer)
    with pytest.raises(ValueError, match="of on_revoke"):
        consumer.close()
    assert consumer._loop._closed if face is Consumer else consumer.consumer._loop._closed


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_close_closes_the_connections_also_if_on_commit_fails(error: type[BaseException]) -> None:
    closed: list[str] = []

    class Closed(ConsumerInterceptor):
        def close(self) -> None:
            closed.append("interceptor")

    def fail(*given: object) -> None:
        raise error

    consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", interceptors=[Closed()])
    consumer.assign([("t", 0)])
    consumer.commit_async({("t", 0): 1}, on_commit=fail)
    with pytest.raises(error):
        consumer.close(0.2)
    assert consumer._loop._closed
    assert closed == ["interceptor"]
    consumer.close()


@faces
def test_a_consumer_that_does_not_poll_is_no_member(target: Target, make: Make, face: Any) -> None:
    topic, group = target.new_topic(), target.new_group()
    write(target, topic, b"a")
    lost: list[Any] = []
    consumer = make(face, group_id=group, max_poll_interval_ms=300, session_timeout_ms=6000, heartbeat_interval_ms=50)
    consumer.subscribe(topic, on_lost=lambda _, partitions: lost.append(partitions))
    read(consumer, 1)
    core = consumer._core if face is Consumer else consumer.consumer._core
    deadline = time.monotonic() + HANG_SECONDS
    while core.member.is_member:
        consumer.end_offsets([(topic, 0)])  # the loop of the asyncio consumer runs while it is called
        assert time.monotonic() < deadline
    name, message = code_of(consumer.commit)
    assert name == "KafkaError UNKNOWN_MEMBER_ID"
    assert "not a member of its group" in message
    until(lambda: bool(lost), consumer)
    until(lambda: bool(consumer.assignment()), consumer)
    consumer.commit({TopicPartition(topic, 0): 1})


# --- bad use


@faces
def test_bad_use_is_named_at_the_call(target: Target, make: Make, face: Any) -> None:
    topic = target.new_topic()
    consumer = make(face, default_api_timeout_ms=1000)
    assert code_of(consumer.poll)[1] == "poll() needs a subscription, or assigned partitions"
    assert code_of(lambda: consumer.subscribe(topic)) == (
        "KafkaError INVALID_GROUP_ID",
        "group.id must be set for this",
    )
    assert code_of(lambda: consumer.seek((topic, 0), 1))[1] == f"{topic}-0 is not assigned to this consumer"
    consumer.assign([(topic, 0)])
    for offset in (-1, 1 << 63, 1.5, 10**5000):
        assert code_of(partial(consumer.seek, (topic, 0), offset))[1].startswith("the offset must be")
    wrong_names: tuple[Any, ...] = (NO_TEXT, "x" * 40_000, 7, [topic])
    for name in wrong_names:
        for method, given in ((consumer.assign, [(name, 0)]), (consumer.partitions_for_topic, name)):
            assert code_of(partial(method, given))[0] == "KafkaError INVALID_TOPIC_EXCEPTION"
    assert code_of(lambda: consumer.assign([(topic, 1 << 31)]))[0] == "KafkaError INVALID_REQUEST"
    no_partition: tuple[Any, ...] = (topic, [topic], [7], [(topic, 0, 0)])
    for given in no_partition:
        name, message = code_of(partial(consumer.assign, given))
        assert (name, message.startswith("a partition must be")) == ("KafkaError INVALID_REQUEST", True)
    assert code_of(lambda: consumer.offsets_for_times({(topic, 0): 1 << 63}))[0] == "KafkaError INVALID_TIMESTAMP"
    assert code_of(lambda: consumer.seek_to_timestamp(-1))[0] == "KafkaError INVALID_TIMESTAMP"
    assert code_of(consumer.commit)[0] == "KafkaError INVALID_GROUP_ID"
    assert code_of(lambda: consumer.partitions_for_topic("no-such-topic"))[0] == "KafkaError UNKNOWN_TOPIC_OR_PARTITION"
    assert code_of(lambda: consumer.partitions_for_topic("bad/name"))[0] == "KafkaError INVALID_TOPIC_EXCEPTION"
    name, message = code_of(lambda: consumer.end_offsets([(topic, 5)]))
    assert (name, message) == ("KafkaError UNKNOWN_TOPIC_OR_PARTITION", f"topic {topic!r} has partitions 0 to 0, not 5")
    consumer.assign([("no-such-topic", 0)])
    assert code_of(lambda: consumer.position(("no-such-topic", 0)))[0] == "KafkaError UNKNOWN_TOPIC_OR_PARTITION"
    assert code_of(lambda: consumer.poll(HANG_SECONDS))[1] == "topic 'no-such-topic' does not exist"
    assert consumer.poll(0.0) == []
    consumer.close()
    consumer.close()
    for call in (lambda: consumer.assign([(topic, 0)]), lambda: consumer.seek((topic, 0), 0)):
        assert code_of(call) == ("ClientClosedError INVALID_REQUEST", "the consumer is closed")


def test_a_timeout_of_a_wrong_type_closes_nothing(target: Target, make: Make) -> None:
    consumer = make()
    wrong: Any = "30"
    assert code_of(lambda: consumer.close(wrong))[1].startswith("timeout='30': must be a number of seconds")
    consumer.assign([(target.new_topic(), 0)])

    async def use() -> None:
        async with AsyncConsumer(**target.settings("unix")) as consumer:
            with pytest.raises(KafkaError, match="timeout='30'"):
                await consumer.close(wrong)
            consumer.assign([("topic", 0)])
            with pytest.raises(KafkaError, match="timeout='30'"):
                await consumer.poll_batches(wrong)

    asyncio.run(use())


@faces
def test_arguments_of_a_wrong_type_are_named_at_the_call(target: Target, make: Make, face: Any) -> None:
    topic = target.new_topic()
    consumer = make(face, group_id=target.new_group(), default_api_timeout_ms=1000)
    consumer.assign([(topic, 0)])
    wrong: tuple[Any, ...] = (topic, None, 7, [topic, 0], (topic, "0"), (topic, 0, 0))
    for given in wrong:
        for method in (
            partial(consumer.seek, offset=0),
            *(consumer.pause, consumer.resume, consumer.seek_to_beginning, consumer.seek_to_end),
            *(partial(consumer.seek_to_timestamp, 0), consumer.lag, consumer.position, consumer.known_position),
        ):
            name, message = code_of(partial(method, given))
            assert (name, "partition" in message) == ("KafkaError INVALID_REQUEST", True)
    wrong = ("1", [], timedelta(seconds=1), float("nan"), float("inf"), 10**40, Decimal(1))
    for seconds in wrong:
        for method in (
            *(consumer.poll, consumer.poll_arrow, partial(consumer.position, (topic, 0))),
            *(partial(each, [(topic, 0)]) for each in (consumer.committed, consumer.end_offsets)),
            *(partial(consumer.partitions_for_topic, topic), consumer.commit),
        ):
            assert code_of(partial(method, timeout=seconds))[1].startswith("timeout=")
    assert code_of(lambda: consumer.poll(None))[1].startswith("timeout=None: must be a number of seconds")
    for count in (-1, 1.5, "1", [1]):
        assert "max_records must be" in code_of(partial(consumer.poll, max_records=count))[1]
    wrong = (None, 7, 1.5, object())
    for given in wrong:
        for method in (consumer.assign, consumer.committed, consumer.beginning_offsets, consumer.end_offsets):
            assert code_of(partial(method, given))[1].startswith("partitions must be in a list, not ")
        assert code_of(partial(consumer.subscribe, given))[1].startswith("topics must be in a list, not ")
    wrong = ([(topic, 0)], topic, 7)
    for given in wrong:
        assert code_of(partial(consumer.commit, given))[1].startswith("offsets must be a mapping")
        assert code_of(partial(consumer.offsets_for_times, given))[1].startswith("timestamps must be a mapping")
    wrong = ([None], [7], [b"orders"], [[topic]])
    for given in wrong:
        assert code_of(partial(consumer.subscribe, given))[0] == "KafkaError INVALID_TOPIC_EXCEPTION"
    assert code_of(lambda: consumer.subscribe(topic, on_assign="print"))[0] == "ConfigError INVALID_CONFIG"
    assert code_of(lambda: consumer.poll_arrow(columns=7))[0] == "ConfigError INVALID_CONFIG"
    assert consumer.poll(0) == []


def test_a_member_neither_assigns_nor_commits_nothing(target: Target, make: Make) -> None:
    topic = target.new_topic()
    consumer = make(group_id=target.new_group())
    assert "at least one topic" in code_of(lambda: consumer.subscribe([]))[1]
    assert "is not a regular expression" in code_of(lambda: consumer.subscribe("^("))[1]
    consumer.subscribe(topic)
    assert "unsubscribe() first" in code_of(lambda: consumer.assign([(topic, 0)]))[1]
    assert code_of(lambda: consumer.subscribe(NO_TEXT))[0] == "KafkaError INVALID_TOPIC_EXCEPTION"
    for offset in (-5, 1 << 63):
        refused = code_of(partial(consumer.commit, {(topic, 0): offset}))[1]
        assert refused.startswith(f"the offset of {topic}-0 must be")
    for metadata in (NO_TEXT, "x" * 40_000):
        refused = code_of(partial(consumer.commit, {(topic, 0): OffsetAndMetadata(5, metadata)}))[0]
        assert refused == "KafkaError OFFSET_METADATA_TOO_LARGE"
    until(lambda: bool(consumer.assignment()), consumer)
    consumer.unsubscribe()
    assert consumer.assignment() == set()
    consumer.assign([(topic, 0)])
    assert "unsubscribe() first" in code_of(lambda: consumer.subscribe(topic))[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bootstrap_servers": ""}, "bootstrap.servers: must be set"),
        ({"auto_offset_reset": "middle"}, "auto.offset.reset"),
        ({"auto_offset_reset": "by_duration:1h"}, "auto.offset.reset"),
        ({"heartbeat_interval_ms": 50_000}, "must be less than session.timeout.ms (45000)"),
        ({"partition_assignment_strategy": "best"}, "must be one or several of range, roundrobin"),
        ({"enable_auto_commit": True}, "enable.auto.commit=true: requires group.id"),
        ({"group_protocol": "share"}, "group.protocol"),
        ({"max_poll_records": 0}, "max.poll.records"),
        ({"no_such_key": 1}, "no.such.key"),
        ({"config": "127.0.0.1:9092"}, "the configuration must be a mapping"),
        ({"config": [("bootstrap.servers", "127.0.0.1:9092")]}, "the configuration must be a mapping"),
        ({"config": {7: 1}}, "7: the key of a configuration must be text"),
        ({"bootstrap_servers": "x" * 100_000}, "bootstrap.servers='xxx"),
        ({"value_deserializer": "json"}, "value_deserializer='json': must be a function"),
        ({"interceptors": ConsumerInterceptor()}, "must be a list of objects of the class ConsumerInterceptor"),
        ({"interceptors": [ConsumerInterceptor]}, "must be a list of objects of the class ConsumerInterceptor"),
        ({"assignors": ["range"]}, "assignors=['range']: must be a list of objects"),
    ],
)
def test_an_invalid_configuration(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        Consumer(**{"bootstrap_servers": "127.0.0.1:1", **settings})


@faces
def test_deserializers(target: Target, make: Make, face: Any) -> None:
    topic = target.new_topic()
    write(target, topic, b"1", b"2", b"no number", None, b"3", key=b"k", headers=[("h", b"1")])
    seen: list[Any] = []

    def key(data: bytes, context: Any) -> str:
        seen.append((context.topic, context.field, context.headers))
        return data.decode()

    consumer = make(face, key_deserializer=key, value_deserializer=lambda data, _: int(data))
    consumer.assign([(topic, 0)])
    first = read(consumer, 2)
    assert [(each.key, each.value) for each in first] == [("k", 1), ("k", 2)]
    assert seen[0] == (topic, "key", (("h", b"1"),))
    for _ in range(2):
        with pytest.raises(SerializationError, match=rf"the value of {topic}-0, offset 2, cannot be deserialized"):
            consumer.poll(HANG_SECONDS)
    consumer.seek((topic, 0), 3)
    assert values(read(consumer, 2)) == [None, 3]


@faces
def test_serializers_of_confluent_kafka(target: Target, make: Make, face: Any) -> None:
    topic = target.new_topic()
    with Producer(**target.settings(), key_serializer=StringSerializer(), value_serializer=IntegerSerializer()) as own:
        own.send(topic, 42, key="snow \N{SNOWMAN}")
    consumer = make(face, key_deserializer=StringDeserializer(), value_deserializer=IntegerDeserializer())
    consumer.assign([(topic, 0)])
    (record,) = read(consumer, 1)
    assert (record.key, record.value) == ("snow \N{SNOWMAN}", 42)


@faces
def test_interceptors(target: Target, make: Make, face: Any, caplog: pytest.LogCaptureFixture) -> None:
    topic = target.new_topic()
    write(target, topic, b"a", b"b", b"c")
    committed: list[Any] = []

    class Failing(ConsumerInterceptor):
        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            raise RuntimeError("on purpose")

    class Some(ConsumerInterceptor):
        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            return [record for record in records if record.value != b"b"]

        def on_commit(self, offsets: Any) -> None:
            committed.append({tp: offset.offset for tp, offset in offsets.items()})

    settings = {"group_id": target.new_group(), "auto_commit_interval_ms": 0}
    consumer = make(face, interceptors=[Failing(), Some()], **settings)
    consumer.assign([(topic, 0)])
    assert values(read(consumer, 2)) == [b"a", b"c"]
    tp = TopicPartition(topic, 0)
    until(lambda: {tp: 3} in committed, consumer)
    consumer.commit({tp: 1})
    consumer.poll(0.0)
    assert {tp: 1} in committed
    assert "error in on_consume of an interceptor" in caplog.messages


def test_another_thread_may_only_wake_it_up(target: Target, make: Make) -> None:
    consumer = make()
    consumer.assign([(target.new_topic(), 0)])
    failures: list[Any] = []

    def poll() -> None:
        try:
            consumer.poll(HANG_SECONDS)
        except KafkaError as error:
            failures.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    until(lambda: consumer._waiting)
    assert "another thread is using this consumer" in code_of(consumer.poll)[1]
    consumer.wakeup()
    thread.join(HANG_SECONDS)
    assert isinstance(failures[0], WakeupError)
    consumer.close()
    with pytest.raises(ClientClosedError):
        consumer.poll()


def test_brokers_that_cannot_be_reached() -> None:
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", default_api_timeout_ms=300)
    consumer.subscribe("t")
    assert consumer.poll(0.2) == []
    assert code_of(lambda: consumer.committed([("t", 0)]))[0] == "KafkaError REQUEST_TIMED_OUT"
    consumer.close(0.2)


def test_an_assignor_of_ones_own(target: Target, make: Make) -> None:
    topic = target.new_topic(3)

    class First:
        """Everything for one."""

        name = "first"
        cooperative = False
        fails = False

        def user_data(self, owned: Any, generation: int) -> bytes:
            return b"mine"

        def assign(self, members: Any, partition_counts: Any) -> Any:
            if self.fails:
                raise RuntimeError("on purpose")
            assert [member.user_data for member in members] == [b"mine"] * len(members)
            first = min(member.member_id for member in members)
            return {first: [TopicPartition(topic, number) for number in range(partition_counts[topic])]}

    assignor, group = First(), target.new_group()
    consumers = [make(group_id=group, assignors=[assignor]) for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe(topic)
    until(lambda: sorted(len(each.assignment()) for each in consumers) == [0, 3], *consumers)
    assignor.fails = True
    alone = make(group_id=target.new_group(), assignors=[assignor])
    alone.subscribe(topic)
    with pytest.raises(KafkaError, match="assignor 'first' has failed") as raised:
        until(lambda: False, alone)
    assert raised.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
