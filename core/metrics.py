"""Metrics as data: a table declares each one with its name, its labels and how it is read at a scrape.

A table belongs to one kind of object (a node, a broker, a controller). Code on hot paths only adds to plain integers;
everything else is read from the state when Prometheus asks. `exposition` writes the text format in short pieces, so
that its server can do other work in between, however many series there are.

The text format is written here and not by prometheus-client, which makes the whole answer in one call: 0.2 s for 40,000
series. Its parser checks the format in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil, isinf, isnan
from typing import Any, Final, Generic, NamedTuple, TypeVar

Source = TypeVar("Source", contravariant=True)
PIECE_STEPS: Final = 200
"""Series, or steps without one, between two pieces of an exposition: about half a millisecond."""
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those of Kafka's histograms."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Kind(Enum):
    """The types of the text format that are used here."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Sample(NamedTuple):
    """The value of one series; `labels` in the order of the metric's label names."""

    labels: tuple[str, ...]
    value: float


STEP: Final = None
"""In place of a sample: the read has done some work, and others may be served."""
Read = Callable[[Source], Iterable[Sample | None]]


@dataclass(frozen=True, slots=True)
class Metric(Generic[Source]):
    """One metric, and how its series are read from an object that has it."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str
    """One sentence: what it counts or shows, and the unit."""
    read: Read[Source]


AnyMetrics = Sequence[Metric[Any]]


def gauge(name: str, doc: str, value: Callable[[Source], float]) -> Metric[Source]:
    """A gauge without labels."""
    return Metric(name, Kind.GAUGE, (), doc, lambda source: (Sample((), value(source)),))


def counter(name: str, doc: str, value: Callable[[Source], float]) -> Metric[Source]:
    """A counter without labels."""
    return Metric(name, Kind.COUNTER, (), doc, lambda source: (Sample((), value(source)),))


def exposition(metrics: Iterable[Metric[Source]], source: Source) -> Iterator[str]:
    """The metrics in Prometheus' text format, in pieces of about PIECE_STEPS series; a piece may be empty.

    A metric without series is left out. Source: Prometheus, text-based format 0.0.4.
    """
    lines: list[str] = []
    steps = 0
    for metric in metrics:
        is_new = True
        for sample in metric.read(source):
            steps += 1
            if sample is not None:
                if is_new:
                    lines += (f"# HELP {metric.name} {_help(metric.doc)}", f"# TYPE {metric.name} {metric.kind.value}")
                    is_new = False
                lines.append(f"{metric.name}{_labels(metric.labels, sample.labels)} {_number(sample.value)}")
            if steps >= PIECE_STEPS:
                yield _joined(lines)
                lines, steps = [], 0
    yield _joined(lines)


def quantiles(counts: Mapping[float, int]) -> list[tuple[float, float]]:
    """(quantile, value) for each of QUANTILES, of values with the number of times that each occurred."""
    total = sum(counts.values())
    found: list[tuple[float, float]] = []
    seen, values = 0, iter(sorted(counts.items()))
    value = 0.0
    for quantile in QUANTILES if total else ():
        rank = max(1, ceil(quantile * total))
        while seen < rank:
            value, count = next(values)
            seen += count
        found.append((quantile, value))
    return found


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n" if lines else ""


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def escaped(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


def _help(doc: str) -> str:
    return doc.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if isinstance(value, float):
        if isnan(value):
            return "NaN"
        if isinf(value):
            return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if isinstance(value, bool) else repr(value)
