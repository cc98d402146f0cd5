"""Positions are told of records that stand in both clusters, and of no others."""

from __future__ import annotations

import pytest

from raylog.core.ids import TopicPartition
from raylog.mirror.batches import OutgoingBatch
from raylog.mirror.copied import Copied, copied_runs
from raylog.protocol.records.batch import parse_header
from raylog.protocol.records.builder import BatchBuilder
from raylog.protocol.records.copied import CopiedBatch

TP = TopicPartition("t", 3)


def batch(first: int, last: int, count: int) -> OutgoingBatch:
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(b"k", b"v", 0, ())
    built = builder.build()
    return OutgoingBatch(CopiedBatch(built, parse_header(built)), first, last, last + 5)


@pytest.mark.parametrize(
    ("sent", "appended", "runs"),
    [
        pytest.param((10, 13, 4), [(70, 4)], [(10, 70, 4)], id="as it is"),
        pytest.param((10, 13, 4), [(70, 3), (90, 1)], [(10, 70, 3), (13, 90, 1)], id="in parts"),
        pytest.param((10, 13, 4), [(-1, 3), (90, 1)], [(13, 90, 1)], id="a part of which the target did not tell"),
        pytest.param((10, 19, 4), [(70, 4)], [(10, 70, 1), (19, 73, 1)], id="gaps"),
        pytest.param((10, 19, 4), [(70, 1), (90, 3)], [(10, 70, 1), (19, 92, 1)], id="gaps, in parts"),
        pytest.param((10, 19, 4), [(70, 1), (-1, 3)], [(10, 70, 1)], id="gaps, and the end not told"),
        pytest.param((10, 19, 4), [(-1, 4)], [], id="gaps, nothing told"),
        pytest.param((10, 10, 1), [(70, 1)], [(10, 70, 1)], id="one record"),
    ],
)
def test_runs(sent: tuple[int, int, int], appended: list[tuple[int, int]], runs: list[tuple[int, int, int]]) -> None:
    assert list(copied_runs(TP, batch(*sent), appended)) == [Copied(TP, *run) for run in runs]
