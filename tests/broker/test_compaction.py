"""Topics with the cleanup policy compact: what the broker cleans when, and what clients see."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace
from typing import Any

import pytest

from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.logstore.cleaner import CleanedLog, CleanerBuffers, CleaningPlan
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.protocol.records.batch import MAGIC_AT
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.reader import Record, read_batches, whole_batches
from tests.support.direct_broker import DirectBroker

TP = TopicPartition("t", 0)
BACKOFF_MS = 5000
CONFIG: dict[str, Any] = {"log.cleaner.backoff.ms": BACKOFF_MS, "log.segment.bytes": "500"}


@pytest.fixture
def broker() -> DirectBroker:
    broker = DirectBroker(CONFIG)
    broker.create_topic("t", cleanup_policy="compact")
    return broker


def put(broker: DirectBroker, key: bytes | None, value: bytes | None, *, topic: str = "t") -> Any:
    batch = build_batch([NewRecord(key, value, broker.now().wall_ms)])
    return broker.produce_bytes(bytes(batch), topic=topic)


def records_in(broker: DirectBroker, topic: str = "t") -> list[Record]:
    found: list[Record] = []
    offset = 0
    while True:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(name=topic, partitions=[part])])
        result = broker.call(request, version=12).responses[0].partitions[0]
        assert result.error_code == ErrorCode.NONE
        records = b"".join(result.records or ())
        if not records:
            return found
        found += read_batches(records, from_offset=offset)
        _, offset = whole_batches(records)


def fill(broker: DirectBroker, count: int, *, keys: int = 3, topic: str = "t") -> None:
    for number in range(count):
        put(broker, b"k%d" % (number % keys), b"v%d" % number, topic=topic)


def clean(broker: DirectBroker) -> None:
    broker.pass_time(BACKOFF_MS)  # closed segments are flushed within the first second
    broker.settle()


def test_older_records_of_a_key_are_removed_in_the_background(broker: DirectBroker) -> None:
    fill(broker, 60)
    before = records_in(broker)
    clean(broker)
    after = records_in(broker)
    assert len(after) < len(before) / 2
    assert {record.key: record.value for record in after} == {record.key: record.value for record in before}
    assert set(after) <= set(before)


def test_the_clean_part_is_remembered_across_a_restart(broker: DirectBroker) -> None:
    fill(broker, 60)
    clean(broker)
    upto = broker.broker.table.online[TP].log.cleaned_upto
    assert upto > 0
    records = records_in(broker)
    for is_clean in (True, False):
        broker.restart(clean=is_clean)
        broker.settle()
        assert broker.broker.table.online[TP].log.cleaned_upto == upto
        assert records_in(broker) == records


def test_below_the_dirty_ratio_nothing_is_touched() -> None:
    broker = DirectBroker(CONFIG)
    broker.create_topic("t", cleanup_policy="compact", min_cleanable_dirty_ratio="1.0")
    fill(broker, 60)
    clean(broker)
    assert len(records_in(broker)) == 60


def test_a_log_is_cleaned_when_the_lag_has_passed_whatever_its_dirty_ratio() -> None:
    broker = DirectBroker(CONFIG)
    broker.create_topic(
        "t", cleanup_policy="compact", min_cleanable_dirty_ratio="1.0", max_compaction_lag_ms=str(10 * BACKOFF_MS)
    )
    fill(broker, 60)
    clean(broker)
    assert len(records_in(broker)) == 60
    broker.pass_time(10 * BACKOFF_MS)
    clean(broker)
    assert len(records_in(broker)) < 30


def test_the_dirtiest_log_comes_first(broker: DirectBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.create_topic("u", cleanup_policy="compact")
    fill(broker, 60)
    clean(broker)
    caplog.clear()
    with caplog.at_level(logging.INFO, "raylog.broker"):
        fill(broker, 40)
        fill(broker, 40, topic="u")
        clean(broker)
    cleaned = [record.topic_partition for record in caplog.records if record.message == "log cleaned"]  # type: ignore[attr-defined]
    assert cleaned[:2] == ["u-0", "t-0"]


def test_a_partition_that_cannot_be_cleaned_is_reported_and_disturbs_no_other(
    broker: DirectBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("u", cleanup_policy="compact")
    fill(broker, 60)
    fill(broker, 60, topic="u")
    log = broker.broker.table.online[TP].log
    handle = broker.disk.open(f"{log.path}/00000000000000000000.log")
    broker.disk.pwrite(handle, b"X", 70)
    broker.disk.close(handle)
    clean(broker)
    clean(broker)
    assert "fails its checksum" in broker.broker.log_cleaner.uncleanable()[TP]
    assert [record.message for record in caplog.records].count("log cannot be cleaned") == 1
    assert len(records_in(broker, "u")) < 30
    assert put(broker, b"k", b"v").error_code == ErrorCode.NONE


def test_a_damaged_header_of_a_first_batch_stops_neither_the_broker_nor_other_cleanings(broker: DirectBroker) -> None:
    """The age of a segment is read from that header."""
    broker.create_topic("u", cleanup_policy="compact")
    fill(broker, 60)
    fill(broker, 60, topic="u")
    broker.restart(clean=True)  # the timestamp is not in memory
    log = broker.broker.table.online[TP].log
    handle = broker.disk.open(f"{log.path}/00000000000000000000.log")
    broker.disk.pwrite(handle, b"X", MAGIC_AT)
    broker.disk.close(handle)
    clean(broker)
    assert "magic 88 is unknown" in broker.broker.log_cleaner.uncleanable()[TP]
    assert len(records_in(broker, "u")) < 30


def test_a_cleaning_that_fails_for_lack_of_space_or_of_its_process_is_tried_again(
    broker: DirectBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(errno.ENOSPC, "disk full"), OSError(errno.EAGAIN, "the cleaner process has ended with -9")]
    run = broker.broker.log_cleaner._runner.run

    def fail_at_first(plan: CleaningPlan, buffers: CleanerBuffers) -> CleanedLog:
        if failures:
            raise failures.pop()
        return run(plan, buffers)

    monkeypatch.setattr(broker.broker.log_cleaner._runner, "run", fail_at_first)
    fill(broker, 60)
    for _ in range(3):
        clean(broker)
    assert (failures, broker.broker.log_cleaner.uncleanable()) == ([], {})
    assert len(records_in(broker)) < 30


def test_a_record_without_a_key_is_refused(broker: DirectBroker) -> None:
    result = put(broker, None, b"v")
    assert result.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in result.record_errors] == [0]


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ({"cleanup.policy": "compact"}, ErrorCode.NONE),
        ({"cleanup.policy": "compact,delete"}, ErrorCode.NONE),
        ({"cleanup.policy": "compress"}, ErrorCode.INVALID_CONFIG),
        ({"min.cleanable.dirty.ratio": "1.5"}, ErrorCode.INVALID_CONFIG),
        ({"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "10"}, ErrorCode.INVALID_CONFIG),
        ({"delete.retention.ms": "-1"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_the_configuration_of_a_compacted_topic_is_checked(
    broker: DirectBroker, configs: dict[str, str], code: ErrorCode
) -> None:
    texts = tuple(CreatableTopicConfig(name=name, value=value) for name, value in configs.items())
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1, configs=texts)
    [result] = broker.call(CreateTopicsRequest(topics=(topic,), timeout_ms=1000), version=7).topics
    assert result.error_code == code


def test_a_compacted_log_keeps_old_segments_unless_the_policy_contains_delete() -> None:
    broker = DirectBroker({**CONFIG, "log.retention.check.interval.ms": 1000})
    for policy in ("compact", "compact,delete"):
        topic = policy.replace(",", "-")
        broker.create_topic(topic, cleanup_policy=policy, retention_ms="5000")
        fill(broker, 60, topic=topic)
    broker.pass_time(60_000)
    clean(broker)
    assert {record.key for record in records_in(broker, "compact")} == {b"k0", b"k1", b"k2"}
    assert broker.broker.table.online[TopicPartition("compact-delete", 0)].log.log_start_offset == 60


def test_nothing_is_cleaned_above_the_last_stable_offset(broker: DirectBroker) -> None:
    fill(broker, 20)
    partition = broker.broker.partitions[TP]
    batch = build_batch(
        [NewRecord(b"k0", b"open", broker.now().wall_ms)],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    partition.append_as_leader(memoryview(batch), now_ms=broker.now().wall_ms, from_client=False)
    fill(broker, 40)
    clean(broker)
    assert partition.last_stable_offset == 20
    assert 0 < partition.log.cleaned_upto <= 20
    assert [record.offset for record in records_in(broker) if record.offset >= 20] == list(range(20, 61))


def test_a_topic_that_is_deleted_during_its_cleaning_leaves_nothing(broker: DirectBroker) -> None:
    fill(broker, 60)
    broker.cluster.delete_topic("t")
    clean(broker)
    broker.pass_time(120_000)
    broker.settle()
    assert not [name for name in broker.disk.listdir(broker.log_path) if name.startswith("t-")]


def test_cleaning_goes_on_when_its_threads_return(broker: DirectBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """log.cleaner.threads becomes 0 during a cleaning, while another log waits for its own."""
    cleaner = broker.broker.log_cleaner
    settings, run = cleaner._settings, cleaner._runner.run
    threads = 1

    def run_as_the_last(plan: CleaningPlan, buffers: CleanerBuffers) -> CleanedLog:
        nonlocal threads
        threads = 0
        return run(plan, buffers)

    broker.create_topic("u", cleanup_policy="compact")
    fill(broker, 60)
    fill(broker, 60, topic="u")
    monkeypatch.setattr(cleaner, "_settings", lambda: replace(settings(), threads=threads))
    monkeypatch.setattr(cleaner._runner, "run", run_as_the_last)
    clean(broker)
    assert sorted(len(records_in(broker, topic)) < 30 for topic in ("t", "u")) == [False, True]
    monkeypatch.setattr(cleaner._runner, "run", run)
    threads = 1
    clean(broker)
    assert len(records_in(broker)) < 30
    assert len(records_in(broker, "u")) < 30


def test_the_backoff_can_be_changed_while_the_broker_runs(broker: DirectBroker) -> None:
    fill(broker, 60)
    broker.pass_time(1500)  # closed segments are flushed
    change = AlterableConfig(name="log.cleaner.backoff.ms", config_operation=0, value="200")
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=(change,))
    [answer] = broker.call(IncrementalAlterConfigsRequest(resources=(resource,))).responses
    assert answer.error_code == ErrorCode.NONE
    assert broker.broker.table.online[TP].log.cleaned_upto == 0
    broker.pass_time(300)
    assert broker.broker.table.online[TP].log.cleaned_upto > 0
