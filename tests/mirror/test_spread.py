"""A spread is that of the last while, whatever was seen before, and takes little memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.mirror.spread import BUCKETS, Spread, SpreadWindow

WINDOW_MS = 3_000


def test_nothing_was_seen_and_nothing_lately() -> None:
    window = SpreadWindow(WINDOW_MS)
    assert window.read(0) is None
    window.add(7, 1, 0)
    window.add(5, 3, 10)
    assert window.read(20) == Spread(5, 5, 7, 5.5)
    assert window.read(1_000_000) == Spread(5, 5, 5, 5)


@given(st.lists(st.tuples(st.integers(0, 1 << 62), st.integers(1, 1_000), st.integers(0, 500)), min_size=1))
def test_a_spread_is_that_of_all_values_in_the_window(values: list[tuple[int, int, int]]) -> None:
    window, now_ms = SpreadWindow(WINDOW_MS), 0
    seen: list[tuple[int, int, int]] = []
    for value, count, pause_ms in values:
        now_ms += pause_ms
        window.add(value, count, now_ms)
        seen.append((now_ms, value, count))
    assert len(window._buckets) <= BUCKETS + 1
    spread = window.read(now_ms)
    assert spread is not None
    surely = [each for each in seen if each[0] > now_ms - WINDOW_MS + WINDOW_MS // BUCKETS]
    perhaps = [each for each in seen if each[0] > now_ms - WINDOW_MS - WINDOW_MS // BUCKETS]
    assert spread.last == values[-1][0]
    assert min(each[1] for each in perhaps) <= spread.least <= min(each[1] for each in surely)
    assert max(each[1] for each in surely) <= spread.greatest <= max(each[1] for each in perhaps)
    assert spread.least <= spread.mean <= spread.greatest or spread.mean == pytest.approx(spread.least)
