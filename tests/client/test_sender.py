"""What a producer's sender waits for: never for a time that has passed, which would keep its loop busy."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from raylog.client.producer.core import ProducerCore
from raylog.client.producer.delivery import ProducerRecord, RecordMetadata
from raylog.config.producer import PRODUCER_CONFIG, producer_settings
from raylog.core.clock import Now
from raylog.core.config import Configs, ConfigSource, Layer
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.init_producer_id import InitProducerIdResponse
from raylog.protocol.produce import ProducePartitionResponse, ProduceResponse, ProduceTopicResponse
from raylog.protocol.records.batch import HEADER_SIZE, parse_header
from raylog.protocol.records.reader import read_records
from tests.client.test_network_client import shown

NOW = Now(1000, 0)


def made(**texts: str) -> ProducerCore:
    given = PRODUCER_CONFIG.parse({name.replace("_", "."): text for name, text in texts.items()})
    configs = Configs(PRODUCER_CONFIG, [Layer(ConfigSource.STATIC_BROKER_CONFIG, given)])
    core = ProducerCore("h:1", producer_settings(configs), random.Random(1))
    core.network.metadata.want(["t"])
    return core


def append(core: ProducerCore, now: Now = NOW) -> None:
    assert core.try_append(ProducerRecord("t", None, b"v", (), 0, 0), now) is not None


@pytest.mark.parametrize("idempotent", ["true", "false"])
@pytest.mark.parametrize("leader", [-1, 1])
def test_it_never_waits_for_a_time_that_has_passed(leader: int, idempotent: str) -> None:
    """Records are due, but there is no leader, no producer id, or no connection yet."""
    core = made(enable_idempotence=idempotent, linger_ms="0")
    core.network.metadata.answered(shown([1], leader=leader), NOW)
    append(core)
    core.network.run(NOW)
    due_ms = core.sender.next_deadline_ms()
    assert due_ms is not None
    assert due_ms > NOW.monotonic_ms


def test_a_producer_id_that_is_none() -> None:
    core = made()
    core.network.metadata.answered(shown([1]), NOW)
    append(core)
    core.sender._got_id(InitProducerIdResponse(producer_id=-1, producer_epoch=-1), NOW)
    (batch,) = core.sender.completed
    assert batch.error is not None
    assert "the broker gives producer id -1" in batch.error.message


def test_records_linger_and_expire() -> None:
    core = made(linger_ms="20", request_timeout_ms="100", delivery_timeout_ms="500")
    core.network.metadata.answered(shown([1]), NOW)
    append(core)
    core.network.run(NOW)
    assert core.sender.next_deadline_ms() == NOW.monotonic_ms + 20
    append(core, Now(1010, 0))
    core.network.run(Now(1020, 0))
    assert core.sender.next_deadline_ms() == NOW.monotonic_ms + 500
    core.network.run(Now(1499, 0))
    assert core.sender.completed == []
    core.network.run(Now(1500, 0))
    (batch,) = core.sender.completed
    assert (batch.builder.count, core.accumulator.used_bytes) == (2, 0)
    with pytest.raises(KafkaError) as raised:
        batch.metadata(0, 0)
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert "t-0: not acknowledged within delivery.timeout.ms (500 ms) after 0 attempts" in raised.value.message
    assert core.sender.next_deadline_ms() is None


def test_metadata_of_an_idle_topic_are_dropped() -> None:
    """A deleted topic is not created again by a producer that has long sent to it."""
    core = made(metadata_max_idle_ms="5000", delivery_timeout_ms="400000")
    metadata = core.network.metadata
    metadata.answered(shown([1]), NOW)
    append(core)

    def asked(after_ms: int) -> list[str | None]:
        request = metadata.request(Now(NOW.monotonic_ms + after_ms, 0))
        metadata.answered(shown([1], leader=-1), Now(NOW.monotonic_ms + after_ms, 0))
        return [topic.name for topic in request.topics or ()]

    assert asked(4999) == ["t"]
    core.sender._set_identity(7, 0)
    core.sender.run(Now(NOW.monotonic_ms + 4999, 0))  # the batch still waits for a leader
    assert asked(9998) == ["t"]
    assert asked(9999) == []
    assert metadata.topic("t") is None
    record = ProducerRecord("t", None, b"v", (), 0, 0)
    assert core.try_append(record, Now(NOW.monotonic_ms + 9999, 0)) is None
    assert asked(9999) == ["t"]


def test_one_batch_is_in_flight_until_the_partition_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader that refuses the first one could else take the second as the beginning."""
    core = made(batch_size="0", request_timeout_ms="100")
    core.network.metadata.answered(shown([1]), NOW)
    core.sender._set_identity(7, 0)
    asked: list[Any] = []
    monkeypatch.setattr(core.network, "ask", lambda *given, **options: asked.append(given[2:4]))
    for _ in range(8):
        append(core)
    core.network.run(NOW)
    assert len(asked) == 1
    result = ProducePartitionResponse(index=0, error_code=ErrorCode.NONE, base_offset=0)
    asked[0][0](ProduceResponse(responses=[ProduceTopicResponse(name="t", partitions=[result])]), NOW)
    core.network.run(NOW)
    assert len(asked) == 6


