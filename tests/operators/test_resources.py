"""What the soak reports as growth, and that its plot is a well-formed image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.operators.resources import KINDS, Sample, Sampler, growth, load, svg

SECONDS = range(0, 1000, 10)


def samples(used: Callable[[int], float], kind: str = "rss_anon_mb") -> list[Sample]:
    return [Sample(each, "broker-0", {**dict.fromkeys(KINDS, 10.0), kind: used(each)}) for each in SECONDS]


@pytest.mark.parametrize("kind", KINDS)
def test_growth_is_found(kind: str) -> None:
    (found,) = growth(samples(lambda seconds: 100 + seconds / 2, kind))
    assert found.startswith(f"broker-0: {KINDS[kind].title} grew from ")


@pytest.mark.parametrize(
    "used",
    [lambda _: 100.0, lambda seconds: min(seconds, 200.0), lambda seconds: 500.0 if seconds % 100 == 0 else 100.0],
    ids=["flat", "grows at first", "peaks"],
)
def test_a_beginning_and_peaks_are_no_growth(used: Callable[[int], float]) -> None:
    assert growth(samples(used)) == []


def test_a_node_that_is_gone_is_reported() -> None:
    gone = [Sample(each.seconds, "broker-1", each.values) for each in samples(lambda _: 1.0) if each.seconds < 600]
    assert growth([*samples(lambda _: 1.0), *gone]) == [
        "broker-1: there are no samples of the second or the last quarter"
    ]


def test_the_plot_has_a_line_for_each_node_and_resource(tmp_path: Path) -> None:
    both = [Sample(each.seconds, node, each.values) for each in samples(float) for node in ("broker-0", "broker-1")]
    image = ElementTree.fromstring(svg(both))
    assert len(image.findall("{http://www.w3.org/2000/svg}polyline")) == 2 * len(KINDS)


def test_an_empty_run_has_a_header_only(tmp_path: Path) -> None:
    Sampler(tmp_path / "csv").sample([])
    assert load(tmp_path / "csv") == []
