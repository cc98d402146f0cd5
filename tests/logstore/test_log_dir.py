"""A log directory has Kafka's format: locked, checked for its owner, and complete again after any stop."""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, Offset, TopicPartition
from raylog.logstore.checkpoint import decode_offsets, encode_offsets, encode_uuid, write_file_atomically
from raylog.logstore.log import Log
from raylog.logstore.log_dir import CHECKPOINT_FILES, LogDir
from raylog.logstore.settings import LogSettings
from tests.logstore.batches import NOW, append, batch, contents, numbered
from tests.support.sim_disk import Killed, SimDisk

ROOT = "/broker"
A0, B1 = TopicPartition("a", 0), TopicPartition("b-c", 1)
TOPIC_ID = UUID(int=0xABCDEF)


def ids(seed: int = 1) -> Callable[[], UUID]:
    rng = random.Random(seed)
    return lambda: UUID(int=rng.getrandbits(128))


def open_dir(
    disk: SimDisk, settings: LogSettings | None = None, *, cluster_id: str = "c1", broker_id: int = 3
) -> LogDir:
    return LogDir.open(
        disk,
        ROOT,
        cluster_id=cluster_id,
        broker_id=BrokerId(broker_id),
        settings_for=lambda topic: settings or LogSettings(),
        now_ms=NOW,
        new_id=ids(),
    )


def new_disk(seed: int = 0) -> SimDisk:
    return SimDisk(random.Random(seed))


def four_records() -> tuple[SimDisk, LogDir, Log]:
    """A log with a recovery point behind its four records."""
    disk = new_disk()
    log_dir = open_dir(disk)
    log = log_dir.create_log(A0, TOPIC_ID, NOW)
    for _ in range(4):
        append(log, batch(b"x"))
    log.flush()
    log_dir.write_checkpoints()
    return disk, log_dir, log


def refusal(disk: SimDisk, **owner: object) -> str:
    with pytest.raises(KafkaError) as caught:
        open_dir(disk, **owner)  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    return caught.value.message


