"""Prometheus' text format, as nodes write it: its lines, read again. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from raylog.core.metrics import Kind

SERIES: Final = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})?[ \t]+(?P<value>[^{}]+)")
LABEL: Final = re.compile(r'(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)="(?P<value>(?:[^"\\]|\\.)*)"')
HEAD: Final = re.compile(r"# (?P<what>HELP|TYPE) (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*) (?P<text>.*)")
_ESCAPED: Final = re.compile(r"\\(.)")


@dataclass(slots=True)
class Described:
    """What the lines before the series of a metric say of it."""

    name: str
    kind: Kind = Kind.GAUGE
    doc: str = ""


class Series(NamedTuple):
    """One value. Series of the same metric have the same `metric`."""

    metric: Described
    labels: tuple[tuple[str, str], ...]
    value: float


def series_of(text: str) -> Iterator[Series]:
    """The series of an exposition, in their order. Lines that are no series are left out."""
    metric = Described("")
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin)
        end = len(text) if end < 0 else end
        line, begin = text[begin:end], end + 1
        head = HEAD.fullmatch(line)
        if head is not None:
            metric = metric if metric.name == head["name"] else Described(head["name"])
            if head["what"] == "HELP":
                metric.doc = _unescaped(head["text"])
            elif head["text"] == Kind.COUNTER.value:
                metric.kind = Kind.COUNTER
            continue
        found = SERIES.fullmatch(line)
        if found is None:
            continue
        if found["name"] != metric.name:
            metric = Described(found["name"])
        try:
            value = float(found["value"].split()[0])
        except ValueError:
            continue
        labels = LABEL.finditer(found["labels"] or "")
        yield Series(metric, tuple((each["name"], _unescaped(each["value"])) for each in labels), value)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda each: "\n" if each[1] == "n" else each[1], text)
