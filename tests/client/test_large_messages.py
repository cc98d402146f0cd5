"""Values that are split into chunk records and reassembled, by all faces, against production brokers."""

from __future__ import annotations

import asyncio
import hashlib
import io
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from raylog.client.chunks.envelope import chunk_of
from raylog.client.consumer.consumer import Consumer
from raylog.client.errors import AbortableError, LargeMessageDroppedError, SerializationError
from raylog.client.producer.async_producer import AsyncProducer
from raylog.client.producer.producer import Producer
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from tests.client.consumer_faces import FACES
from tests.client.producer_faces import FACES as PRODUCER_FACES
from tests.client.served import Target
from tests.support.forms import by_form
from tests.support.hang import HANG_SECONDS

Make = Callable[..., Any]
SEGMENT = 1000
MEGABYTES = by_form(64, long=1024)
faces = pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
both = pytest.mark.parametrize(
    ("send_face", "face"), list(zip(PRODUCER_FACES, FACES, strict=True)), ids=lambda face: face.__name__
)


def value_of(size: int) -> bytes:
    return bytes(at * 7 % 251 for at in range(size))


@pytest.fixture
def make(target: Target, request: pytest.FixtureRequest) -> Make:
    """Makes a producer or consumer that knows large messages, and closes it at the end of the test."""

    def made(face: Any, **settings: Any) -> Any:
        if face in FACES:
            settings = {
                "auto_offset_reset": "earliest",
                "metadata_max_age_ms": 200,
                "heartbeat_interval_ms": 100,
            } | settings
        else:
            settings = {"max_message_segment_bytes": SEGMENT} | settings
        client = face(**target.settings("unix"), **{"large_message_enabled": True} | settings)
        request.addfinalizer(lambda: client.close(5))
        return client

    return made


def polled(consumer: Any, count: int) -> list[Any]:
    """This many records; waits for them."""
    found: list[Any] = []
    deadline = time.monotonic() + HANG_SECONDS
    while len(found) < count:
        found += consumer.poll(1.0)
        assert time.monotonic() < deadline, found
    return found


