"""A process on the broker's node reads the log's own files, and new records as soon as they are appended."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from raylog.client import local_broker, local_reader
from raylog.client.local_broker import LocalBroker, open_local
from raylog.client.local_reader import LocalPartitionReader
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.local_log import Chunk
from raylog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.compression import Codec
from raylog.transport import unix
from raylog.transport.doorbell import Sleeper
from raylog.transport.system_time import now
from tests.support.administration import create_topic, delete_topic
from tests.support.cluster_process import ClusterProcess, cluster_process
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.descriptors import descriptors, left_by_rounds_at_rest, mapped_within, open_within
from tests.support.raw_client import RawClient

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SEGMENT_BYTES = 4000
LONG_MS = 60_000
"""A hang guard: what is waited for comes long before."""


class Sleep:
    """What a reader sleeps by. One that was not rung oversleeps, and the test fails."""

    slept_ms: ClassVar[list[float]] = []

    def __init__(self) -> None:
        self._poll = select.poll()

    def register(self, file: object, events: int) -> None:
        self._poll.register(file, events)  # type: ignore[arg-type]

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        self.slept_ms.append(milliseconds)
        woken = self._poll.poll(milliseconds)
        assert woken or milliseconds < LONG_MS / 2, "the reader was not notified"
        return woken


@pytest.fixture(autouse=True)
def nobody_wakes_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_broker, "SLEEP_SECONDS_MAX", LONG_MS / 1000)
    monkeypatch.setattr(local_broker, "select", SimpleNamespace(poll=Sleep, POLLIN=select.POLLIN))
    Sleep.slept_ms.clear()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningCluster]:
    with cluster_thread({"log.segment.bytes": SEGMENT_BYTES, "num.partitions": 2}, tmp_path / "log") as running:
        yield running


@pytest.fixture
def wire(broker: RunningCluster) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers, client_id="test") as client:
        client.metadata(["t"], create=True)
        client.leader(T0)
        yield client


@pytest.fixture
def local(broker: RunningCluster) -> Iterator[LocalBroker]:
    found = open_local(broker.cluster_id, 0)
    assert found is not None
    with found:
        yield found


def produce(wire: RawClient, *values: bytes, tp: TopicPartition = T0, codec: Codec = Codec.NONE) -> int:
    return wire.produce(tp, build_batch([NewRecord(None, value, 0) for value in values], codec=codec))


def fill(wire: RawClient, count: int, *, first: int = 0) -> list[bytes]:
    values = [b"%d" % number * 50 for number in range(first, first + count)]
    for value in values:
        produce(wire, value)
    return values


def read_all(reader: LocalPartitionReader, *, max_bytes: int = 1500) -> list[bytes | None]:
    found: list[bytes | None] = []
    while records := reader.read_records(max_bytes=max_bytes):
        found += [record.value for record in records]
    return found


def delete_records(wire: RawClient, offset: int) -> None:
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    wire.call_any(DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=(part,)),), timeout_ms=1000))


class Meanwhile:
    """Something that happens in another thread while the block runs."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._thread = threading.Thread(target=act)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()


