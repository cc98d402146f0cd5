"""The metrics of several nodes become one exposition, in which every series is there once and says its node."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from raylog.core.metrics import Kind, Metric, Sample, exposition
from raylog.core.metrics_merge import merged

LABELS = st.lists(st.sampled_from(["topic", "node", "exported"]), max_size=3, unique=True)
VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ['x,node="', '"', "\\", "} 5", "\n", '{node="']
)
METRICS = st.dictionaries(
    st.sampled_from(["a_total", "b", "c"]),
    LABELS.flatmap(
        lambda names: st.tuples(
            st.just(tuple(names)),
            st.dictionaries(st.tuples(*[VALUES for _ in names]), st.integers(-(2**53), 2**53), min_size=1, max_size=4),
        )
    ),
)
Series = dict[tuple[str, ...], int]
Metrics = dict[str, tuple[tuple[str, ...], Series]]


def text_of(metrics: Metrics) -> str:
    return "".join("".join(exposition([metric(name, labels)], series)) for name, (labels, series) in metrics.items())


def metric(name: str, labels: tuple[str, ...]) -> Metric[Series]:
    return Metric(name, Kind.GAUGE, labels, f"About {name}.", lambda series: [Sample(*each) for each in series.items()])


@given(st.dictionaries(st.sampled_from(["broker-0", "broker-1", 'odd"\\\n']), METRICS, max_size=3))
def test_every_series_is_there_once_with_its_node(nodes: dict[str, Metrics]) -> None:
    text = "".join(merged({node: text_of(metrics) for node, metrics in nodes.items()}))
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    shown = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }
    expected = {
        (
            name,
            frozenset(
                [
                    ("node", node),
                    *(
                        ("exported_node" if label == "node" else label, value)
                        for label, value in zip(labels, values, strict=True)
                    ),
                ]
            ),
        ): float(number)
        for node, metrics in nodes.items()
        for name, (labels, series) in metrics.items()
        for values, number in series.items()
    }
    assert shown == expected


def test_the_series_of_a_metric_stand_together() -> None:
    one = '# HELP a A.\n# TYPE a gauge\na 1\na{x="1"} 2\n# HELP b B.\n# TYPE b counter\nb 3\n'
    two = "# HELP b B.\n# TYPE b counter\nb 4\n# HELP a Other.\n# TYPE a gauge\na 5"
    assert "".join(merged({"n-0": one, "n-1": two})) == (
        '# HELP a A.\n# TYPE a gauge\na{node="n-0"} 1\na{node="n-0",x="1"} 2\na{node="n-1"} 5\n'
        '# HELP b B.\n# TYPE b counter\nb{node="n-0"} 3\nb{node="n-1"} 4\n'
    )


def test_what_is_no_series_is_left_out() -> None:
    text = '# HELP a A.\nx{ 1\n\n!\na\na{b="1"}\n# comment\na 1 1700000000\n'
    assert "".join(merged({"n": text})) == '# HELP a A.\na{node="n"} 1 1700000000\n'
    assert "".join(merged({"n": "no head 1\n"})) == ""


def test_it_is_written_in_pieces() -> None:
    text = "# HELP a A.\n" + "".join(f'a{{x="{number}"}} {number}\n' for number in range(1_000))
    pieces = list(merged({"n-0": text, "n-1": text}))
    assert max(piece.count("\n") for piece in pieces) <= 201
    assert sum(piece.count("\n") for piece in pieces) == 2_001