def test_partitions_and_topic_ids_survive_a_clean_stop() -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    assert not log_dir.was_clean
    append(log_dir.create_log(A0, TOPIC_ID, NOW), batch(b"x"))
    append(log_dir.create_log(B1, UUID(int=2), NOW), batch(b"y"), batch(b"z"))
    directory_id = log_dir.directory_id
    log_dir.close(broker_epoch=42)
    assert disk.read_file(f"{ROOT}/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
    assert disk.read_file(f"{ROOT}/recovery-point-offset-checkpoint") == b"0\n2\na 0 1\nb-c 1 2\n"
    assert disk.read_file(f"{ROOT}/a-0/partition.metadata") == f"version: 0\ntopic_id: {encode_uuid(TOPIC_ID)}".encode()
    log_dir = open_dir(disk)
    assert (log_dir.was_clean, log_dir.previous_broker_epoch, log_dir.directory_id) == (True, 42, directory_id)
    assert log_dir.logs[A0].topic_id == TOPIC_ID
    assert {tp: contents(log) for tp, log in log_dir.logs.items()} == {A0: [(0, b"x")], B1: [(0, b"y"), (1, b"z")]}
    assert not disk.exists(f"{ROOT}/.kafka_cleanshutdown"), "a crash from here on is not clean"


def test_a_crash_is_an_unclean_stop() -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    log_dir.close()
    open_dir(disk)
    disk.crash(power_cut=True)
    assert not open_dir(disk).was_clean


def test_each_checkpoint_is_written_separately() -> None:
    disk = new_disk()
    log = (log_dir := open_dir(disk)).create_log(A0, TOPIC_ID, NOW)
    append(log, batch(b"x"), batch(b"y"))
    log.flush()
    log.delete_records_before(Offset(1))

    def offset_in(name: str) -> int | None:
        path = f"{ROOT}/{name}"
        return decode_offsets(disk.read_file(path)).get(A0) if disk.exists(path) else None

    log_dir.write_recovery_points()
    assert (offset_in("recovery-point-offset-checkpoint"), offset_in("log-start-offset-checkpoint")) == (2, None)
    log_dir.write_log_start_offsets()
    assert (offset_in("recovery-point-offset-checkpoint"), offset_in("log-start-offset-checkpoint")) == (2, 1)


def test_the_lock_is_held_until_close() -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    assert f"{ROOT}/.lock is locked" in refusal(disk)
    log_dir.close()
    open_dir(disk).close()


def test_a_lock_file_without_permissions_is_not_said_to_be_locked() -> None:
    disk = new_disk()
    disk.fail_next("lock", errno.EACCES)
    assert "Permission denied" in refusal(disk)


def test_a_directory_of_another_broker_or_cluster_is_refused_by_name() -> None:
    disk = new_disk()
    open_dir(disk).close()
    message = refusal(disk, broker_id=4)
    assert all(part in message for part in (f"{ROOT}/meta.properties", "node.id=3", "4"))
    message = refusal(disk, cluster_id="c2")
    assert all(part in message for part in (f"{ROOT}/meta.properties", "cluster.id=c1", "c2"))
    assert open_dir(disk).was_clean, "a refusal must not use up the marker"


def test_meta_properties_has_kafkas_format() -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    assert disk.read_file(f"{ROOT}/meta.properties").decode().splitlines() == [
        "#",
        "cluster.id=c1",
        f"directory.id={encode_uuid(log_dir.directory_id)}",
        "node.id=3",
        "version=1",
    ]
    log_dir.close()
    disk.overwrite(f"{ROOT}/meta.properties", b"version=0\nbroker.id=3\n")
    assert "version='0'" in refusal(disk)


@pytest.mark.parametrize("name", ["foreign", "a-b", "topic-", "-1", "a-00", "a-0.0123-delete", "a-0.0123-future"])
def test_a_foreign_directory_is_refused(name: str) -> None:
    disk = new_disk()
    open_dir(disk).close()
    disk.mkdir(f"{ROOT}/{name}")
    assert f"{ROOT}/{name}" in refusal(disk)


def test_deletion_removes_files_and_offsets() -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    log = log_dir.create_log(A0, TOPIC_ID, NOW)
    append(log, batch(b"x"), batch(b"y"))
    log.delete_records_before(Offset(1))
    log.flush()
    log_dir.write_checkpoints()
    log_dir.delete_log(A0, NOW)
    assert not log_dir.logs
    [doomed] = [name for name in disk.listdir(ROOT) if disk.is_dir(f"{ROOT}/{name}")]
    assert re.fullmatch(rf"{A0}\.[0-9a-f]{{32}}-delete", doomed)
    append(log_dir.create_log(A0, UUID(int=9), NOW), batch(b"new"))
    disk.crash(power_cut=False)
    log = open_dir(disk).logs[A0]
    assert (contents(log), log.topic_id) == ([(0, b"new")], UUID(int=9))
    assert not disk.exists(f"{ROOT}/{doomed}"), "a start removes it at once"


@pytest.mark.parametrize("length", [1, 213, 214, 249])
def test_a_topic_name_of_any_length_can_be_deleted(length: int) -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    tp = TopicPartition("x" * length, 99_999)
    append(log_dir.create_log(tp, TOPIC_ID, NOW), batch(b"x"))
    log_dir.delete_log(tp, NOW)
    [doomed] = [name for name in disk.listdir(ROOT) if disk.is_dir(f"{ROOT}/{name}")]
    assert re.fullmatch(r"x+-99999\.[0-9a-f]{32}-delete", doomed)
    append(log_dir.create_log(tp, UUID(int=9), NOW), batch(b"new"))
    disk.crash(power_cut=False)
    log = open_dir(disk).logs[tp]
    assert (contents(log), log.topic_id) == ([(0, b"new")], UUID(int=9))
    assert not disk.exists(f"{ROOT}/{doomed}"), "a start removes it at once"


def test_files_of_deleted_partitions_are_kept_for_the_delay() -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    append(log_dir.create_log(A0, TOPIC_ID, NOW), batch(b"x"))
    log = log_dir.create_log(B1, TOPIC_ID, NOW)
    append(log, batch(b"y", timestamp_ms=NOW - 10))
    log.settings = LogSettings(retention_ms=1, file_delete_delay_ms=1000)
    assert log.apply_retention(NOW) == 1
    log_dir.delete_log(A0, NOW)
    kept = {f"{0:020d}{suffix}.deleted" for suffix in (".log", ".index", ".timeindex")}

    def left() -> tuple[set[str], int]:
        directories = [name for name in disk.listdir(ROOT) if name.startswith(str(A0))]
        return {name for name in disk.listdir(f"{ROOT}/{B1}") if name.endswith(".deleted")}, len(directories)

    assert left() == (kept, 1)
    log_dir.delete_retired(NOW + 999)
    assert left() == (kept, 1)
    log_dir.delete_retired(NOW + 1000)
    assert left() == (set(), 1)
    log_dir.delete_retired(NOW + 59_999)
    assert left() == (set(), 1)
    disk.fail_next("rmtree", errno.EIO)
    with pytest.raises(KafkaError):
        log_dir.delete_retired(NOW + 60_000)
    log_dir.delete_retired(NOW + 60_000)
    assert left() == (set(), 0)


def test_a_start_deletes_renamed_files() -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    log = log_dir.create_log(A0, TOPIC_ID, NOW)
    append(log, batch(b"y", timestamp_ms=NOW - 10))
    log.settings = LogSettings(retention_ms=1)
    log.apply_retention(NOW)
    log_dir.close()
    assert [name for name in disk.listdir(f"{ROOT}/{A0}") if name.endswith(".deleted")]
    assert open_dir(disk).logs[A0].log_start_offset == 1
    assert not [name for name in disk.listdir(f"{ROOT}/{A0}") if name.endswith(".deleted")]


def test_a_retired_file_that_cannot_be_deleted_has_no_effect() -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    log = log_dir.create_log(A0, TOPIC_ID, NOW)
    append(log, batch(b"y", timestamp_ms=NOW - 10))
    log.settings = LogSettings(retention_ms=1)
    log.apply_retention(NOW)
    disk.fail_next("unlink", errno.EIO)
    with pytest.raises(KafkaError):
        log_dir.delete_retired(NOW + 60_000)
    append(log, batch(b"z"))
    log_dir.delete_retired(NOW + 60_000)
    assert not [name for name in disk.listdir(f"{ROOT}/{A0}") if name.endswith(".deleted")]


def test_checkpoints_of_missing_partitions_are_dropped() -> None:
    disk = new_disk()
    open_dir(disk).close()
    write_file_atomically(disk, f"{ROOT}/log-start-offset-checkpoint", encode_offsets({A0: Offset(77)}))
    append(open_dir(disk).create_log(A0, TOPIC_ID, NOW), batch(b"x"))
    disk.crash(power_cut=False)
    assert contents(open_dir(disk).logs[A0]) == [(0, b"x")]


def delete_at_once(log_dir: LogDir, tp: TopicPartition) -> None:
    """The log, and its files where file.delete.delay.ms is 0."""
    log_dir.delete_log(tp, NOW)
    log_dir.delete_retired(NOW)


def test_an_interrupted_deletion_is_completed() -> None:
    for kill_at in range(1, 40):
        disk = new_disk(kill_at)
        log_dir = open_dir(disk, LogSettings(file_delete_delay_ms=0))
        append(log_dir.create_log(A0, TOPIC_ID, NOW), batch(b"x"))
        log_dir.logs[A0].flush()
        disk.arm(kill_at_op=kill_at)
        try:
            delete_at_once(log_dir, A0)
        except Killed:
            pass
        else:
            assert kill_at > 4
            return
        disk.crash(power_cut=bool(kill_at % 2))
        log_dir = open_dir(disk)
        assert all(contents(log) == [(0, b"x")] for log in log_dir.logs.values())
        names = [name for name in disk.listdir(ROOT) if disk.is_dir(f"{ROOT}/{name}")]
        assert names == [str(tp) for tp in log_dir.logs]
    pytest.fail("the plan never ran to its end")


@pytest.mark.parametrize("seed", range(40))
def test_a_deletion_interrupted_by_two_crashes_leaves_all_or_nothing(seed: int) -> None:
    disk = new_disk(seed)
    log_dir = open_dir(disk)
    append(log_dir.create_log(A0, TOPIC_ID, NOW), batch(b"x"))
    log_dir.logs[A0].flush()
    disk.arm(kill_at_op=2)
    with pytest.raises(Killed):
        delete_at_once(log_dir, A0)
    disk.crash(power_cut=False)
    disk.arm(kill_at_op=2 + seed % 5)
    with suppress(Killed):
        open_dir(disk)
    disk.crash(power_cut=True)
    for log in open_dir(disk).logs.values():
        assert (contents(log), log.topic_id) == ([(0, b"x")], TOPIC_ID)


def test_an_offline_log_makes_the_stop_unclean() -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    append(log_dir.create_log(A0, TOPIC_ID, NOW), batch(b"x"))
    good = log_dir.create_log(B1, TOPIC_ID, NOW)
    append(good, batch(b"y"))
    disk.fail_next("fsync", errno.EIO)
    with pytest.raises(KafkaError):
        log_dir.close()
    assert not disk.exists(f"{ROOT}/.kafka_cleanshutdown")
    assert decode_offsets(disk.read_file(f"{ROOT}/recovery-point-offset-checkpoint")) == {B1: 1}
    assert contents(open_dir(disk).logs[B1]) == [(0, b"y")]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("op", ["rename", "fsync_dir", "rmtree", "open", "pwrite"])
def test_a_partition_created_after_a_failed_deletion_has_no_old_records(op: str, error: int) -> None:
    disk = new_disk()
    log_dir = open_dir(disk, LogSettings(file_delete_delay_ms=0))
    append(log_dir.create_log(A0, TOPIC_ID, NOW), batch(b"old"))
    disk.fail_next(op, error)
    with suppress(KafkaError):
        delete_at_once(log_dir, A0)
        log_dir.write_checkpoints()
    log = log_dir.create_log(A0, UUID(int=9), NOW)
    assert (contents(log), log.topic_id) == ([], UUID(int=9))
    log_dir.delete_retired(NOW)
    assert [name for name in disk.listdir(ROOT) if disk.is_dir(f"{ROOT}/{name}")] == ["a-0"]


@pytest.mark.parametrize("op", ["rename", "fsync_dir", "rmtree"])
def test_a_failed_deletion_is_completed_later(op: str) -> None:
    disk = new_disk()
    log_dir = open_dir(disk, LogSettings(file_delete_delay_ms=0))
    log_dir.create_log(A0, TOPIC_ID, NOW)
    disk.fail_next(op, errno.EIO)
    with suppress(KafkaError):
        delete_at_once(log_dir, A0)
    log_dir.delete_retired(NOW)
    assert not [name for name in disk.listdir(ROOT) if disk.is_dir(f"{ROOT}/{name}")]


def test_on_a_full_disk_a_deletion_frees_space_and_its_checkpoints_are_written_before_a_new_partition() -> None:
    disk = new_disk()
    log_dir = open_dir(disk, LogSettings(file_delete_delay_ms=0))
    log = log_dir.create_log(A0, TOPIC_ID, NOW)
    append(log, batch(b"old"))
    log.flush()
    log.delete_records_before(Offset(1))
    log_dir.write_checkpoints()
    log_dir.write_high_watermarks({A0: Offset(1)})
    disk.capacity_bytes = disk.used_bytes()
    disk.fail_next("pwrite", errno.ENOSPC)
    delete_at_once(log_dir, A0)
    assert disk.used_bytes() < disk.capacity_bytes
    disk.heal()
    log_dir.create_log(A0, UUID(int=9), NOW)
    disk.crash(power_cut=True)
    log_dir = open_dir(disk)
    again = log_dir.logs[A0]
    assert (again.log_start_offset, again.log_end_offset) == (0, 0)
    assert not log_dir.high_watermarks


def test_a_deletion_on_a_full_disk_is_complete_or_absent_after_a_power_failure() -> None:
    for seed in range(20):
        disk = new_disk(seed)
        log_dir = open_dir(disk, LogSettings(file_delete_delay_ms=0))
        append(log_dir.create_log(A0, TOPIC_ID, NOW), batch(b"old"))
        disk.capacity_bytes = disk.used_bytes()
        disk.fail_next("pwrite", errno.ENOSPC)
        delete_at_once(log_dir, A0)
        disk.crash(power_cut=True)
        assert A0 not in open_dir(disk).logs


def test_a_partition_that_cannot_be_deleted_does_not_block_others() -> None:
    disk = new_disk()
    log_dir = open_dir(disk, LogSettings(file_delete_delay_ms=0, retention_ms=1))
    for tp in (A0, B1):
        append(log_dir.create_log(tp, TOPIC_ID, NOW), batch(b"x"))
        log_dir.logs[tp].apply_retention(NOW + 2)
    disk.fail_next("unlink", errno.EIO)
    with pytest.raises(KafkaError):
        log_dir.delete_retired(NOW + 2)
    left = [[name for name in disk.listdir(f"{ROOT}/{tp}") if name.endswith(".deleted")] for tp in (A0, B1)]
    assert left[0]
    assert not left[1]


def test_a_directory_opens_on_a_full_disk() -> None:
    disk = new_disk()
    log_dir = open_dir(disk, LogSettings(segment_bytes=100))
    log_dir.create_log(A0, TOPIC_ID, NOW)
    log = log_dir.create_log(B1, TOPIC_ID, NOW)
    append(log, batch(b"x"))
    log.flush()
    log_dir.write_checkpoints()
    for value in (b"y", b"z"):
        append(log, batch(value))
    disk.crash(power_cut=False)
    disk.rmtree(f"{ROOT}/{A0}")  # of which the checkpoints speak
    for name in disk.listdir(f"{ROOT}/{B1}"):
        if name.endswith((".index", ".timeindex", ".snapshot")):
            disk.unlink(f"{ROOT}/{B1}/{name}")
    disk.capacity_bytes = disk.used_bytes()
    log_dir = open_dir(disk, LogSettings(segment_bytes=100))
    log = log_dir.logs[B1]
    assert contents(log) == numbered([b"x", b"y", b"z"])
    with pytest.raises(KafkaError):
        log.flush()
    assert log.plan_sync(NOW) is None
    disk.capacity_bytes = None
    log.flush()
    disk.crash(power_cut=True)
    assert contents(open_dir(disk).logs[B1]) == numbered([b"x", b"y", b"z"])


def test_a_failed_creation_can_be_repeated() -> None:
    for op in ("mkdir", "open", "pwrite", "fsync", "rename", "fsync_dir"):
        disk = new_disk()
        log_dir = open_dir(disk)
        disk.fail_next(op, errno.EIO)
        with pytest.raises(KafkaError):
            log_dir.create_log(A0, TOPIC_ID, NOW)
        append(log_dir.create_log(A0, TOPIC_ID, NOW), batch(b"x"))
        log_dir.logs[A0].flush()
        disk.crash(power_cut=True)
        assert contents(open_dir(disk).logs[A0]) == [(0, b"x")]


def test_an_unknown_directory_is_not_overwritten_by_a_new_partition() -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    disk.mkdir(f"{ROOT}/a-0")
    with pytest.raises(KafkaError, match="move it elsewhere"):
        log_dir.create_log(A0, TOPIC_ID, NOW)
    assert disk.exists(f"{ROOT}/a-0")


@pytest.mark.parametrize("stop", ["crash", "close"])
def test_deleted_records_of_an_offline_partition_stay_deleted(stop: str) -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    log = log_dir.create_log(A0, TOPIC_ID, NOW)
    append(log, batch(b"x"), batch(b"y"))
    log.delete_records_before(Offset(1))
    disk.fail_next("pread", errno.EIO)
    with pytest.raises(KafkaError):
        log.read(Offset(1), max_bytes=9, upto=Offset(2))
    log_dir.write_checkpoints()
    if stop == "close":
        log_dir.close()
    disk.crash(power_cut=False)
    assert contents(open_dir(disk).logs[A0]) == [(1, b"y")]


def test_without_its_checkpoint_a_log_is_not_truncated() -> None:
    disk, log_dir, log = four_records()
    disk.fail_next("rename", errno.EIO)
    with pytest.raises(KafkaError):
        log_dir.truncate_log(A0, Offset(2))
    assert (log.log_end_offset, log.recovery_point, log.offline_reason) == (4, 4, None)
    log_dir.truncate_log(A0, Offset(2))
    assert log.log_end_offset == 2


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"1\n0\n", b"0\n1\n", b"0\n1\na 0 -5\n", b"\xff", b"0\n1\na 0 9 9\n"]
)
@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_malformed_checkpoint_only_causes_a_recovery_scan(name: str, content: bytes) -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    append(log_dir.create_log(A0, TOPIC_ID, NOW), batch(b"x"))
    log_dir.close()
    disk.overwrite(f"{ROOT}/{name}", content)
    log_dir = open_dir(disk)
    assert not log_dir.was_clean
    assert contents(log_dir.logs[A0]) == [(0, b"x")]


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"{}", b"[1]", b'{"brokerEpoch":null}', b'{"brokerEpoch":1e999}', b"\xff"]
)
def test_any_clean_shutdown_marker_counts_also_without_a_broker_epoch(content: bytes) -> None:
    disk = new_disk()
    open_dir(disk).close()
    disk.overwrite(f"{ROOT}/.kafka_cleanshutdown", content)
    log_dir = open_dir(disk)
    assert (log_dir.was_clean, log_dir.previous_broker_epoch) == (True, -1)