def chunks_of(target: Target, make: Make, size: int) -> tuple[str, list[Any]]:
    """The records of one large message, as they are in a log."""
    topic = target.new_topic()
    with make(Producer) as producer:
        producer.send(topic, value_of(size), key=b"torn").result()
    plain = make(Consumer, large_message_enabled=False)
    plain.assign([(topic, 0)])
    return topic, polled(plain, -(-size // SEGMENT))


def append(target: Target, topic: str, *records: Any) -> None:
    """Records as they are."""
    with Producer(**target.settings("unix")) as producer:
        for record in records:
            producer.send(topic, record.value, record.key, headers=record.headers, partition=0).result()


@both
@pytest.mark.parametrize("mapped", [False, True])
def test_values_are_split_and_reassembled_among_ordinary_records(
    target: Target, make: Make, send_face: Any, face: Any, mapped: bool
) -> None:
    topic = target.new_topic(partitions=3)
    values = [value_of(size) for size in (0, 1, SEGMENT, SEGMENT + 1, 10 * SEGMENT, 123_456)]
    producer = make(send_face, compression_type="lz4")
    outcomes = producer.send_all(topic, values, key=b"one", headers={"own": b"header"}, timestamp_ms=1234)
    consumer = make(face, mapped=mapped)
    consumer.assign([(topic, partition) for partition in range(3)])
    records = polled(consumer, len(values))
    assert [record.value for record in records] == values
    assert all(type(record.value) is bytes for record in records)
    assert [(record.partition, record.offset) for record in records] == [
        (each.partition, each.offset) for each in outcomes
    ]
    assert {(record.key, record.headers, record.timestamp_ms) for record in records} == {
        (b"one", (("own", b"header"),), 1234)
    }
    assert records[-1].offset == 3 + 2 + 10 + 124 - 1


@both
def test_one_poll_waits_for_all_chunks_of_a_message(target: Target, make: Make, send_face: Any, face: Any) -> None:
    topic = target.new_topic()
    value = value_of(20 * SEGMENT)
    make(send_face, batch_size=SEGMENT).send_all(topic, [value])
    consumer = make(face, mapped=False, max_partition_fetch_bytes=2 * SEGMENT, fetch_max_wait_ms=60_000)
    consumer.assign([(topic, 0)])
    assert [record.value for record in consumer.poll(HANG_SECONDS)] == [value]  # each fetch brings two chunks


@both
def test_a_value_may_be_a_view_or_a_file(target: Target, make: Make, send_face: Any, face: Any, tmp_path: Any) -> None:
    topic = target.new_topic()
    value = value_of(25_000)
    file = tmp_path / "value"
    file.write_bytes(b"skipped" + value)
    producer = make(send_face)
    with file.open("rb") as opened:
        opened.seek(7)
        values = [memoryview(value), bytearray(value), value.decode("latin-1"), io.BytesIO(value), opened]
        producer.send_all(topic, values)
    producer.send(topic, io.BytesIO(b"small"))
    producer.flush()
    consumer = make(face)
    consumer.assign([(topic, 0)])
    found = [record.value for record in polled(consumer, 6)]
    assert found == [value, value, value.decode("latin-1").encode(), value, value, b"small"]


def test_each_message_has_one_callback_after_its_last_chunk(target: Target, make: Make) -> None:
    topic = target.new_topic(partitions=3)
    told: list[Any] = []
    with make(Producer, batch_size=SEGMENT) as producer:
        for _ in range(4):
            producer.send(
                topic, value_of(5000), on_delivery=lambda error, metadata: told.append((error, *metadata[1:3]))
            )
    consumer = make(Consumer)
    consumer.assign([(topic, partition) for partition in range(3)])
    found = polled(consumer, 4)
    assert sorted(told) == sorted((None, record.partition, record.offset) for record in found)
    assert {record.value for record in found} == {value_of(5000)}


@faces
def test_interleaved_messages_are_returned_in_the_order_of_their_ends(target: Target, make: Make, face: Any) -> None:
    _, first = chunks_of(target, make, 2 * SEGMENT)
    _, second = chunks_of(target, make, 3 * SEGMENT)
    topic = target.new_topic()
    append(target, topic, second[0], first[0], second[1], first[1], first[1], second[2])
    consumer = make(face)
    consumer.assign([(topic, 0)])
    records = polled(consumer, 2)
    assert [(record.offset, len(record.value)) for record in records] == [(3, 2 * SEGMENT), (5, 3 * SEGMENT)]
    assert consumer.metrics()["chunks-duplicate-total"] == 1


@faces
def test_a_lost_chunk_and_a_wrong_digest_are_reported(target: Target, make: Make, face: Any) -> None:
    _, lost = chunks_of(target, make, 3 * SEGMENT)
    _, torn = chunks_of(target, make, 2 * SEGMENT)
    topic = target.new_topic()
    torn[0] = torn[0]._replace(value=b"?" * SEGMENT)
    append(target, topic, lost[0], lost[2], *torn, torn[0]._replace(value=b"end", headers=()))
    quiet = make(face)
    quiet.assign([(topic, 0)])
    assert [record.value for record in polled(quiet, 1)] == [b"end"]
    assert quiet.metrics()["large-messages-dropped-total"] == 2
    strict = make(face, exception_on_message_dropped=True)
    strict.assign([(topic, 0)])
    for offset, why in ((0, "a chunk is missing"), (2, "the digest of the value is another one")):
        what = rf"{topic}-0: .* from offset {offset} on was dropped: {why}"
        with pytest.raises(LargeMessageDroppedError, match=what):
            polled(strict, 2)


@faces
def test_commits_do_not_pass_an_unfinished_message(target: Target, make: Make, face: Any) -> None:
    _, chunks = chunks_of(target, make, 3 * SEGMENT)
    topic, group = target.new_topic(), target.new_group()
    plain = chunks[0]._replace(value=b"plain", headers=())
    append(target, topic, plain, chunks[0], plain, chunks[1])
    tp = TopicPartition(topic, 0)
    consumer = make(face, group_id=group)
    consumer.subscribe(topic)
    assert [record.offset for record in polled(consumer, 2)] == [0, 2]
    consumer.poll(0.1)
    assert consumer.position(tp) == 1
    consumer.commit()
    assert consumer.committed([tp])[tp].offset == 1
    consumer.close()  # commits as well
    next_owner = make(face, group_id=group)
    next_owner.subscribe(topic)
    append(target, topic, chunks[2], plain)
    assert [(record.offset, len(record.value)) for record in polled(next_owner, 2)] == [(4, 3 * SEGMENT), (5, 5)]
    next_owner.commit()
    committed = next_owner.committed([tp])[tp]
    assert (committed.offset, committed.metadata, next_owner.position(tp)) == (6, "", 6)


@faces
def test_offsets_of_a_transaction_do_not_pass_an_unfinished_message_and_repeat_nothing(
    target: Target, make: Make, face: Any
) -> None:
    _, chunks = chunks_of(target, make, 2 * SEGMENT)
    topic, group = target.new_topic(), target.new_group()
    plain = chunks[0]._replace(value=b"plain", headers=())
    append(target, topic, chunks[0], plain)
    consumer = make(face, group_id=group, enable_auto_commit=False)
    consumer.subscribe(topic)
    assert [record.offset for record in polled(consumer, 1)] == [1]
    producer = make(Producer, transactional_id=f"offsets-{topic}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction(consumer.offsets_to_commit(), consumer.group_metadata())
    producer.commit_transaction()
    consumer.close()
    append(target, topic, chunks[1])
    next_owner = make(face, group_id=group)
    next_owner.subscribe(topic)
    assert [record.offset for record in polled(next_owner, 1)] == [2]


@faces
def test_a_rebalance_in_the_middle_of_a_message_gives_it_to_the_next_owner_once(
    target: Target, make: Make, face: Any
) -> None:
    _, chunks = chunks_of(target, make, 4 * SEGMENT)
    topic, group = target.new_topic(partitions=2), target.new_group()
    records = [(partition, chunk) for chunk in chunks for partition in range(2)]
    settings = {"group_id": group, "partition_assignment_strategy": "range", "enable_auto_commit": True}
    first = make(face, **settings)
    first.subscribe(topic)
    with Producer(**target.settings("unix")) as producer:
        for partition, chunk in records[:4]:
            producer.send(topic, chunk.value, chunk.key, headers=chunk.headers, partition=partition).result()
        while first.metrics()["large-messages-unfinished"] < 2:
            assert not first.poll(0.1)
        second = make(face, **settings)
        second.subscribe(topic)
        got: list[Any] = []
        while not (len(first.assignment()) == len(second.assignment()) == 1):
            got += first.poll(0.05) + second.poll(0.05)
        assert first.metrics()["large-messages-unfinished"] <= 1
        for partition, chunk in records[4:]:
            producer.send(topic, chunk.value, chunk.key, headers=chunk.headers, partition=partition).result()
    while len(got) < 2:
        got += first.poll(0.05) + second.poll(0.05)
    got += first.poll(0.2) + second.poll(0.2)
    assert sorted((record.partition, record.offset, len(record.value)) for record in got) == [
        (0, 3, 4 * SEGMENT),
        (1, 3, 4 * SEGMENT),
    ]


@faces
def test_seek_to_a_delivered_offset_begins_at_the_first_chunk(target: Target, make: Make, face: Any) -> None:
    _, outer = chunks_of(target, make, 3 * SEGMENT)
    _, inner = chunks_of(target, make, 2 * SEGMENT)
    topic = target.new_topic()
    plain = outer[0]._replace(value=b"plain", headers=())
    append(target, topic, outer[0], plain, inner[0], outer[1], inner[1], plain, outer[2])
    consumer = make(face)
    consumer.assign([(topic, 0)])
    offsets = [record.offset for record in polled(consumer, 4)]
    assert offsets == [1, 4, 5, 6]
    for at, offset in enumerate(offsets):
        consumer.seek((topic, 0), offset)
        assert [record.offset for record in polled(consumer, 4 - at)] == offsets[at:]
    consumer.seek((topic, 0), 5)  # behind a delivered record, inside the outer message
    assert [record.offset for record in polled(consumer, 2)] == [5, 6]
    consumer.seek((topic, 0), 5)
    consumer.seek_to_beginning((topic, 0))
    assert [record.offset for record in polled(consumer, 4)] == offsets
    stranger = make(face)
    stranger.assign([(topic, 0)])
    stranger.seek((topic, 0), 4)  # the first chunks are not known to it
    assert [record.offset for record in polled(stranger, 1)] == [5]
    assert stranger.metrics()["chunks-orphaned-total"] >= 1


@faces
def test_messages_of_one_poll_are_returned_again_however_few_are_remembered(
    target: Target, make: Make, face: Any
) -> None:
    topic = target.new_topic()
    with make(Producer) as producer:
        for number in range(5):
            producer.send(topic, b"%d" % number * 2 * SEGMENT)
    failed: list[bytes] = []

    def deserialized(value: bytes, _: Any) -> bytes:
        if value[:1] == b"1" and not failed:
            failed.append(value)
            raise ValueError
        return value[:1]

    settings = {"fetch_min_bytes": 10 * SEGMENT, "max_tracked_messages_per_partition": 1}
    consumer = make(face, value_deserializer=deserialized, **settings)
    consumer.assign([(topic, 0)])
    assert [record.value for record in polled(consumer, 5)] == [b"0", b"1", b"2", b"3", b"4"]


@faces
def test_arrow_is_refused(target: Target, make: Make, face: Any) -> None:
    pytest.importorskip("pyarrow")
    consumer = make(face)
    consumer.assign([(target.new_topic(), 0)])
    with pytest.raises(KafkaError, match=r"batches of large messages are not reassembled; use poll\(\)"):
        consumer.poll_arrow(0.1)


@both
def test_aborted_messages_are_not_returned(target: Target, make: Make, send_face: Any, face: Any) -> None:
    topic = target.new_topic()
    producer = make(send_face, transactional_id=f"large-{topic}-{face.__name__}")
    producer.call("init_transactions")
    for end in ("abort_transaction", "commit_transaction"):
        producer.call("begin_transaction")
        producer.send_all(topic, [end.encode() * 200])
        producer.call(end)
    consumer = make(face, isolation_level="read_committed")
    consumer.assign([(topic, 0)])
    assert [record.value for record in polled(consumer, 1)] == [b"commit_transaction" * 200]
    assert consumer.metrics()["chunks-orphaned-total"] == consumer.metrics()["large-messages-unfinished"] == 0


def test_a_stock_client_sees_the_documented_envelope(target: Target, make: Make) -> None:
    topic = target.new_topic()
    value = value_of(2500)
    with make(Producer) as producer:
        producer.send(topic, value, key=b"k", headers={"own": b"header"}).result()
    messages = target.read(topic, 3)
    assert b"".join(message.value() for message in messages) == value
    assert {message.key() for message in messages} == {b"k"}
    headers = [message.headers() for message in messages]
    names = ["raylog.chunk.id", "raylog.chunk.index", "raylog.chunk.count", "raylog.chunk.size"]
    assert [[name for name, _ in each] for each in headers[:2]] == [names, names]
    assert len({each[0][1] for each in headers}) == 1
    assert [[text for _, text in each[1:4]] for each in headers] == [[b"%d" % at, b"3", b"2500"] for at in range(3)]
    digest = b"sha256:" + hashlib.sha256(value).hexdigest().encode()
    assert headers[2][4:] == [("raylog.chunk.digest", digest), ("own", b"header")]
    assert all(chunk_of(each) is not None for each in headers)


@both
def test_a_compacted_topic_has_no_chunks_of_former_values(
    target: Target, make: Make, send_face: Any, face: Any
) -> None:
    topic = target.new_topic(cleanup_policy="compact")
    producer = make(
        send_face, transactional_id=f"compacted-{topic}-{face.__name__}", large_message_compacted_segments=6
    )
    producer.call("init_transactions")
    plain = make(Consumer, large_message_enabled=False, isolation_level="read_uncommitted")
    plain.assign([(topic, 0)])
    latest: dict[bytes, Any] = {}
    for value in (value_of(5500), value_of(2500), b"small", value_of(3500), None):
        producer.call("begin_transaction")
        producer.send_all(topic, [value], key=b"user")
        producer.call("commit_transaction")
        end = plain.end_offsets([(topic, 0)])[topic, 0]
        while plain.position((topic, 0)) < end:
            latest |= {record.key: record for record in plain.poll(0.01)}
        kept = [record for record in latest.values() if record.value is not None]
        assert b"".join(record.value for record in sorted(kept, key=lambda each: each.offset)) == (value or b"")
    consumer = make(face, isolation_level="read_committed")
    consumer.assign([(topic, 0)])
    found = [(record.key, None if record.value is None else len(record.value)) for record in polled(consumer, 5)]
    assert found == [(b"user", 5500), (b"user", 2500), (b"user", 5), (b"user", 3500), (b"user", None)]
    producer.call("begin_transaction")
    with pytest.raises(KafkaError, match=r"value of 6001 bytes has 7 chunks .* more than large.message.compacted.segm"):
        producer.send_all(topic, [value_of(6001)], key=b"user")
    producer.call("abort_transaction")


class Slow(io.BytesIO):
    """A file that lets other threads run behind its first chunk."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.begun = threading.Event()

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() >= SEGMENT:
            self.begun.set()
            time.sleep(0.1)
        return super().read(size)


@pytest.mark.parametrize("send_face", PRODUCER_FACES, ids=lambda face: face.__name__)
def test_values_of_one_key_that_are_sent_at_once_are_not_mixed(target: Target, make: Make, send_face: Any) -> None:
    """In a compacted topic, which keeps one record of each index: it must have all chunks of the last one."""
    topic = target.new_topic(cleanup_policy="compact")
    settings = {"transactional_id": f"at-once-{topic}", "large_message_compacted_segments": 4}
    face = make(send_face, **settings, batch_size=SEGMENT)
    face.call("init_transactions")
    face.call("begin_transaction")
    slow = Slow(value_of(3500))
    given = [slow, b"small", value_of(2500), None]
    if send_face is PRODUCER_FACES[0]:
        threads = [threading.Thread(target=face.send, args=(topic, value, b"k")) for value in given]
        for thread in threads:
            thread.start()
            slow.begun.wait(HANG_SECONDS)
        for thread in threads:
            thread.join()
    else:

        async def send_all() -> None:
            await asyncio.gather(*(face.producer.send(topic, value, b"k") for value in given))

        face._runner.run(send_all())
    face.call("commit_transaction")
    plain = make(Consumer, large_message_enabled=False)
    plain.assign([(topic, 0)])
    records = polled(plain, 4 * len(given))
    for at in range(0, len(records), 4):
        assert len({record.key for record in records[at : at + 4]}) == 4
        assert len({chunk.message_id for each in records[at : at + 4] if (chunk := chunk_of(each.headers))}) <= 1


class Failing(io.BytesIO):
    """A file whose end is missing."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size) if self.tell() < 3000 else b""


@pytest.mark.parametrize("send_face", PRODUCER_FACES, ids=lambda face: face.__name__)
def test_a_file_that_cannot_be_read_fails_the_message_and_its_transaction(
    target: Target, make: Make, send_face: Any
) -> None:
    topic = target.new_topic()
    producer = make(send_face, transactional_id=f"failing-{topic}-{send_face.__name__}")
    producer.call("init_transactions")
    producer.call("begin_transaction")
    with pytest.raises(SerializationError, match="cannot be read from its file: 1000 bytes are left, got 0 bytes"):
        producer.send(topic, Failing(value_of(5000)))
    with pytest.raises(KafkaError):
        producer.call("commit_transaction")
    producer.call("abort_transaction")
    for bad in (open, object(), io.StringIO("x" * 5000), memoryview(value_of(4000))[::2], "\ud800" * 5000):
        producer.call("begin_transaction")
        with pytest.raises(SerializationError):
            producer.send(topic, bad)
        producer.call("abort_transaction")


@pytest.mark.parametrize("send_face", PRODUCER_FACES, ids=lambda face: face.__name__)
def test_a_file_of_text_is_refused_in_one_sentence(target: Target, make: Make, send_face: Any, tmp_path: Any) -> None:
    file = tmp_path / "value"
    file.write_bytes(b"\xff" * 100_000)
    producer, topic = make(send_face), target.new_topic()
    with file.open(encoding="utf-8") as opened:
        for text in (opened, io.StringIO("x" * 100_000)):
            with pytest.raises(SerializationError, match="open it in binary mode") as refused:
                producer.send(topic, text)
            assert len(refused.value.message) < 200


class Unreadable(io.BytesIO):
    """A file whose error has a long text."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise ValueError("x" * 100_000)

    def seek(self, *_: int) -> int:
        raise ValueError("x" * 100_000)


@pytest.mark.parametrize("send_face", PRODUCER_FACES, ids=lambda face: face.__name__)
def test_errors_of_a_file_are_shortened(target: Target, make: Make, send_face: Any) -> None:
    for file in (Unreadable(b"value"), type("Stuck", (Unreadable,), {"seek": io.BytesIO.seek})(b"x" * 5000)):
        with pytest.raises(SerializationError, match="ValueError") as refused:
            make(send_face).send(target.new_topic(), file)
        assert len(refused.value.message) < 300


class Interrupting(io.BytesIO):
    """A file whose reading is interrupted, as by a signal."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() >= 3000:
            raise KeyboardInterrupt
        return super().read(size)


def test_a_transaction_whose_large_message_was_interrupted_is_not_committed(target: Target, make: Make) -> None:
    topic = target.new_topic()
    producer = make(Producer, transactional_id=f"interrupted-{topic}")
    producer.init_transactions()
    producer.begin_transaction()
    with pytest.raises(KeyboardInterrupt):
        producer.send(topic, Interrupting(value_of(5000)))
    with pytest.raises(AbortableError, match="a large message was interrupted: KeyboardInterrupt"):
        producer.commit_transaction()
    producer.abort_transaction()


def test_a_transaction_whose_large_message_was_cancelled_is_not_committed(target: Target) -> None:
    """Also if that was right behind its first chunk."""
    topic = target.new_topic()

    async def run() -> None:
        settings: dict[str, Any] = {"large_message_enabled": True, "max_message_segment_bytes": SEGMENT}
        async with AsyncProducer(
            **target.settings("unix"), transactional_id=f"cancelled-{topic}", **settings
        ) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await (await producer.send(topic, b"small"))
            task = asyncio.create_task(producer.send(topic, value_of(5000)))
            await asyncio.sleep(0)
            assert len(producer) == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(AbortableError, match="a large message was interrupted: CancelledError"):
                await producer.commit_transaction()
            await producer.abort_transaction()

    asyncio.run(run())


def test_a_failed_chunk_fails_the_message(target: Target, make: Make) -> None:
    topic = target.new_topic(max_message_bytes="3000")
    with make(Producer, max_message_segment_bytes=4000, linger_ms=0) as producer:
        delivery = producer.send(topic, value_of(5000))
        error = delivery.exception()
        assert error is not None
        assert error.code is ErrorCode.MESSAGE_TOO_LARGE
        assert delivery.done()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"acks": "1"}, "large.message.enabled=true: requires enable.idempotence=true"),
        ({"max_message_segment_bytes": 1_048_000}, "max.message.segment.bytes=1048000: must be at most"),
        ({"max_message_segment_bytes": 0}, "max.message.segment.bytes='0'"),
        ({"large_message_compacted_segments": 3}, "large.message.compacted.segments=3: requires transactional.id"),
    ],
)
def test_contradicting_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Producer(bootstrap_servers="localhost:1", large_message_enabled=True, **settings)


@pytest.mark.slow
def test_the_memory_of_producer_and_consumer_is_bounded(target: Target) -> None:
    check_memory(target)


def check_memory(target: Target, **settings: str) -> None:
    arguments = [target.plain, target.new_topic(), str(MEGABYTES), *(f"{key}={text}" for key, text in settings.items())]
    command = [sys.executable, "-m", "tests.client.large_message_memory", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
