"""Each byte is reported when the offset passes it; of an append that it is inside of, all are, each time it moves."""

from __future__ import annotations

from raylog.broker import pending_bytes
from raylog.broker.pending_bytes import PendingBytes
from raylog.core.ids import Offset, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class Appends:
    """One log with batches of a byte for each record."""

    def __init__(self, pending: PendingBytes, tp: TopicPartition = A) -> None:
        self.pending, self.tp = pending, tp
        self.log_end_offset = self.upto = 0

    def append(self, count: int) -> None:
        self.log_end_offset += count
        self.pending.appended(self.tp, count, end_offset=Offset(self.log_end_offset), upto=Offset(self.upto))

    def move(self, upto: int) -> int:
        self.upto = upto
        return self.pending.passed(self.tp, Offset(upto))


def test_appends_are_reported_as_the_offset_passes_their_ends() -> None:
    log = Appends(PendingBytes())
    for size in (10, 5, 1, 3):
        log.append(size)
    assert [log.move(upto) for upto in (0, 10, 10, 16, 16)] == [0, 10, 0, 6, 0]
    assert A in log.pending
    log.append(1)
    assert [log.move(upto) for upto in (20, 20)] == [4, 0]
    assert A not in log.pending, "nothing is pending"


def test_an_append_is_reported_for_each_step_inside_it() -> None:
    log = Appends(PendingBytes())
    log.append(10)
    assert [log.move(upto) for upto in (3, 3, 9, 10)] == [10, 0, 10, 10]


def test_many_appends_become_one() -> None:
    log = Appends(PendingBytes())
    for _ in range(pending_bytes.APPENDS_MAX + 9):
        log.append(1)
    assert log.move(pending_bytes.APPENDS_MAX - 1) == pending_bytes.APPENDS_MAX - 1
    assert log.move(pending_bytes.APPENDS_MAX + 5) == 10
    assert log.move(pending_bytes.APPENDS_MAX + 9) == 10


def test_each_log_has_its_own_until_it_is_forgotten() -> None:
    pending = PendingBytes()
    one, other = Appends(pending), Appends(pending, B)
    one.append(1)
    other.append(2)
    pending.forget(A)
    assert (one.move(1), other.move(2)) == (0, 2)
