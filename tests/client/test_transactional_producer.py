"""Transactions of raylog's producer, with both faces: atomic for readers, and each error at the call that caused it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from raylog.client.errors import AbortableError, FencedError, TransactionAbortedError
from raylog.client.group_offsets import GroupMetadata, OffsetAndMetadata
from raylog.client.producer.delivery import RecordMetadata
from raylog.client.producer.producer import Producer
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from tests.client.producer_faces import Face
from tests.client.served import Target
from tests.client.test_producer import code_of, faces

UNCOMMITTED = {"isolation.level": "read_uncommitted"}


def ready(make: Callable[..., Face], target: Target, name: str, **settings: Any) -> Face:
    face = make(**target.settings(), transactional_id=name, **settings)
    face.call("init_transactions")
    return face


def committed_offset(target: Target, group: str, topic: str) -> Any:
    consumer = Consumer({"bootstrap.servers": target.plain, "group.id": group})
    try:
        (found,) = consumer.committed([Position(topic, 0)], timeout=30)
        return found.offset, (found.metadata or "")[:5]  # librdkafka does not end the string
    finally:
        consumer.close()


@faces
def test_readers_see_what_was_committed(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic()
    face = ready(make, target, topic)
    for number in range(3):
        face.call("begin_transaction")
        for value in ("kept" if number != 1 else "dropped", "too"):
            face.send(topic, f"{value} {number}")
        face.flush()
        face.call("abort_transaction" if number == 1 else "commit_transaction")
    face.call("begin_transaction")  # of nothing
    face.call("commit_transaction")
    everything = target.read(topic, 6, settings=UNCOMMITTED)
    assert [message.value() for message in everything][2:4] == [b"dropped 1", b"too 1"]
    assert [message.value() for message in target.read(topic, 4)] == [b"kept 0", b"too 0", b"kept 2", b"too 2"]


@faces
def test_offsets_are_committed_with_the_transaction(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic()
    group = f"group of {topic}"
    face = ready(make, target, topic)
    tp = TopicPartition(topic, 0)
    face.call("begin_transaction")
    face.call("send_offsets_to_transaction", {tp: OffsetAndMetadata(7, "seven")}, group)
    face.send(topic, b"v")
    face.call("commit_transaction")
    face.call("begin_transaction")
    face.call("send_offsets_to_transaction", {tp: 9}, GroupMetadata(group))
    face.call("abort_transaction")
    assert committed_offset(target, group, topic) == (7, "seven")


@faces
def test_a_member_that_is_not_in_the_group(target: Target, make: Callable[..., Face]) -> None:
    """The error names the reason, and the producer goes on after an abort."""
    topic = target.new_topic()
    face = ready(make, target, topic)
    face.call("begin_transaction")
    with pytest.raises(AbortableError) as raised:
        face.call("send_offsets_to_transaction", {TopicPartition(topic, 0): 7}, GroupMetadata("team", 3, "nobody"))
    assert raised.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    for call in ("send", "commit_transaction"):
        with pytest.raises(AbortableError):
            face.send(topic, b"refused") if call == "send" else face.call(call)
    face.call("abort_transaction")
    face.call("begin_transaction")
    face.send(topic, b"good")
    face.call("commit_transaction")
    assert [message.value() for message in target.read(topic, 1)] == [b"good"]


@faces
def test_a_call_that_did_not_wait_for_its_end_is_made_again(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic()
    face = ready(make, target, topic)
    for value in (b"first", b"second"):
        face.call("begin_transaction")
        face.send(topic, value)
        with pytest.raises(KafkaError) as raised:
            face.call("commit_transaction", 0)
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        with pytest.raises(KafkaError, match="did not wait for its end"):
            face.call("begin_transaction")
        face.flush()
        face.call("commit_transaction")
    assert [message.value() for message in target.read(topic, 2)] == [b"first", b"second"]


@faces
def test_a_fenced_producer(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic()
    zombie = ready(make, target, topic)
    zombie.call("begin_transaction")
    zombie.send(topic, b"zombie")
    zombie.flush()
    face = ready(make, target, topic)
    face.call("begin_transaction")
    face.send(topic, b"good")
    face.call("commit_transaction")
    with pytest.raises(FencedError) as raised:
        zombie.call("commit_transaction")
    assert raised.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    for call in ("commit_transaction", "abort_transaction", "begin_transaction", "init_transactions"):
        with pytest.raises(FencedError):
            zombie.call(call)
    with pytest.raises(FencedError):
        zombie.send(topic, b"never")
    assert [message.value() for message in target.read(topic, 1)] == [b"good"]


@faces
def test_an_abort_drops_what_was_not_sent(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic()
    face = ready(make, target, topic, linger_ms=60_000)
    face.call("begin_transaction")
    outcomes = face.gather(lambda: face.call("abort_transaction"), topic, [b"lingers", b"too"])
    assert [type(outcome) for outcome in outcomes] == [TransactionAbortedError] * 2
    face.call("begin_transaction")
    outcomes = face.gather(lambda: face.call("commit_transaction"), topic, [b"good"])
    assert [type(outcome) for outcome in outcomes] == [RecordMetadata]
    assert [message.value() for message in target.read(topic, 1, settings=UNCOMMITTED)] == [b"good"]


@faces
def test_a_refused_record_fails_its_transaction(target: Target, make: Callable[..., Face]) -> None:
    """Its sequence number is missing: the next transaction has a new producer epoch."""
    topic = target.new_topic(max_message_bytes="1000")
    face = ready(make, target, topic)
    face.call("begin_transaction")
    face.send_all(topic, [b"early"])
    face.send(topic, b"x" * 2000)
    with pytest.raises(AbortableError) as raised:
        face.call("commit_transaction")
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
    face.call("abort_transaction")
    face.call("begin_transaction")
    face.send(topic, b"good")
    face.call("commit_transaction")
    assert [message.value() for message in target.read(topic, 1)] == [b"good"]


@faces
def test_close_aborts(target: Target, make: Callable[..., Face]) -> None:
    """A new producer has nothing to wait for."""
    topic = target.new_topic()
    face = ready(make, target, topic)
    face.call("begin_transaction")
    face.send(topic, b"dropped")
    face.flush()
    face.close()
    with Producer(**target.settings(), transactional_id="other") as other:
        other.init_transactions()
        other.begin_transaction()
        other.send(topic, b"good")
        other.commit_transaction()
    assert [message.value() for message in target.read(topic, 1)] == [b"good"]


@faces
def test_calls_out_of_order(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic()
    face = make(**target.settings())
    assert code_of(lambda: face.call("begin_transaction"))[1] == "the producer has no transactional.id"
    face = make(**target.settings(), transactional_id=topic)
    assert code_of(lambda: face.call("begin_transaction")) == (
        "KafkaError INVALID_TXN_STATE",
        "begin_transaction(): the producer is not initialized: call init_transactions() first",
    )
    face.call("init_transactions")
    assert code_of(lambda: face.send(topic, b"")) == (
        "KafkaError INVALID_TXN_STATE",
        "send(): the producer is not in a transaction: call begin_transaction() first",
    )
    for call in ("commit_transaction", "abort_transaction", "init_transactions"):
        assert code_of(lambda call=call: face.call(call))[0] == "KafkaError INVALID_TXN_STATE"  # type: ignore[misc]
    face.call("begin_transaction")
    assert code_of(lambda: face.call("begin_transaction"))[1] == "begin_transaction(): the producer is in a transaction"
    face = make(**target.settings(), transactional_id="too slow", transaction_timeout_ms=1 << 30)
    assert code_of(lambda: face.call("init_transactions"))[0] == "KafkaError INVALID_TRANSACTION_TIMEOUT"


@faces
def test_arguments_of_a_wrong_type_are_named_at_the_call(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic()
    face = ready(make, target, topic)
    face.call("begin_transaction")
    wrong: tuple[Any, ...] = (None, 7, [topic], (topic,), face, "\ud800")
    for group in wrong:
        name, message = code_of(partial(face.call, "send_offsets_to_transaction", {(topic, 0): 1}, group))
        assert (name, message.startswith("the group must be")) == ("KafkaError INVALID_GROUP_ID", True)
    wrong = (None, [(topic, 0)], topic, {(topic, 0): None}, {topic: 1}, {(topic, 0): (1, "", 1.5)})
    for offsets in wrong:
        name, _ = code_of(partial(face.call, "send_offsets_to_transaction", offsets, topic))
        assert name in ("KafkaError INVALID_REQUEST", "KafkaError INVALID_TOPIC_EXCEPTION")
    for name in ("commit_transaction", "abort_transaction"):
        assert code_of(partial(face.call, name, "60"))[1].startswith("timeout='60': must be a number of seconds")
    face.call("abort_transaction")


@faces
def test_a_call_that_takes_too_long(make: Callable[..., Face]) -> None:
    face = make(bootstrap_servers="127.0.0.1:1", transactional_id="id", max_block_ms=200)
    assert code_of(lambda: face.call("init_transactions")) == (
        "KafkaError REQUEST_TIMED_OUT",
        "init_transactions() did not end within 0.2 s",
    )


@faces
def test_a_call_that_takes_too_long_tells_what_is_repeated(target: Target, make: Callable[..., Face]) -> None:
    face = make(**target.settings(), transactional_id="tells", max_block_ms=3000)
    face.call("init_transactions")
    face.call("begin_transaction")
    offsets = {TopicPartition("no-such-topic", 0): 1}
    error = code_of(lambda: face.call("send_offsets_to_transaction", offsets, "group"))
    assert error[0] == "KafkaError REQUEST_TIMED_OUT"
    assert "did not end within 3.0 s: UNKNOWN_TOPIC_OR_PARTITION" in error[1]


@pytest.mark.parametrize("settings", [{"enable_idempotence": False}, {"acks": 1}, {"retries": 0}])
def test_transactions_require_idempotence(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        Producer(bootstrap_servers="h:1", transactional_id="id", **settings)
    assert "transactional.id: requires" in raised.value.message


def test_errors_keep_their_class_when_pickled() -> None:
    import pickle

    for error in (FencedError(ErrorCode.PRODUCER_FENCED, "m"), AbortableError(ErrorCode.TRANSACTION_ABORTABLE, "m")):
        copied = pickle.loads(pickle.dumps(error))
        assert isinstance(copied, KafkaError)
        assert (type(copied), copied.code, copied.message) == (type(error), error.code, "m")
