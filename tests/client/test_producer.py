"""raylog's producer against production brokers: by every door, with both faces, and with every bad use."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import randbytes
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

from raylog.client.admin.admin_client import AdminClient
from raylog.client.consumer.consumer import Consumer
from raylog.client.errors import ClientClosedError, InvalidBatchError
from raylog.client.partitioner import partition_for_key
from raylog.client.producer.delivery import RecordMetadata
from raylog.client.producer.interceptors import OutgoingRecord, ProducerInterceptor
from raylog.client.producer.producer import Producer
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.transport import unix
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.endpoints import UNIX_PEER
from tests.client.producer_faces import FACES, Face
from tests.client.served import DOORS, JAAS, Served, Target
from tests.support.certificates import Certificates
from tests.support.hang import HANG_SECONDS
from tests.support.ports import free_ports

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


faces = pytest.mark.parametrize("make", FACES, indirect=True, ids=lambda face: face.__name__)


def host_of(connection: AcceptedConnection) -> str:
    """The door by which a connection has come."""
    if connection.listener.name == "SASL_SSL":
        return "sasl-tls"
    return "unix" if connection.peer_host.startswith(UNIX_PEER) else "tcp"


def code_of(call: Callable[[], object]) -> tuple[str, str]:
    """The name of the error's class, and its message."""
    with pytest.raises(KafkaError) as raised:
        call()
    return f"{type(raised.value).__name__} {raised.value.code.name}", raised.value.message


