"""The epoch cache answers OffsetForLeaderEpoch as Kafka's does, and its entries always increase."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.ids import Offset
from raylog.logstore.leader_epochs import LeaderEpochs

KNOWN = [(2, 0), (5, 10), (7, 30)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (0, (0, 0)), (2, (2, 10)), (3, (2, 10)), (5, (5, 30)), (6, (5, 30)), (7, (7, 44)), (8, (-1, -1))],
)
def test_end_offsets(asked: int, answer: tuple[int, int]) -> None:
    assert LeaderEpochs(KNOWN).end_offset_for(asked, log_end_offset=Offset(44)) == answer
    assert LeaderEpochs().end_offset_for(asked, log_end_offset=Offset(44)) == (-1, -1)


def test_truncation_from_both_ends() -> None:
    epochs = LeaderEpochs(KNOWN)
    epochs.truncate_from_end(31)
    assert epochs.entries == KNOWN
    epochs.truncate_from_end(30)
    assert epochs.entries == KNOWN[:2]
    epochs.truncate_from_start(12)
    assert epochs.entries == [(5, 12)]
    epochs = LeaderEpochs(KNOWN)
    epochs.truncate_from_start(10)
    assert epochs.entries == [(5, 10), (7, 30)]
    assert [epochs.epoch_at(offset) for offset in (9, 10, 29, 30, 99)] == [-1, 5, 5, 7, 7]


def test_the_checkpoint_has_kafkas_format() -> None:
    epochs = LeaderEpochs(KNOWN)
    assert epochs.encode() == b"0\n3\n2 0\n5 10\n7 30\n"
    assert LeaderEpochs.decode(epochs.encode()).entries == KNOWN
    for bad in (
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n2\n1 1\n",
        b"0\n2\n1 5\n1 6\n",
        b"0\n2\n1 5\n2 5\n",
        b"0\n1\nx y\n",
        b"\xff",
    ):
        with pytest.raises(ValueError, match=r"."):
            LeaderEpochs.decode(bad)


@given(st.lists(st.tuples(st.integers(-1, 9), st.integers(0, 30)), max_size=12))
def test_entries_always_increase(assignments: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs()
    for epoch, start in assignments:
        epochs.assign(epoch, start)
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(epochs.entries))
        if epoch >= 0:
            assert epochs.epoch_at(start) == epoch
