"""A log has its open and aborted transactions, also after a crash, a truncation or damage to its files."""

from __future__ import annotations

import struct

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import Offset
from raylog.logstore.log import Log
from raylog.logstore.producer_state import AbortedTransaction
from raylog.logstore.settings import LogSettings
from tests.logstore.batches import NOW, PATH, append, batch, marker, new_disk, open_log
from tests.support.sim_disk import SimDisk

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)
INDEX = f"{PATH}/{0:020d}.txnindex"


def write(log: Log, producer_id: int, sequence: int, *, epoch: int = 0, values: int = 1) -> int:
    """Appends to the producer's transaction; the offset of the first record."""
    record_set = batch(*[b"value"] * values, producer=(producer_id, epoch, sequence), transactional=True)
    return append(log, record_set, from_client=False).first_offset


def end(log: Log, producer_id: int, *, committed: bool, epoch: int = 0, coordinator_epoch: int = 0) -> int:
    """Appends the marker; its offset."""
    record_set = marker(producer_id, committed=committed, producer_epoch=epoch, coordinator_epoch=coordinator_epoch)
    return append(log, record_set, from_client=False).first_offset


def stable(log: Log) -> int:
    return log.last_stable_offset(log.log_end_offset)


def aborted(log: Log, start: int = 0, upto: int = 1 << 40) -> list[AbortedTransaction]:
    return log.aborted_transactions(Offset(start), Offset(upto))


def refusal(log: Log, record_set: bytearray) -> ErrorCode:
    before = (log.log_end_offset, log.producers.encode_snapshot())
    with pytest.raises(KafkaError) as caught:
        append(log, record_set, from_client=False)
    assert (log.log_end_offset, log.producers.encode_snapshot()) == before
    return caught.value.code


def interleaved(disk: SimDisk, settings: LogSettings | None = None) -> Log:
    """0: 7 begins. 1: plain. 2: 8 begins. 3: 7 aborts. 4: 9 begins. 5: 8 aborts. 6: 9 commits. 7: 7 begins again."""
    log = open_log(disk, settings)
    write(log, 7, 0)
    append(log, batch(b"plain"))
    write(log, 8, 0)
    end(log, 7, committed=False)
    write(log, 9, 0)
    end(log, 8, committed=False)
    end(log, 9, committed=True)
    write(log, 7, 1)
    return log


ABORTED = [AbortedTransaction(7, 0, 3, 2), AbortedTransaction(8, 2, 5, 4)]


def test_the_last_stable_offset_is_that_of_the_oldest_open_transaction() -> None:
    log = open_log(new_disk())
    append(log, batch(b"a"))
    assert stable(log) == 1
    write(log, 7, 0)
    write(log, 8, 0)
    assert stable(log) == 1
    end(log, 8, committed=True)
    assert stable(log) == 1
    end(log, 7, committed=False)
    assert stable(log) == 5


def test_a_transaction_ends_when_its_marker_is_committed() -> None:
    log = open_log(new_disk())
    write(log, 7, 0)
    end(log, 7, committed=True)
    assert log.last_stable_offset(Offset(1)) == 0
    assert log.last_stable_offset(Offset(2)) == 2


def test_aborted_transactions_are_returned_by_range_with_kafkas_last_stable_offsets() -> None:
    log = interleaved(new_disk())
    assert aborted(log) == ABORTED
    assert aborted(log, 4) == ABORTED[1:]
    assert aborted(log, 0, 2) == ABORTED[:1]
    assert aborted(log, 6) == []
    other = open_log(new_disk())
    append(other, batch(b"plain"))
    write(other, 7, 0)
    end(other, 7, committed=False)
    assert aborted(other, 0, 1) == []
    assert stable(log) == 7


def test_a_batch_outside_the_open_transaction_of_its_producer_is_refused() -> None:
    log = open_log(new_disk())
    write(log, 7, 0)
    assert refusal(log, batch(b"x", producer=(7, 0, 1))) is ErrorCode.INVALID_TXN_STATE
    assert append(log, batch(b"value", producer=(7, 0, 0), transactional=True), from_client=False).duplicate
    end(log, 7, committed=True)
    assert not append(log, batch(b"x", producer=(7, 0, 1))).duplicate