@faces
@pytest.mark.parametrize("door", DOORS)
def test_every_door(served: Served, make: Callable[..., Face], door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if door == "tcp":
        monkeypatch.setattr(unix, "runtime_dirs", tuple)
    topic = served.new_topic()
    outcomes = make(**served.settings(door)).send_all(topic, [b"%d" % number for number in range(1000)])
    assert served.running.do(lambda: {host_of(each) for each in served.running.broker._connections}) >= {door}
    assert [outcome.offset for outcome in outcomes if isinstance(outcome, RecordMetadata)] == list(range(1000))
    assert [message.value() for message in served.read(topic, 1000)] == [b"%d" % number for number in range(1000)]


@faces
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_and_all_fields(target: Target, make: Callable[..., Face], codec: str) -> None:
    topic = target.new_topic()
    face = make(**target.settings("unix"), compression_type=codec, linger_ms=50)
    headers = {"a": b"1", "none": None, "text": "snow \N{SNOWMAN}"}
    face.send_all(topic, ["text \N{SNOWMAN}", b"", None, b"x" * 3000], key="k", headers=headers, timestamp_ms=12345)
    found = target.read(topic, 4)
    assert [message.value() for message in found] == ["text \N{SNOWMAN}".encode(), b"", None, b"x" * 3000]
    assert {message.key() for message in found} == {b"k"}
    assert {message.timestamp()[1] for message in found} == {12345}
    assert found[0].headers() == [("a", b"1"), ("none", None), ("text", "snow \N{SNOWMAN}".encode())]


@faces
def test_a_record_learns_its_append_time(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic(message_timestamp_type="LogAppendTime")
    (outcome,) = make(**target.settings("unix")).send_all(topic, [b"v"], timestamp_ms=5)
    (message,) = target.read(topic, 1)
    assert isinstance(outcome, RecordMetadata)
    assert (TIMESTAMP_LOG_APPEND_TIME, outcome.timestamp_ms) == message.timestamp()


@faces
def test_serializers(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic()

    def serialize(value: Any, context: Any) -> bytes:
        context.headers.append((f"of {context.field}", context.topic.encode()))
        return repr(value).encode()

    face = make(**target.settings(), key_serializer=serialize, value_serializer=serialize)
    face.send_all(topic, [1, None], key={"k": 2}, headers=[("own", b"")])
    found = target.read(topic, 2)
    assert [(message.key(), message.value()) for message in found] == [(b"{'k': 2}", b"1"), (b"{'k': 2}", b"None")]
    added = [("of key", topic.encode()), ("of value", topic.encode())]
    assert [message.headers() for message in found] == [[("own", b""), *added]] * 2


@faces
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(target: Target, make: Callable[..., Face], acks: str) -> None:
    topic = target.new_topic()
    outcomes = make(**target.settings("unix"), acks=acks).send_all(topic, [b"a", b"b"])
    assert [outcome.offset for outcome in outcomes if isinstance(outcome, RecordMetadata)] == (
        [-1, -1] if acks == "0" else [0, 1]
    )
    assert [message.value() for message in target.read(topic, 2)] == [b"a", b"b"]


@faces
def test_bad_use_is_named_at_the_call(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic()
    face = make(**target.settings("unix"), max_request_size=2000, max_block_ms=1500)
    assert code_of(lambda: face.send(topic, {"not": "bytes"})) == (
        "SerializationError INVALID_RECORD",
        "the value must be bytes or str, not dict; or give the producer a value_serializer",
    )
    assert code_of(lambda: face.send(topic, b"", headers={"count": 5})) == (
        "SerializationError INVALID_RECORD",
        "the header 'count' must be bytes or str, not int",
    )
    for header_name in (b"name", "\ud800"):
        refused = code_of(partial(face.send, topic, b"", headers=[(header_name, b"")]))[0]
        assert refused == "SerializationError INVALID_RECORD"
    for headers in ("name", 7, [None], [7], [("name", b"", b"")]):
        name, message = code_of(partial(face.send, topic, b"", headers=headers))
        assert (name, "headers must be pairs" in message) == ("SerializationError INVALID_RECORD", True)
    face.send(topic, b"")
    wrong: tuple[Any, ...] = ([topic], {topic: 0}, None, 7, "x" * 300_000)
    for wrong_topic in wrong:
        name, message = code_of(partial(face.send, wrong_topic, b""))
        assert (name, len(message) < 300) == ("KafkaError INVALID_TOPIC_EXCEPTION", True)
    wrong = ("1", [], float("nan"), float("inf"), 10**40)
    for seconds in wrong:
        assert code_of(partial(face.call, "close", seconds))[1].startswith("timeout=")
    assert code_of(lambda: face.send(topic, b"", key="half \ud800")) == (
        "SerializationError INVALID_RECORD",
        r"the key is no UTF-8: 'utf-8' codec can't encode character '\ud800' in position 5: surrogates not allowed",
    )
    name, message = code_of(lambda: face.send(topic, b"x" * 3000))
    assert (name, "more than max.request.size (2000)" in message) == ("KafkaError MESSAGE_TOO_LARGE", True)
    assert code_of(lambda: face.send(topic, b"", partition=1)) == (
        "UnknownPartitionError UNKNOWN_TOPIC_OR_PARTITION",
        f"topic '{topic}' has partitions 0 to 0, not 1",
    )
    name, message = code_of(lambda: face.send("no-such-topic", b""))
    assert name == "KafkaError UNKNOWN_TOPIC_OR_PARTITION"
    assert "within 1500 ms" in message
    invalid: tuple[Any, ...] = ("bad/name", "\ud800", "x" * 40_000, 7)
    for topic_name in invalid:
        assert code_of(partial(face.send, topic_name, b""))[0] == "KafkaError INVALID_TOPIC_EXCEPTION"
    for stamp in (-1, 1 << 63, 1.5):
        assert code_of(partial(face.send, topic, b"", timestamp_ms=stamp))[0] == "KafkaError INVALID_TIMESTAMP"
    assert code_of(lambda: face.send(topic, b"", partition=0.0))[0] == "KafkaError INVALID_REQUEST"
    face.send_all(topic, [b"still works"])
    face.close()
    for call in (lambda: face.send(topic, b""), lambda: face.call("send_arrow", topic, pa.table({"value": [b""]}))):
        assert code_of(call) == ("ClientClosedError INVALID_REQUEST", "the producer is closed")


@faces
def test_a_batch_that_the_broker_refuses(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic(max_message_bytes="1000")
    face = make(**target.settings("unix"))
    (refused,) = face.send_all(topic, [b"x" * 2000])
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.MESSAGE_TOO_LARGE
    taken = face.send_all(topic, [b"a", b"b"])
    assert [outcome.offset for outcome in taken if isinstance(outcome, RecordMetadata)] == [0, 1]


@faces
@pytest.mark.parametrize("idempotence", ["true", "false"])
def test_the_invalid_records_of_a_batch_and_the_others(
    target: Target, make: Callable[..., Face], idempotence: str
) -> None:
    """None is appended (KIP-467). The error of an invalid record differs from that of the valid ones."""
    topic = target.new_topic(cleanup_policy="compact")
    face = make(bootstrap_servers=target.plain, linger_ms="10000", enable_idempotence=idempotence)
    keys = [b"k", None, b"l", None, b"m"]
    outcomes = face.send_all(topic, [b"v"] * len(keys), keys)
    assert [isinstance(outcome, InvalidBatchError) for outcome in outcomes] == [key is not None for key in keys]
    for outcome in outcomes:
        assert isinstance(outcome, KafkaError)
        assert outcome.code is ErrorCode.INVALID_RECORD
        assert "key" in outcome.message
    again = face.send_all(topic, [b"v"], [b"k"])
    assert [outcome.offset for outcome in again if isinstance(outcome, RecordMetadata)] == [0]


def test_callbacks_of_the_records_of_a_batch_that_is_refused(target: Target) -> None:
    topic = target.new_topic(cleanup_policy="compact")
    told: list[KafkaError | None] = []
    with Producer(**target.settings(), linger_ms="10000") as producer:
        for key in (b"k", None):
            producer.send(topic, b"v", key, on_delivery=lambda error, _: told.append(error))
    assert [type(error) for error in told] == [InvalidBatchError, KafkaError]


@faces
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_batch_that_is_too_large_is_split(target: Target, make: Callable[..., Face], codec: str) -> None:
    """As often as needed, with several batches in flight: every record arrives once and in order, but for the large."""
    topic = target.new_topic(max_message_bytes="1000")
    face = make(**target.settings(), compression_type=codec, linger_ms=50)
    values = [b"%d" % number + randbytes(100) for number in range(1000)]
    values[500] = randbytes(2000)
    outcomes = face.send_all(topic, values)
    refused = outcomes.pop(500)
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.MESSAGE_TOO_LARGE
    assert [outcome.offset for outcome in outcomes if isinstance(outcome, RecordMetadata)] == list(range(999))
    assert [message.value() for message in target.read(topic, 999)] == values[:500] + values[501:]
    metrics = face.call("metrics")
    assert metrics["batch-split-total"] > 30
    assert metrics["record-error-total"] == 1
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]


@faces
def test_interceptors(target: Target, make: Callable[..., Face]) -> None:
    """Each gets the record of the one before; one that raises changes nothing, and every record ends once."""
    topic = target.new_topic()
    ends: list[str] = []

    class Stamp(ProducerInterceptor):
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            return record._replace(headers=[*record.headers, ("stamp", bytes(record.value))])

        def on_acknowledgement(self, error: KafkaError | None, metadata: RecordMetadata | None) -> None:
            ends.append(type(error).__name__ if metadata is None else str(metadata.offset))

    class Broken(ProducerInterceptor):
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            raise ValueError(record)

        def on_acknowledgement(self, error: KafkaError | None, metadata: RecordMetadata | None) -> None:
            raise ValueError(metadata)

    face = make(**target.settings(), interceptors=[Broken(), Stamp(), Broken()])
    sent = [b"%d" % number for number in range(100)]
    face.send_all(topic, sent)
    with pytest.raises(KafkaError):
        face.send(topic, bytearray(), headers=[(b"name", b"")])
    with pytest.raises(KafkaError):
        face.send(topic, bytearray(), key="\ud800")
    assert [message.headers() for message in target.read(topic, 100)] == [[("stamp", value)] for value in sent]
    assert ends == [*(str(number) for number in range(100)), "SerializationError", "SerializationError"]


@faces
def test_a_new_partition_is_found_when_a_record_names_it(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic()
    face = make(**target.settings("unix"))
    face.send_all(topic, [b""])
    with AdminClient(bootstrap_servers=target.plain) as admin:
        admin.create_partitions({topic: 2})
    face.send(topic, b"v", partition=1)
    for _ in range(2):
        assert code_of(lambda: face.send(topic, b"v", partition=2))[0].startswith("UnknownPartitionError")
    with AdminClient(bootstrap_servers=target.plain) as admin:
        admin.create_partitions({topic: 3})
    face.send(topic, b"v", partition=2)


@faces
def test_what_interceptors_and_partitioners_return_is_checked(target: Target, make: Callable[..., Face]) -> None:
    class Stamp(ProducerInterceptor):
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            return record._replace(timestamp_ms=1 << 63)

    topic = target.new_topic()
    face = make(**target.settings(), interceptors=[Stamp()])
    assert code_of(lambda: face.send(topic, b""))[0] == "KafkaError INVALID_TIMESTAMP"
    face = make(**target.settings(), partitioner=lambda *_: 0.0)
    assert code_of(lambda: face.send(topic, b""))[0] == "KafkaError INVALID_REQUEST"


@faces
def test_statistics(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic()
    face = make(**target.settings(), linger_ms=0)
    face.send_all(topic, [b"x" * 1000] * 10)
    found = face.call("metrics")
    assert found["record-send-total"] == 10
    assert found["record-retry-total"] == found["record-error-total"] == found["requests-in-flight"] == 0
    assert 10_000 < found["byte-total"] < 12_000
    assert found["batch-size-max"] > 1000
    assert found["request-total"] >= 1
    assert found["connection-count"] >= 1


@faces
def test_a_wrong_password_and_a_wrong_authority(served: Served, make: Callable[..., Face], tmp_path: Path) -> None:
    given = {**served.settings("sasl-tls"), "max_block_ms": 20_000}
    face = make(**{**given, "sasl_jaas_config": JAAS.replace('"secret"', '"wrong"')})
    assert code_of(lambda: face.send("t", b""))[0] == "KafkaError SASL_AUTHENTICATION_FAILED"
    others = Certificates.new(tmp_path / "others", "Another authority")
    name, message = code_of(lambda: make(**{**given, "ssl_truststore_location": str(others.trusted)}).send("t", b""))
    assert name == "KafkaError SASL_AUTHENTICATION_FAILED"
    assert "certificate" in message


@faces
def test_a_cluster_that_is_not_there(make: Callable[..., Face]) -> None:
    (port,) = free_ports(1)
    face = make(bootstrap_servers=f"127.0.0.1:{port}", max_block_ms=200)
    name, message = code_of(lambda: face.send("t", b""))
    assert name == "KafkaError NETWORK_EXCEPTION"
    assert f"127.0.0.1:{port}" in message


@faces
def test_memory_that_is_used_up(served: Served, make: Callable[..., Face]) -> None:
    """While the broker does not answer, records fill buffer.memory; then a record waits, and fails in the end."""
    topic = served.new_topic()
    face = make(**served.settings("unix"), buffer_memory=50_000, max_block_ms=1500, batch_size=10_000)
    face.send_all(topic, [b"first"])
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        free.wait()

    served.running.loop.call_soon_threadsafe(hold)
    held.wait()

    def fill() -> None:
        for _ in range(100):
            face.send(topic, b"x" * 1000)

    try:
        with pytest.raises(KafkaError) as raised:
            fill()
    finally:
        free.set()
    assert type(raised.value).__name__ == "BufferExhaustedError"
    assert "buffer.memory (50000 bytes)" in raised.value.message
    assert len([each for each in face.send_all(topic, [b"last"]) if isinstance(each, RecordMetadata)]) == 1


def test_partitions(target: Target) -> None:
    """Keys go where Kafka's clients put them; records without one fill a batch; a callable decides for itself."""
    topic = target.new_topic(partitions=6)
    with Producer(**target.settings("unix")) as producer:
        assert list(producer.partitions_for(topic)) == list(range(6))
        for key in ("a", "kafka", "raylog"):
            assert producer.send(topic, key=key).result().partition == partition_for_key(key.encode(), 6)
        sent = [producer.send(topic, b"x" * 100) for _ in range(2000)]  # some thirteen batches
        producer.flush()
        chosen = [delivery.result().partition for delivery in sent]
        assert 0 < sum(one != other for one, other in pairwise(chosen)) < 20
    with Producer(**target.settings("unix"), partitioner_class="RoundRobinPartitioner") as producer:
        partitions = [producer.send(topic, key="same").result().partition for _ in range(12)]
        assert sorted(partitions) == sorted([*range(6), *range(6)])
    with Producer(**target.settings("unix"), partitioner=lambda topic, key, value, count: count - 1) as producer:
        assert producer.send(topic, key="a").result().partition == 5


def test_records_in_one_call_that_come_from_a_client_of_the_same_process(target: Target) -> None:
    """All blocking clients share a thread, for which the consumer waits: the lock must not be held meanwhile."""
    topic, copy = target.new_topic(1), target.new_topic(1)
    with Producer(bootstrap_servers=target.plain, batch_size=100) as producer:
        producer.send_plain(topic, [(None, b"%d" % number) for number in range(50)]).result()

        def copied() -> Iterator[tuple[bytes | None, bytes | None]]:
            left = 50
            with Consumer(bootstrap_servers=target.plain, auto_offset_reset="earliest", max_poll_records=7) as consumer:
                consumer.assign([(topic, 0)])
                while left:
                    for record in consumer.poll(1.0):
                        left -= 1
                        yield record.key, record.value

        producer.send_plain(copy, copied()).result()
    assert [record.value() for record in target.read(copy, 50)] == [b"%d" % number for number in range(50)]


def test_many_records_in_one_call(target: Target) -> None:
    topic = target.new_topic(2, max_message_bytes="1000")
    with Producer(bootstrap_servers=target.plain, batch_size=400, buffer_memory=2000) as producer:
        records = [(None if number % 2 else b"key", b"%d" % number) for number in range(2000)]
        appended = producer.send_plain(topic, records).result()
        assert sum(rows.record_count for rows in appended) == 2000
        headers = [("h", b"v")]
        producer.send_plain(topic, [(None, None)], headers=headers, partition=1).result()
        with pytest.raises(KafkaError) as refused:
            producer.send_plain(topic, [(None, b"fits"), (None, b"x" * 1500)]).result()
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        wrong: tuple[Any, ...] = (None, "value", b"value", (b"key",), (None, "value"), (7, b"value"))
        for record in wrong:
            name, message = code_of(partial(producer.send_plain, topic, [(None, b"0"), record]))
            assert (name, "bytes or None" in message or "a pair" in message) == (
                "SerializationError INVALID_RECORD",
                True,
            )
        nothing: Any = None
        assert code_of(lambda: producer.send_plain(topic, nothing))[1] == "records must be in a list, not None"
        assert code_of(lambda: producer.send_plain(topic, [(None, b"x" * 3000)]))[0] == "KafkaError MESSAGE_TOO_LARGE"
    counts = Counter(rows.partition for rows in appended for _ in range(rows.record_count))
    found = [record for number in range(2) for record in target.read(topic, counts[number], number)]
    for wanted_key in (None, b"key"):
        values = [record.value() for record in found if record.key() == wanted_key]
        assert sorted(values, key=int) == [value for key, value in records if key == wanted_key]
    keyed = [record.value() for record in found if record.key() == b"key"]
    assert keyed == [value for key, value in records if key]
    last = target.read(topic, counts[1] + 1, 1)[-1]
    assert (last.value(), last.headers()) == (None, headers)


def test_a_closed_producer(target: Target) -> None:
    producer = Producer(**target.settings("unix"))
    producer.close()
    producer.close()
    for call in (lambda: producer.send("t", b""), lambda: producer.partitions_for("t")):
        assert code_of(call) == ("ClientClosedError INVALID_REQUEST", "the producer is closed")


def test_the_partitions_of_a_topic_with_a_lasting_error_are_not_waited_for(target: Target) -> None:
    with Producer(**target.settings("unix")) as producer:
        asked = code_of(lambda: producer.partitions_for("bad/name"))
        assert asked == code_of(lambda: producer.send("bad/name", b""))
        assert asked[0] == "KafkaError INVALID_TOPIC_EXCEPTION"


def test_the_partitions_of_a_topic_need_no_transaction(target: Target) -> None:
    topic = target.new_topic(2)
    with Producer(**target.settings("unix"), transactional_id=f"asks-{topic}") as producer:
        assert list(producer.partitions_for(topic)) == [0, 1]


def test_a_topic_whose_partitions_were_asked_for_is_not_kept_for_ever(target: Target) -> None:
    """It would be created again after its deletion."""
    topic = target.new_topic(2)
    with Producer(**target.settings(), metadata_max_idle_ms="5000") as producer:
        assert list(producer.partitions_for(topic)) == [0, 1]
        wanted = producer._core.network.metadata._wanted
        assert wanted[topic] is not None


def test_callbacks_and_close_in_one(target: Target) -> None:
    """A callback may close the producer at once: what was not sent yet fails, and nothing more is sent."""
    topic = target.new_topic()
    producer = Producer(**target.settings("unix"), batch_size=0, max_in_flight_requests_per_connection=1)
    told: list[tuple[KafkaError | None, RecordMetadata | None]] = []

    def on_delivery(error: KafkaError | None, metadata: RecordMetadata | None) -> None:
        if not told:
            producer.close(0)
        told.append((error, metadata))

    sent = 0
    with suppress(ClientClosedError):
        while sent < 500:
            producer.send(topic, b"v", on_delivery=on_delivery)
            sent += 1
    while len(told) < sent:
        time.sleep(0.01)
    acknowledged = [metadata for error, metadata in told if error is None]
    assert 1 <= len(acknowledged) < sent
    assert all(error is None or isinstance(error, ClientClosedError) for error, _ in told)
    with Producer(**target.settings("unix")) as other:
        assert other.send(topic, b"end").result().offset <= len(acknowledged) + 1


def test_flush_waits_for_callbacks_that_are_being_called(target: Target) -> None:
    """Also for those of records that were acknowledged before it was called."""
    topic = target.new_topic()
    goes_on = threading.Event()
    told: list[RecordMetadata | None] = []

    def on_delivery(error: KafkaError | None, metadata: RecordMetadata | None) -> None:
        goes_on.wait(HANG_SECONDS)
        told.append(metadata)

    with Producer(**target.settings("unix")) as producer:
        delivery = producer.send(topic, b"v", on_delivery=on_delivery)
        while not delivery.done():
            time.sleep(0.01)
        assert producer.flush(0.1) == 1
        goes_on.set()
        assert producer.flush(HANG_SECONDS) == 0
        assert told == [delivery.result()]


def test_a_callback_cannot_wait_for_a_record(target: Target) -> None:
    """It would wait for its own thread, which all clients of the process share."""
    topic = target.new_topic()
    told: list[tuple[str, str]] = []
    with Producer(**target.settings("unix")) as producer:

        def on_delivery(error: KafkaError | None, metadata: RecordMetadata | None) -> None:
            delivery, rows = producer.send(topic, b"w"), producer.send_plain(topic, [(b"k", b"x")])
            told.extend(code_of(call) for call in (delivery.result, delivery.exception, rows.result))
            with suppress(TimeoutError):
                told.append(("result", str(delivery.result(0))))

        producer.send(topic, b"v", on_delivery=on_delivery)
        assert producer.flush(HANG_SECONDS) == 0
    assert told == [("KafkaError INVALID_REQUEST", "result() would wait for the callback that calls it")] * 3


def test_a_callback_that_exits_ends_nothing(target: Target) -> None:
    topic = target.new_topic()
    told: list[RecordMetadata | None] = []
    with Producer(**target.settings("unix"), linger_ms=10_000) as producer:
        producer.send(topic, b"v", on_delivery=lambda error, metadata: sys.exit(1))
        producer.send(topic, b"w", on_delivery=lambda error, metadata: told.append(metadata))
        assert producer.flush(HANG_SECONDS) == 0
        assert [metadata.offset for metadata in told if metadata is not None] == [1]


def test_confluents_and_kafka_pythons_calls(target: Target) -> None:
    topic = target.new_topic()
    told: list[int] = []
    with Producer({"bootstrap.servers": target.plain, "linger.ms": 0}) as producer:
        producer.produce(topic, b"v", b"k", on_delivery=lambda error, metadata: told.append(metadata.offset))  # type: ignore[union-attr]
        producer.produce(topic, "w", partition=0, timestamp=77, headers=[("h", b"1")])
        assert producer.flush(30) == 0
        assert len(producer) == 0
        future = producer.send(topic, value=b"x", key=b"y", headers=[("h", b"1")], partition=0, timestamp_ms=5)
        assert future.result(timeout=30) == RecordMetadata(topic, 0, 2, 5)
    assert told == [0]


def test_many_threads(target: Target) -> None:
    topic = target.new_topic()
    with Producer(**target.settings("unix"), batch_size=300, buffer_memory=5000) as producer:

        def work(name: int) -> None:
            for number in range(300):
                producer.send(topic, b"%d/%d" % (name, number))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    values = [message.value() for message in target.read(topic, 1200)]
    for name in range(4):
        own = [value for value in values if value.startswith(b"%d/" % name)]
        assert own == [b"%d/%d" % (name, number) for number in range(300)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "bootstrap.servers: must be set"),
        ({"bootstrap_servers": "a:1", "acks": "2"}, "acks='2': must be one of all, -1, 0, 1"),
        ({"bootstrap_servers": "a:1", "enable_idempotence": True, "acks": 1}, "enable.idempotence=true: requires acks"),
        ({"bootstrap_servers": "a:1", "delivery_timeout_ms": 10}, "delivery.timeout.ms=10: must be at least linger.ms"),
        ({"bootstrap_servers": "a:1", "no_such_key": 1}, "no.such.key: unknown, or not supported by raylog"),
        ({"bootstrap_servers": "a"}, "bootstrap.servers='a': must be host:port"),
        ({"config": "a:1"}, "the configuration must be a mapping of Kafka's keys"),
        ({"bootstrap_servers": "a:1", "value_serializer": "json"}, "value_serializer='json': must be a function"),
        ({"bootstrap_servers": "a:1", "partitioner": "murmur2"}, "partitioner='murmur2': must be a function"),
        ({"bootstrap_servers": "a:1", "interceptors": ["x"]}, "must be a list of objects of the class ProducerInter"),
        ({"bootstrap_servers": "a:1", "partitioner_class": "X"}, "must be empty or RoundRobinPartitioner"),
    ],
)
def test_a_bad_configuration(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Producer(**settings)
    assert message in raised.value.message
