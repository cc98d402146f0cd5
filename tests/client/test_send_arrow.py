"""Tables become records: every column, type and partition, with both faces, within the producer's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from raylog.client.partitioner import partition_for_key
from raylog.client.producer.arrow import AppendedRows
from raylog.client.producer.async_producer import AsyncProducer
from raylog.core.errors import ErrorCode, KafkaError
from tests.client.producer_faces import Face
from tests.client.served import Served, Target
from tests.client.test_producer import code_of, faces

TYPES = (pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary(3))


def sent(face: Face, topic: str | None, table: Any) -> list[AppendedRows]:
    found: list[AppendedRows] = face.call("send_arrow_and_wait", topic, table)
    return found


@faces
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_of_keys_and_values(target: Target, make: Callable[..., Face], kind: pa.DataType) -> None:
    topic = target.new_topic()
    keys = pa.array(["one", None, "two", "six"], pa.string()).cast(pa.binary()).cast(kind)
    values = pa.array([b"abc", b"def", None, b"ghi"], pa.binary()).cast(kind)
    table = pa.table({"key": keys, "value": values}).slice(1)
    (appended,) = sent(make(**target.settings()), topic, table)
    assert appended == AppendedRows(topic, 0, 0, 3)
    assert [(message.key(), message.value()) for message in target.read(topic, 3)] == [
        (None, b"def"),
        (b"two", None),
        (b"six", b"ghi"),
    ]


@faces
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_timestamps_and_headers(target: Target, make: Callable[..., Face], codec: str) -> None:
    topic = target.new_topic()
    headers = [[("a", b"1"), ("b", None)], None, []]
    table = pa.table(
        {
            "value": [b"x", b"y", b"z"],
            "timestamp": pa.array([5000, 3000, 9000]).cast(pa.timestamp("ms")).cast(pa.timestamp("us")),
            "headers": pa.array(headers, pa.map_(pa.string(), pa.binary())),
        }
    )
    sent(make(**target.settings(), compression_type=codec), topic, table)
    found = target.read(topic, 3)
    assert [message.timestamp()[1] for message in found] == [5000, 3000, 9000]
    assert [message.headers() for message in found] == [[("a", b"1"), ("b", None)], None, None]


@faces
def test_partitions(target: Target, make: Callable[..., Face]) -> None:
    """By the column, else by the key's hash, else batch by batch; in the order of the table."""
    topic = target.new_topic(partitions=3)
    face = make(**target.settings(), batch_size=2000)
    rows = range(300)
    table = pa.table({"value": [b"%d" % row for row in rows], "partition": [row * 7 % 3 for row in rows]})
    sent(face, topic, table)
    for partition in range(3):
        expected = [b"%d" % row for row in rows if row * 7 % 3 == partition]
        assert [message.value() for message in target.read(topic, 100, partition)] == expected
    keyed = target.new_topic(partitions=3)
    sent(face, keyed, pa.table({"key": [b"k%d" % row for row in rows]}))
    for partition in range(3):
        expected = [b"k%d" % row for row in rows if partition_for_key(b"k%d" % row, 3) == partition]
        assert [message.key() for message in target.read(keyed, len(expected), partition)] == expected
    spread = target.new_topic(partitions=3)
    appended = sent(face, spread, pa.table({"value": [b"x" * 100 for _ in range(1000)]}))
    assert sum(each.record_count for each in appended) == 1000
    assert {each.partition for each in appended} == {0, 1, 2}