def test_markers_of_older_epochs_are_fenced() -> None:
    log = open_log(new_disk())
    write(log, 7, 0, epoch=3)
    assert refusal(log, marker(7, committed=True, producer_epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    end(log, 7, committed=False, epoch=4, coordinator_epoch=6)
    assert aborted(log) == [(7, 0, 1, 2)]
    late = marker(7, committed=True, producer_epoch=4, coordinator_epoch=5)
    assert refusal(log, late) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    end(log, 7, committed=True, epoch=4, coordinator_epoch=6)
    assert aborted(log) == [(7, 0, 1, 2)], "a marker may come twice, and ends nothing then"
    assert refusal(log, batch(b"x", producer=(7, 3, 1), transactional=True)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_malformed_marker_is_refused() -> None:
    log = open_log(new_disk())
    write(log, 7, 0)
    broken = batch(b"", producer=(7, 0, -1), transactional=True, control=True)
    assert refusal(log, broken) is ErrorCode.CORRUPT_MESSAGE


def test_a_follower_has_the_same_transactions() -> None:
    leader = interleaved(new_disk())
    follower = open_log(new_disk())
    records = leader.read(Offset(0), max_bytes=1 << 20, upto=leader.log_end_offset).records
    follower.append_as_follower(records, now_ms=NOW)
    assert (stable(follower), aborted(follower)) == (stable(leader), aborted(leader))
    assert follower.producers.encode_snapshot() == leader.producers.encode_snapshot()


@pytest.mark.parametrize("settings", [LogSettings(), SMALL])
@pytest.mark.parametrize("clean", [True, False])
def test_transactions_survive_a_stop_and_a_crash(settings: LogSettings, clean: bool) -> None:
    disk = new_disk()
    log = interleaved(disk, settings)
    if clean:
        log.close()
    else:
        log.flush()
        disk.crash(power_cut=True)
    for recovery_point in (0, 4, 8):
        log = open_log(disk, settings, clean=clean, recovery_point=recovery_point)
        assert (stable(log), aborted(log)) == (7, ABORTED)
        log.flush()
        disk.crash(power_cut=True)
        clean = False
    log = open_log(disk, settings, recovery_point=8)
    end(log, 7, committed=False)
    assert (stable(log), aborted(log)) == (9, [*ABORTED, (7, 7, 8, 9)])


@pytest.mark.parametrize("damage", ["cut", "version", "offset", "order", "garbage"])
@pytest.mark.parametrize("snapshots", [True, False])
def test_a_wrong_index_is_rebuilt(damage: str, snapshots: bool) -> None:
    disk = new_disk()
    log = interleaved(disk)
    log.roll(NOW)
    append(log, batch(b"b"))
    log.close()
    intact = disk.read_file(INDEX)
    assert len(intact) == 2 * 34
    data = bytearray(intact)
    match damage:
        case "cut":
            del data[-1:]
        case "version":
            data[1] = 9
        case "offset":
            struct.pack_into(">q", data, 34 + 18, 99)
        case "order":
            data = data[34:] + data[:34]
        case "garbage":
            data[:] = b"\xff" * len(data)
    replace(disk, INDEX, data)
    if not snapshots:
        for name in disk.listdir(PATH):
            if name.endswith(".snapshot"):
                disk.unlink(f"{PATH}/{name}")
    log = open_log(disk, clean=True, recovery_point=9)
    assert (stable(log), aborted(log)) == (7, ABORTED)
    assert disk.read_file(INDEX) == intact
    disk.crash(power_cut=True)
    assert aborted(open_log(disk, recovery_point=9)) == ABORTED, "the rebuilt index is durable"


@pytest.mark.parametrize("seed", range(8))
def test_the_index_of_a_segment_closed_after_the_last_flush_is_not_trusted(seed: int) -> None:
    disk = new_disk(seed)
    log = interleaved(disk)
    log.flush()
    log.roll(NOW)
    disk.crash(power_cut=True)
    assert aborted(open_log(disk, recovery_point=8)) == ABORTED


def test_a_truncation_removes_later_markers() -> None:
    disk = new_disk()
    log = interleaved(disk)
    log.close()
    log = open_log(disk, clean=True, recovery_point=8)
    log.truncate_to(Offset(5))
    assert (stable(log), aborted(log)) == (2, ABORTED[:1])
    log.close()
    assert len(disk.read_file(INDEX)) == 34
    log = open_log(disk, clean=True, recovery_point=5)
    assert (stable(log), aborted(log)) == (2, ABORTED[:1])
    end(log, 8, committed=True)
    assert (stable(log), aborted(log)) == (4, ABORTED[:1])


def test_a_producer_with_an_open_transaction_does_not_expire() -> None:
    log = open_log(new_disk())
    write(log, 7, 0)
    append(log, batch(b"x", producer=(8, 0, 0)))
    log.apply_retention(NOW + 2 * 24 * 3600 * 1000)
    assert list(log.producers.producers()) == [7]


def test_the_last_stable_offset_is_the_log_start_if_the_begin_was_deleted() -> None:
    log = open_log(new_disk())
    write(log, 7, 0, values=3)
    append(log, batch(b"x"))
    log.delete_records_before(Offset(2))
    assert stable(log) == 2


def replace(disk: SimDisk, path: str, data: bytes | bytearray) -> None:
    disk.unlink(path)
    handle = disk.open(path, create=True)
    disk.pwrite(handle, data, 0)
    disk.fsync(handle)
    disk.fsync_dir(PATH)
    disk.close(handle)
