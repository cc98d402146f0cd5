"""What a producer's sender waits for: never for a time that has passed, which would keep its loop busy."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from raylog.client.errors import UnknownPartitionError
from raylog.client.producer.accumulator import BODIES_MAX
from raylog.client.producer.core import ProducerCore
from raylog.client.producer.delivery import ProducerRecord, RecordMetadata
from raylog.client.producer.partitioners import DefaultPartitioner
from raylog.client.producer.sender import EPOCH_MAX
from raylog.config.producer import PRODUCER_CONFIG, producer_settings
from raylog.core.clock import Now
from raylog.core.config import Configs, ConfigSource, Layer
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.init_producer_id import InitProducerIdResponse
from raylog.protocol.produce import ProducePartitionResponse, ProduceResponse, ProduceTopicResponse
from raylog.protocol.records.batch import HEADER_SIZE, parse_header
from raylog.protocol.records.builder import BatchBuilder
from raylog.protocol.records.copied import CopiedBatch
from raylog.protocol.records.reader import read_records
from tests.client.test_network_client import shown

NOW = Now(1000, 0)
TP = TopicPartition("t", 0)


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


def test_a_record_that_cannot_be_encoded_leaves_no_batch() -> None:
    core = made()
    core.network.metadata.answered(shown([1]), NOW)
    with pytest.raises(UnicodeEncodeError):
        core.try_append(ProducerRecord("t", None, b"v", [("\ud800", b"")], 0, 0), NOW)
    assert list(core.sender.unfinished) == []
    appended = core.try_append(ProducerRecord("t", None, b"v", (), 0, 0), NOW)
    assert appended is not None
    batch, fresh = appended
    assert (batch.builder.count, fresh) == (1, True)


def test_a_partition_that_the_metadata_lack_is_waited_for_until_they_are_newer() -> None:
    core = made()
    core.network.metadata.answered(shown([1]), NOW)
    record = ProducerRecord("t", None, b"v", (), 5, 0)
    for _ in range(2):
        assert core.try_append(record, NOW) is None
    assert core.timed_out("t", 100).code is ErrorCode.REQUEST_TIMED_OUT
    core.network.metadata.answered(shown([1]), NOW)
    with pytest.raises(UnknownPartitionError):
        core.try_append(record, NOW)


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


class Leaders:
    """The brokers: a test gives the response to each request that the producer has sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, core: ProducerCore) -> None:
        self.asked: list[tuple[int, Any, Any, Any]] = []
        """By which broker, the maker of the request, and what to call with the response or the failure."""
        monkeypatch.setattr(core.network, "ask", lambda *given, **options: self.asked.append(given[:4]))

    def answer(self, at: int, code: ErrorCode = ErrorCode.NONE) -> None:
        _, _, answered, _ = self.asked.pop(at)
        result = ProducePartitionResponse(index=0, error_code=code, base_offset=0)
        answered(ProduceResponse(responses=[ProduceTopicResponse(name="t", partitions=[result])]), NOW)