@faces
def test_rows_that_leave_the_partition_to_their_key(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic(partitions=3)
    keys = [b"k%d" % row for row in range(30)]
    chosen = [row % 3 if row % 2 else None for row in range(30)]
    face = make(**target.settings())
    sent(face, topic, pa.table({"key": keys, "partition": pa.array(chosen, pa.int32())}))
    expected = [partition_for_key(key, 3) if each is None else each for key, each in zip(keys, chosen, strict=True)]
    for partition in range(3):
        of_it = [key for key, each in zip(keys, expected, strict=True) if each == partition]
        assert [message.key() for message in target.read(topic, len(of_it), partition)] == of_it
    appended = sent(face, topic, pa.table({"value": [b"a", b"b"], "partition": pa.array([None, None], pa.int32())}))
    assert sum(each.record_count for each in appended) == 2


@faces
def test_topics_by_a_column(target: Target, make: Callable[..., Face]) -> None:
    topics = [target.new_topic(), target.new_topic()]
    face = make(**target.settings())
    table = pa.table(
        {"value": [b"%d" % row for row in range(100)], "topic": [topics[row * 7 % 2] for row in range(100)]}
    )
    halves = pa.concat_tables([table.slice(0, 31), table.slice(31)])
    assert {(each.topic, each.record_count) for each in sent(face, None, halves)} == {(each, 50) for each in topics}
    for number, topic in enumerate(topics):
        expected = [b"%d" % row for row in range(100) if row * 7 % 2 == number]
        assert [message.value() for message in target.read(topic, 50)] == expected
    (appended,) = sent(face, topics[0], table.slice(0, 3).to_batches()[0])
    assert (appended.topic, appended.record_count) == (topics[0], 3), "the argument goes before the column"
    assert sent(face, None, table.slice(0, 0)) == []
    for wrong, reason in (
        (pa.table({"value": [b"x"]}), "a column topic is required where no topic is given"),
        (pa.table({"value": [b"x"], "topic": [1]}), "the column topic must be string, not int64"),
        (pa.table({"topic": ["x", None]}), "the column topic must not contain nulls"),
    ):
        assert code_of(partial(sent, face, None, wrong)) == ("KafkaError INVALID_RECORD", reason)


@faces
def test_what_is_no_table_is_refused(target: Target, make: Callable[..., Face]) -> None:
    face = make(**target.settings())
    for topic in (target.new_topic(), None):
        for wrong in ([1], None, {"value": [b"x"]}, "x"):
            assert code_of(partial(sent, face, topic, wrong)) == (
                "SerializationError INVALID_RECORD",
                f"the rows must be a pyarrow.Table or RecordBatch, not {type(wrong).__name__}",
            )
    several: Any = ["t"]
    assert code_of(partial(sent, face, several, pa.table({"value": [b"x"]})))[0] == "KafkaError INVALID_TOPIC_EXCEPTION"


@faces
def test_more_rows_than_memory(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic()
    face = make(**target.settings(), batch_size=5000, buffer_memory=20_000)
    chunks = [pa.table({"value": [b"%d/%d" % (chunk, row) for row in range(1000)]}) for chunk in range(10)]
    appended = sent(face, topic, pa.concat_tables(chunks))
    assert [each.base_offset for each in appended][:2] == [0, appended[0].record_count]
    values = [message.value() for message in target.read(topic, 10_000)]
    assert values == [b"%d/%d" % (chunk, row) for chunk in range(10) for row in range(1000)]


@faces
def test_rows_in_a_transaction_and_batches_that_are_split(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic(max_message_bytes="1000")
    face = make(**target.settings(), transactional_id=topic)
    face.call("init_transactions")
    table = pa.table({"value": [b"%100d" % row for row in range(100)]})
    for end in ("abort_transaction", "commit_transaction"):
        face.call("begin_transaction")
        appended = sent(face, topic, table)
        assert sum(each.record_count for each in appended) == 100
        face.call(end)
    assert [message.value() for message in target.read(topic, 100)] == [b"%100d" % row for row in range(100)]


@faces
def test_bad_use(target: Target, make: Callable[..., Face]) -> None:
    topic = target.new_topic()
    face = make(**target.settings(), max_request_size=10_000, max_block_ms=1500)

    def refused(**columns: Any) -> tuple[str, str]:
        return code_of(lambda: sent(face, topic, pa.table(columns)))

    assert refused(values=[b"x"])[1].startswith("the columns must be some of key, value, partition, timestamp, headers")
    assert refused(value=[1]) == ("KafkaError INVALID_RECORD", "the column value must be binary or string, not int64")
    assert refused(value=[b""], timestamp=pa.array([None], pa.int64()))[0] == "KafkaError INVALID_RECORD"
    assert refused(value=[b""], timestamp=["now"])[0] == "KafkaError INVALID_RECORD"
    wrong = pa.array([[(1, b"")]], pa.map_(pa.int32(), pa.binary()))
    assert refused(value=[b""], headers=wrong)[0] == "KafkaError INVALID_RECORD"
    assert refused(value=[b""], partition=[1])[0] == "KafkaError UNKNOWN_TOPIC_OR_PARTITION"
    assert refused(value=[b"x" * 20_000])[0] == "KafkaError MESSAGE_TOO_LARGE"
    assert code_of(lambda: sent(face, "no-such-topic", pa.table({"value": [b""]})))[0] == (
        "KafkaError UNKNOWN_TOPIC_OR_PARTITION"
    )
    assert sent(face, topic, pa.table({"value": pa.array([], pa.binary())})) == []
    assert sum(each.record_count for each in sent(face, topic, pa.table({"value": [b"works"]}))) == 1
    face.close()
    assert code_of(lambda: sent(face, topic, pa.table({"value": [b""]})))[0] == "ClientClosedError INVALID_REQUEST"


def test_the_records_of_a_split_batch_can_be_awaited(served: Served) -> None:
    topic = served.new_topic(max_message_bytes="1000")

    async def work() -> list[int]:
        async with AsyncProducer(**served.settings(), linger_ms=20) as producer:
            deliveries = [await producer.send(topic, b"x" * 100) for _ in range(100)]
            assert not deliveries[0].done()
            with pytest.raises(asyncio.InvalidStateError):
                deliveries[0].result()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(deliveries[0], 0)
            large = await producer.send(topic, b"x" * 2000)
            offsets = [metadata.offset for metadata in await asyncio.gather(*deliveries)]
            with pytest.raises(KafkaError) as raised:
                await large
            assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
            assert large.exception() is raised.value
            return offsets

    assert asyncio.run(work()) == list(range(100))
