"""Metrics are written in Prometheus' text format, in short pieces, whatever their labels and values are."""

from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raylog.core.metrics import (
    PIECE_STEPS,
    QUANTILES,
    STEP,
    Kind,
    Metric,
    Sample,
    counter,
    exposition,
    gauge,
    quantiles,
)


def of(*samples: Sample | None, labels: tuple[str, ...] = ()) -> Metric[None]:
    return Metric("m", Kind.GAUGE, labels, "What it shows.", lambda _: samples)


class TestExposition:
    def test_each_metric_has_its_help_and_its_type_once(self) -> None:
        metrics = [
            gauge("g", "A gauge.", lambda source: source * 2),
            counter("c_total", "A counter.", lambda source: source),
        ]
        assert "".join(exposition(metrics, 4)) == (
            "# HELP g A gauge.\n# TYPE g gauge\ng 8\n# HELP c_total A counter.\n# TYPE c_total counter\nc_total 4\n"
        )

    def test_a_metric_without_series_is_left_out(self) -> None:
        assert "".join(exposition([of(), of(STEP)], None)) == ""

    @pytest.mark.parametrize("label", ["plain", 'quo"te', "back\\slash", "new\nline", "ü☃", "", "a" * 10_000, "} 1"])
    def test_a_label_may_be_any_text(self, label: str) -> None:
        text = "".join(exposition([of(Sample((label,), 1), labels=("topic",))], None))
        [family] = text_string_to_metric_families(text)
        assert [(sample.labels, sample.value) for sample in family.samples] == [({"topic": label}, 1)]

    @pytest.mark.parametrize("value", [0, -1, 1 << 63, 0.25, 1e300, math.inf, -math.inf, True])
    def test_a_value_is_read_as_it_was(self, value: float) -> None:
        [family] = text_string_to_metric_families("".join(exposition([of(Sample((), value))], None)))
        assert family.samples[0].value == value

    def test_no_number_is_written_as_such(self) -> None:
        assert "m NaN\n" in "".join(exposition([of(Sample((), math.nan))], None))

    def test_many_series_come_in_short_pieces(self) -> None:
        metric = of(*(Sample((str(i),), i) for i in range(10_000)), labels=("i",))
        pieces = list(exposition([metric], None))
        assert all(piece.count("\n") <= PIECE_STEPS + 2 for piece in pieces)
        [family] = text_string_to_metric_families("".join(pieces))
        assert len(family.samples) == 10_000

    def test_work_without_a_series_makes_pieces_too(self) -> None:
        pieces = list(exposition([of(*[STEP] * (PIECE_STEPS * 3))], None))
        assert pieces == [""] * 4


class TestQuantiles:
    def test_of_no_values_there_are_none(self) -> None:
        assert quantiles({}) == []

    def test_of_one_value_all_are_that_value(self) -> None:
        assert quantiles({7.0: 1}) == [(quantile, 7.0) for quantile in QUANTILES]

    def test_each_is_the_least_value_with_so_many_below_or_at_it(self) -> None:
        counts = {float(value): 1 for value in range(1, 1001)}
        assert dict(quantiles(counts)) == {0.5: 500, 0.75: 750, 0.95: 950, 0.98: 980, 0.99: 990, 0.999: 999}

    def test_a_value_counts_as_often_as_it_occurred(self) -> None:
        assert dict(quantiles({1.0: 990, 500.0: 10}))[0.98] == 1.0
        assert dict(quantiles({1.0: 989, 500.0: 11}))[0.99] == 500.0