def test_an_acknowledged_batch_keeps_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may keep the deliveries of all records that it ever sent."""
    core = made()
    core.network.metadata.answered(shown([1]), NOW)
    core.sender._set_identity(7, 0)
    asked: list[Any] = []
    monkeypatch.setattr(core.network, "ask", lambda *given, **options: asked.append(given[1:3]))
    core.try_append(ProducerRecord("t", None, b"v" * 10_000, (), 0, 0), NOW)
    core.sender.flushes += 1
    core.network.run(NOW)
    (batch,) = core.sender.unfinished
    [(request, answered)] = asked
    request(lambda key: 12)
    result = ProducePartitionResponse(index=0, error_code=ErrorCode.NONE, base_offset=5)
    answered(ProduceResponse(responses=[ProduceTopicResponse(name="t", partitions=[result])]), NOW)
    assert (batch.metadata(0, 0).offset, batch.builder.count) == (5, 1)
    assert (batch.builder.size_bytes, batch.encoded) == (0, None)


def on_delivery(error: KafkaError | None, metadata: RecordMetadata | None) -> None: ...


def test_the_quick_way_takes_records_only_for_open_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    core = made(linger_ms="10", batch_size="300", buffer_memory="2000")
    core.network.metadata.answered(shown([1]), NOW)
    core.sender._set_identity(7, 0)
    monkeypatch.setattr(core.network, "ask", lambda *given, **options: None)
    assert core.append_to_open("t", b"v", None, 0) is None
    core.try_append(ProducerRecord("t", None, b"v", (), None, 0), NOW)
    (batch,) = core.sender.unfinished
    assert core.append_to_open("t", b"v", None, 0) is batch
    assert core.append_to_open("t", b"v", b"key", 5) is batch
    assert core.append_to_open("t", b"v" * 300, None, 0) is None
    assert core.append_to_open("other", b"v", None, 0) is None
    assert (batch.builder.count, batch.builder.max_timestamp_ms) == (3, 5)
    assert core.append_to_open("t", b"v", None, 7, [("name", b"value")], on_delivery) is batch
    assert batch.callbacks == [(3, 7, on_delivery)]
    encoded = batch.builder.build()
    assert read_records(encoded, 0, parse_header(encoded, 0))[3].headers == (("name", b"value"),)
    assert batch.size_bytes >= len(encoded)
    assert core.append_to_open("t", b"", None, 0, [("name", b"v" * 300)]) is None
    assert core.accumulator.used_bytes == batch.size_bytes - HEADER_SIZE
    core.network.run(Now(NOW.monotonic_ms + 10, 0))
    assert core.append_to_open("t", b"v", None, 0) is None
    core.try_append(ProducerRecord("t", None, b"v", (), None, 0), NOW)
    assert core.append_to_open("t", b"v", None, 0) is not None
    core.closed = True
    assert core.append_to_open("t", b"v", None, 0) is None


def test_a_table_waits_for_memory() -> None:
    core = made(batch_size="500", buffer_memory="2000", max_request_size="1000")
    core.network.metadata.answered(shown([1]), NOW)
    appender = core.table_appender("t", pa.table({"value": [b"x" * 100] * 100}), NOW)
    assert appender is not None
    appender.encode_next(0)
    while core.append_table("t", appender, NOW):
        appender.encode_next(0)
    assert not appender.finished
    assert 1500 < core.accumulator.used_bytes <= 2000
    while not appender.finished:
        (*_, last) = core.sender.unfinished
        core.sender._complete(last, None)
        assert core.append_table("t", appender, NOW)
        appender.encode_next(0)
    assert sum(batch.builder.count for batch in appender.batches) == 100