def test_a_refused_batch_is_not_sent_again_before_the_one_it_follows_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The former leader hangs: until its request has timed out the new one refuses whatever follows."""
    core = made(batch_size="0")
    core.network.metadata.answered(shown([1, 2], leader=1), NOW)
    core.sender._set_identity(7, 0)
    leaders = Leaders(monkeypatch, core)
    append(core)
    core.network.run(NOW)
    leaders.answer(0)
    append(core)
    core.network.run(NOW)  # to the first leader
    core.network.metadata.answered(shown([1, 2], leader=2), NOW)
    append(core)
    core.network.run(NOW)
    assert [asked[0] for asked in leaders.asked] == [1, 2]
    leaders.answer(1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    core.network.run(NOW)
    assert [asked[0] for asked in leaders.asked] == [1]
    failed = leaders.asked.pop()[3]
    failed(KafkaError(ErrorCode.NETWORK_EXCEPTION, "the request has timed out"), NOW)
    core.network.run(Now(NOW.monotonic_ms + 1000, 0))
    assert [asked[0] for asked in leaders.asked] == [2]
    leaders.answer(0)
    core.network.run(Now(NOW.monotonic_ms + 1000, 0))
    assert [asked[0] for asked in leaders.asked] == [2]
    leaders.answer(0)
    assert [batch.error for batch in core.sender.completed] == [None] * 3


def test_a_partition_that_begins_anew_after_another_has_got_a_new_producer_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """The epochs of the id before are used up."""
    core = made(batch_size="0")
    core.network.metadata.answered(shown([1], partitions=2), NOW)
    core.sender._set_identity(7, EPOCH_MAX)
    leaders = Leaders(monkeypatch, core)
    for partition in (0, 1):
        assert core.try_append(ProducerRecord("t", None, b"v", (), partition, 0), NOW) is not None
        core.network.run(NOW)
    first, second = (batch for queue in core.accumulator.active.values() for batch in queue.in_flight)
    assert (first.producer_id, second.producer_epoch) == (7, EPOCH_MAX)
    core.sender._rejected(first, KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "lost"), NOW)
    core.sender._got_id(InitProducerIdResponse(producer_id=8, producer_epoch=0), NOW)
    core.network.run(NOW)
    core.sender._rejected(second, KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "lost"), NOW)
    core.network.run(NOW)
    identities = [(each.producer_id, each.producer_epoch, each.base_sequence) for each in (first, second)]
    assert identities == [(8, 0, 0), (8, 1, 0)]
    assert len(leaders.asked) == 4


class TestMemory:
    """Batches use the memory of those that are acknowledged."""

    def sent(self, core: ProducerCore, leaders: Leaders, value: bytes = b"v" * 300) -> tuple[Any, memoryview]:
        """A batch in flight, and its records as the connection has them."""
        core.try_append(ProducerRecord("t", None, value, (), 0, 0), NOW)
        core.sender.flushes += 1
        core.network.run(NOW)
        (batch,) = core.sender.unfinished
        request = leaders.asked[0][1](lambda key: 12)
        return batch, request.topics[0].partitions[0].records

    @pytest.fixture
    def core(self) -> ProducerCore:
        core = made(batch_size="1000")
        core.network.metadata.answered(shown([1]), NOW)
        core.sender._set_identity(7, 0)
        return core

    def test_that_of_an_acknowledged_batch(self, core: ProducerCore, monkeypatch: pytest.MonkeyPatch) -> None:
        leaders = Leaders(monkeypatch, core)
        first, records = self.sent(core, leaders)
        body = first.builder.body
        del records
        leaders.answer(0)
        second, records = self.sent(core, leaders, b"second")
        assert second.builder.body is body
        [record] = read_records(records, 0, parse_header(records, 0))
        assert record.value == b"second"

    def test_not_that_which_a_connection_has_not_written_yet(
        self, core: ProducerCore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may be left after the acknowledgement, if the batch was sent a second time to another leader."""
        leaders = Leaders(monkeypatch, core)
        first, records = self.sent(core, leaders)
        body = first.builder.body
        leaders.answer(0)
        second, _ = self.sent(core, leaders, b"second")
        assert second.builder.body is not body
        [record] = read_records(records, 0, parse_header(records, 0))
        assert record.value == b"v" * 300

    def test_not_that_of_a_large_record(self, core: ProducerCore, monkeypatch: pytest.MonkeyPatch) -> None:
        leaders = Leaders(monkeypatch, core)
        self.sent(core, leaders, b"v" * 100_000)
        leaders.answer(0)
        assert not core.accumulator._bodies

    def test_not_that_of_many(self, core: ProducerCore, monkeypatch: pytest.MonkeyPatch) -> None:
        for _ in range(100):
            core.accumulator.recycle(core.accumulator.append_batch(TP, filled(), 0))
        assert len(core.accumulator._bodies) == BODIES_MAX

    def test_copied_batches_have_none(self, core: ProducerCore, monkeypatch: pytest.MonkeyPatch) -> None:
        leaders = Leaders(monkeypatch, core)
        source = filled().build()
        core.append_copied(TP, CopiedBatch(source, parse_header(source, 0)), NOW)
        core.network.run(NOW)
        leaders.answer(0)
        (batch,) = core.sender.completed
        assert (batch.error, core.accumulator._bodies) == (None, [])


def filled() -> BatchBuilder:
    builder = BatchBuilder()
    builder.append(None, b"v" * 100, 0)
    return builder


@pytest.mark.parametrize("quick", [True, False])
def test_batches_are_filled_before_another_partition_is_chosen(*, quick: bool) -> None:
    """Else a partition would get a batch with few records and another one next to it (KAFKA-14156)."""
    core = made(batch_size="1000", linger_ms="1000", partitioner_adaptive_partitioning_enable="false")
    core.network.metadata.answered(shown([1], partitions=3), NOW)
    for _ in range(3):
        core.try_append(ProducerRecord("t", None, b"v" * 80, (), None, 0), NOW)
    (first,) = core.sender.unfinished
    first.closed = True  # it has lingered
    for _ in range(300):
        if not quick or core.open_batches.append("t", b"v" * 80, None, 0) is None:
            core.try_append(ProducerRecord("t", None, b"v" * 80, (), None, 0), NOW)
    counts = [batch.builder.count for batch in core.sender.unfinished if batch is not first]
    assert sum(counts) == 300
    assert sum(count < max(counts) for count in counts) <= 1, "only the last batch is not full"
    assert len(core.accumulator.active) == 3


