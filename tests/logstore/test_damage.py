"""A flipped bit or a truncation anywhere in any file is repaired or reported; no corrupt record is served."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import LeaderEpoch, Offset
from raylog.logstore.log import Log
from raylog.logstore.log_dir import LogDir
from raylog.logstore.settings import LogSettings
from raylog.protocol.records.batch import split_batches
from raylog.protocol.records.reader import read_records
from tests.logstore.batches import NOW, PATH, batch, marker, new_disk, open_log
from tests.logstore.test_power_cuts import ROOT, TOPIC_ID, TP, open_dir
from tests.support.forms import by_form
from tests.support.sim_disk import SimDisk

SETTINGS = LogSettings(segment_bytes=900, index_interval_bytes=150)
ABORTED = {17: (8, 11, 12), 34: (27, 28, 30)}
"""Where a marker lies -> where the batches begin that it has aborted."""
FLIPS = by_form(50, quick=25, long=1000)
CUTS = 6


def written(*, clean: bool) -> tuple[SimDisk, dict[int, bytes]]:
    """A directory with every kind of file, and the records of its log by offset. ABORTED has its transactions."""
    disk = SimDisk(random.Random(1))
    log_dir = open_dir(disk, NOW)
    log = log_dir.create_log(TP, TOPIC_ID, NOW)
    log.settings = SETTINGS
    values: dict[int, bytes] = {}
    sequence = 0
    for number in range(24):
        parts = [b"%04d-%d" % (number, part) * 5 for part in range(number % 3 + 1)]
        if number % 5 == 4:
            parts = [b""]
            record_set = marker(7, committed=number % 2 == 0, timestamp_ms=NOW + number)
        elif number % 5 == 3:
            record_set = batch(*parts, timestamp_ms=NOW + number)
        else:
            record_set = batch(*parts, timestamp_ms=NOW + number, producer=(7, 0, sequence), transactional=True)
            sequence += len(parts)
        first = append(log, record_set, number // 6)
        values.update(enumerate(parts, first))
        if number == 12:
            log.flush()
            log_dir.write_checkpoints()
    if clean:
        log_dir.close()
    else:
        log.flush()
        disk.crash(power_cut=False)
    return disk, values


def append(log: Log, record_set: bytearray, epoch: int) -> int:
    return log.append_as_leader(
        memoryview(record_set), leader_epoch=LeaderEpoch(epoch), now_ms=NOW, from_client=False
    ).first_offset


def files(disk: SimDisk) -> Iterator[str]:
    for name in disk.listdir(ROOT):
        path = f"{ROOT}/{name}"
        if disk.is_dir(path):
            yield from (f"{path}/{inner}" for inner in disk.listdir(path))
        elif name != ".lock":
            yield path


def names(error: KafkaError, code: ErrorCode, *words: str) -> None:
    assert error.code is code
    assert all(word in error.message for word in words)


def reads_are_right(log: Log, values: dict[int, bytes]) -> bool:
    """Whether all was served that should be there. What was served must be right, and a refusal name the place."""
    whole = log.log_end_offset == max(values) + 1
    offset = int(log.log_start_offset)
    while offset < log.log_end_offset:
        try:
            piece = log.read(Offset(offset), max_bytes=250, upto=log.log_end_offset)
        except KafkaError as error:
            names(error, ErrorCode.CORRUPT_MESSAGE, ".log: ", "position")
            whole = False
            offset += 1
            continue
        assert piece.next_offset > offset
        for position, header in split_batches(piece.records):
            found = read_records(piece.records, position, header)
            if not header.is_control:
                assert [(one.offset, one.value) for one in found] == [(one.offset, values[one.offset]) for one in found]
            assert header.next_offset <= piece.next_offset
        offset = piece.next_offset
    return whole


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False])
def test_all_damage_is_detected(clean: bool) -> None:
    rng = random.Random(5)
    disk, values = written(clean=clean)
    kinds = set()
    refused = cut_short = 0
    for path in files(disk):
        intact = disk.read_file(path)
        kinds.add(path.rpartition("/")[2].lstrip("0123456789"))
        for attempt in range(FLIPS + CUTS if intact else 0):
            disk, values = written(clean=clean)
            damaged = bytearray(intact)
            if attempt < FLIPS:
                at = rng.randrange(len(damaged))
                if path.endswith(".log") and 0 <= at - start_of_last_batch(intact) < 8 and last_log(path, disk):
                    continue  # its base offset: without a later batch, a gap before it cannot be detected
                damaged[at] ^= 1 << rng.randrange(8)
            else:
                del damaged[rng.randrange(len(damaged)) :]
            disk.overwrite(path, bytes(damaged))
            try:
                log_dir = open_dir(disk, NOW)
            except KafkaError as error:
                names(error, ErrorCode.KAFKA_STORAGE_ERROR, ROOT)
                assert not path.endswith((".index", ".timeindex", ".txnindex", ".snapshot", "checkpoint")), path
                refused += 1
                continue
            cut_short += not check(log_dir, values, path)
    assert kinds >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"}
    assert kinds >= {"partition.metadata", "meta.properties", "recovery-point-offset-checkpoint"}
    assert kinds >= {"log-start-offset-checkpoint"}
    assert refused > 10
    assert cut_short > 10


def test_batches_before_the_damage_are_served_by_one_large_read() -> None:
    rng = random.Random(7)
    path = f"{PATH}/{0:020d}.log"
    seen = 0
    for _ in range(200):
        disk = new_disk()
        log = open_log(disk)
        for number in range(8):
            record_set = batch(*[b"%d" % number * 30] * (number % 3 + 1))
            log.append_as_leader(memoryview(record_set), leader_epoch=LeaderEpoch(3), now_ms=NOW)
        end_offset = log.log_end_offset
        log.close()
        intact = disk.read_file(path)
        starts = [position for position, _ in split_batches(intact)]
        at = rng.randrange(len(intact))
        number = max(index for index, position in enumerate(starts) if position <= at)
        in_batch = at - starts[number]
        if 12 <= in_batch < 16 or (in_batch < 8 and number == len(starts) - 1):
            continue  # the leader epoch, or a base offset without a batch behind it: the checksum covers neither
        disk.overwrite(path, intact[:at] + bytes([intact[at] ^ 1 << rng.randrange(8)]) + intact[at + 1 :])
        log = open_log(disk, clean=True)
        sound = number
        if in_batch < 8:
            sound = max(number - 1, 0)  # a wrong base offset: that of the batch before may be the wrong one
        if log.log_end_offset < end_offset:
            continue  # the start has seen it
        seen += 1
        served, error = served_before_damage(log)
        names(error, ErrorCode.CORRUPT_MESSAGE, ".log: ", "position")
        assert sound <= served <= number, (at, starts)
    assert seen > 100


def served_before_damage(log: Log) -> tuple[int, KafkaError]:
    """(number of batches, error that ends reading)."""
    count, offset = 0, Offset(0)
    while offset < log.log_end_offset:
        try:
            piece = log.read(offset, max_bytes=1 << 20, upto=log.log_end_offset)
        except KafkaError as error:
            return count, error
        count += len(list(split_batches(piece.records)))
        offset = piece.next_offset
    raise AssertionError("the damage was not detected")


def start_of_last_batch(log_file: bytes) -> int:
    return max(position for position, _ in split_batches(log_file))


def last_log(path: str, disk: SimDisk) -> bool:
    return path == max(one for one in files(disk) if one.endswith(".log"))


def check(log_dir: LogDir, values: dict[int, bytes], path: str) -> bool:
    log = log_dir.logs[TP]
    whole = reads_are_right(log, values)
    if not path.endswith(".log"):
        assert whole, path
        assert log.offset_for_timestamp(NOW + 20, upto=log.log_end_offset) is not None
        aborted = log.aborted_transactions(Offset(0), log.log_end_offset)
        assert [one.last_offset for one in aborted] == list(ABORTED)
        assert all(one.first_offset in ABORTED[one.last_offset] for one in aborted), "or a later batch of the same one"
    end = log.log_end_offset
    try:
        assert append(log, batch(b"new"), 4) == end
    except KafkaError as error:
        names(error, ErrorCode.KAFKA_STORAGE_ERROR, "leader epoch")
    return whole