@pytest.mark.parametrize("content", [b"", b"garbage", b"version: 1\ntopic_id: x", b"version: 0\ntopic_id: x", b"\xff"])
def test_malformed_partition_metadata_is_refused_by_name(content: bytes) -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    log_dir.create_log(A0, TOPIC_ID, NOW)
    log_dir.close()
    disk.overwrite(f"{ROOT}/a-0/partition.metadata", content)
    assert f"{ROOT}/a-0/partition.metadata" in refusal(disk)


def test_truncation_lowers_the_checkpoint_at_once() -> None:
    disk, log_dir, _ = four_records()
    log_dir.truncate_log(A0, Offset(2))
    assert decode_offsets(disk.read_file(f"{ROOT}/recovery-point-offset-checkpoint")) == {A0: 2}


def test_truncation_writes_no_checkpoint_that_is_low_enough() -> None:
    disk, log_dir, log = four_records()
    for _ in range(4):
        append(log, batch(b"x"))
    paths = [path for name in CHECKPOINT_FILES if disk.exists(path := f"{ROOT}/{name}")]
    written = [disk.status(path).identity for path in paths]
    for offset in (7, 6, 4):
        log_dir.truncate_log(A0, Offset(offset))
        assert log.log_end_offset == offset
    assert [disk.status(path).identity for path in paths] == written