class TestReading:
    def test_existing_and_new_records(self, wire: RawClient, local: LocalBroker) -> None:
        values = fill(wire, 40)
        with local.open(T0, 0, keep_chunks=True) as reader:
            assert read_all(reader) == values
            assert read_all(reader) == []
            assert read_all(reader) + fill(wire, 40, first=40) == read_all(reader)

    @pytest.mark.parametrize("codec", list(Codec))
    def test_every_codec(self, wire: RawClient, local: LocalBroker, codec: Codec) -> None:
        produce(wire, b"a" * 100, b"b" * 100, codec=codec)
        with local.open(T0, 1) as reader:
            (record,) = reader.read_records()
            assert (record.offset, record.value) == (1, b"b" * 100)

    def test_only_accepted_chunks_advance_the_position(self, wire: RawClient, local: LocalBroker) -> None:
        fill(wire, 3)
        with local.open(T0, 0) as reader:
            first = reader.read()
            second = reader.read()
            assert first is not None
            assert second is not None
            assert first.records == second.records
            assert reader.position == 0
            assert not reader.accept(first)
            assert reader.accept(second)
            assert reader.position == 3
            assert reader.read() is None

    def test_a_page_that_a_cleaning_has_outdated_is_read_again(
        self, wire: RawClient, local: LocalBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The position in it is one of the file before the cleaning."""
        values = fill(wire, 1)
        with local.open(T0, 0) as reader:
            current = reader.page()
            snapshots = [current._replace(readable_position=current.readable_position - 1)]
            snapshot = reader._snapshot
            monkeypatch.setattr(reader, "_snapshot", lambda: snapshots.pop() if snapshots else snapshot())
            assert read_all(reader) == values

    def test_several_partitions_of_one_broker(self, wire: RawClient, local: LocalBroker) -> None:
        with local.open(T0, 0) as one, local.open(T1, 0) as other, local.open(T0, 0) as again:
            produce(wire, b"x")
            assert read_all(other) == []
            produce(wire, b"y", tp=T1)
            assert (read_all(one), read_all(other), read_all(again)) == ([b"x"], [b"y"], [b"x"])
            again.close()
            with Meanwhile(lambda: produce(wire, b"z")):
                assert [record.value for record in one.read_records(max_wait_ms=LONG_MS)] == [b"z"]

    def test_seek(self, wire: RawClient, local: LocalBroker) -> None:
        values = fill(wire, 40)
        with local.open(T0, 39) as reader:
            assert read_all(reader) == values[39:]
            reader.seek(3)
            assert read_all(reader) == values[3:]

    def test_unknown_topics_and_offsets(self, wire: RawClient, local: LocalBroker) -> None:
        with pytest.raises(KafkaError) as refused:
            local.open(TopicPartition("t", 9), 0)
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for offset in (-1, 1):
            with local.open(T0, offset) as reader, pytest.raises(KafkaError) as refused:
                reader.read()
            assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_no_broker(self, broker: RunningCluster) -> None:
        assert open_local(broker.cluster_id, 1) is None
        assert open_local("AAAAAAAAAAAAAAAAAAAAAA", 0) is None
        assert open_local("../../etc", 0) is None
        assert open_local("", 0) is None

    def test_damage_is_detected_unless_checksums_are_off(
        self, broker: RunningCluster, wire: RawClient, local: LocalBroker
    ) -> None:
        values = fill(wire, 1)
        path = broker.log_path / "t-0" / f"{0:020d}.log"
        with open(path, "r+b") as file:
            file.seek(80)
            file.write(b"?")
        with local.open(T0, 0) as reader, pytest.raises(KafkaError) as refused:
            reader.read()
        assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
        with local.open(T0, 0, check_crc=False) as reader:
            assert read_all(reader) != values


class TestWaiting:
    def test_a_reader_wakes_when_the_log_grows(self, wire: RawClient, local: LocalBroker) -> None:
        with local.open(T0, 0) as reader:
            for number in range(50):
                with Meanwhile(partial(produce, wire, b"%d" % number)):
                    (record,) = reader.read_records(max_wait_ms=LONG_MS)
                assert (record.offset, record.value) == (number, b"%d" % number)

    def test_all_readers_wake(self, broker: RunningCluster, wire: RawClient) -> None:
        """An eventfd that is shared wakes only one."""
        ready = threading.Barrier(5, timeout=2 * LONG_MS / 1000)
        seen: list[bytes | None] = []

        def read() -> None:
            found = open_local(broker.cluster_id, 0)
            assert found is not None
            with found, found.open(T0, 0) as reader:
                for _ in range(20):
                    ready.wait()
                    seen.extend(record.value for record in reader.read_records(max_wait_ms=LONG_MS))
                    ready.wait()

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(20):
            ready.wait()
            produce(wire, b"%d" % number)
            ready.wait()
            assert seen == [b"%d" % number] * 4
            seen.clear()
        for thread in threads:
            thread.join()

    def test_an_append_just_before_the_wait_is_not_missed(
        self, wire: RawClient, local: LocalBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After it has found nothing, and before it has told the broker to ring."""
        arm = Sleeper.arm

        def late(sleeper: Sleeper) -> None:
            produce(wire, b"in time")
            arm(sleeper)

        with local.open(T0, 0) as reader:
            monkeypatch.setattr(Sleeper, "arm", late)
            assert [record.value for record in reader.read_records(max_wait_ms=LONG_MS)] == [b"in time"]
            assert Sleep.slept_ms == [0]

    def test_a_wait_without_appends_ends_at_its_deadline(self, wire: RawClient, local: LocalBroker) -> None:
        with local.open(T0, 0) as reader:
            assert reader.read() is None
            assert reader.read(max_wait_ms=10) is None

    def test_readers_that_do_not_wait_are_not_notified(self, wire: RawClient, local: LocalBroker) -> None:
        with local.open(T0, 0) as reader:
            assert reader.read(max_wait_ms=1) is None
            produce(wire, b"x")
            assert local._sleeper is not None
            with pytest.raises(BlockingIOError):
                os.eventfd_read(local._sleeper.fileno())
            assert read_all(reader) == [b"x"]

    def test_a_reader_woken_for_another_partition_waits_again(self, wire: RawClient, local: LocalBroker) -> None:
        def both() -> None:
            for _ in range(5):
                produce(wire, b"not for it", tp=T1)
            produce(wire, b"for it")

        with local.open(T0, 0) as reader, local.open(T1, 0), Meanwhile(both):
            assert [record.value for record in reader.read_records(max_wait_ms=LONG_MS)] == [b"for it"]

    def test_a_page_that_is_being_updated_is_read_again(
        self, broker: RunningCluster, wire: RawClient, local: LocalBroker
    ) -> None:
        produce(wire, b"x")
        with local.open(T0, 0) as reader:
            (opened,) = broker.broker.local_readers._pages.values()
            words = memoryview(opened.page._memory).cast("q")  # type: ignore[attr-defined]
            words[0] += 1
            timer = threading.Timer(0.2, words.__setitem__, (0, words[0] - 1))
            timer.start()
            assert [record.value for record in reader.read_records(max_wait_ms=LONG_MS)] == [b"x"]
            timer.join()
            words.release()


class TestEndsOfReading:
    def test_records_deleted_before_they_were_read(self, wire: RawClient, local: LocalBroker) -> None:
        values = fill(wire, 40)
        with local.open(T0, 0) as reader:
            chunk = reader.read(max_bytes=1)
            assert chunk is not None
            assert reader.accept(chunk)
            delete_records(wire, 30)
            with pytest.raises(KafkaError) as refused:
                reader.read()
            assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
            reader.seek(reader.page().log_start_offset)
            assert read_all(reader) == values[30:]

    def test_files_deleted_while_they_are_read(
        self, broker: RunningCluster, wire: RawClient, local: LocalBroker
    ) -> None:
        values = fill(wire, 40)
        log_path = broker.log_path / "t-0"
        before = len(list(log_path.glob("*.log")))
        with local.open(T0, 0, keep_chunks=True) as reader:
            chunks: list[Chunk] = []
            for _ in range(3):
                chunk = reader.read(max_bytes=1000)
                assert chunk is not None
                assert reader.accept(chunk)
                chunks.append(chunk)
            delete_records(wire, 39)
            broker.do(lambda: broker.broker.partitions[T0].log.apply_retention(now().wall_ms))
            assert len(list(log_path.glob("*.log"))) < before
            at = 0
            for chunk in chunks:
                assert chunk.start == at
                assert values[at] in bytes(chunk.records)
                at = chunk.next_offset
            with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
                reader.read()

    def test_deleted_topic(self, broker: RunningCluster, wire: RawClient, local: LocalBroker) -> None:
        with local.open(T0, 0) as asleep, local.open(T0, 0) as awake:
            with Meanwhile(lambda: delete_topic(wire, "t")), pytest.raises(KafkaError) as refused:
                asleep.read(max_wait_ms=LONG_MS)
            assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            create_topic(wire, "t", num_partitions=1, replication_factor=1, configs={})
            wire.metadata(["t"])
            produce(wire, b"of another topic")
            for reader in (asleep, awake):
                with pytest.raises(KafkaError) as refused:
                    reader.read()
                assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_ID
            with local.open(T0, 0) as reader:
                assert read_all(reader) == [b"of another topic"]

    def test_disk_failure(self, broker: RunningCluster, wire: RawClient, local: LocalBroker) -> None:
        with local.open(T0, 0) as reader:
            log = broker.broker.partition(T0).log
            failing = Meanwhile(partial(broker.do, partial(log.take_offline, "for the test")))
            with failing, pytest.raises(KafkaError) as refused:
                reader.read(max_wait_ms=LONG_MS)
            assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR

    def test_truncated_records(self, broker: RunningCluster, wire: RawClient, local: LocalBroker) -> None:
        def cut() -> None:
            broker.broker.partition(T0).log.truncate_to(Offset(5))
            broker.broker.partition_changed(T0)

        values = fill(wire, 10)
        with local.open(T0, 0, keep_chunks=True) as reader:
            chunk = reader.read(max_bytes=1 << 20)
            assert chunk is not None
            assert chunk.next_offset == 10
            broker.do(cut)
            assert not reader.accept(chunk)
            assert values[9] in bytes(chunk.records)
            later = fill(wire, 3, first=100)
            assert read_all(reader) == values[:5] + later
            reader.seek(9)
            with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
                reader.read()


class TestRestarts:
    @pytest.mark.parametrize("how", ["stop", "kill"])
    def test_a_reader_continues_with_the_next_incarnation(self, tmp_path: Path, how: str) -> None:
        config = {"log.segment.bytes": str(SEGMENT_BYTES), "num.partitions": "2"}
        process = ClusterProcess(config, tmp_path / "log")
        local = open_local(process.cluster_id, 0)
        assert local is not None
        with RawClient(process.bootstrap_servers, client_id="test") as wire:
            wire.metadata(["t"], create=True)
            values = fill(wire, 40)
        other = open_local(process.cluster_id, 0)
        assert other is not None
        with local, local.open(T0, 0) as asleep, other, other.open(T0, 0) as behind:
            assert read_all(asleep) == values

            def end_and_begin_anew() -> None:
                nonlocal process
                process.stop() if how == "stop" else process.kill()
                with pytest.raises(KafkaError) as refused:
                    behind.read()
                assert refused.value.code == ErrorCode.NETWORK_EXCEPTION
                process = ClusterProcess(config, tmp_path / "log")
                with RawClient(process.bootstrap_servers, client_id="test") as wire:
                    wire.metadata(["t"])
                    produce(wire, b"after")

            with Meanwhile(end_and_begin_anew):
                assert [record.value for record in asleep.read_records(max_wait_ms=LONG_MS)] == [b"after"]
            assert read_all(behind) == [*values, b"after"]
        process.stop()

    def test_a_reader_finishes_its_mapped_file_before_it_reconnects(self, tmp_path: Path) -> None:
        """The log of a killed broker whose last record has gone bad: its successor cuts it off, the mapping stays."""
        process = ClusterProcess({"num.partitions": "2"}, tmp_path / "log")
        with RawClient(process.bootstrap_servers, client_id="test") as wire:
            wire.metadata(["t"], create=True)
            values = [b"%d" % number * 300_000 for number in range(4)]
            for value in values:
                produce(wire, value)
        local = open_local(process.cluster_id, 0)
        assert local is not None
        with local, local.open(T0, 0, keep_chunks=True) as reader:
            chunk = reader.read(max_bytes=10 << 20)
            assert chunk is not None
            before = bytes(chunk.records)
            process.kill()
            path = tmp_path / "log" / "broker-0" / "t-0" / f"{0:020d}.log"
            with open(path, "r+b") as file:
                file.seek(path.stat().st_size - 10)
                file.write(b"3333?")
            with cluster_process({"num.partitions": "2"}, tmp_path / "log") as successor:
                assert path.stat().st_size < len(before)
                assert bytes(chunk.records)[:-10] == before[:-10]
                assert reader.accept(chunk)
                with pytest.raises(KafkaError, match=r"offset 4 is not in \[0, 3\]"):
                    reader.read(max_wait_ms=LONG_MS)
                with RawClient(successor.bootstrap_servers, client_id="test") as wire:
                    wire.metadata(["t"])
                    produce(wire, b"instead")
                assert reader.position == 4
                reader.seek(2)
                assert read_all(reader, max_bytes=1) == [*values[2:3], b"instead"]

    def test_an_interrupted_request_does_not_confuse_the_next(
        self, wire: RawClient, local: LocalBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else it would be given the file of another partition."""

        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        produce(wire, b"zero")
        produce(wire, b"one", tp=T1)
        with local.open(T0, 0) as zero, local.open(T1, 0) as one:
            with monkeypatch.context() as patch:
                patch.setattr(local_broker, "unix", SimpleNamespace(send=unix.send, receive=interrupted))
                with pytest.raises(KeyboardInterrupt):
                    zero.read()
            assert read_all(one) == [b"one"]
            assert read_all(zero) == [b"zero"]
            assert local.connection == 2


class TestResources:
    def test_closed_readers_leave_no_resources_on_either_side(self, broker: RunningCluster, wire: RawClient) -> None:
        """Broker and reader are one process here, and are counted together."""
        fill(wire, 40)
        before, maps = descriptors(), mapped_within(broker.path)
        for how in ("closed", "dropped", "broker first", "unread"):
            for _ in range(10):
                local = open_local(broker.cluster_id, 0)
                assert local is not None
                reader = local.open(T0, 0, keep_chunks=True)
                other = local.open(T1, 0)
                if how != "unread":
                    chunk = reader.read(max_bytes=1)
                    assert chunk is not None
                    del chunk
                if how == "broker first":
                    local.close()
                reader.close()
                if how == "closed":
                    other.close()
                reader.close()
                local.close()
                other.close()
        wire.call_any(MetadataRequest(topics=()))
        broker.do(lambda: None)
        assert left_by_rounds_at_rest(before, 10) == []
        assert mapped_within(broker.path) == maps
        assert not broker.broker.local_readers._pages
        assert not broker.broker.local_readers._readers

    def test_a_failed_mapping_is_an_error_and_closes_the_handle(
        self, broker: RunningCluster, wire: RawClient, local: LocalBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        before = descriptors()
        with monkeypatch.context() as patch:
            patch.setattr(local_reader, "PageView", full)
            for _ in range(20):
                with pytest.raises(KafkaError, match="cannot map the shared page") as refused:
                    local.open(T0, 0)
                assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert left_by_rounds_at_rest(before, 20) == []
        assert not broker.broker.local_readers._pages

    def test_a_reader_holds_one_file_at_a_time(
        self, broker: RunningCluster, wire: RawClient, local: LocalBroker
    ) -> None:
        fill(wire, 100)
        with local.open(T0, 0, keep_chunks=True) as reader:
            chunk = reader.read(max_bytes=1)
            files, maps = open_within(broker.path), mapped_within(broker.path)
            del chunk
            while (chunk := reader.read(max_bytes=3000)) is not None:
                assert reader.accept(chunk)
                del chunk
                assert open_within(broker.path) <= files + 1
                assert mapped_within(broker.path) <= maps + 1
