"""A transfer copies whole logs into existing partitions; after a crash each is the old one or the new one."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Mapping
from uuid import UUID

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from raylog.logstore.checkpoint import decode_offsets, encode_offsets, encode_partition_metadata
from raylog.logstore.log import Log
from raylog.logstore.log_dir import LogDir
from raylog.logstore.partition_copy import CopiedLog
from raylog.logstore.producer_state import ProducerState
from raylog.logstore.settings import LogSettings
from raylog.logstore.transfer import Step, plan_transfer, transfer
from raylog.protocol.records.batch import CRC_AT, LEADER_EPOCH_AT, RECORD_COUNT_AT, parse_header, write_crc
from raylog.protocol.records.compression import Codec
from raylog.protocol.records.reader import read_batches
from tests.logstore.batches import NOW, append, batch, contents, marker, numbered
from tests.support.sim_disk import Killed, SimDisk

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SOURCE_ID, TARGET_ID = UUID(int=1), UUID(int=2)
SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)
SEGMENT = "/from/a-0/00000000000000000000.log"


def open_dir(disk: SimDisk, path: str) -> LogDir:
    return LogDir.open(
        disk,
        path,
        cluster_id=f"cluster of {path}",
        broker_id=BrokerId(0),
        settings_for=lambda topic: SMALL,
        now_ms=NOW,
        new_id=ids(),
    )


def ids() -> Callable[[], UUID]:
    rng = random.Random(2)
    return lambda: UUID(int=rng.getrandbits(128))


def make(disk: SimDisk, path: str, topic_id: UUID, logs: Mapping[TopicPartition, Callable[[Log], object]]) -> None:
    """A log directory that was stopped cleanly, after its logs were filled."""
    log_dir = open_dir(disk, path)
    for tp, fill in logs.items():
        fill(log_dir.logs.get(tp) or log_dir.create_log(tp, topic_id, NOW))
    log_dir.close()


def nothing(log: Log) -> None:
    pass


def twelve(log: Log) -> None:
    """Offsets 0 to 11 in several segments, of two producers and several epochs; begins at 5."""
    for number in range(12):
        producer = (number % 3 - 1, 0 if number % 3 else -1, number // 3 if number % 3 else -1)
        append(log, batch(b"%d" % number * 20, timestamp_ms=NOW + number, producer=producer), epoch=7 + number // 4)
    log.delete_records_before(Offset(5))


TWELVE = numbered([b"%d" % number * 20 for number in range(5, 12)], 5)


def new_disk(seed: int = 0) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    make(disk, "/from", SOURCE_ID, {A0: twelve})
    make(disk, "/to", TARGET_ID, {A0: nothing})
    return disk


def carry(disk: SimDisk, *, force: bool = False, topics: list[str] | None = None) -> list[tuple[Step, CopiedLog]]:
    return transfer(disk, ["/from"], ["/to"], topics=topics, force=force, new_id=ids(), now_ms=NOW)


def refusal(disk: SimDisk, *, topics: list[str] | None = None) -> KafkaError:
    """Why nothing was carried; and nothing was."""
    before = tree(disk, "/to")
    with pytest.raises(KafkaError) as caught:
        carry(disk, topics=topics)
    assert tree(disk, "/to") == before
    assert disk.open_files() == 0
    return caught.value


def tree(disk: SimDisk, path: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in disk.listdir(path):
        inner = f"{path}/{name}"
        found |= tree(disk, inner) if disk.is_dir(inner) else {inner: disk.read_file(inner)}
    return found


def test_records_keep_their_offsets_and_the_log_belongs_to_the_target() -> None:
    disk = new_disk()
    source = tree(disk, "/from")
    [(step, copied)] = carry(disk)
    assert step == Step(A0, "/from", ("/to",))
    assert copied[:2] == (5, 12)
    assert tree(disk, "/from") == source
    assert [name for name in disk.listdir("/to") if disk.is_dir(f"/to/{name}")] == ["a-0"]
    log_dir = open_dir(disk, "/to")
    assert log_dir.was_clean
    log = log_dir.logs[A0]
    assert log.topic_id == TARGET_ID
    assert contents(log) == TWELVE
    assert not disk.exists("/to/replication-offset-checkpoint"), "a broker that keeps none gets none"
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (5, 12, 12)
    found = log.offset_for_timestamp(NOW + 9, upto=Offset(12))
    assert found == (9, NOW + 9, 0)


def test_the_copy_has_epoch_0_and_can_be_appended_to() -> None:
    disk = new_disk()
    carry(disk)
    log = open_dir(disk, "/to").logs[A0]
    assert log.leader_epochs.entries == [(0, 5)]
    piece = log.read(Offset(5), max_bytes=1 << 20, upto=Offset(12))
    assert piece.records[LEADER_EPOCH_AT : LEADER_EPOCH_AT + 4] == bytes(4)
    assert append(log, batch(b"new"), epoch=1).first_offset == 12
    assert log.leader_epochs.entries == [(0, 5), (1, 12)]


@pytest.mark.parametrize("clean", [True, False])
def test_producers_of_the_target_are_not_mistaken_for_those_of_the_source(clean: bool) -> None:
    """Its id and sequence are those of a batch that came along: it must be written, not answered as a repetition."""
    disk = new_disk()
    carry(disk)
    if not clean:
        disk.unlink("/to/.kafka_cleanshutdown")
    log = open_dir(disk, "/to").logs[A0]
    assert not log.producers.producers()
    info = append(log, batch(b"of another", producer=(1, 0, 3)))
    assert (info.first_offset, info.duplicate) == (12, False)


def test_an_empty_log_is_copied_with_its_start_offset() -> None:
    disk = SimDisk(random.Random(0))
    make(disk, "/from", SOURCE_ID, {A0: lambda log: log.truncate_fully_and_start_at(Offset(77))})
    make(disk, "/to", TARGET_ID, {A0: nothing})
    [(_, copied)] = carry(disk)
    assert copied == (77, 77, 0, 0)
    log = open_dir(disk, "/to").logs[A0]
    assert (log.log_start_offset, log.log_end_offset, log.leader_epochs.entries) == (77, 77, [])


def test_checkpoints_of_other_partitions_are_kept() -> None:
    disk = new_disk()
    make(disk, "/to", TARGET_ID, {B0: twelve})
    disk.overwrite("/to/replication-offset-checkpoint", encode_offsets({B0: Offset(11)}))
    disk.overwrite("/to/cleaner-offset-checkpoint", encode_offsets({A0: Offset(3), B0: Offset(4)}))
    carry(disk)
    for name, offsets in (
        ("recovery-point", {A0: 12, B0: 12}),
        ("log-start", {A0: 5, B0: 5}),
        ("replication", {A0: 12, B0: 11}),
        ("cleaner", {B0: 4}),
    ):
        assert decode_offsets(disk.read_file(f"/to/{name}-offset-checkpoint")) == offsets


def test_compacted_logs_are_copied_with_their_gaps() -> None:
    """Within a batch, between batches, and between segments, where an unclean start would take it for a crash."""
    disk = new_disk()
    thinned = batch(b"kept", b"gone", b"kept too")
    thinned[RECORD_COUNT_AT : RECORD_COUNT_AT + 4] = (1).to_bytes(4)
    single = batch(b"kept")
    thinned[61:] = single[61:]
    thinned[8:12] = (len(thinned) - 12).to_bytes(4)
    write_crc(thinned, 0, len(thinned))
    second = batch(b"second")
    second[:8] = (8).to_bytes(8)
    third = batch(b"third")
    third[:8] = (30).to_bytes(8)
    for path in [path for path in tree(disk, "/from/a-0") if path.endswith((".log", ".snapshot"))]:
        disk.unlink(path)
    disk.overwrite(SEGMENT, bytes(thinned + second))
    disk.overwrite("/from/a-0/00000000000000000020.log", bytes(third))
    disk.unlink("/from/log-start-offset-checkpoint")
    [(_, copied)] = carry(disk)
    assert copied[:2] == (0, 31)
    assert [path for path in tree(disk, "/to/a-0") if path.endswith(".log")] == [
        f"/to/a-0/{base:020d}.log" for base in (0, 9, 31)
    ]
    for recovery in ("clean", "unclean"):
        if recovery == "unclean":
            disk.unlink("/to/.kafka_cleanshutdown")
            disk.unlink("/to/recovery-point-offset-checkpoint")
        log_dir = open_dir(disk, "/to")
        assert contents(log_dir.logs[A0]) == [(0, b"kept"), (8, b"second"), (30, b"third")]
        log_dir.close()


def test_an_open_transaction_is_refused_and_a_completed_one_copied() -> None:
    def open_transaction(log: Log) -> None:
        data = batch(b"x", b"y", producer=(5, 0, 0), transactional=True)
        log.append_as_leader(memoryview(data), leader_epoch=LeaderEpoch(1), now_ms=NOW, from_client=False)

    def ended(log: Log) -> None:
        open_transaction(log)
        end = marker(5, committed=False)
        log.append_as_leader(memoryview(end), leader_epoch=LeaderEpoch(1), now_ms=NOW, from_client=False)

    entry = txn_entry(producer_id=5, first=0, last=2)
    for fill in (open_transaction, ended):
        disk = SimDisk(random.Random(0))
        make(disk, "/from", SOURCE_ID, {A0: fill})
        make(disk, "/to", TARGET_ID, {A0: nothing})
        for path in [path for path in tree(disk, "/from/a-0") if path.endswith(".snapshot")]:
            disk.unlink(path)
        if fill is open_transaction:
            error = refusal(disk)
            assert error.code is ErrorCode.INVALID_TXN_STATE
            assert "/from/a-0: producer 5 has an open transaction from offset 0" in error.message
        else:
            assert disk.read_file(SEGMENT.replace(".log", ".txnindex")) == entry
            carry(disk)
            assert disk.read_file("/to/a-0/00000000000000000000.txnindex") == entry
            log = open_dir(disk, "/to").logs[A0]
            assert log.aborted_transactions(Offset(0), Offset(3)) == [(5, 0, 2, 3)]
            assert log.last_stable_offset(Offset(3)) == 3


def test_the_snapshot_has_the_open_transactions() -> None:
    """Compaction may have taken a marker whose records are still there."""
    disk = new_disk()
    state = ProducerState()
    header = parse_header(batch(b"x", producer=(1, 0, 0), transactional=True))
    state.update(header, base_offset=10, now_ms=NOW, marker=None)
    disk.overwrite("/from/a-0/00000000000000000012.snapshot", state.encode_snapshot())
    assert "producer 1 has an open transaction from offset 10" in refusal(disk).message


def damaged(where: int, data: bytes, *, path: str = SEGMENT) -> Callable[[SimDisk], None]:
    def damage(disk: SimDisk) -> None:
        content = bytearray(disk.read_file(path))
        content[where : where + len(data)] = data
        disk.overwrite(path, bytes(content))

    return damage


def txn_entry(*, version: int = 0, producer_id: int = 1, first: int = 1, last: int = 5) -> bytes:
    return version.to_bytes(2) + b"".join(number.to_bytes(8) for number in (producer_id, first, last, last + 1))


def cut(disk: SimDisk) -> None:
    disk.overwrite(SEGMENT, disk.read_file(SEGMENT)[:-1])


def added(name: str, data: bytes = b"") -> Callable[[SimDisk], None]:
    return lambda disk: disk.overwrite(f"/from/a-0/{name}", data)


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (damaged(CRC_AT, b"\xff"), ErrorCode.CORRUPT_MESSAGE, [SEGMENT, "position 0", "checksum"]),
        (damaged(16, b"\x01"), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, [SEGMENT, "position 0", "format 1"]),
        (damaged(16, b"\x09"), ErrorCode.CORRUPT_MESSAGE, [SEGMENT, "position 0", "magic 9"]),
        (damaged(7, b"\x09"), ErrorCode.CORRUPT_MESSAGE, [SEGMENT, "the segment ends at 4"]),
        (
            damaged(0, bytes(7) + b"\x05", path="/from/a-0/00000000000000000008.log"),
            ErrorCode.CORRUPT_MESSAGE,
            ["at offset 5, expected at least 8"],
        ),
        (damaged(60, b"\x09"), ErrorCode.CORRUPT_MESSAGE, [SEGMENT, "9 records in 1 offsets"]),
        (cut, ErrorCode.CORRUPT_MESSAGE, [SEGMENT, "truncated"]),
        (
            added("00000000000000000000.log.swap"),
            ErrorCode.KAFKA_STORAGE_ERROR,
            ["/from/a-0/00000000000000000000.log.swap"],
        ),
        (added("00000000000000000000.log.cleaned"), ErrorCode.KAFKA_STORAGE_ERROR, [".log.cleaned"]),
        (added("00000000000000000004.txnindex", b"x"), ErrorCode.CORRUPT_MESSAGE, ["4.txnindex", "truncated"]),
        (added("00000000000000000004.txnindex", b"\1" * 34), ErrorCode.CORRUPT_MESSAGE, ["4.txnindex", "version 257"]),
        (
            added("00000000000000000004.txnindex", txn_entry(version=1)),
            ErrorCode.CORRUPT_MESSAGE,
            ["version 1 is unknown"],
        ),
        (
            added("00000000000000000004.txnindex", txn_entry(last=3)),
            ErrorCode.CORRUPT_MESSAGE,
            ["position 0", "1 to 3"],
        ),
        (
            added("00000000000000000004.txnindex", txn_entry(last=8)),
            ErrorCode.CORRUPT_MESSAGE,
            ["position 0", "1 to 8"],
        ),
        (
            added("00000000000000000004.txnindex", txn_entry(last=0)),
            ErrorCode.CORRUPT_MESSAGE,
            ["position 0", "1 to 0"],
        ),
        (added("00000000000000000004.txnindex", txn_entry(first=6)), ErrorCode.CORRUPT_MESSAGE, ["6 to 5"]),
        (added("00000000000000000012.snapshot", b"x"), ErrorCode.CORRUPT_MESSAGE, ["12.snapshot"]),
    ],
)
def test_damage_is_reported_by_file_and_position(
    damage: Callable[[SimDisk], None], code: ErrorCode, words: list[str]
) -> None:
    disk = new_disk()
    disk.unlink("/from/log-start-offset-checkpoint")
    damage(disk)
    error = refusal(disk)
    assert error.code is code
    assert all(word in error.message for word in words), error.message


def test_a_running_or_killed_broker_is_refused() -> None:
    for path in ("/from", "/to"):
        disk = new_disk()
        lock = disk.lock(f"{path}/.lock")
        with pytest.raises(KafkaError, match=f"{path}/.lock is locked"):
            carry(disk)
        disk.close(lock)
        disk.unlink(f"{path}/.kafka_cleanshutdown")
        assert f"{path} has no .kafka_cleanshutdown" in refusal(disk).message
        disk.unlink(f"{path}/meta.properties")
        assert f"{path} is not a log directory" in refusal(disk).message


def test_records_are_replaced_only_with_force() -> None:
    disk = new_disk()
    make(disk, "/to", TARGET_ID, {A0: lambda log: append(log, batch(b"old"))})
    assert "/to/a-0 contains records" in refusal(disk).message
    carry(disk, force=True)
    assert contents(open_dir(disk, "/to").logs[A0]) == TWELVE


def test_a_partition_without_its_topic_id_is_refused() -> None:
    disk = new_disk()
    disk.unlink("/to/a-0/partition.metadata")
    assert "/to/a-0/partition.metadata is missing" in refusal(disk).message


def test_batches_larger_than_a_piece_and_across_pieces() -> None:
    disk = SimDisk(random.Random(0))
    noise = random.Random(1)
    values = [noise.randbytes(size) for size in (700_000, 1_500_000, 10, 349_000, 20, 30, 900_000)]

    def fill(log: Log) -> None:
        log.settings = LogSettings(max_message_bytes=1 << 22)
        for value in values:
            append(log, batch(value, codec=Codec.NONE))

    make(disk, "/from", SOURCE_ID, {A0: fill})
    make(disk, "/to", TARGET_ID, {A0: nothing})
    carry(disk)
    log = open_dir(disk, "/to").logs[A0]
    piece = log.read(Offset(0), max_bytes=1 << 23, upto=log.log_end_offset)
    assert [record.value for record in read_batches(piece.records)] == values


def old_one(log: Log) -> None:
    """It begins behind the end of the one that takes its place."""
    log.truncate_fully_and_start_at(Offset(40))
    append(log, batch(b"old"), batch(b"old too"))
    log.delete_records_before(Offset(41))


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("force", [False, True])
def test_after_a_crash_each_partition_is_the_old_one_or_the_new_one(power_cut: bool, force: bool) -> None:
    """At worst, records that DeleteRecords took are seen once more; and carrying again finishes what was begun."""
    seen: set[str] = set()
    kill_at = 0
    while True:
        kill_at += 1
        disk = SimDisk(random.Random(kill_at))
        make(disk, "/from", SOURCE_ID, {A0: twelve, A1: twelve})
        make(disk, "/to", TARGET_ID, {A0: old_one if force else nothing, A1: nothing})
        disk.arm(kill_at_op=kill_at)
        try:
            carry(disk, force=force)
            break
        except Killed:
            disk.crash(power_cut=power_cut)
        log_dir = open_dir(disk, "/to")
        assert log_dir.was_clean
        for tp, log in log_dir.logs.items():
            old = [(40, b"old"), (41, b"old too")] if force and tp == A0 else []
            found = contents(log)
            if found in (old, old[1:]):
                seen.add("old")
            else:
                assert found[-len(TWELVE) :] == TWELVE
                seen.add("new")
            assert log.topic_id == TARGET_ID
        assert sorted(log_dir.logs) == [A0, A1]
        assert [name for name in disk.listdir("/to") if disk.is_dir(f"/to/{name}")] == ["a-0", "a-1"]
        log_dir.close()
        make_clean(disk)
        carry(disk, force=True)
        log_dir = open_dir(disk, "/to")
        assert all(contents(log) == TWELVE for log in log_dir.logs.values())
        assert all(log.log_start_offset == 5 for log in log_dir.logs.values())
    assert seen == {"old", "new"}
    assert kill_at > 50


def test_after_a_power_failure_the_partition_directory_exists() -> None:
    """Also where no checkpoint changes, and so nothing else makes the exchange durable."""
    for seed in range(20):
        for kill_at in range(1, 200):
            disk = SimDisk(random.Random(seed * 1000 + kill_at))
            make(disk, "/from", SOURCE_ID, {A0: lambda log: append(log, batch(b"new"))})
            make(disk, "/to", TARGET_ID, {A0: lambda log: append(log, batch(b"old"))})
            disk.arm(kill_at_op=kill_at)
            try:
                carry(disk, force=True)
                break
            except Killed:
                disk.crash(power_cut=True)
            assert contents(open_dir(disk, "/to").logs[A0]) in ([(0, b"old")], [(0, b"new")])
        else:
            pytest.fail("the carrying never ran to its end")


def test_damage_in_one_partition_leaves_all_unchanged() -> None:
    disk = new_disk()
    make(disk, "/from", SOURCE_ID, {A1: twelve})
    make(disk, "/to", TARGET_ID, {A1: nothing})
    damaged(CRC_AT, b"\xff", path="/from/a-1/00000000000000000008.log")(disk)
    assert "/from/a-1/00000000000000000008.log: at position 0" in refusal(disk).message


def make_clean(disk: SimDisk) -> None:
    """The source as it is after one more start and stop: the lock file may have been all that the crash has touched."""
    open_dir(disk, "/from").close()


def test_a_failing_disk_leaves_the_target_unchanged() -> None:
    for op in ("pwrite", "fsync", "mkdir", "fsync_dir", "pread"):
        disk = new_disk()
        before = tree(disk, "/to")
        disk.fail_next(op, errno.EIO)
        with pytest.raises(OSError, match=r"."):
            carry(disk)
        assert tree(disk, "/to") == before


# What is to be carried, decided from names alone


def test_all_topics_except_internal_ones() -> None:
    internal = TopicPartition("__consumer_offsets", 0)
    steps = plan_transfer(
        {"/x": [B0, A1, internal], "/y": [A0]}, {"/u": [A0, A1, internal], "/v": [B0, A1]}, topics=None
    )
    assert steps == [Step(A0, "/y", ("/u",)), Step(A1, "/x", ("/u", "/v")), Step(B0, "/x", ("/v",))]
    assert [step.topic_partition for step in plan_transfer({"/x": [A0, B0]}, {"/u": [A0]}, topics=["a"])] == [A0]


@pytest.mark.parametrize(
    ("sources", "targets", "topics", "words"),
    [
        ({"/x": [A0]}, {"/u": [A1]}, None, ["a-0 of /x is not in /u", "create topic a with 1 partition"]),
        ({"/x": [A0]}, {"/u": [A0]}, ["c"], ["topic c is not in /x"]),
        ({"/x": [A0]}, {"/u": [A0]}, ["__consumer_offsets"], ["__consumer_offsets is internal"]),
        ({"/x": [A0], "/y": [A0]}, {"/u": [A0]}, None, ["a-0 is both in /x and in /y"]),
        ({"/x": []}, {"/u": [A0]}, None, ["/x: contains no topic to copy"]),
    ],
)
def test_partitions_that_cannot_be_copied_are_named(
    sources: Mapping[str, list[TopicPartition]],
    targets: Mapping[str, list[TopicPartition]],
    topics: list[str] | None,
    words: list[str],
) -> None:
    with pytest.raises(KafkaError) as caught:
        plan_transfer(sources, targets, topics=topics)
    assert all(word in caught.value.message for word in words), caught.value.message


def test_the_targets_metadata_file_is_unchanged() -> None:
    disk = new_disk()
    carry(disk)
    assert disk.read_file("/to/a-0/partition.metadata") == encode_partition_metadata(TARGET_ID)
