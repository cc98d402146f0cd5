"""A page of a long list: what matches a filter, in an order, a slice of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar

from raylog.console.fields import Fields

T = TypeVar("T")
PAGE_MAX: Final = 500
PAGE_DEFAULT: Final = 50


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """`total` counts all that match; `items` are those from `start` on."""

    items: list[T]
    total: int
    start: int

    def shown(self, item: Callable[[T], Any]) -> dict[str, Any]:
        """As an answer."""
        return {"items": [item(each) for each in self.items], "total": self.total, "start": self.start}


@dataclass(frozen=True, slots=True)
class Paging:
    """What the page asks for. `words` must all be in the name, in any case of letters."""

    words: tuple[str, ...] = ()
    order: str = ""
    descending: bool = False
    start: int = 0
    limit: int = PAGE_DEFAULT

    @classmethod
    def of(cls, fields: Fields, orders: Iterable[str]) -> Self:
        """`orders` are those that the list has, the default first. Raises KafkaError."""
        known = {name: name for name in orders}
        return cls(
            tuple(fields.text("filter", "", characters_max=249).lower().split()),
            fields.choice("order", known, next(iter(known), None)),
            fields.flag("descending"),
            fields.number("start", 0),
            fields.number("limit", PAGE_DEFAULT, least=1, most=PAGE_MAX),
        )

    def page(self, items: Iterable[T], name: Callable[[T], str], orders: Mapping[str, Callable[[T], Any]]) -> Page[T]:
        """Items of equal rank are in the order of their names."""
        found = [each for each in items if self._matches(name(each))]
        found.sort(key=name)
        if self.order in orders:
            found.sort(key=orders[self.order], reverse=self.descending)
        elif self.descending:
            found.reverse()
        start = min(self.start, max(0, (len(found) - 1) // self.limit * self.limit))
        return Page(found[start : start + self.limit], len(found), start)

    def _matches(self, name: str) -> bool:
        if not self.words:
            return True
        lower = name.lower()
        return all(word in lower for word in self.words)