def test_a_topic_that_is_created_again_with_fewer_partitions() -> None:
    core = made(linger_ms="1000")
    core.network.metadata.answered(shown([1], partitions=8), NOW)
    spread = core._spread
    assert isinstance(spread, DefaultPartitioner)
    while spread.sticky("t").current != 7:
        spread.sticky("t").current = -1
        core.try_append(ProducerRecord("t", None, b"v", (), None, 0), NOW)
    core.network.metadata.answered(shown([1], partitions=3), NOW)
    core.try_append(ProducerRecord("t", None, b"v", (), 0, 0), NOW)
    assert core.open_batches.append("t", b"v", None, 0) is None
    appended = core.try_append(ProducerRecord("t", None, b"v", (), None, 0), NOW)
    assert appended is not None
    assert appended[0].tp.partition < 3


def on_delivery(error: KafkaError | None, metadata: RecordMetadata | None) -> None: ...


def test_the_quick_way_takes_records_only_for_open_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    core = made(linger_ms="10", batch_size="300", buffer_memory="2000")
    core.network.metadata.answered(shown([1]), NOW)
    core.sender._set_identity(7, 0)
    monkeypatch.setattr(core.network, "ask", lambda *given, **options: None)
    assert core.open_batches.append("t", b"v", None, 0) is None
    core.try_append(ProducerRecord("t", None, b"v", (), None, 0), NOW)
    (batch,) = core.sender.unfinished
    assert core.open_batches.append("t", b"v", None, 0) is batch
    assert core.open_batches.append("t", b"v", b"key", 5) is batch
    assert core.open_batches.append("t", b"v" * 300, None, 0) is None
    assert core.open_batches.append("other", b"v", None, 0) is None
    assert (batch.builder.count, batch.builder.max_timestamp_ms) == (3, 5)
    assert core.open_batches.append("t", b"v", None, 7, [("name", b"value")], on_delivery) is batch
    assert batch.callbacks == [(3, 7, on_delivery)]
    encoded = batch.builder.build()
    assert read_records(encoded, 0, parse_header(encoded, 0))[3].headers == (("name", b"value"),)
    assert batch.size_bytes >= len(encoded)
    assert core.open_batches.append("t", b"", None, 0, [("name", b"v" * 300)]) is None
    assert core.accumulator.used_bytes == batch.size_bytes - HEADER_SIZE
    core.network.run(Now(NOW.monotonic_ms + 10, 0))
    assert core.open_batches.append("t", b"v", None, 0) is None
    core.try_append(ProducerRecord("t", None, b"v", (), None, 0), NOW)
    assert core.open_batches.append("t", b"v", None, 0) is not None
    core.close()
    assert core.open_batches.append("t", b"v", None, 0) is None


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


@pytest.mark.parametrize("idempotence", ["true", "false"])
def test_with_one_request_in_flight_no_batch_overtakes_another_by_way_of_a_new_leader(
    monkeypatch: pytest.MonkeyPatch, idempotence: str
) -> None:
    core = made(
        batch_size="0", linger_ms="0", enable_idempotence=idempotence, max_in_flight_requests_per_connection="1"
    )
    core.network.metadata.answered(shown([1, 2], leader=1), NOW)
    core.sender._set_identity(7, 0)
    monkeypatch.setattr(core.network, "ask_any", lambda *_: None)  # metadata would take the place of a batch
    leaders = Leaders(monkeypatch, core)
    append(core)
    core.network.run(NOW)
    core.network.metadata.answered(shown([1, 2], leader=2), NOW)
    append(core)
    core.network.run(NOW)
    assert [asked[0] for asked in leaders.asked] == [1], "the second batch waits for the end of the first"
    failed = leaders.asked.pop()[3]
    failed(KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection was lost"), NOW)
    for number in range(2):
        core.network.run(Now(NOW.monotonic_ms + 1000 * (number + 1), 0))
        [(node, *_)] = leaders.asked
        assert node == 2
        leaders.answer(0)
    assert [batch.number for batch in core.sender.completed] == sorted(batch.number for batch in core.sender.completed)
