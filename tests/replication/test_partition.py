"""The shared page and the files of a partition show nothing above the high watermark; what it passes is forgotten."""

from __future__ import annotations

from uuid import UUID

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, LeaderEpoch, Offset
from raylog.logstore.settings import LogSettings
from raylog.logstore.shared_page import PageSnapshot
from raylog.metadata.image import PartitionImage
from raylog.replication.partition import Partition
from tests.logstore.batches import NOW, PATH, TP, append, batch, marker, new_disk, open_log

SIZE = len(batch(bytes(100)))


class Lagging(Partition):
    """One whose followers are slow."""

    committed = Offset(3)

    @property
    def high_watermark(self) -> Offset:
        return self.committed


@pytest.fixture
def partition() -> Lagging:
    """Records 0 to 9, four to a segment; three of them are committed."""
    log = open_log(new_disk(), LogSettings(segment_bytes=4 * SIZE))
    for _ in range(10):
        append(log, batch(bytes(100)))
    shown = PartitionImage(0, (BrokerId(0),), (BrokerId(0),), BrokerId(0), LeaderEpoch(7))
    return Lagging(TP, UUID(int=1), log, shown, BrokerId(0), now_ms=0)


def test_the_page_ends_at_the_high_watermark(partition: Lagging) -> None:
    assert partition.publish() == PageSnapshot(0, 10, 3, 3, 7, 0, 0, 3 * SIZE, 0)
    for committed, base_offset, batches in ((4, 4, 0), (5, 4, 1), (8, 8, 0), (9, 8, 1), (10, 8, 2)):
        partition.committed = Offset(committed)
        page = partition.publish()
        assert (page.high_watermark, page.readable_base_offset, page.readable_position) == (
            committed,
            base_offset,
            batches * SIZE,
        )


def test_offsets_above_it_are_not_located(partition: Lagging) -> None:
    assert partition.locate(Offset(2)) == (f"{PATH}/{0:020d}.log", 0, 2 * SIZE)
    assert partition.locate(Offset(3)) == (f"{PATH}/{0:020d}.log", 0, 3 * SIZE)
    for offset in (-1, 4, 10):
        with pytest.raises(KafkaError) as refused:
            partition.locate(Offset(offset))
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_records_above_it_are_not_deleted(partition: Lagging) -> None:
    for offset in (-1, 4, 10, 11):
        with pytest.raises(KafkaError) as refused:
            partition.delete_records_before(Offset(offset))
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_records_before(Offset(3)) == 3
    assert partition.publish().log_start_offset == 3


def test_a_follower_with_an_epoch_unknown_to_the_leader_gets_the_diverging_epoch() -> None:
    log = open_log(new_disk())
    for _ in range(3):
        append(log, batch(bytes(100)), epoch=3)
    shown = PartitionImage(0, (BrokerId(0), BrokerId(1)), (BrokerId(0),), BrokerId(0), LeaderEpoch(7))
    leader = Partition(TP, UUID(int=1), log, shown, BrokerId(0), now_ms=0)
    assert leader.diverging_epoch(LeaderEpoch(5), Offset(4)) == (3, 3)
    assert leader.diverging_epoch(LeaderEpoch(3), Offset(3)) is None


def transaction(number: int) -> tuple[bytearray, bytearray]:
    """A record, and the marker that commits it."""
    return batch(b"x", producer=(7, 0, number), transactional=True), marker(7, committed=True)


def uncommitted_ends(partition: Partition) -> int:
    return len(partition.log.producers._ended)


def test_a_follower_forgets_transactions_whose_end_is_committed() -> None:
    """Without being asked for the last stable offset: consumers fetch from the leader."""
    source, log = open_log(new_disk()), open_log(new_disk())
    shown = PartitionImage(0, (BrokerId(0), BrokerId(1)), (BrokerId(0), BrokerId(1)), BrokerId(1), LeaderEpoch(7))
    follower = Partition(TP, UUID(int=1), log, shown, BrokerId(0), now_ms=0)
    for number in range(10):
        for record_set in transaction(number):
            append(source, record_set, from_client=False)
        records = source.read(log.log_end_offset, max_bytes=1 << 20, upto=source.log_end_offset).records
        follower.append_as_follower(records, high_watermark=log.log_end_offset, log_start_offset=0, now_ms=NOW)
        assert uncommitted_ends(follower) == 1
    follower.append_as_follower(b"", high_watermark=20, log_start_offset=0, now_ms=NOW)
    assert (uncommitted_ends(follower), follower.last_stable_offset) == (0, 20)


@pytest.mark.parametrize("isr", [(BrokerId(0),), (BrokerId(0), BrokerId(1))])
def test_a_leader_forgets_transactions_whose_end_is_committed(isr: tuple[BrokerId, ...]) -> None:
    shown = PartitionImage(0, (BrokerId(0), BrokerId(1)), isr, BrokerId(0), LeaderEpoch(7))
    leader = Partition(TP, UUID(int=1), open_log(new_disk()), shown, BrokerId(0), now_ms=0)
    for number in range(10):
        for record_set in transaction(number):
            leader.append_as_leader(memoryview(record_set), now_ms=NOW, from_client=False)
        if len(isr) > 1:
            assert uncommitted_ends(leader) == 1
            end_offset = leader.log.log_end_offset
            leader.follower_fetched(BrokerId(1), end_offset, log_start_offset=0, broker_epoch=1, now_ms=0)
        assert uncommitted_ends(leader) == 0
