"""raylog's consumers with group.protocol=consumer: the coordinator assigns; errors have names or are outlived."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from raylog.client.consumer.consumer import Consumer
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.client.consumer_faces import FACES
from tests.client.served import Target
from tests.client.test_consumer import Make, make, read, until, values, write
from tests.support.raw_client import RawClient

__all__ = ["make"]

faces = pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
Join = Callable[..., Any]


@pytest.fixture
def join(make: Make) -> Join:
    """Makes a member of a group."""

    def joined(group: str, topics: Any, face: Any = Consumer, *, told: list[Any] | None = None, **settings: Any) -> Any:
        consumer = make(face, group_id=group, group_protocol="consumer", **settings)
        heard = [] if told is None else told
        consumer.subscribe(
            topics,
            on_assign=lambda _, partitions: heard.append(("assigned", sorted(tp.partition for tp in partitions))),
            on_revoke=lambda _, partitions: heard.append(("revoked", sorted(tp.partition for tp in partitions))),
            on_lost=lambda _, partitions: heard.append(("lost", sorted(tp.partition for tp in partitions))),
        )
        return consumer

    return joined


def counts(*consumers: Any) -> list[int]:
    return [len(consumer.assignment()) for consumer in consumers]


@faces
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_partitions_are_shared_one_by_one(target: Target, join: Join, face: Any, assignor: str) -> None:
    topic, group = target.new_topic(4), target.new_group()
    told: list[Any] = []
    first = join(group, topic, face, told=told, group_remote_assignor=assignor)
    until(lambda: counts(first) == [4], first)
    second = join(group, topic, face, group_remote_assignor=assignor)
    until(lambda: counts(first, second) == [2, 2], first, second)
    assert not first.assignment() & second.assignment()
    ((_, first_got), (kind, given)) = told
    assert (first_got, kind, len(given)) == ([0, 1, 2, 3], "revoked", 2)
    second.close()
    until(lambda: counts(first) == [4], first)
    assert told[2:] == [("assigned", given)]


def test_another_member_goes_on_where_the_first_has_committed(target: Target, join: Join) -> None:
    """What a member has returned is committed before another gets the partition: nothing twice, nothing lost."""
    topic, group = target.new_topic(6), target.new_group()
    for number in range(60):
        write(target, topic, b"%d" % number, partition=number % 6)
    first = join(group, topic)
    found = read(first, 20)
    second = join(group, topic)
    until_all = 60

    def poll() -> bool:
        found.extend(first.poll(0.02))
        found.extend(second.poll(0.02))
        return counts(first, second) == [3, 3] and len(found) >= until_all

    until(poll)
    assert sorted(int(value) for value in values(found)) == list(range(60))


def test_a_group_with_librdkafka(target: Target, join: Join) -> None:
    topic, group = target.new_topic(4), target.new_group()
    own = join(group, topic)
    until(lambda: counts(own) == [4], own)
    other = confluent_kafka.Consumer(
        {"bootstrap.servers": target.plain, "group.id": group, "group.protocol": "consumer"}
    )
    try:
        other.subscribe([topic])

        def shared() -> bool:
            other.poll(0.05)
            return len(own.assignment()) == len(other.assignment()) == 2

        until(shared, own)
        assert {tp.partition for tp in own.assignment()} & {tp.partition for tp in other.assignment()} == set()
        own.close()

        def taken_over() -> bool:
            other.poll(0.05)
            return len(other.assignment()) == 4

        until(taken_over)
    finally:
        other.close()


def test_the_broker_resolves_regular_expressions(target: Target, join: Join) -> None:
    first, other = target.new_topic(), target.new_topic(2)
    consumer = join(target.new_group(), [f"^{first}|none-.*", other])
    until(lambda: consumer.assignment() == {(first, 0), (other, 0), (other, 1)}, consumer)
    consumer.subscribe(first)
    until(lambda: consumer.assignment() == {(first, 0)}, consumer)


def test_an_expression_that_is_none(target: Target, join: Join) -> None:
    consumer = join(target.new_group(), "^(")
    with pytest.raises(KafkaError) as raised:
        until(lambda: False, consumer)
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_member_with_a_name_returns_and_cannot_be_taken_over(target: Target, join: Join) -> None:
    topic, group = target.new_topic(2), target.new_group()
    told: list[Any] = []
    first = join(group, topic, group_instance_id="first", told=told)
    second = join(group, topic, group_instance_id="second")
    until(lambda: counts(first, second) == [1, 1], first, second)
    had = second.assignment()
    told.clear()
    second.close()
    again = join(group, topic, group_instance_id="second")
    until(lambda: again.assignment() == had, first, again)
    assert told == []
    thief = join(group, topic, group_instance_id="second")
    with pytest.raises(KafkaError, match=r"another consumer has the group\.instance\.id 'second'") as raised:
        until(lambda: False, thief)
    assert raised.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert again.assignment() == had


@faces
def test_a_member_that_was_removed_joins_again(target: Target, join: Join, face: Any) -> None:
    topic, group = target.new_topic(), target.new_group()
    told: list[Any] = []
    consumer = join(group, topic, face, told=told)
    until(lambda: counts(consumer) == [1], consumer)
    before = consumer.group_metadata()
    leave = ConsumerGroupHeartbeatRequest(group_id=group, member_id=before.member_id, member_epoch=-1)
    with RawClient(target.plain, client_id="tests") as client:
        assert client.call_any(leave).error_code == ErrorCode.NONE
    until(lambda: len(told) == 3, consumer)
    assert told == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]
    after = consumer.group_metadata()
    assert after.member_id == before.member_id
    assert after.generation_id > 0
    consumer.commit({TopicPartition(topic, 0): 0})


def test_errors_of_the_coordinator_have_names(target: Target, join: Join) -> None:
    topic, group = target.new_topic(), target.new_group()
    consumer = join(group, topic, group_remote_assignor="best")
    with pytest.raises(KafkaError, match=r"group\.remote\.assignor=best: .*not supported") as raised:
        until(lambda: False, consumer)
    assert raised.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR
    with pytest.raises(KafkaError, match="best"):
        consumer.poll(0)


def test_keys_of_the_other_protocol_are_refused(target: Target) -> None:
    text = "cannot be set when group.protocol=consumer"
    for settings in (
        {"session_timeout_ms": 9000},
        {"session_timeout_ms": 1000},
        {"heartbeat_interval_ms": 9},
        {"partition_assignment_strategy": "range"},
    ):
        with pytest.raises(ConfigError, match=text):
            Consumer(bootstrap_servers=target.plain, group_id="g", group_protocol="consumer", **settings)
    with pytest.raises(ConfigError, match=text):
        Consumer(bootstrap_servers=target.plain, group_id="g", group_protocol="consumer", assignors=[])
    with pytest.raises(ConfigError, match=r"group\.remote\.assignor cannot be set when group\.protocol=classic"):
        Consumer(bootstrap_servers=target.plain, group_id="g", group_remote_assignor="uniform")


def test_a_member_that_does_not_poll_leaves(target: Target, join: Join) -> None:
    topic, group = target.new_topic(), target.new_group()
    told: list[Any] = []
    consumer = join(group, topic, told=told, max_poll_interval_ms=300)
    until(lambda: counts(consumer) == [1], consumer)
    other = join(group, topic)
    until(lambda: counts(other) == [1], other)
    assert not consumer._core.member.is_member
    other.close()
    until(lambda: len(told) == 3, consumer)
    assert [kind for kind, _ in told] == ["assigned", "lost", "assigned"]