def test_a_log_that_restarts_below_its_start_has_all_new_records_after_a_crash() -> None:
    """No checkpoint from before the restart applies to the new records."""
    disk, log_dir, log = four_records()
    log.delete_records_before(Offset(4))
    log_dir.write_checkpoints()
    log_dir.write_high_watermarks({A0: Offset(4)})
    log_dir.begin_log_at(A0, Offset(1))
    append(log, batch(b"x"), batch(b"y"))
    log.flush()
    log_dir.abandon()
    disk.crash(power_cut=True)
    log_dir = open_dir(disk)
    assert contents(log_dir.logs[A0]) == [(1, b"x"), (2, b"y")]
    assert log_dir.high_watermarks[A0] <= 1


def test_truncation_lowers_a_checkpoint_that_is_being_written() -> None:
    disk = new_disk()
    log_dir = open_dir(disk)
    log = log_dir.create_log(A0, TOPIC_ID, NOW)
    log_dir.write_checkpoints()
    for _ in range(4):
        append(log, batch(b"x"))
    log.flush()
    plan = log_dir.plan_recovery_points()
    assert plan is not None
    plan.run()
    log_dir.truncate_log(A0, Offset(2))
    assert log_dir.checkpoint_ended(plan, None)
    assert decode_offsets(disk.read_file(f"{ROOT}/recovery-point-offset-checkpoint")) == {A0: 2}


