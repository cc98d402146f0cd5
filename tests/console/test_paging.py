"""Pages of a list: every item that matches is on exactly one page, in the order that was asked for."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raylog.console.fields import Fields
from raylog.console.paging import Paging

NAMES = st.lists(st.text("abAB.-", min_size=1, max_size=6), unique=True, max_size=40)


def paging(**given: Any) -> Paging:
    return Paging.of(Fields(given), ("name", "length"))


@given(NAMES, st.integers(1, 9), st.booleans(), st.sampled_from(["name", "length"]), st.text("ab ", max_size=3))
def test_the_pages_together_are_the_list(
    names: list[str], limit: int, descending: bool, order: str, words: str
) -> None:
    found: list[str] = []
    while True:
        asked = paging(limit=limit, start=len(found), descending=descending, order=order, filter=words)
        page = asked.page(names, str, {"length": len})
        found += page.items
        if len(found) >= page.total:
            break
    wanted = sorted(name for name in names if all(word in name.lower() for word in words.split()))
    if order == "length":
        wanted.sort(key=len, reverse=descending)
    elif descending:
        wanted.reverse()
    assert found == wanted


def test_a_page_behind_the_end_is_the_last_one() -> None:
    page = paging(start=900, limit=4).page([f"topic-{number}" for number in range(10)], str, {})
    assert (page.items, page.start, page.total) == (["topic-8", "topic-9"], 8, 10)


def test_every_word_of_the_filter_must_match() -> None:
    names = ["orders.eu", "orders.us", "Payments.EU"]
    assert paging(filter="eu").page(names, str, {}).items == ["Payments.EU", "orders.eu"]
    assert paging(filter=" EU  ord ").page(names, str, {}).items == ["orders.eu"]
    assert paging(filter="nothing").page(names, str, {}).shown(str) == {"items": [], "total": 0, "start": 0}