def test_an_atomic_write_leaves_the_old_file_or_the_new() -> None:
    for kill_at in range(1, 8):
        for seed in range(10):
            disk = new_disk(seed)
            write_file_atomically(disk, "/f", b"old" * 10)
            disk.arm(kill_at_op=kill_at)
            done = False
            try:
                write_file_atomically(disk, "/f", b"new" * 20)
                done = True
            except Killed:
                pass
            disk.crash(power_cut=True)
            assert disk.read_file("/f") in ((b"new" * 20,) if done else (b"old" * 10, b"new" * 20))


@pytest.mark.parametrize("checkpoint", [b"0\n1\na 0 3\n", b"", b"damaged"])
def test_kafkas_cleaner_checkpoint_allows_gaps_in_offsets(checkpoint: bytes) -> None:
    disk = new_disk()
    log = open_dir(disk).create_log(A0, TOPIC_ID, NOW)
    for value in (b"x", b"y", b"z"):
        append(log, batch(value))
        log.roll(NOW)
    log.flush()
    disk.overwrite(f"{ROOT}/a-0/{1:020d}.log", b"")
    disk.overwrite(f"{ROOT}/cleaner-offset-checkpoint", checkpoint)
    disk.crash(power_cut=False)
    kept = [(0, b"x"), (2, b"z")] if b"a 0" in checkpoint else [(0, b"x")]
    assert contents(open_dir(disk).logs[A0]) == kept
